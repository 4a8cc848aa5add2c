"""SIGKILL at random moments of a sweep: nothing finished is lost or run again, and the frame comes out the same."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import slablab as sl

GRID = {"allocator": ["null", "slob", "slub"], "workload": sl.Tbench(seconds=0.005, warmup=0.0)}

CHILD = textwrap.dedent("""
    import json, sys
    import slablab as sl
    from slablab import _core
    from slablab.planning import key_of

    run_many = _core.run_many

    def told(documents, threads, done):
        # What this process is about to run.
        print(json.dumps([key_of(d) for d in documents]), flush=True)
        return run_many(documents, threads, done)

    _core.run_many = told
    grid = sl.sweep(allocator=["null", "slob", "slub"], workload=sl.Tbench(seconds=0.005, warmup=0.0),
                    over={"workload.clients": range(1, 9)}, repeats=int(sys.argv[2]), threads=2, store=sys.argv[1])
    print("whole", flush=True)
""")


def killed(store: Path, kills: int, repeats: int, window: float) -> None:
    """Kills `kills` processes that work on a store, each at a random moment, and lets one more finish."""
    chance = random.Random(50)
    command = [sys.executable, "-c", CHILD, str(store), str(repeats)]
    finished: dict[str, tuple[object, ...]] = {}
    ended = 0
    for kill in range(kills + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            if kill == kills:
                text = child.communicate(timeout=300)[0]
                assert text.endswith("whole\n")
            elif kill % 5 == 4:
                # Any moment since the process began: while it makes, opens or reads the store as well.
                time.sleep(chance.uniform(0.0, 0.6))
                child.kill()
                text = child.communicate()[0]
            else:
                text = child.stdout.readline()
                time.sleep(chance.uniform(0.0, window))
                child.kill()
                text += child.communicate()[0]
        ended += "whole" in text
        if "\n" in text:
            asked = json.loads(text.splitlines()[0])
            assert not finished.keys() & set(asked), "a finished cell was run again"
        if not store.exists():
            continue
        # Killed before the tables were made it is an empty file, which this takes as the next process would.
        with sl.Store(store) as kept:
            rows = {r[1]: r for r in kept._db.execute("SELECT * FROM cells").fetchall()}
        assert finished.items() <= rows.items(), "a finished cell was lost or changed"
        finished = rows
    with sl.Store(store) as kept:
        kept.check()
    assert ended <= 1 + kills // 10, "the sweep was over too early to be killed"
    assert len(finished) == 24 * repeats
    again = sl.sweep(**GRID, over={"workload.clients": range(1, 9)}, repeats=repeats, store=store)
    plain = sl.sweep(**GRID, over={"workload.clients": range(1, 9)}, repeats=repeats)
    assert again.summary().equals(plain.summary())
    assert again.stats().equals(plain.stats())
    assert [json.loads(r.to_json())["result"] for r in again] == [json.loads(r.to_json())["result"] for r in plain]


def test_killed_at_6_random_moments(tmp_path: Path):
    killed(tmp_path / "runs.db", kills=6, repeats=6, window=0.15)


@pytest.mark.soak
def test_killed_at_50_random_moments(tmp_path: Path):
    killed(tmp_path / "runs.db", kills=50, repeats=50, window=0.3)
