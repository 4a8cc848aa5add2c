"""`slablab run` and `slablab sweep`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from slablab.cli import out, words
from slablab.experiment import run as run_one
from slablab.result import Sweep
from slablab.sweep import SweepInterrupted, plan, sweep


def add(commands: Any) -> None:
    """Adds the commands."""
    one = commands(
        "run",
        run,
        "Run one experiment and print its totals.",
        "slablab run --allocator slub@2.6.24 --workload tbench --set workload.clients=8 --set machine.cpus=4",
    )
    experiment(one)
    one.add_argument("--csv", type=Path, metavar="FILE", help="write the totals as CSV")

    many = commands(
        "sweep",
        run_sweep,
        "Run every combination of allocators and parameter values.",
        "slablab sweep --allocator slab,slub --over workload.clients=1..16 --store runs.db --png grid.png",
    )
    experiment(many)
    many.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="an axis: 1..16 (both ends count) or 1,2,4; repeatable",
    )
    many.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="runs per cell, with seeds from --seed on (default 1)"
    )
    many.add_argument("--store", metavar="FILE", help="keep finished runs there; what is there is not run again")
    many.add_argument("--sample", metavar="N", help="run N combinations drawn at random; latin:N for a latin hypercube")
    many.add_argument("--sample-seed", type=int, metavar="N", help="seed of the sample (default 1)")
    many.add_argument("--dry-run", action="store_true", help="say what would run and how long it may take")
    many.add_argument("--threads", type=int, metavar="N", help="host threads for simulated runs (default: all cores)")
    many.add_argument("--csv", type=Path, metavar="FILE", help="write one row per run as CSV")
    many.add_argument("--png", type=Path, metavar="FILE", help="draw throughput against the first axis of --over")


def experiment(parser: argparse.ArgumentParser) -> None:
    """The options that name the parts of an experiment."""
    several = "; several with commas" if parser.prog.endswith("sweep") else ""
    parser.add_argument(
        "--machine", default="opteron-2x4-2007", metavar="NAME", help=f"preset or native{several} (default %(default)s)"
    )
    parser.add_argument("--allocator", required=True, metavar="NAME", help=f"as slub or slub@2.6.24{several}")
    parser.add_argument("--workload", default="tbench", metavar="NAME", help=f"workload{several} (default %(default)s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, as machine.cpus=4; repeatable"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="seconds measured, as --set workload.seconds=S")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed (default 1)")


def run(given: argparse.Namespace) -> int:
    """Runs one experiment."""
    out.writable([given.csv])
    machine, allocator, workload = words.parts(given)
    arguments = {"machine": machine, "allocator": allocator, "workload": workload, "seed": given.seed}
    if given.show_code:
        shown = "print(one.to_json())" if given.json else "print(one.summary().T.to_string(header=False))"
        return out.script(f"one = {out.call('run', arguments)}", out.csv("one.summary()", given.csv), shown)
    out.echo("run", arguments)
    result = run_one(**arguments)
    if given.csv:
        result.summary().to_csv(given.csv, index=False)
    if given.json:
        print(result.to_json())
        return 0
    return out.row(result.row())


def run_sweep(given: argparse.Namespace) -> int:
    """Runs a sweep, or says what it would do."""
    out.writable([given.csv], given.png, [given.store])
    over = words.over(given.over)
    arguments: dict[str, Any] = {
        **words.several(given),
        "over": over or None,
        "repeats": given.repeats,
        "seed": given.seed,
        "sample": words.sample(given.sample, given.sample_seed),
        "store": given.store,
        "threads": given.threads,
    }
    if given.show_code:
        return _code(given, arguments, list(over))
    if given.dry_run:
        made = plan(**arguments)
        print(json.dumps(made.to_dict(), indent=1) if given.json else made)
        return 0
    out.echo("sweep", arguments)
    # Loaded before the run begins: after a Ctrl-C there is no time for it.
    if given.png:
        from slablab.extras import needed

        needed("matplotlib.pyplot", "--png")
    import pandas as pd  # noqa: F401

    status, grid = 0, Sweep([])
    try:
        grid = sweep(**arguments, progress=sys.stderr.isatty())
    except SweepInterrupted as stopped:
        status, grid = 1, stopped.finished
        kept = f"kept in {given.store}: the same command goes on from there" if given.store else "which are kept"
        print(f"slablab: stopped after {len(grid)} runs, {kept}", file=sys.stderr)
    _written(given, grid, list(over), stopped=bool(status))
    return status


def _written(given: argparse.Namespace, grid: Sweep, axes: list[str], *, stopped: bool) -> None:
    frame = grid.summary()
    if given.csv:
        frame.to_csv(given.csv, index=False)
    if given.png and len(grid):
        if stopped:
            # A picture takes longer than a stopped command may.
            print(f"slablab: {given.png} is not drawn", file=sys.stderr)
        else:
            out.draw(grid, axes, given.png)
    if given.json:
        print(grid.to_json())
    elif len(grid):
        keys = [c for c in frame.columns if c in (*grid.axes, "allocator", "era", "seed")]
        print(frame[[*keys, "throughput", "unit", "lock_wait_pct", "used_kb"]].to_string(index=False))


def _code(given: argparse.Namespace, arguments: dict[str, Any], axes: list[str]) -> int:
    """The Python of a sweep."""
    if given.dry_run:
        return out.script(f"print({out.call('plan', arguments)})")
    drawn = None
    if given.png:
        chosen = out.drawn_with(axes)
        words = "".join(f", {name}={column!r}" for name, column in chosen.items())
        first = "[0]" if "col" in chosen else ""
        drawn = f"sl.plot.throughput(grid{words}){first}.get_figure(root=True).savefig({str(given.png)!r}, dpi=150)"
    shown = "print(grid.to_json())" if given.json else "print(grid.summary().to_string(index=False))"
    return out.script(f"grid = {out.call('sweep', arguments)}", out.csv("grid.summary()", given.csv), drawn, shown)
