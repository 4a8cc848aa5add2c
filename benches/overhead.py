"""What a sweep costs beside the core, in three figures, each with its target. Run by `make bench`.

1. `sl.run` of an empty workload, beyond the start of its world: at most 1 ms.
2. Ten thousand tiny cells, with a store: less than 15 % of the time outside the core.
3. Two host threads against one on a simulated sweep: at least 1.8 times as fast. Needs two free cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import slablab as sl


def empty_run() -> tuple[float, str]:
    """Milliseconds of an empty run beyond what the core says its world took; the median of 50."""
    sl.run(allocator="null", workload=sl.Script())
    beyond = []
    for _ in range(50):
        began = time.perf_counter()
        one = sl.run(allocator="null", workload=sl.Script())
        beyond.append(1000 * (time.perf_counter() - began - one.host["wall_s"]))
    return statistics.median(beyond), "ms beyond the world's start, target at most 1"


def tiny_cells(count: int) -> tuple[float, str]:
    """Percent of the host threads' time that a sweep of tiny cells spends outside the core."""
    threads = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        grid = sl.sweep(
            allocator="slub",
            workload=sl.Tbench(clients=1, seconds=0.002, warmup=0.0),
            repeats=count,
            threads=threads,
            store=Path(folder) / "runs.db",
        )
        took = time.perf_counter() - began
    inside = sum(r.host["wall_s"] for r in grid) / threads
    return 100 * (1 - inside / took), f"% of {took:.1f} s outside the core ({count} cells, a store), target below 15"


def two_threads() -> tuple[float, str]:
    """How much faster two host threads are than one; the best of three, the host may have other work."""
    grid = {"allocator": ["slab", "slub"], "workload": sl.Tbench(seconds=0.05, warmup=0.02)}

    def took(threads: int) -> float:
        began = time.perf_counter()
        sl.sweep(**grid, over={"workload.clients": range(1, 17)}, threads=threads)  # type: ignore[arg-type]
        return time.perf_counter() - began

    speedups = [took(1) / took(2) for _ in range(3)]
    return max(speedups), "times as fast on two threads, target at least 1.8"


def main() -> int:
    """Prints the three figures; fails when `--check` is given and a target is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cells", type=int, default=10_000, help="tiny cells (default %(default)s)")
    options.add_argument("--check", action="store_true", help="exit status 1 when a target is missed")
    given = options.parse_args()
    missed = False
    for name, (value, unit), met in (
        ("empty run", empty_run(), lambda v: v <= 1),
        ("tiny cells", tiny_cells(given.cells), lambda v: v < 15),
        ("two threads", two_threads(), lambda v: v >= 1.8),
    ):
        missed |= not met(value)
        print(f"{name:<12} {value:6.2f} {unit}{'' if met(value) else ': MISSED'}", flush=True)
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
