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
from slablab.published import Baseline, Constant, Published
from slablab.sweep import sweep

TOLERANCE = 0.002
"""A mean fits when it is this close to its target, relatively."""
ROUNDS = 6
STEPS = 8
"""Secant steps per round: near its target a mean is as rough as the placement of tasks."""


def baseline(figure: Published) -> dict[int, float]:
    """The only published series that the calibrator reads: clients → throughput."""
    return published.series(figure, [figure.baseline])[figure.baseline]


def target(figure: Published, fit: Baseline) -> float:
    """The published mean that fixes a constant."""
    series = baseline(figure)
    return sum(series[n] for n in fit.clients) / len(fit.clients)


def measure(
    figure: Published, values: Mapping[str, float], clients: tuple[int, ...], seeds: int, say: Callable[[str], object]
) -> float:
    """The simulated mean over `clients`, best of `seeds` at each, with these constants."""
    allocator = next(a for a in figure.allocators if a.partition("@")[0] == figure.baseline)
    over: dict[str, list[float] | tuple[int, ...]] = {name: [value] for name, value in values.items()}
    over["workload.clients"] = clients
    grid = sweep(machine=figure.machine, allocator=allocator, workload=figure.workload, over=over, repeats=seeds)
    mean = float(grid.best()["throughput"].mean())
    words = ", ".join(f"{k} = {v:.5g}" for k, v in values.items())
    say(f"clients {clients[0]}..{clients[-1]}: {mean:.1f} {figure.unit} with {words}")
    return mean


def calibrate(figure: Published, seeds: int = 5, say: Callable[[str], object] = print) -> list[Constant]:
    """Fits every constant of a figure."""
    values = {fit.parameter: 1.0 for fit in figure.fits}
    targets = {fit.parameter: target(figure, fit) for fit in figure.fits}
    reached: dict[str, float] = {}
    for _ in range(ROUNDS):
        for fit in figure.fits:
            values[fit.parameter] = _solve(figure, fit, values, targets[fit.parameter], seeds, say)
        reached = {f.parameter: measure(figure, values, f.clients, seeds, say) for f in figure.fits}
        if all(abs(reached[p] / targets[p] - 1) < TOLERANCE for p in values):
            break
    return [
        Constant(
            parameter=fit.parameter,
            value=round(values[fit.parameter], 4),
            plausible=fit.plausible,
            fitted_on=f"{figure.baseline}, mean of clients {fit.clients[0]} to {fit.clients[-1]}",
            target=round(targets[fit.parameter], 3),
            reached=round(reached[fit.parameter], 3),
            reason=fit.reason,
        )
        for fit in figure.fits
    ]


def _solve(
    figure: Published, fit: Baseline, values: Mapping[str, float], goal: float, seeds: int, say: Callable[[str], object]
) -> float:
    """The value of one constant at which its mean is `goal`, the others held: secant steps on time per operation."""
    tried: list[tuple[float, float]] = []

    def excess(value: float) -> float:
        off = 1 / measure(figure, {**values, fit.parameter: value}, fit.clients, seeds, say) - 1 / goal
        tried.append((abs(off), value))
        return off

    old, off_old = values[fit.parameter], excess(values[fit.parameter])
    new = old * (1.1 if off_old < 0 else 0.9)
    for _ in range(STEPS):
        if min(tried)[0] * goal < TOLERANCE:
            break
        off_new = excess(new)
        if off_new == off_old:
            break
        step = off_new * (new - old) / (off_new - off_old)
        # A constant is a positive factor; a step that would leave a factor of two is cut.
        old, off_old, new = new, off_new, min(max(new - step, new / 2), new * 2)
    return min(tried)[1]


def written(figure: Published, constants: list[Constant]) -> str:
    """The constants as the TOML file of the package."""
    text = (
        f"# Written by `python -m slablab.calibration {figure.name}`: fitted on the {figure.baseline} series alone.\n"
    )
    for c in constants:
        text += (
            f'\n[[constant]]\nparameter = "{c.parameter}"\nvalue = {c.value}\n'
            f"plausible = [{c.plausible[0]}, {c.plausible[1]}]\n"
            f'fitted_on = "{c.fitted_on}"\ntarget = {c.target}\nreached = {c.reached}\nreason = "{c.reason}"\n'
        )
    return text


def main(argv: list[str] | None = None) -> int:
    """Fits the constants of one published result and writes them down."""
    parser = argparse.ArgumentParser(prog="python -m slablab.calibration", description=main.__doc__)
    parser.add_argument("name", choices=sorted(published.ALL))
    parser.add_argument("--seeds", type=int, default=5, help="best of so many seeds at each point (default 5)")
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
