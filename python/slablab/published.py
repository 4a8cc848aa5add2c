"""Published results: their figures, how to run them again, and which part of them may calibrate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from slablab.config import Tbench
from slablab.values import refused, unknown


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A mean over points of the baseline series, and the one constant it fixes."""

    parameter: str
    clients: tuple[int, ...]
    plausible: tuple[float, float]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published figure: throughput of several allocators against the number of clients."""

    name: str
    title: str
    source: str
    file: str
    machine: str
    workload: Tbench
    allocators: tuple[str, ...]
    baseline: str
    """The series that calibrates; every other one is a prediction."""
    scored: str
    clients: tuple[int, ...]
    plateau: tuple[int, ...]
    unit: str
    fits: tuple[Baseline, ...]


PIGGIN_2007 = Published(
    name="piggin-2007-tbench",
    title="tbench on 2 × 4 Opteron, Linux 2.6.24-rc2",
    source="Nick Piggin, linux-kernel, November 2007 (highest of 5 runs, read off a graph, ± 5 MB/s)",
    file="nick_2007_tbench.csv",
    machine="opteron-2x4-2007",
    workload=Tbench(era="2.6.24"),
    allocators=("slab@2.6.24", "slub@2.6.24-rc2", "slob@2.6.24", "slqb@2.6.29"),
    baseline="slab",
    scored="slub",
    clients=tuple(range(1, 17)),
    plateau=tuple(range(9, 17)),
    unit="MB/s",
    fits=(
        Baseline(
            parameter="workload.protocol_scale",
            clients=tuple(range(9, 17)),
            plausible=(0.6, 1.6),
            reason="a loopback segment takes 5,000 to 6,000 instructions of about two cycles; unscaled: 10,000 cycles",
        ),
        Baseline(
            parameter="machine.idle_scale",
            clients=tuple(range(1, 5)),
            plausible=(1.0, 1.5),
            reason="interrupt and exit from idle took 2 to 3 µs on the machines of the time; unscaled it is 2 µs",
        ),
    ),
)

ALL = {p.name: p for p in (PIGGIN_2007,)}


def named(name: str) -> Published:
    """The published result of that name."""
    if not isinstance(name, str) or name not in ALL:
        raise unknown("reproduce", name, ALL)
    return ALL[name]


def series(published: Published, columns: Iterable[str]) -> dict[str, dict[int, float]]:
    """Columns of a published file, each as clients → value. No other column is read."""
    import csv
    import io

    wanted = list(columns)
    rows = list(csv.DictReader(io.StringIO(_text(published.file))))
    return {c: {int(r["clients"]): float(r[c]) for r in rows if r[c]} for c in wanted}


@dataclass(frozen=True)
class Constant:
    """A fitted constant: its value, where it was fitted, and how well it fits."""

    parameter: str
    value: float
    plausible: tuple[float, float]
    fitted_on: str
    target: float
    reached: float
    reason: str

    @property
    def residual_pct(self) -> float:
        """How far the fitted mean is from its target, in percent."""
        return 100 * (self.reached / self.target - 1)

    @property
    def failed(self) -> bool:
        """A value outside its plausible range is a failed model, not a calibration."""
        return not self.plausible[0] <= self.value <= self.plausible[1]

    def __str__(self) -> str:
        low, high = self.plausible
        verdict = "; OUTSIDE its plausible range: the model fails here" if self.failed else ""
        return (
            f"{self.parameter} = {self.value:.4g} (plausible {low:g} to {high:g}{verdict}), "
            f"fitted on {self.fitted_on}, residual {self.residual_pct:+.2f} %"
        )


@cache
def constants(name: str) -> tuple[Constant, ...]:
    """The fitted constants of a published result, as the calibration wrote them."""
    import tomllib

    published = named(name)
    entries: list[dict[str, Any]] = tomllib.loads(_text(f"{name}.toml"))["constant"]
    found = []
    for entry in entries:
        low, high = entry.pop("plausible")
        found.append(Constant(plausible=(float(low), float(high)), **entry))
    if [c.parameter for c in found] != [f.parameter for f in published.fits]:
        raise refused(f"{name}.toml", [c.parameter for c in found], f"{[f.parameter for f in published.fits]}")
    return tuple(found)


def _text(file: str) -> str:
    from importlib.resources import files

    return (files("slablab") / "data" / file).read_text(encoding="utf-8")
