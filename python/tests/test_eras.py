"""SLUB's eras as a table: the committed page is what the code makes; what one call costs on the simulated machine."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import slablab as sl
from slablab import history
from slablab.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "eras.md"
CLOCK = next(m for m in sl.catalog()["machines"] if m["name"] == "opteron-2x4-2007")["values"]["freq"]["value"]
ERAS = [step["era"] for step in history.steps()]


def test_the_committed_page_is_what_the_code_makes(capsys):
    assert PAGE.read_text(encoding="utf-8") == history.page()
    assert main(["eras", "--markdown"]) == 0
    assert capsys.readouterr().out == history.page()


def test_changes_lead_from_era_to_era_as_the_defaults_do():
    frame = sl.eras()
    assert list(frame.columns) == ["era", "when", "policy", "before", "after"]
    for era, before in zip(ERAS[1:], ERAS, strict=False):
        rows = frame[frame.era == era]
        assert len(rows) > 0
        here, there = sl.Slub(era), sl.Slub(before)
        for row in rows.itertuples():
            if hasattr(here, row.policy):
                assert getattr(sl.Slub(era, **{row.policy: row.before}), row.policy) == row.before
        assert here != there


def test_the_shell_prints_the_same_in_three_forms(capsys):
    assert main(["eras", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {r["era"] for r in rows} == set(ERAS[1:])
    assert main(["eras"]) == 0
    assert "cpu_partial" in capsys.readouterr().out
    assert main(["eras", "--show-code", "--markdown"]) == 0
    assert "page()" in capsys.readouterr().out
    assert main(["eras", "--json", "--markdown"]) == 2


@pytest.mark.parametrize("era", ERAS)
def test_what_a_pair_of_calls_costs(era: str):
    k = sl.Kernel("opteron-2x4-2007", f"slub@{era}")
    cache = k.cache("pair", 200, ctor=True)
    for _ in range(3):
        cache.free(cache.alloc())
    p = cache.alloc()
    alloc = k.effort()
    cache.free(p)
    free = k.effort()
    for effort in (alloc, free):
        assert effort.instructions > 5
        assert 1 <= effort.lines <= effort.loads + effort.stores + effort.atomics
        assert effort.cycles == pytest.approx(effort.ns * CLOCK)
    # slub.md §10: the slab lock is two locked operations up to 2.6.24; later fast paths have none.
    assert (alloc.atomics > 0) == (era == "2.6.21-mm1")
    # Interrupts are off in the eras before the local compare-exchange, and that in those before sheaves.
    nth = ERAS.index(era)
    assert (alloc.irq_pairs > 0) == (nth < ERAS.index("3.1"))
    assert (alloc.local_exchanges > 0) == (ERAS.index("3.1") <= nth < ERAS.index("7.1"))
    # The object holds the free pointer, but not where a sheaf does.
    assert (alloc.object_lines > 0) == (era != "7.1")


def test_a_call_that_is_no_allocation_costs_nothing_here():
    k = sl.Kernel("opteron-2x4-2007", "slub@6.1")
    k.cache("test", 100)
    k.trim()
    assert k.effort().lines == 0


def test_a_figure_from_era_to_era():
    frame = pd.DataFrame({"era": ["a", "a", "b"], "call": ["x", "y", "x"], "cycles": [3.0, 5.0, 4.0]})
    ax = sl.plot.eras(frame, y="cycles", hue="call", text="foot")
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 3], [1, 4]], [[0, 5]]]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_ylabel() == "cycles"
    assert sl.plot.eras(frame[frame.call == "x"], y="cycles", text="", ax=ax) is ax
    with pytest.raises(sl.ConfigError, match=r"y.*cycles"):
        sl.plot.eras(frame, y="cycle")
