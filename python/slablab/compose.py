"""Workloads put together from primitives: `Workload(tasks=[task(alloc(...), work(...), free(...))])`.

Every function here makes one entry of a workload as a plain dict, so that a workload can as well be written, read and
stored as JSON. Each task repeats its steps until the run ends. Where a number is meant, a distribution may stand
(`uniform`, `exponential`, `choice`): it is drawn anew each time, from the run's seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from slablab.values import refused, shown

if TYPE_CHECKING:
    from pathlib import Path

Step: TypeAlias = dict[str, Any]
Number: TypeAlias = float | Mapping[str, Any]

__all__ = [
    "alloc",
    "cache",
    "choice",
    "copy",
    "done",
    "exponential",
    "free",
    "pause",
    "queue",
    "read_histogram",
    "recv",
    "repeat",
    "send",
    "syscall",
    "task",
    "touch",
    "uniform",
    "work",
    "yield_",
]


def cache(name: str, size: int, **flags: Any) -> Step:
    """Describes a cache of `size` bytes; flags: align, hwcache_align, reclaim_account, typesafe_by_rcu, ctor."""
    return {"name": name, "size": size, **flags}


def queue(name: str, capacity: int = 16, delay_us: float = 0.0) -> Step:
    """Describes a queue of so many messages, each under way for `delay_us` microseconds (a disk, a wire)."""
    return {"name": name, "capacity": capacity, "delay_us": delay_us}


def task(*steps: Step, count: int = 1, cpu: int | None = None, urgent: bool = False) -> Step:
    """Makes `count` tasks that repeat these steps, on `cpu` and those after it; urgent ones interrupt others there."""
    made: Step = {"count": count, "urgent": urgent, "loop": list(steps)}
    return made if cpu is None else made | {"cpu": cpu}


def uniform(low: float, high: float) -> Step:
    """Draws evenly from `low` to `high`, both included."""
    return {"uniform": [low, high]}


def exponential(mean: float) -> Step:
    """Draws with this mean, small values most often."""
    return {"exponential": mean}


def choice(*values: tuple[float, float]) -> Step:
    """Draws one of these (value, weight) pairs."""
    return {"choice": [list(pair) for pair in values]}


def alloc(
    cache: str | None = None, *, kmalloc: Number | None = None, pages: int | None = None, slot: Number = 0
) -> Step:
    """Takes an object of a cache, so many bytes of kmalloc memory, or pages of an order, into a slot of the task.

    What the slot held is given back.
    """
    what = {"cache": cache, "kmalloc": kmalloc, "pages": pages}
    return {"alloc": {k: v for k, v in what.items() if v is not None} | {"slot": slot}}


def free(slot: Number = 0, *, rcu: bool = False) -> Step:
    """Gives back what a slot holds, if it holds something; with `rcu` after a grace period, on the same CPU."""
    return {"free": {"slot": slot, "rcu": rcu}}


def touch(slot: Number = 0, *, bytes: Number = 64, write: bool = False) -> Step:  # noqa: A002
    """Reads or writes the first bytes of what a slot holds, one access per cache line."""
    return {"touch": {"slot": slot, "bytes": bytes, "write": write}}


def copy(slot: Number = 0, *, bytes: Number = 64, write: bool = False) -> Step:  # noqa: A002
    """Copies payload out of what a slot holds, or into it."""
    return {"copy": {"slot": slot, "bytes": bytes, "write": write}}


def send(queue: str, slot: int = 0, count: int = 1) -> Step:
    """Passes the contents of `count` slots to whoever receives from the queue; waits while it is full."""
    return {"send": {"queue": queue, "slot": slot, "count": count}}


def recv(queue: str, slot: int = 0) -> Step:
    """Takes the oldest message of a queue into slots from `slot` on; waits until there is one."""
    return {"recv": {"queue": queue, "slot": slot}}


def work(us: Number) -> Step:
    """Works for so many microseconds."""
    return {"work": {"us": us}}


def pause(us: Number) -> Step:
    """Sleeps for so many microseconds."""
    return {"pause": {"us": us}}


def syscall() -> Step:
    """Enters and leaves the kernel."""
    return {"syscall": {}}


def yield_() -> Step:
    """Lets the other tasks of the CPU run first."""
    return {"yield": {}}


def done() -> Step:
    """Counts an operation."""
    return {"done": {}}


def repeat(times: Number, *steps: Step) -> Step:
    """Repeats steps."""
    return {"repeat": {"times": times, "steps": list(steps)}}


def read_histogram(path: str | Path) -> Sequence[tuple[str, int, int]]:
    """Reads live objects for `Boot(source="histogram", histogram=…)`.

    The file is a CSV with the columns cache, bytes and count, or the text of /proc/slabinfo (its active objects).
    Raises ConfigError, which names the file or the line, for anything else.
    """
    import csv
    from pathlib import Path

    try:
        # Spreadsheets write a byte order mark.
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise refused("path", shown(str(path)), f"a readable text file: {e}") from None
    lines = text.splitlines()
    rows: list[tuple[str, int, int]] = []
    if text.startswith("slabinfo"):
        for at, line in enumerate(lines, 1):
            words = line.split()
            if at == 1 or not words or words[0].startswith("#"):
                continue
            try:
                name, count, size = words[0], int(words[1]), int(words[3])
            except (IndexError, ValueError):
                raise refused(f"{path}:{at}", shown(line), "a line of /proc/slabinfo") from None
            rows += [(name, size, count)] if count else []
        return rows
    reader = csv.DictReader(lines)
    for row in reader:
        try:
            rows.append((str(row["cache"]), int(row["bytes"]), int(row["count"])))
        except (KeyError, TypeError, ValueError):
            where = f"{path}:{reader.line_num}"
            raise refused(where, shown(dict(row)), "the columns cache, bytes and count") from None
    return rows
