"""`slablab compare`: runs of a store against a baseline, or a new store against an old one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from slablab import mail
from slablab.cli import out
from slablab.compare import compare, regressions
from slablab.result import Sweep
from slablab.store import Store
from slablab.values import refused, shown


def add(commands: Any) -> None:
    """Adds the command."""
    command = commands(
        "compare",
        run,
        "Compare the runs of a store with a baseline, or those of two stores: percent, interval, verdict.",
        "slablab compare runs.db --baseline slab@2.6.24\n  slablab compare old.db new.db --regressions",
    )
    command.add_argument("stores", nargs="+", metavar="STORE", help="a store; or the old and the new one")
    command.add_argument(
        "--baseline", metavar="NAME", help="an allocator, as slab@2.6.24; or a column, as cpus=4 (one store)"
    )
    command.add_argument(
        "--metric", default="throughput", metavar="COLUMN", help="what is compared (default %(default)s)"
    )
    command.add_argument(
        "--confidence", type=float, default=0.95, metavar="P", help="of all intervals together (default %(default)s)"
    )
    command.add_argument(
        "--margin", type=float, default=0.0, metavar="SHARE", help="smaller differences are none, as 0.01 (default 0)"
    )
    command.add_argument(
        "--regressions",
        action="store_true",
        help="only what became worse; exit status 1 if anything has (two stores)",
    )
    command.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as CSV")


def run(given: argparse.Namespace) -> int:
    """Prints the comparison; 1 when regressions were asked for and found."""
    out.writable([given.csv], stores=given.stores)
    _checked(given)
    how = {"confidence": given.confidence, "margin": given.margin}
    if given.show_code:
        return _code(given, how)
    grid = _runs(given.stores[-1])
    baseline: Any = _baseline(given.baseline) if len(given.stores) == 1 else _runs(given.stores[0])
    if given.regressions:
        found = regressions(baseline, grid, given.metric, **how)
    else:
        found = compare(grid, baseline, given.metric, **how)
    if given.csv:
        found.to_csv(given.csv, index=False)
    if given.json:
        out.frame(found, True)
    elif given.regressions:
        print(mail.text(found, given.metric) if len(found) else "no regressions")
    else:
        for line in mail.table(grid, baseline, given.metric, **how).splitlines():
            print(out.coloured(line, {"-": 31, "+": 32}.get(line[-1:], 0)) if line[-3:-1] == "  " else line)
    return 1 if given.regressions and len(found) else 0


def _checked(given: argparse.Namespace) -> None:
    """Refuses options that do not go with the number of stores."""
    if len(given.stores) > 2:
        raise refused("STORE", shown(given.stores[2]), "one store, or the old and the new one")
    if len(given.stores) == 1 and given.baseline is None:
        raise refused("--baseline", "nothing", "an allocator, as slab@2.6.24; or a second store")
    if len(given.stores) == 2 and given.baseline is not None:
        raise refused("--baseline", shown(given.baseline), "no baseline with two stores: the first of them is it")
    if given.regressions and len(given.stores) != 2:
        raise refused("--regressions", "one store", "two stores, the old one first")


def _runs(path: str) -> Sweep:
    with Store(path, write=False) as kept:
        return kept.sweep(kept.only())


def _baseline(word: str) -> str | dict[str, Any]:
    """An allocator, or a column with its value."""
    from slablab.cli.words import value

    name, equals, text = word.partition("=")
    return {name: value(f".{name}", text)} if equals else word


def _code(given: argparse.Namespace, how: dict[str, float]) -> int:
    words = f"{given.metric!r}, confidence={how['confidence']!r}, margin={how['margin']!r}"
    if len(given.stores) == 2:
        old, new = given.stores
        if given.regressions:
            lines = [f"found = sl.regressions({old!r}, {new!r}, {words})"]
            return out.script(*lines, out.csv("found", given.csv), "print(found.to_string(index=False))")
        lines = [f"old, new = sl.Store({old!r}, write=False).sweep(), sl.Store({new!r}, write=False).sweep()"]
        grid, against = "new", "old"
    else:
        lines = [f"grid = sl.Store({given.stores[0]!r}, write=False).sweep()"]
        grid, against = "grid", repr(_baseline(given.baseline))
    written = out.csv(f"{grid}.compare({against}, {words})", given.csv)
    return out.script(*lines, written, f"print({grid}.table({against}, {words}))")
