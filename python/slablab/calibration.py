"""The calibrator: fits a published result's constants on its baseline series, and on nothing else.

`python -m slablab.calibration piggin-2007-tbench` writes the constants into the package's data. Each constant is fixed
by one mean over points of the baseline: with `t` the time per operation, which is close to linear in a cost, a secant
step on `t` finds the value; the constants take turns until all means fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from slablab import published
from slablab.published import Constant, Fit, Published
from slablab.runs import measured, run_cases

TOLERANCE = 0.002
"""A mean fits when it is this close to its target, relatively."""
ROUNDS = 6
LOST = 0.05
"""A mean that no value brings this close to its target leaves the constant at the end of its plausible range."""
BEYOND = 3.0
"""How far beyond its plausible range, as a factor, a constant is searched: further out it would say nothing."""
STEPS = 8
"""Secant steps per round: near its target a mean is as rough as the placement of tasks."""


def measure(
    figure: Published, values: Mapping[str, float], fit: Fit, seeds: int, say: Callable[[str], object]
) -> float:
    """The simulated mean over the fit's cases with these constants, the runs of each reduced as the mail's were."""
    cases = [case.changed(values) for case in fit.cases]
    runs = run_cases(figure, cases, seeds=seeds)
    reached = [
        figure.reduced([measured(r, fit.metric) for r in runs.by_case[case]], fit.slower_is_more) for case in cases
    ]
    mean = sum(reached) / len(reached)
    words = ", ".join(f"{k} = {v:.5g}" for k, v in values.items())
    say(f"{fit.fitted_on}: {mean:.5g}, wanted {fit.target:.5g}, with {words}")
    return mean


def calibrate(figure: Published, seeds: int | None = None, say: Callable[[str], object] = print) -> list[Constant]:
    """Fits every constant of a result."""
    fits, count = figure.fits(), figure.seeds if seeds is None else seeds
    together: dict[tuple[str, tuple[str, ...]], list[Fit]] = {}
    for fit in fits:
        together.setdefault((fit.workload, fit.machines), []).append(fit)
    return [c for own in together.values() for c in _fitted(figure, own, count, say)]


def _fitted(figure: Published, fits: list[Fit], seeds: int, say: Callable[[str], object]) -> list[Constant]:
    """The constants of one workload on one machine: they take turns until all means fit."""
    values = {fit.parameter: fit.start for fit in fits}
    reached: dict[str, float] = {}
    for _ in range(ROUNDS):
        for fit in fits:
            values[fit.parameter] = _solve(figure, fit, values, seeds, say)
        reached = {f.parameter: measure(figure, values, f, seeds, say) for f in fits}
        off = max(abs(reached[f.parameter] / f.target - 1) for f in fits)
        # With one constant a second turn would begin where the first ended.
        if off < TOLERANCE or (len(fits) == 1 and off > LOST):
            break
    lost = [f for f in fits if abs(reached[f.parameter] / f.target - 1) > LOST]
    for fit in lost:
        low, high = fit.plausible
        values[fit.parameter] = min(max(values[fit.parameter], low), high)
    if lost:
        reached = {f.parameter: measure(figure, values, f, seeds, say) for f in fits}
    return [
        Constant(
            parameter=fit.parameter,
            workload=fit.workload,
            machines=fit.machines,
            value=round(values[fit.parameter], 4),
            plausible=fit.plausible,
            fitted_on=fit.fitted_on,
            target=round(fit.target, 3),
            reached=round(reached[fit.parameter], 3),
            reason=fit.reason,
        )
        for fit in fits
    ]


def _solve(figure: Published, fit: Fit, values: Mapping[str, float], seeds: int, say: Callable[[str], object]) -> float:
    """The value of one constant at which its mean is the target, the others held: secant steps on time per work."""
    tried: list[tuple[float, float]] = []
    goal = fit.target if fit.slower_is_more else 1 / fit.target

    def excess(value: float) -> float:
        mean = measure(figure, {**values, fit.parameter: value}, fit, seeds, say)
        off = (mean if fit.slower_is_more else 1 / mean) - goal
        tried.append((abs(off), value))
        return off

    old, off_old = values[fit.parameter], excess(values[fit.parameter])
    new = old * (1.1 if off_old < 0 else 0.9)
    for _ in range(STEPS):
        if min(tried)[0] < TOLERANCE * goal:
            break
        off_new = excess(new)
        if off_new == off_old:
            break
        step = off_new * (new - old) / (off_new - off_old)
        # A constant is a positive factor; a step that would leave a factor of two is cut.
        low, high = fit.plausible[0] / BEYOND, fit.plausible[1] * BEYOND
        old, off_old, new = new, off_new, min(max(new - step, new / 2, low), new * 2, high)
        if new == old:
            break
    return min(tried)[1]


def written(figure: Published, constants: list[Constant]) -> str:
    """The constants as the TOML file of the package."""
    text = f"# Written by `python -m slablab.calibration {figure.name}`: fitted on the baseline numbers alone.\n"
    if not constants:
        text += "constant = []\n"
    for c in constants:
        text += (
            f'\n[[constant]]\nparameter = "{c.parameter}"\nworkload = "{c.workload}"\n'
            f"machines = {list(c.machines)}\nvalue = {c.value}\n"
            f"plausible = [{c.plausible[0]}, {c.plausible[1]}]\n"
            f'fitted_on = "{c.fitted_on}"\ntarget = {c.target}\nreached = {c.reached}\nreason = "{c.reason}"\n'
        )
    return text


def main(argv: list[str] | None = None) -> int:
    """Fits the constants of one published result and writes them down."""
    parser = argparse.ArgumentParser(prog="python -m slablab.calibration", description=main.__doc__)
    parser.add_argument("name", choices=sorted(published.ALL))
    parser.add_argument("--seeds", type=int, help="runs of each case (default: as the result has)")
    parser.add_argument("--write", type=Path, default=Path(__file__).parent / "data", help="folder to write to")
    given = parser.parse_args(argv)
    figure = published.named(given.name)
    constants = calibrate(figure, given.seeds)
    path = given.write / f"{figure.name}.toml"
    path.write_text(written(figure, constants), encoding="utf-8")
    for constant in constants:
        print(constant)
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
