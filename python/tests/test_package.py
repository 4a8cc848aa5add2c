"""The package as it is installed: version, extras, types, what importing it costs; as a wheel and an sdist (soak)."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import slablab as sl
from slablab import _core

ROOT = Path(__file__).resolve().parents[2]


def test_there_is_one_version():
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert cargo == sl.__version__ == _core.version() == importlib.metadata.version("slablab")
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]


def test_numpy_and_pandas_are_all_it_needs():
    told = importlib.metadata.metadata("slablab")
    assert {"plot", "notebook", "dask", "xarray", "all"} <= set(told.get_all("Provides-Extra"))
    needs = [r for r in importlib.metadata.requires("slablab") or [] if "extra ==" not in r]
    assert sorted(re.match(r"\w+", r)[0] for r in needs) == ["numpy", "pandas"]  # type: ignore[index]
    assert (Path(sl.__file__).parent / "py.typed").exists()
    assert Path(_core.__file__).name.endswith(".abi3.so")


def test_importing_costs_at_most_40_ms(tmp_path: Path):
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def cost(what: str) -> float:
        """CPU time: the host may be busy with other work."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", what], env=env, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    cost("import slablab")
    bare, with_it = (min(cost(what) for _ in range(25)) for what in ("pass", "import slablab"))
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert with_it - bare <= 0.040 * busy


def shell(*words: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


USE = textwrap.dedent("""
    import importlib.util, slablab as sl
    assert importlib.util.find_spec("matplotlib") is None
    grid = sl.sweep(allocator=["slab", "slub"], workload=sl.Tbench(seconds=0.002, warmup=0.0), repeats=2, store="a.db")
    print(grid.summary().shape, grid.table("slab"))
    try:
        sl.plot.throughput(grid)
    except sl.MissingExtra as e:
        print(e)
""")


@pytest.mark.soak
def test_the_sdist_builds_a_wheel_that_works_in_an_empty_environment(tmp_path: Path):
    maturin = shutil.which("maturin", path=str(Path(sys.executable).parent)) or pytest.skip("no maturin here")
    shell(maturin, "sdist", "--out", tmp_path)
    sdist = next(tmp_path.glob("slablab-*.tar.gz"))
    shell(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, sdist)
    wheel = next(tmp_path.glob("slablab-*.whl"))
    assert "cp311-abi3" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        assert "slablab/py.typed" in names
        assert any(n.startswith("slablab/data/") for n in names)
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    shell(python, "-m", "pip", "install", "--quiet", wheel)
    said = shell(python, "-c", USE, cwd=tmp_path)
    assert "(4, " in said
    assert "a figure needs matplotlib" in said
    assert "slub" in shell(
        tmp_path / "empty" / "bin" / "slablab", "compare", "a.db", "--baseline", "slab", cwd=tmp_path
    )
    figure = ["reproduce", "piggin-2007-tbench", "--quick", "--out", "figure"]
    assert "publ. slab" in shell(tmp_path / "empty" / "bin" / "slablab", *figure, cwd=tmp_path)
    assert len(list((tmp_path / "figure").iterdir())) == 3


def free_threaded() -> str | None:
    """A free-threaded interpreter of the host, where there is one."""
    return next((found for name in ("python3.14t", "python3.13t") if (found := shutil.which(name))), None)


@pytest.mark.soak
@pytest.mark.skipif(free_threaded() is None, reason="no free-threaded interpreter here")
def test_a_free_threaded_interpreter_keeps_its_lock_off(tmp_path: Path):
    shell(free_threaded(), "-m", "venv", tmp_path / "free")
    python = tmp_path / "free" / "bin" / "python"
    shell(python, "-m", "pip", "install", "--quiet", ROOT)
    code = "import sys, slablab as sl; sl.run(allocator='null', workload=sl.Script()); print(sys._is_gil_enabled())"
    assert shell(python, "-c", code, cwd=tmp_path) == "False\n"
