"""Workloads from Python: docs/workloads.md block by block, profiles, tables, one's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slablab as sl
from slablab import bench, compose

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"^```(python|sh)\n(.*?)^```$", (ROOT / "docs" / "workloads.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)


def test_every_block_of_the_page_runs(tmp_path: Path):
    assert len(BLOCKS) >= 5
    for language, block in BLOCKS:
        words = [sys.executable, "-c", block]
        if language == "sh":
            words = [sys.executable, "-m", *block.split()]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), block


def test_a_profile_is_made_when_asked_for_and_the_result_stays_as_it_is():
    one = sl.run(machine=sl.Sim(cpus=2), allocator="slub", workload=sl.Oltp(seconds=0.01, warmup=0.01))
    before = one.to_json()
    profile = one.profile()
    assert set(profile["cache"]) == {"kiocb", "dio", "bio", "scsi_cmnd"}
    assert profile["allocs_per_op"].between(0.9, 1.1).all()
    assert one.to_json() == before
    tbench = sl.run(machine=sl.Sim(cpus=2), allocator="slab", workload=sl.Tbench(clients=2, seconds=0.01, warmup=0.01))
    assert "skbuff_fclone_cache" in set(tbench.profile()["cache"])


def test_a_sweep_has_the_profiles_and_laps_of_its_runs_with_what_varies_in_front():
    oltp = sl.Oltp(seconds=0.01, warmup=0.01)
    grid = sl.sweep(allocator=["slab", "slub"], workload=oltp, over={"machine.cpus": [1, 2]})
    profile = grid.profile()
    assert list(profile.columns[:3]) == ["allocator", "era", "cpus"]
    assert len(profile) == 4 * 4
    alone = grid[3].profile()
    assert profile[profile["allocator"].eq("slub") & profile["cpus"].eq(2)]["frees"].tolist() == alone["frees"].tolist()
    assert grid.laps().empty
    timed = sl.sweep(allocator=["slab", "slub"], workload=sl.SlabTest(shape="pair", size=64, objects=50)).laps()
    assert timed["allocator"].tolist() == ["slab", "slub"]
    assert (timed["cycles"] > 0).all()


def test_the_table_of_workloads_is_sorted_by_what_is_freed_elsewhere():
    short = [
        sl.Specjbb(seconds=0.02, warmup=0.0, warehouses=4),
        sl.Oltp(seconds=0.01, warmup=0.01),
        sl.Dbench(clients=2, seconds=0.01, warmup=0.0),
    ]
    pair = ["slab@2.6.24", "slub@2.6.24"]
    frame = bench.workloads(machine=sl.Sim(cpus=4), allocator=pair, workload=short, repeats=2)
    assert frame["workload"].tolist()[:2] == ["oltp", "oltp"]
    assert set(frame["allocator"][:2]) == set(pair)
    assert frame[bench.REMOTE].is_monotonic_decreasing
    assert frame["seeds_pct"].between(0, 10).all()
    assert (frame["host_cpu_s"] > 0).all()


def test_the_table_and_the_page_have_every_workload_that_runs_as_it_is():
    kinds = {c.workload.kind for c in bench.cells(8).values()}
    assert kinds == {w["name"] for w in sl.catalog()["workloads"]} - {"compose", "script", "trace"}
    tests = {n for n in bench.names() if n.startswith("netperf")}
    assert tests == {"netperf TCP_STREAM", "netperf TCP_RR", "netperf UDP_STREAM", "netperf UDP_RR"}
    assert set(bench.chosen(["netperf", "oltp"], 2)) == tests | {"oltp"}
    with pytest.raises(sl.ConfigError, match='did you mean "oltp"'):
        bench.workloads(workload=["otlp"])
    # Every cell can run on one CPU, on two and on eight.
    for cpus in (1, 2, 8):
        for cell in bench.cells(cpus).values():
            machine = sl.Sim(cpus=cpus)
            sl.Experiment(
                machine=machine, allocator="null", workload=cell.at(8) if cpus == 8 else cell.workload
            ).expand()


def test_a_workload_of_ones_own_is_a_value_and_its_errors_name_the_place():
    steps = [compose.alloc(kmalloc=100), compose.free(), compose.done()]
    own = sl.Workload(tasks=[compose.task(*steps)])
    assert eval(repr(own), {"Workload": sl.Workload}) == own
    assert json.loads(json.dumps(own.document())) == own.document()
    bad = sl.Workload(tasks=[compose.task(compose.send("nowhere"))])
    with pytest.raises(sl.ConfigError, match=re.escape("workload.tasks[0].loop[0].queue")):
        sl.run(allocator="slub", workload=bad)
    with pytest.raises(sl.ConfigError, match=re.escape("workload.tasks = no task")):
        sl.run(allocator="slub", workload=sl.Workload())


@pytest.mark.parametrize(
    ("workload", "part"),
    [
        (sl.Oltp(irq_cpus=5), "workload.irq_cpus = 5: 1..4"),
        (sl.Oltp(depth=0), "workload.depth = 0"),
        (sl.Specjbb(warehouses=3), "workload.warehouses = 3: 4 or more"),
        (sl.Cpu2k(step_us=5000.0), "workload.step_us = 5000"),
        (sl.Kbuild(era="2.6.25"), "workload.era"),
        (sl.Aim7(job="sleep"), "workload.job"),
        (sl.Dbench(file_pages=1), "workload.file_pages = 1"),
        (sl.SlabTest(shape="bulk", size=64), "workload.size = 64"),
        (sl.SlabTest(objects=0), "workload.objects = 0"),
        (sl.Boot(source="histogram"), "workload.histogram = no rows"),
        (sl.Boot(histogram=[("dentry", 192, 5)]), 'workload.source = "slub-6.1"'),
        (sl.Boot(scale=-1.0), "workload.scale = -1"),
    ],
    ids=repr,
)
def test_parameters_that_make_no_sense_are_refused_by_name(workload: sl.config.Typed, part: str):
    with pytest.raises(sl.ConfigError, match=re.escape(part)):
        sl.run(machine=sl.Sim(cpus=4), allocator="null", workload=workload)


def test_a_histogram_is_read_from_csv_and_from_slabinfo(tmp_path: Path):
    csv, slabinfo, bad = (tmp_path / n for n in ("a.csv", "slabinfo", "bad.csv"))
    csv.write_text("cache,bytes,count\ndentry,192,5\n")
    assert compose.read_histogram(csv) == [("dentry", 192, 5)]
    text = sl.run(machine=sl.Sim(cpus=1), allocator="slab@2.6.24", workload=sl.Boot(scale=0.01)).slabinfo()
    slabinfo.write_text(text)
    assert compose.read_histogram(slabinfo) is not None
    bad.write_text("cache,bytes,count\ndentry,many,5\n")
    with pytest.raises(sl.ConfigError, match=r"bad\.csv:2"):
        compose.read_histogram(bad)
