"""Comparisons: what is different is found, what is not is called "no difference", and the table fits a mail."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import slablab as sl
from slablab.compare import effect, interval, student

TBENCH = sl.Tbench(seconds=0.02, warmup=0.02)
PAIR = ["slab@2.6.24", "slub@2.6.24"]


@pytest.fixture(scope="module")
def pair() -> sl.Sweep:
    return sl.sweep(allocator=[*PAIR, "slob@2.6.24"], workload=TBENCH, repeats=5, over={"workload.clients": [1, 8]})


@pytest.fixture(scope="module")
def other_seeds() -> sl.Sweep:
    return sl.sweep(
        allocator=[*PAIR, "slob@2.6.24"], workload=TBENCH, seeds=range(50, 55), over={"workload.clients": [1, 8]}
    )


def test_a_run_compared_with_itself_under_other_seeds_shows_no_difference(pair: sl.Sweep, other_seeds: sl.Sweep):
    assert set(pair.compare(other_seeds)["verdict"]) == {"no difference"}
    assert sl.regressions(pair, other_seeds).empty
    assert set(pair.compare(pair)["verdict"]) == {"no difference"}


def test_slab_against_slub_at_8_clients_says_which_and_by_how_much():
    grid = sl.sweep(allocator=PAIR, workload=sl.Tbench(clients=8, seconds=0.05, warmup=0.1), repeats=6)
    row = grid.compare("slab@2.6.24").iloc[0]
    assert row["allocator"] == "slub"
    assert row["verdict"] == "lower"
    assert 0.9 < row["low"] < row["ratio"] < row["high"] < 1
    assert row["effect"] == -1
    back = grid.compare(sl.Slub("2.6.24")).iloc[0]
    assert back["verdict"] == "higher"
    assert math.isclose(back["ratio"] * row["ratio"], 1)


def test_false_alarms_are_as_rare_as_the_confidence_says():
    chance = np.random.default_rng(7)
    wrong = 0
    for _ in range(400):
        both = chance.normal(100, 3, (2, 5))
        _, low, high = interval(both[0], both[1], 0.95)
        wrong += not low <= 1 <= high
    assert 0.005 < wrong / 400 < 0.06


def test_a_true_difference_is_covered_and_found():
    chance = np.random.default_rng(8)
    covered = found = 0
    for _ in range(200):
        _, low, high = interval(chance.normal(110, 2, 5), chance.normal(100, 2, 5), 0.95)
        covered += low <= 1.1 <= high
        found += low > 1
    assert covered > 185
    assert found > 195


@pytest.mark.parametrize(("level", "freedom", "value"), [(0.95, 1, 12.706), (0.95, 4, 2.776), (0.99, 10, 3.169)])
def test_students_quantile_is_that_of_the_tables(level: float, freedom: int, value: float):
    assert math.isclose(student(level, freedom), value, rel_tol=1e-3)


def test_the_effect_counts_pairs():
    assert effect(np.array([2.0, 3.0]), np.array([1.0, 1.0])) == 1
    assert effect(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == 0


def test_an_axis_that_one_side_lacks_binds_nobody():
    grid = sl.sweep(allocator=["slob", "slub"], workload=TBENCH, over={"allocator.order": [0, 3]}, repeats=2)
    found = grid.compare("slob")
    assert found["order"].tolist() == [0, 3]
    assert grid.compare("slub")["order"].isna().all()


def test_a_baseline_may_be_any_columns(pair: sl.Sweep):
    found = pair.compare({"clients": 1})
    assert list(found.columns[:3]) == ["allocator", "era", "clients"]
    assert found["clients"].tolist() == [8, 8, 8]
    assert (found["ratio"] > 5).all()
    assert set(found["verdict"]) == {"higher"}


def test_a_difference_below_the_margin_is_none(pair: sl.Sweep):
    assert set(pair.compare({"clients": 1}, margin=0.9)["verdict"]) == {"higher"}
    slob = pair.compare("slab@2.6.24", margin=0.5)
    assert set(slob["verdict"]) == {"no difference"}


def test_one_repeat_has_no_interval_and_says_so(pair: sl.Sweep):
    found = pair[::5].compare("slab")
    assert set(found["verdict"]) == {"unknown: one repeat"}
    assert found["low"].isna().all()


def test_a_mean_of_zero_has_no_ratio():
    grid = sl.sweep(allocator=["null", "slob"], workload=TBENCH, repeats=3)
    found = grid.compare("null", "slab_pages_peak")
    assert found["verdict"].tolist() == ["lower"]
    for result in grid[:3]:
        result._summary["lock_wait_pct"] = 0.0
    assert grid.compare("null", "lock_wait_pct")["verdict"].tolist() == ["unknown: a mean of zero"]
    assert grid.compare("slob", "lock_wait_pct")["verdict"].tolist() == ["unknown: a mean of zero"]
    assert "from 0" in grid.table("null", "lock_wait_pct")
    found = grid.compare("null", "alloc_failed")
    assert found["verdict"].tolist() == ["no difference"]


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"baseline": "slqb"}, "in the frame: slab; slub; slob"),
        ({"baseline": "slib"}, 'baseline = "slib"'),
        ({"baseline": "slab@9"}, "era of slab"),
        ({"baseline": {"clients": 3}}, "in the frame: 1; 8"),
        ({"baseline": {"client": 3}}, 'did you mean "clients"'),
        ({"baseline": {"machine": "opteron-2x4-2007"}}, "every run is the baseline's"),
        ({"baseline": 3}, "an allocator"),
        ({"baseline": sl.Sweep([])}, "at least one run"),
        ({"baseline": "slab", "metric": "thruput"}, 'did you mean "throughput"'),
        ({"baseline": "slab", "metric": "unit"}, "metric"),
        ({"baseline": "slab", "metric": "clients"}, "metric"),
        ({"baseline": "slab", "confidence": 95}, "confidence = 95"),
        ({"baseline": "slab", "margin": -1}, "margin = -1"),
    ],
)
def test_what_cannot_be_compared_is_refused(pair: sl.Sweep, how: dict, part: str):
    with pytest.raises(sl.ConfigError) as raised:
        pair.compare(**how)
    assert part in str(raised.value)


def test_throughputs_of_two_units_are_not_compared():
    machines = [sl.Sim(cpus=1), sl.Native(cpus=1)]
    grid = sl.sweep(machine=machines, allocator="null", workload=TBENCH, over={"workload.clients": [1]})
    with pytest.raises(sl.ConfigError, match="allocator only"):
        grid.compare({"machine": "native"})


def test_several_eras_need_one_as_baseline():
    grid = sl.sweep(allocator=["slub@2.6.24", "slub@2.6.24-rc2", "slab"], workload=TBENCH)
    with pytest.raises(sl.ConfigError, match=r"slub@2\.6\.24, slub@2\.6\.24-rc2"):
        grid.compare("slub")
    assert len(grid.compare("slub@2.6.24")) == 2


def test_regressions_between_two_stores(tmp_path: Path):
    grid = {"allocator": "slub@2.6.24", "workload": TBENCH, "over": {"workload.clients": [1, 2, 8]}, "repeats": 5}
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    sl.sweep(**grid, store=old)
    sl.sweep(**grid | {"seed": 100}, store=new)
    assert sl.regressions(old, new).empty
    with sl.Store(new) as kept:
        rows = kept._db.execute("SELECT key, document, frames FROM cells").fetchall()
        from slablab.packed import pack, unpack

        for key, document, frames in rows:
            text, columns = unpack(document, frames)
            import json

            whole = json.loads(text)
            if whole["config"]["workload"]["clients"] == 8:
                whole["summary"]["throughput"] *= 0.8
            packed = pack((json.dumps(whole), columns))
            kept._db.execute("UPDATE cells SET document = ?, frames = ? WHERE key = ?", (*packed, key))
    found = sl.regressions(old, new)
    assert found["clients"].tolist() == [8]
    assert 0.75 < found["ratio"].iloc[0] < 0.85
    assert sl.regressions(new, old).empty
    for wrong in (3, tmp_path / "none.db"):
        with pytest.raises(sl.ConfigError):
            sl.regressions(old, wrong)


def test_the_mail_table_is_narrow_and_says_all(pair: sl.Sweep):
    text = pair.table("slab@2.6.24")
    assert all(len(line) < 80 for line in text.splitlines())
    for part in ("throughput (MB/s) against slab@2.6.24", "opteron-2x4-2007", "95% interval", "±", "%", "slub", "slob"):
        assert part in text
    assert len(text.splitlines()) == 10


def test_a_wide_mail_table_breaks_its_lines(pair: sl.Sweep):
    grid = sl.sweep(
        allocator=["slub", "slab"],
        workload=TBENCH,
        over={"allocator.order": [0, 1], "machine.cpus": [2, 4], "workload.user_footprint_lines": [32, 64],
              "workload.protocol_scale": [1.0, 2.0]},
    )  # fmt: skip
    text = grid.table("slab")
    assert all(len(line) < 80 for line in text.splitlines())
    assert text.count("\n") > 32
    assert isinstance(grid.compare("slab"), pd.DataFrame)


def test_runs_of_a_script_alone_have_no_era_of_the_workload():
    script = sl.Script(caches=[{"name": "a", "size": 64}], ops=[{"op": {"alloc": {"cache": 0, "slot": 0}}}])
    found = sl.sweep(allocator=["slub", "slab"], workload=script, repeats=2).compare("slab")
    assert list(found["allocator"]) == ["slub"]


def test_a_baseline_is_one_value_and_numbers_may_be_numpys(pair: sl.Sweep):
    with pytest.raises(sl.ConfigError, match="one value"):
        pair.compare({"clients": [1, 2]})
    assert not pair.compare("slab", confidence=np.float32(0.9), margin=np.float64(0.01)).empty
