"""`slablab machine show` and `slablab validate`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from slablab import machines
from slablab.cli import out, words
from slablab.config import Sim
from slablab.config import machine as a_machine
from slablab.values import refused


def add(commands: Any) -> None:
    """Adds the commands."""
    show = commands(
        "machine show",
        run,
        "Print every figure of a simulated machine with its unit, source and confidence.",
        "slablab machine show opteron-2x4-2007\n  slablab machine show epyc-milan-2x64 --toml > mine.toml",
    )
    show.add_argument("preset", metavar="NAME", help="a preset, or a machine file that ends in .toml")
    show.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="replace a figure, as machine.mem_local=80"
    )
    show.add_argument(
        "--toml", action="store_true", help="print a machine file, which may stand wherever a machine may"
    )
    check = commands(
        "validate",
        validate,
        "Compare the simulated machine with its own tables and with published figures.",
        "slablab validate --quick",
    )
    check.add_argument("--quick", action="store_true", help="fewer seeds and less virtual time: a look in seconds")
    check.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables into this page, from its first ## on"
    )


def run(given: argparse.Namespace) -> int:
    """Prints a machine."""
    made = a_machine(given.preset)
    if not isinstance(made, Sim):
        raise refused("NAME", given.preset, "a simulated machine")
    given.seconds = None
    words.only(given, "machine")
    made = words.changed(made, given)
    if given.show_code:
        code = out.call("Sim", {"": given.preset, **{k: v for k, v in made.given if k != "values"}})
        if given.toml:
            return out.script(f"print({code}.toml(), end='')")
        how = "to_json(orient='records')" if given.json else "to_string(index=False)"
        return out.script(f"print({code}.figures().{how})")
    if given.toml:
        print(made.toml(), end="")
        return 0
    if given.json:
        print(json.dumps(machines.complete(made.document()), indent=2))
        return 0
    machine = machines.complete(made.document())
    cpus, memory = machine["cpus"], machine["node_bytes"]
    print(f"{machine['name']}: {len(cpus)} CPUs in use ({machine['placement']})")
    for node, size in enumerate(memory):
        own = [str(c["cpu"]) for c in cpus if c["node"] == node]
        print(f"  node {node}: {size >> 20} MiB, CPUs {', '.join(own) or 'none'}")
    width = max(len(k) for k in machine["values"])
    for key, v in machine["values"].items():
        value = f"{out.number(v['value'])} {v['unit']}".strip()
        print(f"{key:<{width}}  {value:<16}  {v['confidence']:<6}  {v['source']}")
    return 0


def validate(given: argparse.Namespace) -> int:
    """Prints the validation."""
    from slablab.validate import validate as made_tables

    if given.markdown is not None:
        out.writable([given.markdown])
    if given.show_code:
        made = out.call("validate", {"quick": given.quick})
        return out.script(f"print({made}{'.to_json()' if given.json else ''})")
    done = made_tables(quick=given.quick, progress=sys.stderr.isatty())
    print(done.to_json() if given.json else done)
    if given.markdown is not None:
        old = given.markdown.read_text(encoding="utf-8") if given.markdown.exists() else ""
        given.markdown.write_text(old.partition("## ")[0] + done.markdown(), encoding="utf-8")
    return 0 if done.exact() else 1
