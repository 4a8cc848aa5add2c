"""Frames: one row per observation, columns named after the parameters."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from conftest import SHORT

import slablab as sl

PROMISED = [
    "machine", "cpus", "allocator", "era", "workload", "clients", "seed", "repeat", "throughput", "unit", "elapsed_s",
    "ops", "alloc_fast_pct", "free_fast_pct", "free_remote_pct", "slab_pages_peak", "slab_pages_end", "used_kb",
    "lock_wait_pct", "simulated", "oversubscribed", "version",
]  # fmt: skip


@pytest.fixture(scope="module")
def one(tbench: sl.Tbench) -> sl.Result:
    return sl.run(allocator="slub@2.6.24", workload=tbench)


def test_summary_is_one_row_with_every_parameter_and_the_promised_columns(one: sl.Result):
    frame = one.summary()
    assert len(frame) == 1
    assert set(PROMISED) <= set(frame.columns)
    for part in ("allocator", "workload"):
        for name, value in one.config[part].items():
            if name != "name":
                column = "workload_era" if (part, name) == ("workload", "era") else name
                assert frame[column].iloc[0] == value or pd.isna(frame[column].iloc[0])
    assert frame["throughput"].iloc[0] == one.throughput
    assert one.unit == "MB/s"


def test_stats_has_a_row_per_cache_cpu_and_counter(one: sl.Result):
    frame = one.stats()
    assert list(frame.columns) == ["cache", "cpu", "stat", "count"]
    assert not frame.duplicated(["cache", "cpu", "stat"]).any()
    known = {s["name"] for s in sl.catalog()["statistics"]}
    assert set(frame["stat"]) <= known
    # SLUB merges skbuff_fclone_cache into the general cache of that size; each packet takes one.
    fclone = frame[frame["cache"].isin(["skbuff_fclone_cache", "kmalloc-512", ":0000512"])]
    taken = fclone.loc[fclone["stat"].isin(["alloc_fastpath", "alloc_slowpath"]), "count"].sum()
    row = one.summary().iloc[0]
    assert taken >= row["data_packets_per_op"] * row["ops"] * 0.9


def test_caches_locks_and_pages_are_frames(one: sl.Result):
    caches = one.caches()
    assert {"cache", "object_size", "slot_size", "order", "objects_per_slab", "slabs"} <= set(caches.columns)
    assert (caches["slot_size"] >= caches["object_size"]).all()
    assert {"lock", "acquired", "contended", "wait_ns"} <= set(one.locks().columns)
    time = one.time().set_index("part")["time_ps"]
    for lock, wait in one.locks().set_index("lock")["wait_ns"].items():
        assert round(1000 * wait) == time.get(f"waiting for {lock}", 0)
    assert sorted(set(one.pages()["order"])) == list(range(11))


def test_slabinfo_is_the_kernels_text_and_slob_has_none(one: sl.Result, tbench: sl.Tbench):
    assert one.slabinfo().startswith("slabinfo - version: 2.1\n")
    slob = sl.run(allocator="slob", workload=tbench)
    with pytest.raises(LookupError, match="slob has no /proc/slabinfo"):
        slob.slabinfo()


def test_the_document_holds_the_frames_and_no_nan(one: sl.Result):
    document = json.loads(one.to_json())
    assert set(document) == {"result", "host"}
    assert document["result"]["config"] == one.config
    frames = document["result"]["frames"]
    assert frames["stats"]["cache"] == list(one.stats()["cache"])
    assert None in frames["caches"]["limit"]


def test_an_axis_that_an_allocator_lacks_gives_it_one_row(grid: sl.Sweep):
    frame = grid.summary()
    assert list(frame.columns[:4]) == ["allocator", "era", "clients", "order"]
    counts = frame.groupby(["allocator", "clients"]).size()
    assert counts["slub"].tolist() == [4, 4]
    assert counts["slob"].tolist() == [2, 2]
    assert frame.loc[frame["allocator"] == "slob", "order"].isna().all()
    assert frame["order"].dropna().tolist() == [0, 0, 2, 2] * 2


def test_rows_stand_in_the_order_of_the_cells(grid: sl.Sweep):
    frame = grid.summary()
    slub = frame[frame["allocator"] == "slub"]
    cells = list(zip(slub["clients"], slub["order"], slub["repeat"], slub["seed"], strict=True))
    assert cells == [(c, o, r, r + 1) for c in (1, 3) for o in (0, 2) for r in (0, 1)]


def test_best_and_median_reduce_the_repeats_and_nothing_else(grid: sl.Sweep):
    frame, best, median = grid.summary(), grid.best(), grid.median()
    assert len(best) == len(median) == len(frame) / 2
    keys = ["allocator", "clients", "order"]
    by_cell = frame.groupby(keys, dropna=False, sort=False)["throughput"]
    assert best["throughput"].tolist() == by_cell.max().tolist()
    assert np.allclose(median["throughput"].tolist(), by_cell.median().tolist())
    assert set(median["repeats"]) == {2}
    assert "seed" not in median.columns


@pytest.mark.parametrize("name", ["caches", "stats", "locks", "pages"])
def test_frames_of_a_sweep_have_the_swept_columns_in_front(grid: sl.Sweep, name: str):
    frame = getattr(grid, name)()
    assert list(frame.columns[:4]) == ["allocator", "era", "clients", "order"]
    assert len(frame) == sum(len(getattr(r, name)()) for r in grid)


def test_the_order_each_cache_got_is_a_column(tbench: sl.Tbench):
    caches = sl.run(allocator=sl.Slub("2.6.24", order=3), workload=tbench).caches()
    assert (caches.loc[caches["slabs"] > 0, "order"] == 3).all()


def test_seeds_and_machines_and_parts_can_be_swept(tbench: sl.Tbench):
    frame = sl.sweep(
        allocator="null", workload=tbench, seeds=[7, 9], over={"machine": ["opteron-2x4-2007", sl.Sim(cpus=2)]}
    ).summary()
    assert frame["seed"].tolist() == [7, 9, 7, 9]
    assert frame["cpus"].tolist() == [8, 8, 2, 2]


def test_numpy_values_are_plain_parameters(tbench: sl.Tbench):
    frame = sl.sweep(allocator="null", workload=tbench, over={"workload.clients": np.arange(1, 3)}).summary()
    assert frame["clients"].tolist() == [1, 2]


def test_native_rows_beyond_the_host_say_so():
    cpus = 1 + max(e["cpus"] for e in sl.catalog()["machines"] if e["name"] == "native")
    with pytest.warns(sl.OversubscribedWarning, match="oversubscribed=True"):
        one = sl.run(machine=sl.Native(cpus=cpus), allocator="null", workload=sl.Tbench(clients=1, **SHORT))
    row = one.summary().iloc[0]
    assert row["oversubscribed"]
    assert not row["simulated"]
    assert row["unit"] == "MB/s (allocator only)"


def test_a_script_reports_its_caches_at_each_checkpoint():
    script = sl.Script(
        caches=[{"name": "buffer_head", "size": 104}],
        ops=[
            {"op": {"alloc": {"cache": 0, "slot": 0}}},
            {"op": {"checkpoint": {"name": "taken"}}},
            {"cpu": 1, "op": {"free": {"slot": 0}}},
            {"op": {"checkpoint": {"name": "freed"}}},
        ],
    )
    one = sl.run(machine=sl.Sim(cpus=2), allocator="slub@2.6.24", workload=script)
    assert [c["name"] for c in one.checkpoints] == ["taken", "freed"]
    assert one.checkpoints[0]["caches"] != one.checkpoints[1]["caches"]
    assert json.loads(one.to_json())["result"]["checkpoints"] == one.checkpoints
