"""The shell command: the library spelled for a shell. Each command prints the Python line that does the same.

Exit status: 0 done, 1 a run failed or was stopped, 2 a bad request. A bad request is one line that names the parameter,
the value and what would be right; nothing has run by then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from slablab import published
from slablab._core import ConfigError, SlabCorruption
from slablab._core import version as _version
from slablab.config import PARTS, Part, build, catalog, classes
from slablab.config import allocator as an_allocator
from slablab.config import machine as a_machine
from slablab.config import workload as a_workload
from slablab.experiment import run
from slablab.planning import MAX_CELLS, listed
from slablab.reproduce import Reproduction, reproduce
from slablab.result import Sweep
from slablab.sweep import SweepInterrupted, sweep
from slablab.values import Value, refused

_ABOUT = "The Linux slab allocators SLAB, SLUB, SLOB and SLQB, on real and simulated machines."


PICTURES = (".pdf", ".png", ".svg")
"""Endings of a picture's file name."""

_CLASS = re.compile(rf"(?<![\w.])(?=(?:{'|'.join(classes())})\()")
"""Where the name of a config class begins."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    given = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = given.command
    with warnings.catch_warnings():
        warnings.showwarning = _one_line  # type: ignore[assignment]
        try:
            return command(given)
        except ConfigError as e:
            print(f"slablab: error: {e}", file=sys.stderr)
            return 2
        except SlabCorruption as e:
            print(f"slablab: {'; '.join([str(e), *getattr(e, '__notes__', [])])}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("slablab: stopped", file=sys.stderr)
            return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slablab", description=_ABOUT)
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], about: str, example: str
    ) -> argparse.ArgumentParser:
        text = argparse.RawDescriptionHelpFormatter
        made = commands.add_parser(
            name, help=about, description=about, epilog=f"example:\n  {example}", formatter_class=text
        )
        made.set_defaults(command=run)
        return made

    one = command(
        "run",
        _run,
        "Run one experiment and print its totals.",
        "slablab run --allocator slub@2.6.24 --workload tbench --set workload.clients=8 --set machine.cpus=4",
    )
    _experiment(one)
    one.add_argument("--csv", type=Path, metavar="FILE", help="write the totals as CSV")

    many = command(
        "sweep",
        _sweep,
        "Run every combination of allocators and parameter values.",
        "slablab sweep --allocator slab,slub --over workload.clients=1..16 --png grid.png --csv grid.csv",
    )
    _experiment(many)
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
    many.add_argument("--threads", type=int, metavar="N", help="host threads for simulated runs (default: all cores)")
    many.add_argument("--csv", type=Path, metavar="FILE", help="write one row per run as CSV")
    many.add_argument("--png", type=Path, metavar="FILE", help="draw throughput against the first axis of --over")

    again = command(
        "reproduce",
        _reproduce,
        "Run a published figure again and print it beside the published numbers.",
        "slablab reproduce piggin-2007-tbench --out figure/",
    )
    again.add_argument("name", metavar="NAME", help=f"a published result: {', '.join(published.ALL)}")
    again.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write picture, table and CSV there (made if missing)"
    )
    again.add_argument("--png", type=Path, metavar="FILE", help="write the picture")
    again.add_argument("--csv", type=Path, metavar="FILE", help="write the table as CSV")
    again.add_argument("--quick", action="store_true", help="few points, one seed: a look in half a minute")
    again.add_argument("--seeds", type=int, default=5, metavar="N", help="best of so many seeds (default 5)")
    again.add_argument("--seed", type=int, default=1, metavar="N", help="the first of them (default 1)")
    again.add_argument("--threads", type=int, metavar="N", help="host threads (default: all cores)")
    again.add_argument(
        "--sensitivity", action="store_true", help="also the plateau ratio with each uncertain figure × 0.7 and × 1.4"
    )
    again.add_argument("--json", action="store_true", help="print the table as JSON")

    listing = command(
        "catalog",
        _catalog,
        "List what exists, with every parameter, default, unit and meaning.",
        "slablab catalog --json",
    )
    listing.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def _experiment(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--json", action="store_true", help="print the complete result as JSON")


def _run(given: argparse.Namespace) -> int:
    _writable([given.csv])
    machine, allocator, workload = (_with(part, given) for part in _parts(given))
    _echo("run", {"machine": machine, "allocator": allocator, "workload": workload, "seed": given.seed})
    result = run(machine=machine, allocator=allocator, workload=workload, seed=given.seed)
    frame = result.summary()
    if given.csv:
        frame.to_csv(given.csv, index=False)
    if given.json:
        print(result.to_json())
        return 0
    width = max(len(c) for c in frame.columns)
    for name, value in frame.iloc[0].items():
        print(f"{name!s:<{width}}  {_shown(value)}")
    return 0


def _sweep(given: argparse.Namespace) -> int:
    _writable([given.csv], given.png)
    over = _over(given.over)
    named = {p: [_with(part, given) for part in _several(p, getattr(given, p))] for p in PARTS}
    arguments: dict[str, Any] = {p: parts[0] if len(parts) == 1 else parts for p, parts in named.items()}
    _echo("sweep", {**arguments, "over": over, "repeats": given.repeats, "seed": given.seed})
    status, grid = 0, Sweep([])
    try:
        grid = sweep(
            **arguments,
            over=over or None,
            repeats=given.repeats,
            seed=given.seed,
            threads=given.threads,
            progress=sys.stderr.isatty(),
        )
    except SweepInterrupted as stopped:
        print(f"slablab: stopped after {len(stopped.finished)} runs, which are kept", file=sys.stderr)
        status, grid = 1, stopped.finished
    frame = grid.summary()
    if given.csv:
        frame.to_csv(given.csv, index=False)
    if given.png and len(grid):
        _draw(grid, list(over), given.png)
    if given.json:
        print(grid.to_json())
    elif len(grid):
        keys = [c for c in frame.columns if c in (*grid.axes, "allocator", "era", "seed")]
        print(frame[[*keys, "throughput", "unit", "lock_wait_pct", "used_kb"]].to_string(index=False))
    return status


def _reproduce(given: argparse.Namespace) -> int:
    figure = published.named(given.name)
    folder: Path | None = given.out
    _writable([given.csv], given.png)
    if folder is not None:
        _made(folder)
    png, table = (
        given.png or (folder and folder / f"{figure.name}.png"),
        given.csv or (folder and folder / f"{figure.name}.csv"),
    )
    _echo("reproduce", {"": figure.name, "quick": given.quick, "seeds": given.seeds, "seed": given.seed})
    made = reproduce(
        figure.name,
        quick=given.quick,
        seeds=given.seeds,
        seed=given.seed,
        threads=given.threads,
        progress=sys.stderr.isatty(),
    )
    print(made.compared().to_json(orient="records") if given.json else made.table())
    if given.sensitivity:
        _print_sensitivity(made)
    wrote = []
    if png:
        _picture(made.plot(), png)
        wrote.append(png)
    if table:
        made.compared().to_csv(table, index=False)
        wrote.append(table)
    if folder is not None:
        runs, text = folder / f"{figure.name}-runs.csv", folder / f"{figure.name}.txt"
        made.frame.to_csv(runs, index=False)
        text.write_text(made.table() + "\n", encoding="utf-8")
        wrote += [runs, text]
    for path in wrote:
        print(f"written: {path}", file=sys.stderr if given.json else sys.stdout)
    return 0


def _print_sensitivity(made: Reproduction) -> None:
    print(
        "\nplateau ratio with one figure of low confidence scaled, nothing fitted again; one seed, so ± 0.015 is noise"
    )
    frame = made.sensitivity(progress=sys.stderr.isatty())
    print(frame.to_string(index=False, float_format=lambda v: f"{v:.4g}"))


def _catalog(given: argparse.Namespace) -> int:
    if given.json:
        print(json.dumps(catalog(), indent=2))
        return 0
    exists = catalog()
    print(f"slablab {exists['version']}")
    for allocator in exists["allocators"]:
        eras = ", ".join(f"{allocator['name']}@{e['era']}" for e in allocator["eras"])
        print(f"\nallocator {allocator['name']}: {eras} (default {allocator['default_era']})")
        for p in allocator["parameters"]:
            _parameter("allocator", p["name"], _shown(p["default"]), p["unit"], p["meaning"])
            other = [
                f"{_shown(d)} in {e['era']}"
                for e in allocator["eras"]
                if (d := e["defaults"][p["name"]]) != p["default"]
            ]
            if other:
                print(f"  {'':<32} {', '.join(other)}")
    for workload in exists["workloads"]:
        print(f"\nworkload {workload['name']}: {workload['meaning']}")
        for p in workload["parameters"]:
            _parameter("workload", p["name"], _shown(p["default"]), p["unit"], p["meaning"])
    for machine in exists["machines"]:
        kind = "simulated" if machine["simulated"] else "this host"
        print(f"\nmachine {machine['name']}: {kind}, {machine['cpus']} CPUs")
        _parameter("machine", "cpus", str(machine["cpus"]), "", "CPUs used")
        for name, v in machine["values"].items():
            _parameter("machine", name, _shown(v["value"]), v["unit"], f"{v['source']} (confidence: {v['confidence']})")
    print("\npublished results: " + ", ".join(published.ALL))
    print("\nstatistics")
    for s in exists["statistics"]:
        print(f"  {s['name']:<28} {s['meaning']}")
    return 0


def _parameter(part: str, name: str, default: str, unit: str, meaning: str) -> None:
    print(f"  {f'{part}.{name}':<32} {default:<14} {unit:<14} {meaning}")


def _shown(value: object) -> str:
    if value is None:
        return "unset"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# From words to parts and axes.


def _parts(given: argparse.Namespace) -> list[Part]:
    return [a_machine(given.machine), an_allocator(given.allocator), a_workload(given.workload)]


def _several(part: str, words: str) -> list[Part]:
    make: dict[str, Callable[[str], Part]] = {"machine": a_machine, "allocator": an_allocator, "workload": a_workload}
    return listed([w.strip() for w in words.split(",")], make[part])


def _with(part: Part, given: argparse.Namespace) -> Any:
    """The part with what --set and --seconds say of it."""
    words = [*given.set, *([f"workload.seconds={given.seconds}"] if given.seconds is not None else [])]
    changed: dict[str, Value] = {}
    for word in words:
        name, equals, value = word.partition("=")
        kind, dot, parameter = name.partition(".")
        if not equals or not dot or kind not in PARTS or not parameter:
            raise refused("--set", word, "NAME=VALUE with a dotted name, as workload.clients=8")
        if kind == part.part:
            changed[parameter] = _value(value)
    if not changed:
        return part
    document = part.document()
    return build(part.part, str(document.pop("name")), document | changed)


def _over(words: Iterable[str]) -> dict[str, list[Value]]:
    """The axes of --over; one given twice is one axis with all its values."""
    axes: dict[str, list[Value]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name:
            raise refused("--over", word, "NAME=VALUES, as workload.clients=1..16 or machine.cpus=1,2,4")
        if not values:
            raise refused(f"--over {name}", '""', "at least one value, as 1..16 or 1,2,4")
        axes.setdefault(name, []).extend(v for item in values.split(",") for v in _span(name, item.strip()))
    return axes


def _span(name: str, item: str) -> list[Value]:
    """A value, or all whole numbers from `low..high`, both ends included."""
    low, dots, high = item.partition("..")
    if not dots:
        if not item:
            raise refused(f"--over {name}", '""', "a value between commas")
        return [_value(item)]
    try:
        numbers = range(int(low), int(high) + 1)
    except ValueError:
        raise refused(f"--over {name}", item, "LOW..HIGH with whole numbers") from None
    if not numbers:
        raise refused(f"--over {name}", item, "LOW..HIGH with LOW at most HIGH")
    if len(numbers) > MAX_CELLS:
        raise refused(f"--over {name}", item, f"at most {MAX_CELLS} values")
    return list(numbers)


def _value(word: str) -> Value:
    """A number, true, false or null where the word reads as one; else the word."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return value if isinstance(value, bool | int | float) or value is None else word


# What goes out.


def _writable(paths: Iterable[Path | None], picture: Path | None = None) -> None:
    """Refuses an output path before anything has run: two outputs in one file and unknown picture formats too."""
    asked = [p for p in (*paths, picture) if p is not None]
    if len({p.resolve() for p in asked}) < len(asked):
        raise refused("output", asked[-1], "a file of its own for each output")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise refused("--png", picture, f"a file name that ends in one of {', '.join(PICTURES)}")
    for path in asked:
        if not path.parent.is_dir():
            raise refused("output", path, f"a file in a folder that exists; {path.parent} does not")
        if path.is_dir():
            raise refused("output", path, "a file; this is a folder")
        if path.exists():
            # What is there already is looked at, not opened: a device or a pipe is no place for a table.
            if not path.is_file():
                raise refused("output", path, "a regular file")
            if not os.access(path, os.W_OK):
                raise refused("output", path, "a file that can be written")
            continue
        try:
            path.open("xb").close()
        except OSError as e:
            raise refused("output", path, f"a file that can be written ({e.strerror})") from None
        path.unlink()


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise refused("--out", folder, f"a folder that can be made ({e.strerror})") from None
    _writable([folder / ".probe"])


def _draw(grid: Sweep, axes: list[str], path: Path) -> None:
    """Throughput against the first axis; panels by the CPUs, line style by another axis."""
    from slablab import plot
    from slablab.result import short

    columns = [short(a) for a in axes]
    x = "clients" if "clients" in columns or not columns else columns[0]
    others = [c for c in columns if c not in (x, "allocator", "era")]
    col = "cpus" if "cpus" in others else None
    others = [c for c in others if c != col]
    style = others[0] if others else None
    if col is None:
        _picture(plot.throughput(grid, x=x, style=style), path)
    else:
        _picture(plot.throughput(grid, x=x, style=style, col=col)[0], path)


def _picture(axes: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure = axes.get_figure(root=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _echo(function: str, arguments: dict[str, Any]) -> None:
    """Prints the Python line that does the same, to stderr so that stdout stays the result."""
    given = {k: v for k, v in arguments.items() if v is not None and v is not False and v != {}}
    line = ", ".join(f"{k}={v!r}" if k else repr(v) for k, v in given.items())
    print(f"# sl.{function}({_CLASS.sub('sl.', line)})", file=sys.stderr)


def _one_line(message: Warning | str, *_: Any) -> None:
    print(f"slablab: warning: {message}", file=sys.stderr)
