"""All workloads side by side: what each asks of the allocator, and how much of it is freed on another CPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from slablab import _core, config
from slablab.experiment import Experiment, warn_oversubscribed
from slablab.result import Result, table

if TYPE_CHECKING:
    import pandas as pd

REMOTE = "freed on another CPU, %"
"""The column that `workloads` sorts by."""
OWN = ("compose", "script", "trace")
"""Workloads that are nothing without what the user writes or records."""


def names() -> list[str]:
    """Workloads of the catalog that run as they are."""
    return [w["name"] for w in config.catalog()["workloads"] if w["name"] not in OWN]


def workloads(
    *,
    machine: config.MachineLike = "opteron-2x4-2007",
    allocator: config.AllocatorLike = "slub@2.6.24",
    workload: Iterable[config.WorkloadLike] | None = None,
    seed: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Runs every workload of the catalog (or these) with an allocation profile; one row each.

    Columns: operations and throughput in the unit of the workload; objects taken per operation, per CPU and second; the
    share of objects that another CPU frees than the one that took them, by which the rows are sorted; the median
    lifetime of the most used cache (allocations between); objects in flight at the most (all caches); bytes copied and
    context switches per operation; and the seconds that the host took.
    """
    rows = []
    results = []
    for one in workload if workload is not None else names():
        experiment = Experiment(machine=machine, allocator=allocator, workload=one, seed=seed)
        if progress:
            print(repr(experiment.workload), file=sys.stderr)
        started = time.perf_counter()
        result = Result(_core.run(json.dumps(experiment.document() | {"profile": True})))
        results.append(result)
        rows.append(_row(result, time.perf_counter() - started))
    warn_oversubscribed(results)
    frame = table(rows)
    return frame.sort_values(REMOTE, ascending=False, kind="stable").reset_index(drop=True) if rows else frame


def _row(result: Result, host_s: float) -> dict[str, Any]:
    row, profile = result.row(), result.profile()
    allocs, frees = int(profile["allocs"].sum()), int(profile["frees"].sum())
    remote = float((profile["free_remote_pct"].fillna(0.0) * profile["frees"]).sum())
    seconds = row["elapsed_s"] * row["cpus"]
    return {
        "workload": row["workload"],
        "ops": row["ops"],
        "throughput": row["throughput"],
        "unit": row["unit"],
        "allocs_per_op": allocs / row["ops"] if row["ops"] else None,
        "allocs_per_cpu_s": allocs / seconds if seconds else None,
        REMOTE: remote / frees if frees else 0.0,
        "life_p50": float(profile["life_p50"].iloc[0]) if len(profile) else None,
        "in_flight_peak": int(profile["in_flight_peak"].sum()),
        "bytes_copied_per_op": row.get("bytes_copied_per_op"),
        "switches_per_op": row.get("switches_per_op"),
        "host_s": host_s,
    }
