"""Stores: what is finished is found again, shared, and never damaged; what is wrong with a file is said clearly."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SHORT

import slablab as sl
from slablab import _core, sqlite, store
from slablab.planning import key_of

GRID = {"allocator": "null", "workload": sl.Tbench(**SHORT), "over": {"workload.clients": [1, 2, 3]}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def results(grid: sl.Sweep) -> list[object]:
    return [json.loads(r.to_json())["result"] for r in grid]


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("ran again")

    def none(documents: list[str], *_: object) -> None:
        assert documents == []

    monkeypatch.setattr(_core, "run", refuse)
    monkeypatch.setattr(_core, "run_many", none)


def test_a_second_sweep_runs_nothing_and_gives_the_same(path: Path, monkeypatch: pytest.MonkeyPatch):
    plain = sl.sweep(**GRID, repeats=2)
    first = sl.sweep(**GRID, repeats=2, store=path)
    never(monkeypatch)
    again = sl.sweep(**GRID, repeats=2, store=str(path))
    assert results(plain) == results(first) == results(again)
    assert plain.summary().equals(again.summary())
    assert first.stats().equals(again.stats())
    assert first.caches().equals(again.caches())


def test_a_larger_sweep_runs_only_what_is_missing(path: Path, monkeypatch: pytest.MonkeyPatch):
    sl.sweep(**GRID, store=path)
    ran: list[str] = []
    run_many = _core.run_many
    monkeypatch.setattr(_core, "run_many", lambda d, *rest: (ran.extend(d), run_many(d, *rest)))
    grid = sl.sweep(**GRID | {"over": {"workload.clients": [4, 3, 2, 1]}}, store=path)
    assert [json.loads(d)["workload"]["clients"] for d in ran] == [4]
    assert grid.summary()["clients"].tolist() == [4, 3, 2, 1]


def test_the_key_is_that_of_configuration_seed_and_version(monkeypatch: pytest.MonkeyPatch):
    def key(**parts: object) -> str:
        made = sl.Experiment(**{"allocator": "slub", "workload": "tbench"} | parts)
        return key_of(json.dumps(made.expand()))

    assert key() == key(allocator="slub@2.6.24", workload=sl.Tbench(clients=8), seed=1)
    others = [key(seed=2), key(allocator="slab"), key(workload=sl.Tbench(clients=9)), key(machine=sl.Sim(cpus=4))]
    own = key()
    monkeypatch.setattr(_core, "version", lambda: "9.9.9")
    assert len({own, *others, key()}) == 6


def test_each_run_is_committed_as_it_ends(path: Path):
    seen = []

    class Watching(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            def watched(*args):
                with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as db:
                    seen.append(db.execute("SELECT count(*) FROM cells").fetchone()[0])
                return fn(*args)

            return super().submit(watched, *args, **kwargs)

    with Watching(1) as pool:
        sl.sweep(**GRID | {"over": {"workload.clients": range(1, 9)}}, store=path, executor=pool)
    # The main thread commits while the worker is in the next run: one behind at most is due.
    assert all(n >= i - 2 for i, n in enumerate(seen))
    assert seen[-1] >= 5


def test_rows_of_another_version_are_kept_apart_and_said(path: Path, monkeypatch: pytest.MonkeyPatch):
    sl.sweep(**GRID, store=path)
    with monkeypatch.context() as other:
        other.setattr(_core, "version", lambda: "0.0.1")
        with pytest.warns(sl.OtherVersionWarning, match="3 runs of"):
            assert len(sl.sweep(**GRID, store=path)) == 3
        assert f"3 runs of version {sl.__version__}" in str(sl.plan(**GRID, store=path))
        with sl.Store(path) as newer:
            assert len(newer) == 3
    with sl.Store(path) as kept:
        assert kept.others() == {"0.0.1": 3}
        assert len(kept.sweep()) == 3
        assert kept.ls()["version"].tolist() == [_core.version(), "0.0.1"]
        assert kept.gc() == 3
        assert kept.others() == {}
        assert len(kept) == 3


def test_processes_that_share_a_store_lose_and_repeat_nothing(path: Path):
    code = textwrap.dedent("""
        import sys, slablab as sl
        grid = sl.sweep(allocator=["null", "slob"], workload=sl.Tbench(seconds=0.01, warmup=0.0),
                        over={"workload.clients": range(1, 16)}, threads=1, store=sys.argv[1])
        print(len(grid))
    """)
    command = [sys.executable, "-c", code, str(path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate(timeout=120)[0] for p in both] == ["30\n", "30\n"]
    with sl.Store(path) as kept:
        assert len(kept) == 30
        kept.check()
    assert not path.with_name("runs.db-wal").exists()


def test_find_takes_the_beginning_of_a_key(path: Path):
    grid = sl.sweep(**GRID, store=path)
    with sl.Store(path, write=False) as kept:
        key = kept.runs()["key"][0]
        assert kept.find(key[:12]).to_json() == kept.find(key).to_json()
        for stem, right in (("", "beginning"), ("xyz", "beginning"), ("%", "beginning")):
            with pytest.raises(sl.ConfigError, match=right):
                kept.find(stem)
        assert results(sl.Sweep([kept.find(k) for k in kept.runs()["key"]])) != []
        assert sorted(r.throughput for r in kept.sweep()) == sorted(r.throughput for r in grid)


def test_a_sweep_from_a_store_knows_its_axes_and_repeats(path: Path):
    sl.sweep(**GRID, repeats=2, store=path)
    with sl.Store(path) as kept:
        grid = kept.sweep()
    assert grid.axes == ("clients",)
    sl.sweep(**GRID | {"allocator": ["slab", "slub"]}, store=path)
    with sl.Store(path) as kept:
        assert kept.sweep().axes == ("allocator", "era", "clients")
    assert len(grid.median()) == 3
    assert sorted(grid.summary()["repeat"]) == [0, 0, 0, 1, 1, 1]


# What may be wrong with a file.


def refusal(path: object) -> str:
    with pytest.raises(sl.StoreError) as raised:
        sl.sweep(**GRID, store=path)
    assert isinstance(raised.value, sl.ConfigError)
    assert raised.value.parameter == "store"
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_folder_a_notebook_and_a_foreign_database_stay_as_they_were(tmp_path: Path):
    assert "folder" in refusal(tmp_path)
    notebook = tmp_path / "tour.ipynb"
    notebook.write_text('{"cells": []}')
    assert "another kind" in refusal(notebook)
    assert notebook.read_text() == '{"cells": []}'
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = foreign.read_bytes()
    assert "something else" in refusal(foreign)
    assert foreign.read_bytes() == before
    assert "does not" in refusal(tmp_path / "no" / "runs.db")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "regular file" in refusal(pipe)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["foreign.db", "pipe", "tour.ipynb"]


@pytest.mark.parametrize("given", [3, 1.5, b"", "", "a\0b", ["runs.db"]])
def test_a_store_that_is_no_file_name_is_refused(given: object):
    with pytest.raises(sl.ConfigError, match="store"):
        sl.sweep(**GRID, store=given)


def test_a_store_open_for_reading_is_refused_before_a_run(path: Path):
    sl.sweep(**GRID, store=path)
    with sl.Store(path, write=False) as kept, pytest.raises(sl.ConfigError, match="for writing"):
        sl.sweep(**GRID, store=kept)


def test_a_store_of_a_newer_version_is_left_alone(path: Path):
    sl.sweep(**GRID, store=path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {store.FORMAT + 1}")
    db.close()
    before = path.read_bytes()
    assert "newer" in refusal(path)
    with pytest.raises(sl.StoreError, match="newer"):
        sl.Store(path, write=False)
    assert path.read_bytes() == before


def test_a_locked_store_says_so_after_a_while(path: Path, monkeypatch: pytest.MonkeyPatch):
    sl.sweep(**GRID, store=path)
    monkeypatch.setattr(sqlite, "PATIENCE", 0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert "another process" in refusal(path)
    holder.execute("ROLLBACK")
    holder.close()
    assert len(sl.sweep(**GRID, store=path)) == 3


def test_a_store_locked_for_a_moment_is_waited_for(path: Path):
    sl.sweep(**GRID, store=path)
    code = "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    code += "db.execute('BEGIN EXCLUSIVE'); print('held', flush=True); time.sleep(0.5); db.execute('COMMIT')"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert len(sl.sweep(**GRID, repeats=2, store=path)) == 6


def test_a_damaged_store_says_so_and_is_not_written(path: Path):
    sl.sweep(**GRID | {"over": {"workload.clients": range(1, 30)}}, store=path)
    whole = path.read_bytes()
    for at, junk in ((4096, b"\xff" * 4096), (100, b"\xee" * 60)):
        path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
        before = path.read_bytes()
        assert "damaged" in refusal(path)
        assert path.read_bytes() == before
    path.write_bytes(whole)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE cells SET frames = x'00'")
    db.close()
    with sl.Store(path) as kept, pytest.raises(sl.StoreError, match="damaged"):
        kept.check()
    assert "damaged" in refusal(path)


def test_a_read_only_store_can_be_read_and_not_written(path: Path):
    grid = sl.sweep(**GRID, store=path)
    code = textwrap.dedent("""
        import os, sys, slablab as sl
        import datetime, hashlib, numpy, pandas, pathlib, random, sqlite3, zlib  # before the rights to read them go
        if os.getuid() == 0:
            os.setgid(65534); os.setuid(65534)
        with sl.Store(sys.argv[1], write=False) as kept:
            print(len(kept), len(kept.ls()))
        try:
            sl.sweep(allocator="null", workload="tbench", store=sys.argv[1])
        except sl.StoreError as e:
            print(e)
    """)
    for folder in (path.parent, *path.parent.parents[:2]):
        folder.chmod(0o755)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    finally:
        path.parent.chmod(0o755)
    assert done.stdout.splitlines()[0] == f"{len(grid)} 1", done.stderr
    assert "read-only" in done.stdout.splitlines()[1]


FULL = """
import resource, signal, sys, slablab as sl
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
grid = dict(allocator="null", workload=sl.Tbench(seconds=0.001, warmup=0.0), threads=1, store=sys.argv[1])
sl.sweep(**grid, over={"workload.clients": range(1, 9)})
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
try:
    sl.sweep(**grid, over={"workload.clients": range(1, 400)})
except sl.StoreError as e:
    print(len(e.finished), e)
"""


def test_a_full_disk_ends_the_sweep_and_keeps_what_was_committed(path: Path):
    done = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True, check=False)
    count, _, message = done.stdout.partition(" ")
    assert "What was committed before is kept" in message, done.stderr
    with sl.Store(path) as kept:
        kept.check()
        assert len(kept) >= 8 + int(count) - 1 > 8


def test_sqlites_word_for_a_full_disk_is_ours(path: Path):
    with sl.Store(path) as kept:
        kept._db.execute("PRAGMA max_page_count = 6")
        with pytest.raises(sl.StoreError, match="full"):
            sl.sweep(**GRID | {"over": {"workload.clients": range(1, 60)}}, store=kept)
    with sl.Store(path) as kept:
        kept.check()
