"""The network workloads from Python: units, what a run says about messages, refused values."""

from __future__ import annotations

from typing import Any

import pytest

import slablab as sl

SHORT: dict[str, Any] = {"seconds": 0.005, "warmup": 0.002}


@pytest.mark.parametrize(
    ("workload", "unit"),
    [
        (sl.Tbench(clients=2, **SHORT), "MB/s"),
        (sl.Hackbench(groups=1, loops=50, **SHORT), "s"),
        (sl.Hackbench(groups=1, transport="pipe", mode="thread", **SHORT), "s"),
        (sl.Netperf(test="TCP_STREAM", **SHORT), "Mbit/s"),
        (sl.Netperf(test="UDP_STREAM", message=4096, **SHORT), "Mbit/s"),
        (sl.Netperf(test="TCP_RR", pairs=3, link="wire", **SHORT), "trans/s"),
        (sl.Netperf(test="UDP_RR", response=512, **SHORT), "trans/s"),
        (sl.Volanomark(rooms=1, users=4, **SHORT), "messages/s"),
    ],
    ids=repr,
)
def test_each_reports_its_own_unit(workload: Any, unit: str):
    one = sl.run(machine=sl.Sim(cpus=2), allocator="slub@2.6.24", workload=workload)
    assert one.unit == unit
    assert one.throughput > 0
    row = one.summary().iloc[0]
    assert row["workload_era"] == "2.6.24"  # of the machine's kernel
    assert row["free_remote_pct"] >= 0 or row["net_allocs_per_op"] == 0


def test_a_job_says_how_it_was_scaled():
    one = sl.run(machine=sl.Sim(cpus=2), allocator="slab", workload=sl.Hackbench(groups=1, loops=1000, **SHORT))
    row = one.summary().iloc[0]
    assert row["job_ops"] == 400_000
    assert one.throughput == pytest.approx(row["scaled_by"] * row["elapsed_s"])


def test_a_job_of_which_only_the_filling_of_its_sockets_was_seen_is_not_scaled():
    filling = sl.Hackbench(groups=10, seconds=0.01, warmup=0.0)
    with pytest.warns(sl.UnsteadyWarning, match=r"none was read in 0\.01 s: a warmup longer than 0 s"):
        one = sl.run(machine=sl.Sim(cpus=1), allocator="slab", workload=filling)
    row = one.row()
    assert (row["ops"], row["throughput"], row["scaled_by"], row["steady"]) == (0, 0.0, None, False)
    steady = sl.run(
        machine=sl.Sim(cpus=1), allocator="slab", workload=sl.Hackbench(groups=1, seconds=0.04, warmup=0.04)
    )
    assert steady.row()["steady"] is True


def test_series_is_throughput_over_time():
    one = sl.run(allocator="slab", workload=sl.Tbench(clients=4, seconds=0.02, warmup=0.01, interval=0.005))
    series = one.series()
    assert list(series.columns) == ["time_s", "ops", "throughput"]
    assert series["time_s"].tolist() == pytest.approx([0.005, 0.01, 0.015, 0.02])
    assert series["throughput"].mean() == pytest.approx(one.throughput, rel=0.02)


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (sl.Hackbench(fds=0), "workload.fds = 0"),
        (sl.Hackbench(loops=0), "workload.loops = 0"),
        (sl.Netperf(test="UDP_STREAM", message=70_000), "workload.message = 70000"),
        (sl.Netperf(link="wire", irq_cpus=9), "workload.irq_cpus = 9"),
        (sl.Netperf(link="wire", irq_cpus=0), "workload.irq_cpus = 0"),
        (sl.Oltp(irq_cpus=9), "workload.irq_cpus = 9"),
        (sl.Volanomark(rooms=0), "workload.rooms = 0"),
        (sl.Tbench(skb_defer=64), "workload.skb_defer = 64"),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused_by_name(workload: Any, says: str):
    with pytest.raises(sl.ConfigError, match=says.replace(".", r"\.")):
        sl.run(allocator="slab", workload=workload)
