"""What a published result is: cases to simulate, claims about them, and the constants that its baseline may fix."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from slablab import config
from slablab.config import PARTS, Part
from slablab.values import Value

if TYPE_CHECKING:
    from slablab.result import Result
    from slablab.runs import Runs

Use: TypeAlias = Literal["scored", "baseline", "shape", "reference", "not claimed", "prediction"]
"""What a published number is for: a prediction is scored; a baseline fits a constant, a shape checks the fitted series
elsewhere; a reference is shown; not claimed says that the model cannot explain it. A prediction has no published
number beside it."""

How: TypeAlias = Literal["level", "change", "time saved", "ratio", "difference"]
"""How a claim compares its cases: the level of one; the change of tested against base in percent; by how many percent
base takes longer than tested; their ratio; their difference."""

Metric: TypeAlias = "str | Callable[[Result], float]"

Reduce: TypeAlias = Literal["best", "median", "mean"]
"""What the mail made of its repeated runs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One experiment: machine, allocator, workload."""

    machine: Part
    allocator: Part
    workload: Part

    def changed(self, values: Mapping[str, Value]) -> Case:
        """The case with these dotted parameters; one that a part does not have leaves it as it is."""
        made = {name: getattr(self, name) for name in PARTS}
        for dotted, value in values.items():
            part, _, parameter = dotted.partition(".")
            if parameter in config.parameters(part, str(made[part].document()["name"])):
                made[part] = config.changed(made[part], **{parameter: value})
        return Case(**made)

    def fixed(self, constants: Iterable[Constant]) -> Case:
        """The case with the constants of its workload on its machine."""
        return self.changed({c.parameter: c.value for c in constants if c.holds(self)})

    def __str__(self) -> str:
        return f"{self.machine!r}, {self.allocator!r}, {self.workload!r}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One number of a published result: the cases that stand for it, and what was published."""

    row: str
    """What it is about, in the words of the result."""
    tested: tuple[Case, ...]
    """What the number is of; the mean over several cases where there are several."""
    base: tuple[Case, ...] = ()
    """What `tested` is compared with."""
    how: How = "level"
    unit: str = "%"
    """Unit of the value."""
    metric: Metric = "throughput"
    """Column of a run's summary that is compared, or what works the number out."""
    slower_is_more: bool = False
    """The metric is a time."""
    published: tuple[float, float] | None = None
    """Low and high end; equal when one number was given."""
    use: Use = "scored"
    within: float | None = None
    """The target: greatest distance from the nearest published end; in percent for levels, else in the value's unit."""
    why: str = ""
    """Why it is used so, where that needs saying."""
    x: float | None = None
    """Its place on the figure's axis."""
    series: str = ""
    """Its line in the figure."""

    @property
    def cases(self) -> tuple[Case, ...]:
        """The cases that must run."""
        return self.base + self.tested

    def with_cases(self, change: Callable[[Case], Case]) -> Claim:
        """The claim with a change made to all its cases."""
        return replace(self, tested=tuple(map(change, self.tested)), base=tuple(map(change, self.base)))

    def value(self, tested: float, base: float | None) -> float:
        """The compared value."""
        if base is None or self.how == "level":
            return tested
        match self.how:
            case "change":
                return 100 * (tested / base - 1)
            case "time saved":
                return 100 * (base / tested - 1)
            case "ratio":
                return tested / base
            case _:
                return tested - base

    def error(self, value: float) -> float | None:
        """How far a value is from the nearest published end: percent for levels, else in the value's own unit."""
        if self.published is None:
            return None
        low, high = self.published
        near = min(max(value, low), high)
        return 100 * (value / near - 1) if self.how == "level" else value - near

    def sign(self, value: float) -> bool | None:
        """Whether the value is on the published side of "no difference"; None where the claim takes no side."""
        if self.published is None or self.how == "level":
            return None
        none = 1.0 if self.how == "ratio" else 0.0
        low, high = (end - none for end in self.published)
        if low * high <= 0:
            return None
        return (value - none) * low > 0


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A constant that the baseline fixes: one mean over cases, and the parameter that is changed until it fits."""

    parameter: str
    """Dotted name; set in every case of this workload on these machines."""
    workload: str
    machines: tuple[str, ...]
    cases: tuple[Case, ...]
    target: float
    """The published mean over these cases."""
    fitted_on: str
    plausible: tuple[float, float]
    reason: str
    """Where the plausible range comes from."""
    metric: Metric = "throughput"
    slower_is_more: bool = False
    """The metric is a time."""
    start: float = 1.0
    """Where the search begins."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """A mechanism taken away, to see whether it carries the result."""

    name: str
    meaning: str
    values: Mapping[str, Value]
    """Dotted parameters set in every case that has them."""
    allocators: tuple[str, ...] = ()
    """Allocators whose cases are changed; all when empty."""

    def of(self, case: Case) -> Case:
        """The case without the mechanism."""
        if self.allocators and case.allocator.document()["name"] not in self.allocators:
            return case
        return case.changed(self.values)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published result: its claims, what may be fitted, which mechanisms are said to carry it."""

    name: str
    title: str
    question: str
    """What its author asked."""
    source: str
    claims: Callable[[], Sequence[Claim]]
    """Made when asked for: they read the published files."""
    fits: Callable[[], Sequence[Fit]]
    """The same of the constants; they read baseline numbers alone."""
    reduce: Reduce
    seeds: int
    """Runs per case, as the mail had."""
    headline: Callable[[], Sequence[Claim]]
    """The claims that ablations and sensitivity are shown on: few, and cheap to run."""
    quick: Callable[[Claim], bool]
    """The claims of a quick look."""
    ablations: Sequence[Ablation] = ()
    mail: Callable[[Runs], list[str]] | None = None
    """The table in the layout of the mail, where that is another than a row per claim."""
    curve: bool = False
    """Its figure is a curve per allocator, not a number per claim."""
    limits: Sequence[str] = ()
    """What the model leaves out that may matter here."""

    def reduced(self, values: Sequence[float], slower_is_more: bool = False) -> float:
        """One number of the runs of a case."""
        if self.reduce == "best":
            return min(values) if slower_is_more else max(values)
        return statistics.median(values) if self.reduce == "median" else statistics.fmean(values)


@dataclass(frozen=True)
class Constant:
    """A fitted constant: its value, where it was fitted, and how well it fits."""

    parameter: str
    workload: str
    machines: tuple[str, ...]
    value: float
    plausible: tuple[float, float]
    fitted_on: str
    target: float
    reached: float
    reason: str

    def holds(self, case: Case) -> bool:
        """Whether it is a constant of this case."""
        return case.machine.document()["name"] in self.machines and case.workload.document()["name"] == self.workload

    @property
    def residual_pct(self) -> float:
        """How far the fitted mean is from its target, in percent."""
        return 100 * (self.reached / self.target - 1)

    @property
    def failed(self) -> bool:
        """A value outside its plausible range, or one that misses its target, is a failed model, not a calibration."""
        return not self.plausible[0] <= self.value <= self.plausible[1] or abs(self.residual_pct) > 5.0

    def __str__(self) -> str:
        low, high = self.plausible
        outside = not low <= self.value <= high
        why = "OUTSIDE its plausible range" if outside else "its target is OUT OF REACH"
        verdict = f"; {why}: the model fails here" if self.failed else ""
        return (
            f"{self.parameter} of {self.workload} on {', '.join(self.machines)} = {self.value:.4g} "
            f"(plausible {low:g} to {high:g}{verdict}), "
            f"fitted on {self.fitted_on}, residual {self.residual_pct:+.2f} %"
        )
