"""`slablab bench workloads`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from slablab.bench import ALLOCATORS
from slablab.cli import out, words
from slablab.config import allocator, machine


def add(commands: Any) -> None:
    """Adds the command."""
    made = commands(
        "bench workloads",
        run,
        "Run every workload on every allocator: what it asks for, most frees on another CPU first.",
        "slablab bench workloads --allocator slab@2.6.24 --machine stoakley-2x4 --repeats 3",
    )
    made.add_argument(
        "--machine", default="opteron-2x4-2007", metavar="NAME", help="preset or native (default %(default)s)"
    )
    made.add_argument(
        "--allocator",
        default=",".join(ALLOCATORS),
        metavar="NAMES",
        help="these allocators, with commas (default %(default)s)",
    )
    made.add_argument("--workload", metavar="NAMES", help="these workloads, with commas (default: all)")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the machine or the allocator"
    )
    made.add_argument("--seed", type=int, default=1, metavar="N", help="seed (default 1)")
    made.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="seeds of each cell, for the spread between them (default 1)",
    )
    made.add_argument("--csv", type=Path, metavar="FILE", help="write the table as CSV")


def run(given: argparse.Namespace) -> int:
    """Prints the table of all workloads."""
    from slablab import bench

    out.writable([given.csv])
    words.only(given, "machine", "allocator")
    given.seconds = None
    arguments: dict[str, Any] = {
        "machine": words.changed(machine(given.machine), given),
        "allocator": [words.changed(allocator(a.strip()), given) for a in given.allocator.split(",")],
        "workload": [w.strip() for w in given.workload.split(",")] if given.workload else None,
        "seed": given.seed,
        "repeats": given.repeats,
    }
    if given.show_code:
        shown = "print(table.to_json(orient='records'))" if given.json else "print(table.to_string(index=False))"
        call = out.call("bench.workloads", arguments)
        return out.script("import slablab.bench", f"table = {call}", out.csv("table", given.csv), shown)
    out.echo("bench.workloads", arguments)
    made = bench.workloads(**arguments, progress=sys.stderr.isatty())
    if given.csv:
        made.to_csv(given.csv, index=False)
    print(made.to_json(orient="records") if given.json else made.to_string(index=False, float_format="%.4g"))
    return 0
