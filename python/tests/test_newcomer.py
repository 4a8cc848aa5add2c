"""docs/newcomer.md: every block runs, in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import slablab as sl

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "newcomer.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
# Building a wheel takes minutes: here pip does all but that, and the soak test of the wheel does the rest.
PIP = f"{sys.executable} -m pip install --quiet --dry-run --no-deps --no-build-isolation"


def run(language: str, block: str, folder: Path) -> str:
    assert language in ("sh", "python"), "a block that nobody runs"
    words = ["bash", "-euc", block] if language == "sh" else [sys.executable, "-c", block]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "MPLBACKEND": "Agg"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_every_block_runs(tmp_path: Path):
    pytest.importorskip("polars")
    said = []
    for language, block in BLOCKS:
        here = block.replace("pip install", PIP).replace("PATH_TO_CLONE", str(ROOT))
        said.append(run(language, here, tmp_path))
    text = "\n".join(said)
    for part in (
        "144, 3 repeat(s) each",
        "allocator slub",
        "slabinfo - version",
        "95% interval",
        "no regressions",
        "rows",
    ):
        assert part in text
    with sl.Store(tmp_path / "runs.db") as store:
        assert len(store) == 144
    assert len(pd.read_parquet(tmp_path / "runs.parquet")) == 144
    for picture in ("first.png", "runs.png"):
        assert (tmp_path / picture).stat().st_size > 10_000


def test_the_page_has_what_a_newcomer_needs():
    text = PAGE.read_text(encoding="utf-8")
    for word in ("Install", "Ctrl-C", "--store", "compare", "export", "plot", "--dry-run", "executor="):
        assert word in text
    assert len(BLOCKS) >= 12
