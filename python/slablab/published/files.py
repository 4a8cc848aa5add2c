"""The published files of the package, and the constants fitted on their baselines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from slablab.published.model import Constant
from slablab.values import refused


def text(file: str) -> str:
    """A file of the package's data."""
    return (files("slablab") / "data" / file).read_text(encoding="utf-8")


def rows(file: str, column: str, **where: str) -> Iterator[tuple[dict[str, str], float]]:
    """The numbers of one column where the named columns hold these words; empty cells are left out.

    No other column of numbers is handed on: the row that comes with a number has its keys alone.
    """
    for row in csv.DictReader(io.StringIO(text(file))):
        if row[column] and all(row[name] == value for name, value in where.items()):
            yield {k: v for k, v in row.items() if k in KEYS[file]}, float(row[column])


KEYS: dict[str, tuple[str, ...]] = {
    "chen_2007_slub.csv": ("workload", "machine", "kernel", "slub_parameters"),
    "lameter_2007_tcp_stream.csv": ("run",),
    "lameter_2008_tbench.csv": ("allocator",),
    "lameter_2011_hackbench.csv": ("groups", "loops"),
    "nick_2007_tbench.csv": ("clients",),
    "pekka_2008_boot_memory.csv": ("allocator",),
    "rientjes_2011_netperf.csv": ("threads",),
    "rientjes_2011_slub_stats.csv": ("threads", "cache"),
    "yanmin_2008_slqb.csv": ("workload", "machine", "kernel", "metric"),
}
"""The columns of each file that say what a number is of."""


@cache
def constants(name: str) -> tuple[Constant, ...]:
    """The fitted constants of a published result, as the calibration wrote them."""
    import tomllib

    try:
        entries: list[dict[str, Any]] = tomllib.loads(text(f"{name}.toml"))["constant"]
    except KeyError:
        raise refused(f"{name}.toml", "no [[constant]]", "one entry per fitted constant") from None
    found = []
    for entry in entries:
        low, high = entry.pop("plausible")
        machines = tuple(entry.pop("machines"))
        found.append(Constant(plausible=(float(low), float(high)), machines=machines, **entry))
    return tuple(found)
