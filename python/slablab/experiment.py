"""One experiment: a machine, an allocator, a workload and a seed."""

from __future__ import annotations

import fnmatch
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slablab import _core, config
from slablab.config import Allocator, AllocatorConfig, Native, Sim, Typed, Workload
from slablab.result import Result
from slablab.values import unknown, whole


class RunWarning(UserWarning):
    """A run finished, and its figures do not say what they seem to."""


class OversubscribedWarning(RunWarning):
    """A native run had more CPUs than the host, so its waits are the host scheduler's."""


class UnsteadyWarning(RunWarning):
    """The window of a job that is scaled to its whole length saw sockets fill up or drain, not its steady state."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The parts of a run, bundled: `Experiment(allocator="slub@2.6.24", workload=Tbench(clients=8)).run()`."""

    machine: Sim | Native = field(default_factory=Sim)
    allocator: AllocatorConfig | Allocator
    workload: Typed | Workload
    seed: int = 1

    def __init__(
        self,
        *,
        machine: config.MachineLike = "opteron-2x4-2007",
        allocator: config.AllocatorLike,
        workload: config.WorkloadLike,
        seed: int = 1,
    ) -> None:
        object.__setattr__(self, "machine", config.machine(machine))
        object.__setattr__(self, "allocator", config.allocator(allocator))
        object.__setattr__(self, "workload", config.workload(workload))
        object.__setattr__(self, "seed", checked_seed(seed))

    def document(self) -> dict[str, Any]:
        """The JSON form of it, with what was given."""
        parts: dict[str, Any] = {p: getattr(self, p).document() for p in config.PARTS}
        return {**parts, "seed": self.seed}

    def expand(self) -> dict[str, Any]:
        """The complete configuration: every default filled in, every value checked."""
        full: dict[str, Any] = json.loads(_core.expand(config.encoded(self.document())))
        return full

    def run(self) -> Result:
        """Runs it."""
        result = Result(_core.run(config.encoded(self.document())))
        warn_about([result])
        return result


def run(
    *,
    machine: config.MachineLike = "opteron-2x4-2007",
    allocator: config.AllocatorLike,
    workload: config.WorkloadLike,
    seed: int = 1,
) -> Result:
    """Runs one experiment."""
    return Experiment(machine=machine, allocator=allocator, workload=workload, seed=seed).run()


def checked_seed(seed: object) -> int:
    """Refuses what cannot seed a run."""
    return whole("seed", seed, "a whole number from 0 to 2^63 - 1", 0, (1 << 63) - 1)


def warn_about(results: Iterable[Result]) -> None:
    """Says once what the figures of runs do not say: too many workers, a window too short, memory that ran out."""
    results = list(results)
    rows = [r.row() for r in results]
    for words in (_failed(rows), _idle(rows), _unmatched(results)):
        if words:
            warnings.warn(words, RunWarning, stacklevel=3)
    crowded = sum(bool(row.get("oversubscribed")) for row in rows)
    if crowded:
        warnings.warn(
            f"{crowded} native run(s) had more CPUs than the host: oversubscribed=True. Their workers take turns on "
            "the host's CPUs, so waits and throughput are the host scheduler's: do not read scaling from them.",
            OversubscribedWarning,
            stacklevel=3,
        )
    unsteady = [row for row in rows if row.get("steady") is False]
    if unsteady:
        row = unsteady[0]
        sent = round((row.get("net_messages_per_op") or 0) * row["ops"])
        seen = f"{sent} messages written and {row['ops']} read" if row["ops"] else "messages of which none was read"
        warnings.warn(
            f"{len(unsteady)} run(s) of {row['workload']} are not in their steady state: steady=False. The first saw "
            f"{seen} in {row['elapsed_s']:g} s: a warmup longer than {row['warmup']:g} s and more seconds make it one. "
            "A throughput of 0 is no time: with half of the messages' way unseen the job is not scaled.",
            UnsteadyWarning,
            stacklevel=3,
        )


def _failed(rows: Sequence[Mapping[str, Any]]) -> str:
    """Allocations that found no memory."""
    failed = [row for row in rows if row.get("alloc_failed") and row["workload"] != "script"]
    if not failed:
        return ""
    row = failed[0]
    return (
        f"{len(failed)} run(s) had allocations that failed, the first {row['alloc_failed']} of them ({row['workload']} "
        f"on {row['allocator']}, {row['machine']}): its memory was full. What failed is counted as done all the same."
    )


def _idle(rows: Sequence[Mapping[str, Any]]) -> str:
    """Runs in whose window nothing was finished."""
    idle = [r for r in rows if r.get("ops") == 0 and r.get("steady") is not False and r["workload"] != "script"]
    if not idle:
        return ""
    row = idle[0]
    return (
        f"{len(idle)} run(s) finished no operation, the first {row['workload']} in {row['elapsed_s']:g} s: a longer "
        "window, or tasks that reach done() and do not wait for each other for ever."
    )


def _unmatched(results: Sequence[Result]) -> str:
    """Caches with tunables of their own that no run had; those that may merge have no name to be found by."""
    for result in results:
        option = str(result.config["allocator"].get("per_cache") or "")
        blocks = [block for block in option.split(";") if block.strip() and "merge" not in block]
        if result.config["workload"]["name"] == "script":
            # Its caches are made as it goes.
            continue
        names = [str(name) for name in result.caches()["cache"]] if blocks else []
        for pattern in (block.partition(":")[0].strip() for block in blocks):
            if not fnmatch.filter(names, pattern):
                return f"the run had no such cache: {unknown('allocator.per_cache', pattern, names)}"
    return ""
