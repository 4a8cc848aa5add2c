"""`slablab reproduce` and `slablab catalog`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from slablab import published
from slablab.cli import out
from slablab.config import catalog
from slablab.extras import MissingExtra, needed
from slablab.reproduce import Reproduction, reproduce


def add(commands: Any) -> None:
    """Adds the commands."""
    again = commands(
        "reproduce",
        run,
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
    again.add_argument("--store", metavar="FILE", help="keep finished runs there; what is there is not run again")
    again.add_argument("--threads", type=int, metavar="N", help="host threads (default: all cores)")
    again.add_argument(
        "--sensitivity", action="store_true", help="also the plateau ratio with each uncertain figure × 0.7 and × 1.4"
    )
    commands(
        "catalog", list_, "List what exists, with every parameter, default, unit and meaning.", "slablab catalog --json"
    )


def run(given: argparse.Namespace) -> int:
    """Runs a published figure."""
    figure = published.named(given.name)
    folder: Path | None = given.out
    out.writable([given.csv], given.png, [given.store])
    arguments: dict[str, Any] = {"quick": given.quick, "seeds": given.seeds, "seed": given.seed, "store": given.store}
    arguments["threads"] = given.threads
    png, table = (
        given.png or (folder and folder / f"{figure.name}.png"),
        given.csv or (folder and folder / f"{figure.name}.csv"),
    )
    if given.show_code:
        return _code(given, figure.name, arguments, png, table)
    if folder is not None:
        out.made(folder)
    # Asked before the run, so that a picture that cannot be drawn costs nothing that was finished.
    if given.png:
        needed("matplotlib.pyplot", "--png")
    elif png:
        try:
            needed("matplotlib.pyplot", f"{png}")
        except MissingExtra as e:
            print(f"slablab: no picture: {e}", file=sys.stderr)
            png = None
    out.echo("reproduce", {"": figure.name, **arguments})
    made = reproduce(figure.name, **arguments, progress=sys.stderr.isatty())
    print(made.compared().to_json(orient="records") if given.json else made.table())
    if given.sensitivity:
        _print_sensitivity(made)
    wrote = []
    if png:
        out.picture(made.plot(), png)
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


def _code(given: argparse.Namespace, name: str, arguments: dict[str, Any], png: Any, table: Any) -> int:
    lines = [f"figure = {out.call('reproduce', {'': name, **arguments})}"]
    lines.append("print(figure.compared().to_json(orient='records'))" if given.json else "print(figure.table())")
    if given.sensitivity:
        lines.append("print(figure.sensitivity().to_string(index=False))")
    if png:
        lines.append(f"figure.plot().get_figure(root=True).savefig({str(png)!r}, dpi=150)")
    if table:
        lines.append(f"figure.compared().to_csv({str(table)!r}, index=False)")
    return out.script(*lines)


def list_(given: argparse.Namespace) -> int:
    """Prints the catalog."""
    if given.show_code:
        return out.script("import json", "print(json.dumps(sl.catalog(), indent=2))")
    exists = catalog()
    if given.json:
        print(json.dumps(exists, indent=2))
        return 0
    print(f"slablab {exists['version']}")
    for allocator in exists["allocators"]:
        _allocator(allocator)
    for workload in exists["workloads"]:
        print(f"\nworkload {workload['name']}: {workload['meaning']}")
        for p in workload["parameters"]:
            _parameter("workload", p["name"], out.number(p["default"]), p["unit"], p["meaning"])
    for machine in exists["machines"]:
        kind = "simulated" if machine["simulated"] else "this host"
        print(f"\nmachine {machine['name']}: {kind}, {machine['cpus']} CPUs")
        for p in machine["parameters"]:
            _parameter("machine", p["name"], "", p["unit"], p["meaning"])
        for name, v in machine["values"].items():
            meaning = f"{v['source']} (confidence: {v['confidence']})"
            _parameter("machine", name, out.number(v["value"]), v["unit"], meaning)
    print("\npublished results: " + ", ".join(published.ALL))
    print("\nstatistics")
    for s in exists["statistics"]:
        print(f"  {s['name']:<28} {s['meaning']}")
    return 0


def _allocator(allocator: dict[str, Any]) -> None:
    """An allocator with its eras: every parameter, and where an era has another default."""
    eras = ", ".join(f"{allocator['name']}@{e['era']}" for e in allocator["eras"])
    print(f"\nallocator {allocator['name']}: {eras} (default {allocator['default_era']})")
    for p in allocator["parameters"]:
        _parameter("allocator", p["name"], out.number(p["default"]), p["unit"], p["meaning"])
        other = [
            f"{out.number(d)} in {e['era']}"
            for e in allocator["eras"]
            if (d := e["defaults"][p["name"]]) != p["default"]
        ]
        if other:
            print(f"  {'':<32} {', '.join(other)}")


def _parameter(part: str, name: str, default: str, unit: str, meaning: str) -> None:
    print(f"  {f'{part}.{name}':<32} {default:<14} {unit:<14} {meaning}")
