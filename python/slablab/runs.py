"""The runs of a published result's cases: each case once per seed, whatever number of claims it stands in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from slablab.result import Result, Sweep

if TYPE_CHECKING:
    from slablab.config import Part
    from slablab.published.model import Case, Claim, Metric, Published
    from slablab.sweep import StoreLike


class Runs:
    """Finished runs by case."""

    def __init__(self, figure: Published, by_case: dict[Case, list[Result]]) -> None:
        self.figure = figure
        self.by_case = by_case

    @property
    def sweep(self) -> Sweep:
        """All runs."""
        return Sweep([r for results in self.by_case.values() for r in results])

    def of(self, allocator: Part, metric: Metric = "throughput", **workload: object) -> list[float]:
        """One number of each run of the case with this allocator and these workload parameters; empty without one."""
        for case, runs in self.by_case.items():
            document = case.workload.document()
            if str(case.allocator) == str(allocator) and all(document.get(k) == v for k, v in workload.items()):
                return [measured(run, metric) for run in runs]
        return []

    def value(self, claim: Claim) -> float:
        """The claim's value: the runs of each case reduced as the mail reduced its own, the mean over cases."""
        return claim.value(self._mean(claim, claim.tested), self._mean(claim, claim.base) if claim.base else None)

    def spread(self, claim: Claim) -> tuple[float, float]:
        """The claim's value with each seed alone: lowest and highest."""
        count = min(len(self.by_case[c]) for c in claim.cases)
        each = [
            claim.value(self._at(claim, claim.tested, i), self._at(claim, claim.base, i) if claim.base else None)
            for i in range(count)
        ]
        return min(each), max(each)

    def _mean(self, claim: Claim, cases: Sequence[Case]) -> float:
        reduced = [
            self.figure.reduced([measured(r, claim.metric) for r in self.by_case[c]], claim.slower_is_more)
            for c in cases
        ]
        return sum(reduced) / len(reduced)

    def _at(self, claim: Claim, cases: Sequence[Case], seed: int) -> float:
        return sum(measured(self.by_case[c][seed], claim.metric) for c in cases) / len(cases)


def measured(result: Result, metric: Metric) -> float:
    """One number of a run: a column of its summary, or what the metric works out."""
    if callable(metric):
        return metric(result)
    value: Any = result.row()[metric]
    return float(value)


def run_cases(
    figure: Published,
    cases: Iterable[Case],
    *,
    seeds: int,
    seed: int = 1,
    store: StoreLike = None,
    threads: int | None = None,
    progress: bool = False,
) -> Runs:
    """Runs every case with every seed."""
    from slablab import planning
    from slablab.sweep import run

    wanted = list(dict.fromkeys(cases))
    numbers = list(range(seed, seed + seeds))
    made = planning.explicit([(c.machine, c.allocator, c.workload) for c in wanted], numbers)
    finished = run(made, store=store, threads=threads, progress=progress)
    by_key = {cell.key: result for cell, result in zip(made.cells, finished, strict=True)}
    by_case: dict[Case, list[Result]] = {}
    for case in wanted:
        full = {part.part: part.document() for part in (case.machine, case.allocator, case.workload)}
        by_case[case] = [by_key[planning.cell(full, i, n).key] for i, n in enumerate(numbers)]
    return Runs(figure, by_case)
