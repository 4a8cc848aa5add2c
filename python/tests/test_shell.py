"""The shell: stores and comparisons, the Python it shows, words for TAB, what happens when nobody reads."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import slablab as sl
from slablab.cli import completion, main, parser

TINY = ["--set", "workload.warmup=0", "--seconds", "0.005"]
SWEEP = ["sweep", "--allocator", "slab,slub", *TINY, "--over", "workload.clients=1,2", "--repeats", "2"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shell") / "runs.db"
    assert main([*SWEEP, "--store", str(path)]) == 0
    return path


def said(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(w) for w in words]) == status
    return capsys.readouterr().out


def test_a_sweep_goes_on_from_its_store(store: Path, capsys, monkeypatch):
    monkeypatch.setattr("slablab._core.run_many", lambda documents, *_: documents and pytest.fail("ran again"))
    table = said(capsys, *SWEEP, "--store", store)
    assert len(table.splitlines()) == 9


def test_a_dry_run_counts_and_runs_nothing(store: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr("slablab._core.run_many", lambda *_: pytest.fail("ran"))
    words = [*SWEEP[:-4], "--over", "workload.clients=1,1,2,3", "--over", "allocator.hiwater=1,2", "--dry-run"]
    words += ["--allocator", "slab,slub,slqb", "--repeats", "2"]
    text = said(capsys, *words, "--store", store)
    for part in (
        "combinations    16, all",
        "cells           24",
        "8 dropped",
        "allocator.hiwater: slab@2.6.24",
        "8, so 16",
        "about",
    ):
        assert part in text
    counts = json.loads(said(capsys, *words, "--json", "--store", tmp_path / "new.db"))
    assert counts["to_run"] == 24
    assert counts["seconds"] is None
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("sample", ["7", "latin:7"])
def test_a_sample_bounds_a_grid_of_any_size(sample: str, capsys):
    words = ["sweep", "--allocator", "null,slob", "--over", "workload.clients=1..1000", "--dry-run", "--json"]
    words += ["--over", "workload.user_footprint_lines=1..1000", "--over", "machine.cpus=1,2,4,6,8"]
    first = json.loads(said(capsys, *words, "--sample", sample))
    assert first["combinations"] == 10_000_000
    assert first["cells"] == 7
    assert main([*words]) == 2
    said_ = capsys.readouterr().err
    assert "10000000 cells" in said_
    assert "sample=100000" in said_
    for wrong in ("x", "square:3", "-1", "0", "latin:"):
        assert main([*words, f"--sample={wrong}"]) == 2


def test_samples_repeat_differ_by_seed_and_meet_every_value():
    grid = {"allocator": ["null", "slob"], "workload": "tbench", "over": {"workload.clients": range(1, 41)}}

    def cells(method: str, seed: int) -> list[str]:
        return [c.document for c in sl.plan(**grid, sample=sl.Sample(20, method, seed)).cells]  # type: ignore[arg-type]

    for method in ("random", "latin"):
        assert cells(method, 1) == cells(method, 1)
        assert cells(method, 1) != cells(method, 2)
    clients = sorted(json.loads(d)["workload"]["clients"] for d in cells("latin", 1))
    assert [(c - 1) // 2 for c in clients] == list(range(20))
    names = [json.loads(d)["allocator"]["name"] for d in cells("latin", 1)]
    assert names.count("null") == 10


def test_store_ls_show_export_check_and_gc(store: Path, tmp_path: Path, capsys):
    assert "slub@2.6.24" in said(capsys, "store", "ls", store)
    listed = json.loads(said(capsys, "store", "ls", store, "--json"))
    assert sum(row["runs"] for row in listed) == 8
    key = json.loads(said(capsys, "store", "ls", store, "--runs", "--json"))[0]["key"]
    assert "throughput" in said(capsys, "store", "show", store, key[:10])
    assert json.loads(said(capsys, "store", "show", store, key, "--json"))["result"]["config"]
    frame = sl.Store(store, write=False).sweep().summary()
    for name in ("runs.csv", "runs.parquet", "runs.arrow"):
        out = tmp_path / name
        assert "8 rows" in said(capsys, "store", "export", store, out)
        read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "arrow": pd.read_feather}[name.rpartition(".")[2]](out)
        assert read["throughput"].tolist() == frame["throughput"].tolist()
    stats = tmp_path / "stats.parquet"
    assert json.loads(said(capsys, "store", "export", store, stats, "--frame", "stats", "--json"))["rows"] > 100
    assert said(capsys, "store", "check", store) == "whole: 8 runs\n"
    assert said(capsys, "store", "gc", store, "--dry-run") == "0 runs would be deleted\n"
    assert json.loads(said(capsys, "store", "gc", store, "--json")) == {"deleted": 0, "found": 0}
    copy = tmp_path / "copy.db"
    shutil.copy(store, copy)
    assert said(capsys, "store", "gc", copy, "--version", sl.__version__) == "8 runs deleted\n"
    assert said(capsys, "store", "ls", copy) == "no runs\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "copy.db",
        "runs.arrow",
        "runs.csv",
        "runs.parquet",
        "stats.parquet",
    ]


def test_compare_prints_the_mail_table_and_its_numbers(store: Path, tmp_path: Path, capsys):
    text = said(capsys, "compare", store, "--baseline", "slab@2.6.24")
    assert all(len(line) < 80 for line in text.splitlines())
    assert text == sl.Store(store, write=False).sweep().table("slab@2.6.24") + "\n"
    rows = json.loads(said(capsys, "compare", store, "--baseline", "clients=1", "--json"))
    assert [row["clients"] for row in rows] == [2, 2]
    assert all(1.5 < row["ratio"] < 2.5 for row in rows)
    assert said(capsys, "compare", store, store, "--regressions") == "no regressions\n"
    assert "=" in said(capsys, "compare", store, store, "--csv", tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv")) == 4
    worse = tmp_path / "worse.db"
    sl.sweep(allocator=["slab", "slub"], workload=sl.Tbench(seconds=0.005, warmup=0.0), repeats=2, store=worse,
             machine=sl.Sim(cpus=1), over={"workload.clients": [1, 2]})  # fmt: skip
    for wrong in (
        ["compare", store],
        ["compare", store, store, store],
        ["compare", store, store, "--baseline", "slab"],
        ["compare", store, "--baseline", "slab", "--regressions"],
        ["compare", store, worse],
        ["compare", store, "--baseline", "slqb"],
        ["compare", tmp_path / "none.db", "--baseline", "slab"],
    ):
        said(capsys, *wrong, status=2)


@pytest.mark.parametrize(
    "words",
    [
        ["store", "ls", "DIR"],
        ["store", "ls", "none.db"],
        ["store", "show", "STORE", "zz"],
        ["store", "export", "STORE", "a.xlsx"],
        ["store", "export", "STORE", "none/a.csv"],
        ["store", "check", "NOTEBOOK"],
        ["store", "gc", "none.db"],
        ["completion"],
        ["completion", "powershell"],
        [*SWEEP, "--store", "DIR"],
        [*SWEEP, "--store", "NOTEBOOK"],
        ["run", "--allocator", "slub@"],
        ["sweep", "--allocator", "slub", "--over", "allocator.era=2.6.24,9.9"],
    ],
)
def test_a_bad_request_is_one_line_and_status_2(words: list[str], store: Path, tmp_path: Path, capsys, monkeypatch):
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    monkeypatch.chdir(tmp_path)
    names = {"STORE": str(store), "DIR": str(tmp_path), "NOTEBOOK": str(notebook)}
    capsys.readouterr()
    assert main([names.get(w, w) for w in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("# ")]
    assert len(lines) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.ipynb"]


def test_eras_can_be_swept(capsys):
    words = ["sweep", "--allocator", "slub", *TINY, "--over", "allocator.era=2.6.24-rc2,2.6.24", "--json"]
    runs = json.loads(said(capsys, *words))
    assert [r["result"]["config"]["allocator"]["era"] for r in runs] == ["2.6.24-rc2", "2.6.24"]


CODE = [
    ["run", "--allocator", "slub@2.6.24-rc2", *TINY, "--set", "machine.cpus=2", "--csv", "one.csv"],
    [*SWEEP, "--csv", "grid.csv", "--store", "new.db", "--sample", "2"],
    [*SWEEP, "--dry-run"],
    [*SWEEP, "--over", "machine.cpus=1,2", "--png", "grid.png", "--csv", "grid.csv"],
    ["compare", "STORE", "--baseline", "slab@2.6.24", "--csv", "found.csv"],
    ["compare", "STORE", "--baseline", "clients=1"],
    ["compare", "STORE", "STORE", "--regressions", "--csv", "found.csv"],
    ["compare", "STORE", "STORE"],
    ["store", "ls", "STORE"],
    ["store", "ls", "STORE", "--runs"],
    ["store", "show", "STORE", "KEY", "--json"],
    ["store", "gc", "STORE"],
    ["store", "check", "STORE"],
    ["store", "export", "STORE", "runs.parquet"],
    ["catalog"],
    ["completion", "bash"],
    ["completion", "--words", "slablab ru"],
]


@pytest.mark.parametrize("words", CODE, ids=" ".join)
def test_the_code_that_is_shown_does_the_same(words: list[str], store: Path, tmp_path: Path, capsys, monkeypatch):
    with sl.Store(store, write=False) as kept:
        key = kept.runs()["key"][0]
    words = [{"STORE": str(store), "KEY": key[:20]}.get(w, w) for w in words]
    monkeypatch.chdir(tmp_path)
    code = said(capsys, *words, "--show-code")
    assert list(tmp_path.iterdir()) == []
    exec(compile(code, "shown", "exec"), {})
    shown = capsys.readouterr().out
    assert shown
    for path in tmp_path.glob("*.csv"):
        path.rename(path.with_suffix(".code"))
    (tmp_path / "new.db").unlink(missing_ok=True)
    done = said(capsys, *words)
    for path in tmp_path.glob("*.code"):
        ours, theirs = pd.read_csv(path), pd.read_csv(path.with_suffix(".csv"))
        pd.testing.assert_frame_equal(ours, theirs)
    if (words[0] in ("compare", "completion") and "--regressions" not in words) or "check" in words:
        assert shown.split() == done.split() or "runs" in done
    if "--json" in words:
        assert json.loads(shown) == json.loads(done)


def test_every_command_has_an_example_and_the_common_options(capsys):
    def leaves(at, path=()):
        inner = completion._commands(at)
        if not inner:
            yield path, at
        for name, below in inner.items():
            yield from leaves(below, (*path, name))

    found = dict(leaves(parser()))
    assert {("run",), ("sweep",), ("compare",), ("store", "ls"), ("catalog",), ("reproduce",)} <= set(found)
    for path, command in found.items():
        text = command.format_help()
        assert f"example:\n  {'eval' if path == ('completion',) else 'slablab ' + ' '.join(path)}" in text
        assert {"--json", "--show-code"} <= {o for a in command._actions for o in a.option_strings}


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("slablab ", "sweep"),
        ("slablab sw", "sweep"),
        ("slablab store ", "export"),
        ("slablab run --allo", "--allocator"),
        ("slablab run --allocator sl", "slub@2.6.24"),
        ("slablab sweep --allocator slab@2.6.24,slu", "slab@2.6.24,slub@2.6.24"),
        ("slablab run --allocator=sl", "--allocator=slob@2.6.24"),
        ("slablab sweep --over work", "workload.clients="),
        ("slablab run --set machine.", "machine.cpus="),
        ("slablab run --machine ", "native"),
        ("slablab reproduce ", "piggin-2007-tbench"),
        ("slablab store export a b --frame s", "stats"),
        ("slablab completion ", "fish"),
    ],
)
def test_tab_offers(line: str, word: str):
    found = completion.candidates(line)
    assert word in found
    assert all(f.startswith(line.rpartition(" ")[2]) for f in found)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_behind_its_word_breaks():
    folder = Path(sys.executable).parent
    script = 'eval "$(slablab completion bash)"\n'
    script += (
        'COMP_LINE="slablab run --allocator slub@2.6.24-"; COMP_POINT=${#COMP_LINE}; _slablab; echo "${COMPREPLY[@]}"'
    )
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "2.6.24-rc2\n", done.stderr


SLABLAB = [sys.executable, "-m", "slablab"]


@pytest.mark.parametrize(
    "words", [["catalog"], ["catalog", "--json"], ["--help"], ["run", "--allocator", "null", *TINY]]
)
def test_nobody_reading_is_no_traceback(words: list[str]):
    pipe = " ".join([*SLABLAB, *words])
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", f"{pipe} | head -c 1"], capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run([*SLABLAB, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("# ")]
    assert lines == ["slablab: error: output = stdout: a place that takes what is written (No space left on device)"]
    done = subprocess.run(["bash", "-c", f"{pipe} >&-"], capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)


def test_colour_only_on_a_terminal(monkeypatch):
    def shown(env: dict[str, str]) -> bytes:
        main_end, end = pty.openpty()
        command = [*SLABLAB, "run", "--allocator", "slubb"]
        subprocess.run(command, stdout=end, stderr=end, env=os.environ | env, check=False)
        os.close(end)
        text = os.read(main_end, 10_000)
        os.close(main_end)
        return text

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[31merror:\x1b[0m" in shown({"TERM": "xterm"})
    assert b"\x1b" not in shown({"TERM": "xterm", "NO_COLOR": "1"})
    done = subprocess.run([*SLABLAB, "run", "--allocator", "slubb"], capture_output=True, check=False)
    assert b"\x1b" not in done.stderr


def test_ctrl_c_ends_a_sweep_with_outputs_within_200_ms(tmp_path: Path):
    took = []
    for attempt in range(3):
        out = tmp_path / f"{attempt}.csv"
        words = ["--csv", str(out), "--png", str(tmp_path / "grid.png"), "--store", str(tmp_path / f"{attempt}.db")]
        command = [*SLABLAB, "sweep", "--allocator", "null", "--set", "workload.warmup=0", *words]
        command += ["--over", "workload.seconds=0.01,0.02,300,300,300,300"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as shell:
            until = time.monotonic() + 20
            while time.monotonic() < until and not (tmp_path / f"{attempt}.db").exists():
                time.sleep(0.02)
            time.sleep(1)
            sent = time.monotonic()
            shell.send_signal(signal.SIGINT)
            _, text = shell.communicate(timeout=30)
            took.append(time.monotonic() - sent)
        assert shell.returncode == 1
        finished = int(re.search(r"stopped after (\d) runs, kept in", text)[1])  # type: ignore[index]
        assert len(pd.read_csv(out)) == finished if finished else True
        assert len(sl.Store(tmp_path / f"{attempt}.db")) == finished
    # A host that is busy with other work lets the last steps wait as long as any.
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert min(took) < 0.2 * busy, took
