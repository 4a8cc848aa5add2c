"""`slablab reproduce`, `slablab catalog` and `slablab eras`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slablab import page, published
from slablab.cli import out
from slablab.config import catalog
from slablab.extras import MissingExtra, needed
from slablab.reproduce import Reproduction, reproduce
from slablab.values import refused


def add(commands: Any) -> None:
    """Adds the commands."""
    again = commands(
        "reproduce",
        run,
        "Run a published result again, or all, and print it beside the published numbers.",
        "slablab reproduce piggin-2007-tbench --out figure/",
    )
    again.add_argument("name", metavar="NAME", help=f"a published result: {', '.join(published.ALL)}; or all")
    again.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write picture, table and CSV there (made if missing)"
    )
    again.add_argument("--png", type=Path, metavar="FILE", help="write the picture")
    again.add_argument("--csv", type=Path, metavar="FILE", help="write the table as CSV")
    again.add_argument(
        "--html", type=Path, metavar="FILE", help="write one page with tables, figures, ablations and sensitivity"
    )
    again.add_argument(
        "--readme", type=Path, metavar="FILE", help="write the table of scores into this page, between its markers"
    )
    again.add_argument("--quick", action="store_true", help="few points, one seed: a look in half a minute")
    again.add_argument("--seeds", type=int, metavar="N", help="runs of each case (default: as many as the mail had)")
    again.add_argument("--seed", type=int, default=1, metavar="N", help="the first of them (default 1)")
    again.add_argument("--store", metavar="FILE", help="keep finished runs there; what is there is not run again")
    again.add_argument("--threads", type=int, metavar="N", help="host threads (default: all cores)")
    again.add_argument(
        "--ablations", action="store_true", help="also the headline with one mechanism taken away at a time"
    )
    again.add_argument(
        "--sensitivity", action="store_true", help="also the headline with each uncertain figure × 0.7 and × 1.4"
    )
    commands(
        "catalog", list_, "List what exists, with every parameter, default, unit and meaning.", "slablab catalog --json"
    )
    page = commands(
        "eras", eras_, "Print SLUB's eras: what changed, when, which policy.", "slablab eras --markdown > docs/eras.md"
    )
    page.add_argument("--markdown", action="store_true", help="as the page docs/eras.md")


def eras_(given: argparse.Namespace) -> int:
    """Prints SLUB's eras."""
    from slablab import history

    if given.markdown and given.json:
        raise refused("--markdown", "with --json", "one of the two")
    if given.show_code:
        if given.markdown:
            return out.script("from slablab.history import page", "print(page(), end='')")
        shown = "to_json(orient='records')" if given.json else "to_string(index=False)"
        return out.script(f"print(sl.eras().{shown})")
    if given.markdown:
        print(history.page(), end="")
    else:
        out.frame(history.eras(), given.json)
    return 0


def run(given: argparse.Namespace) -> int:
    """Runs a published result, or all of them."""
    figures = list(published.ALL.values()) if given.name == "all" else [published.named(given.name)]
    folder: Path | None = given.out
    if len(figures) > 1 and (given.png or given.csv):
        raise refused("reproduce", "all", "one result for --png and --csv; --out FOLDER takes the files of all")
    if folder is not None and not given.show_code:
        out.made(folder)
    out.writable([given.csv, given.html], given.png, [given.store])
    if given.readme is not None:
        # What cannot take the table is refused before anything runs.
        if len(figures) == 1 or given.quick:
            raise refused("--readme", given.readme, "with all and without --quick: the table is of every result, whole")
        page.put_accuracy(_page(given.readme), [])
    arguments: dict[str, Any] = {"quick": given.quick, "seeds": given.seeds, "seed": given.seed, "store": given.store}
    arguments["threads"] = given.threads
    wanted = [_Wanted(f.name, given, folder) for f in figures]
    if given.show_code:
        return out.script(*(line for w in wanted for line in w.code(arguments)))
    _drawable(given, wanted)
    made = []
    for w in wanted:
        out.echo("reproduce", {"": w.name, **arguments})
        made.append(reproduce(w.name, **arguments, progress=sys.stderr.isatty()))
        w.shown(made[-1])
    if given.html:
        given.html.write_text(page.page(made), encoding="utf-8")
        print(f"written: {given.html}", file=sys.stderr if given.json else sys.stdout)
    if given.readme is not None:
        given.readme.write_text(page.put_accuracy(_page(given.readme), made), encoding="utf-8", newline="")
    if len(made) > 1 and not given.json:
        print(page.scores(made).to_string(index=False, float_format=lambda v: f"{v:.3g}"))
    return 0


def _page(path: Path) -> str:
    """The text of a page, its line ends as they are."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as e:
        raise refused("--readme", path, f"a page of text that exists ({type(e).__name__})") from None


@dataclass
class _Wanted:
    """What is asked of one result."""

    name: str
    given: argparse.Namespace
    folder: Path | None

    @property
    def png(self) -> Path | None:
        return self.given.png or (self.folder and self.folder / f"{self.name}.png")

    @property
    def csv(self) -> Path | None:
        return self.given.csv or (self.folder and self.folder / f"{self.name}.csv")

    def shown(self, made: Reproduction) -> None:
        """Prints and writes a result."""
        print(made.compared().to_json(orient="records") if self.given.json else made.table())
        for asked, title, varied in (
            (self.given.ablations, "one mechanism taken away, nothing fitted again", made.ablations),
            (self.given.sensitivity, "one uncertain figure scaled, nothing fitted again, one seed", made.sensitivity),
        ):
            if asked:
                frame = varied(progress=sys.stderr.isatty())
                print(f"\n{title}")
                print(frame.to_string(index=False, float_format=lambda v: f"{v:.4g}"))
        wrote = []
        if self.png and not self.given.pictureless:
            out.picture(made.plot(), self.png)
            wrote.append(self.png)
        if self.csv:
            made.compared().to_csv(self.csv, index=False)
            wrote.append(self.csv)
        if self.folder is not None:
            runs, text = self.folder / f"{self.name}-runs.csv", self.folder / f"{self.name}.txt"
            made.frame.to_csv(runs, index=False)
            text.write_text(made.table() + "\n", encoding="utf-8")
            wrote += [runs, text]
        for path in wrote:
            print(f"written: {path}", file=sys.stderr if self.given.json else sys.stdout)

    def code(self, arguments: dict[str, Any]) -> list[str]:
        """The same in Python."""
        lines = [f"figure = {out.call('reproduce', {'': self.name, **arguments})}"]
        lines.append(
            "print(figure.compared().to_json(orient='records'))" if self.given.json else "print(figure.table())"
        )
        if self.given.ablations:
            lines.append("print(figure.ablations().to_string(index=False))")
        if self.given.sensitivity:
            lines.append("print(figure.sensitivity().to_string(index=False))")
        if self.png:
            lines.append(f"figure.plot().get_figure(root=True).savefig({str(self.png)!r}, dpi=150)")
        if self.csv:
            lines.append(f"figure.compared().to_csv({str(self.csv)!r}, index=False)")
        return lines


def _drawable(given: argparse.Namespace, wanted: list[_Wanted]) -> None:
    """Asks for matplotlib before the run, so that a picture that cannot be drawn costs nothing that was finished."""
    given.pictureless = False
    if given.png or given.html:
        needed("matplotlib.pyplot", "--png" if given.png else "--html")
    elif any(w.png for w in wanted):
        try:
            needed("matplotlib.pyplot", ", ".join(str(w.png) for w in wanted))
        except MissingExtra as e:
            print(f"slablab: no picture: {e}", file=sys.stderr)
            given.pictureless = True


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
