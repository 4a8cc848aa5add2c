"""All workloads side by side: what each asks of every allocator, what is freed on another CPU, how steady it is."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slablab import _core, config
from slablab.experiment import Experiment, UnsteadyWarning, warn_about
from slablab.result import Result, table
from slablab.values import refused, shown, unknown, whole

if TYPE_CHECKING:
    import pandas as pd

REMOTE = "freed on another CPU, %"
"""The column that `workloads` sorts by."""
ALLOCATORS = ("slab@2.6.24", "slub@2.6.24", "slob@2.6.24", "slqb@2.6.29")
"""Who is compared when nobody is named."""
NULL_TESTS = ("specjbb", "cpu2k")
"""Workloads that want a task on every CPU."""


@dataclass(frozen=True)
class Cell:
    """A workload that keeps all CPUs busy, in a window that says the same for every seed (docs/workloads.md)."""

    workload: config.Typed
    load: str
    """The parameter that is its load."""
    unit: float = 1
    """Of which so much is a load of one."""

    def at(self, load: int) -> config.Typed:
        """The workload with another load."""
        value = self.unit * load
        return changed(self.workload, **{self.load: int(value) if float(value).is_integer() else value})


def changed(one: config.Typed, **changes: Any) -> config.Typed:
    """The workload with other values."""
    document = one.document()
    made: config.Typed = config.build("workload", str(document.pop("name")), document | changes)
    return made


def cells(cpus: int = 8) -> dict[str, Cell]:
    """Every workload of the catalog that runs as it is, by the name of its row."""

    def netperf(test: Any, pairs: int, server: int) -> Cell:
        # Both ends on CPUs that are said: where the scheduler leaves a free pair lasts, and seeds differ by it.
        return Cell(config.Netperf(test=test, pairs=max(pairs, 1), client_cpu=0, server_cpu=server % cpus), "pairs")

    return {
        "tbench": Cell(config.Tbench(clients=cpus, seconds=0.4), "clients"),
        "dbench": Cell(config.Dbench(clients=cpus), "clients"),
        "hackbench": Cell(config.Hackbench(groups=1, seconds=0.2, warmup=0.1), "groups"),
        "hackbench 100 groups": Cell(config.Hackbench(groups=100, seconds=0.15, warmup=0.4), "groups"),
        "netperf TCP_RR": netperf("TCP_RR", 2 * cpus, 1),
        "netperf UDP_RR": netperf("UDP_RR", 2 * cpus, 1),
        "netperf TCP_STREAM": netperf("TCP_STREAM", cpus // 2, cpus // 2),
        "netperf UDP_STREAM": netperf("UDP_STREAM", cpus // 2, cpus // 2),
        "volanomark": Cell(config.Volanomark(), "rooms"),
        "kbuild": Cell(config.Kbuild(jobs=2 * cpus), "jobs"),
        "aim7": Cell(config.Aim7(tasks=2 * cpus), "tasks"),
        "oltp": Cell(config.Oltp(submitters=4 * cpus), "submitters"),
        "specjbb": Cell(config.Specjbb(warehouses=cpus), "warehouses"),
        "cpu2k": Cell(config.Cpu2k(copies=cpus), "copies"),
        "boot": Cell(config.Boot(), "scale", 0.25),
        "slab_test": Cell(config.SlabTest(objects=500), "objects", 50),
    }


def names() -> list[str]:
    """Names of the rows of `workloads`; the name of a workload stands for all of its rows."""
    return list(cells())


def chosen(given: Iterable[config.WorkloadLike] | None, cpus: int) -> dict[str, config.Typed | config.Workload]:
    """What to run, by the name of its row: all cells, those of a name, or workloads as they are."""
    known = cells(cpus)
    if given is None:
        return {name: cell.workload for name, cell in known.items()}
    found: dict[str, config.Typed | config.Workload] = {}
    for one in given:
        if isinstance(one, str):
            rows = {name: c.workload for name, c in known.items() if one in (name, c.workload.kind)}
            if not rows:
                raise unknown("workload", one, [*(c.workload.kind for c in known.values()), *known])
            found |= rows
        else:
            kind = str(one.document()["name"])
            others = (f"{kind} {i}" for i in itertools.count(2))
            name = next(n for n in itertools.chain([kind], others) if n not in found)
            found[name] = one
    return found


def workloads(
    *,
    machine: config.MachineLike = "opteron-2x4-2007",
    allocator: config.AllocatorLike | Iterable[config.AllocatorLike] = ALLOCATORS,
    workload: Iterable[config.WorkloadLike] | None = None,
    seed: int = 1,
    repeats: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Runs every workload (or these) on every allocator with an allocation profile; one row each.

    Columns: operations and throughput (mean over the repeats) in the unit of the workload; with repeats `seeds_pct`,
    the largest distance of one from the mean; objects taken per operation, per CPU and second; the share of objects
    that another CPU frees than the one that took them, by which the rows are sorted; the median lifetime of the most
    used cache (allocations between); objects in flight at the most (all caches); bytes copied and context switches per
    operation; what the longest run cost the host: CPU seconds, and the process's memory at its peak (None where the
    host does not say).
    """
    repeats = whole("repeats", repeats, "1 or more")
    single = isinstance(allocator, str | config.AllocatorConfig | config.Allocator)
    allocators: list[Any] = [allocator] if single else list(allocator)  # type: ignore[arg-type]
    rows = []
    results: list[Result] = []
    cpus = Experiment(machine=machine, allocator="null", workload="boot").expand()["machine"]["cpus"]
    for name, one in chosen(workload, cpus).items():
        for each in allocators:
            experiment = Experiment(machine=machine, allocator=each, workload=one, seed=seed)
            if progress:
                print(f"{name}: {experiment.allocator!r}", file=sys.stderr)
            runs, costs = _runs(experiment, repeats)
            results += runs[:1]
            rows.append({"workload": name, **_row(runs, costs)})
    warn_about(results)
    frame = table(rows)
    return frame.sort_values(REMOTE, ascending=False, kind="stable").reset_index(drop=True) if rows else frame


def loads(
    *,
    machine: str = "opteron-4x4-2011",
    allocator: Iterable[config.AllocatorLike] = ALLOCATORS,
    load: Sequence[int] = (1, 2, 4, 8, 16),
    cpus: Sequence[int] = (1, 2, 4, 8, 16),
    cpu_seconds: float = 0.5,
    progress: bool = False,
) -> pd.DataFrame:
    """Every workload with every load on so many CPUs of the machine: `summary()` of all runs, with the column `load`.

    A run lasts `cpu_seconds` over all CPUs together (kbuild, whose units are long, twenty times that), and as long
    again before: cells cost about the same, and some of hackbench see no steady state (column `steady`). Its groups
    have 5 senders. The null tests have no rows with fewer tasks than CPUs. `plot.multiples` draws it.
    """
    import pandas as pd

    from slablab.sweep import sweep

    if not cpu_seconds > 0:
        raise refused("cpu_seconds", shown(cpu_seconds), "more than 0")
    frames = []
    for n, name in itertools.product(cpus, (name for name in names() if name != "hackbench 100 groups")):
        if progress:
            print(f"{name} on {n} CPUs", file=sys.stderr)
        cell = cells(n)[name]
        made = {k: _shortened(cell.at(k), n, cpu_seconds) for k in load if name not in NULL_TESTS or k >= n}
        if made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnsteadyWarning)
                grid = sweep(machine=config.Sim(machine, cpus=n), allocator=allocator, workload=list(made.values()))
            frame = grid.summary()
            loads_of = frame[cell.load].map({getattr(one, cell.load): k for k, one in made.items()})
            frames.append(frame.assign(workload=name, load=loads_of, cpus=n))
    return pd.concat(frames, ignore_index=True)


def _shortened(one: config.Typed, cpus: int, cpu_seconds: float) -> config.Typed:
    """The workload in a window of so many seconds of all CPUs together."""
    if isinstance(one, config.Hackbench):
        one = changed(one, fds=5)
    if not hasattr(one, "seconds"):
        return one
    window = cpu_seconds / cpus * (20 if isinstance(one, config.Kbuild) else 1)
    return changed(one, seconds=window, warmup=window)


def _runs(experiment: Experiment, repeats: int) -> tuple[list[Result], dict[str, Any]]:
    """The experiment with so many seeds, the first one again with its profile, and what the dearest cost the host."""
    runs, cpu_s, host_mb = [], 0.0, None
    for repeat in range(repeats):
        document = json.dumps(experiment.document() | {"seed": experiment.seed + repeat})
        _forget_peak()
        started = time.process_time()
        runs.append(Result(_core.run(document), repeat))
        cpu_s = max(cpu_s, time.process_time() - started)
        peak = _peak_mb()
        host_mb = peak if host_mb is None or peak is None else max(host_mb, peak)
    return runs, {"host_cpu_s": cpu_s, "host_mb": host_mb}


def _forget_peak() -> None:
    """Lets the kernel measure this process's peak of memory from now on, where it can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mb() -> int | None:
    """Peak of this process's memory in MB."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(peak[1]) // 1000 if peak else None


def _row(runs: list[Result], costs: dict[str, Any]) -> dict[str, Any]:
    row, profile = runs[0].row(), runs[0].profile()
    allocs, frees = int(profile["allocs"].sum()), int(profile["frees"].sum())
    remote = float((profile["free_remote_pct"].fillna(0.0) * profile["frees"]).sum())
    seconds = row["elapsed_s"] * row["cpus"]
    mean = sum(r.throughput for r in runs) / len(runs)
    spread = max(abs(r.throughput / mean - 1) for r in runs) if mean else None
    return {
        "allocator": f"{row['allocator']}@{row['era']}",
        "ops": row["ops"],
        "throughput": mean,
        "unit": row["unit"],
        **({"seeds_pct": None if spread is None else 100 * spread} if len(runs) > 1 else {}),
        "allocs_per_op": allocs / row["ops"] if row["ops"] else None,
        "allocs_per_cpu_s": allocs / seconds if seconds else None,
        REMOTE: remote / frees if frees else 0.0,
        "life_p50": float(profile["life_p50"].iloc[0]) if len(profile) else None,
        "in_flight_peak": int(profile["in_flight_peak"].sum()),
        "bytes_copied_per_op": row.get("bytes_copied_per_op"),
        "switches_per_op": row.get("switches_per_op"),
        **costs,
    }
