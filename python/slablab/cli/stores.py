"""`slablab store`: what is in a store, one of its runs, tidying, export."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from slablab.cli import out
from slablab.export import KINDS, export
from slablab.result import FRAMES
from slablab.store import Store


def add(commands: Any) -> None:
    """Adds `store` with its own commands."""

    def command(name: str, run: Any, about: str, example: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands(f"store {name}", run, about, f"slablab store {name} {example}")
        made.add_argument("store", metavar="STORE", help="a store's file")
        return made

    ls = command("ls", list_, "List what a store holds: one line per version and kind.", "runs.db")
    ls.add_argument("--runs", action="store_true", help="one line per run, with its key")
    show = command("show", show_, "Show one run of a store.", "runs.db 3fa2c0")
    show.add_argument("key", metavar="KEY", help="the beginning of a run's key, as `store ls --runs` lists it")
    gc = command("gc", gc_, "Delete the runs of other versions and give their room back.", "runs.db")
    gc.add_argument("--version", dest="gone", metavar="V", help="delete the runs of this version instead")
    gc.add_argument("--dry-run", action="store_true", help="say what would be deleted")
    ex = command("export", export_, "Write the runs of a store as a table.", "runs.db runs.parquet")
    ex.add_argument("file", type=Path, metavar="FILE", help=f"ends in one of {', '.join(KINDS)}")
    ex.add_argument("--frame", default="summary", choices=FRAMES, help="which frame (default %(default)s)")
    command("check", check_, "Read all of a store and say whether it is whole.", "runs.db")


def list_(given: argparse.Namespace) -> int:
    """Lists kinds, or runs."""
    frame = "runs" if given.runs else "ls"
    if given.show_code:
        return out.script(f"with sl.Store({given.store!r}, write=False) as store:", f"    print(store.{frame}())")
    with Store(given.store, write=False) as kept:
        out.frame(getattr(kept, frame)(), given.json, "no runs")
        others = kept.others()
    if others and not given.json:
        said = ", ".join(f"{count} of {version}" for version, count in others.items())
        print(f"\nrows of other versions are never mixed with those of {kept.version}: {said}")
    return 0


def show_(given: argparse.Namespace) -> int:
    """Shows a run."""
    if given.show_code:
        shown = "print(one.to_json())" if given.json else "print(one.summary().T.to_string(header=False))"
        return out.script(f"one = sl.Store({given.store!r}, write=False).find({given.key!r})", shown)
    with Store(given.store, write=False) as kept:
        one = kept.find(given.key)
    if given.json:
        print(one.to_json())
        return 0
    return out.row(one.row())


def gc_(given: argparse.Namespace) -> int:
    """Deletes other versions, or one."""
    if given.show_code:
        asked = "" if given.gone is None else repr(given.gone)
        return out.script(f"with sl.Store({given.store!r}) as store:", f"    print(store.gc({asked}), 'deleted')")
    Store(given.store, write=False).close()  # refuses what is no store yet, before anything is made
    with Store(given.store, write=not given.dry_run) as kept:
        counts = {**kept.others(), kept.version: len(kept)}
        gone = sum(n for v, n in counts.items() if (v == given.gone if given.gone is not None else v != kept.version))
        if not given.dry_run:
            kept.gc(given.gone)
    if given.json:
        print(json.dumps({"deleted": 0 if given.dry_run else gone, "found": gone}))
    else:
        print(f"{gone} runs {'would be ' if given.dry_run else ''}deleted")
    return 0


def export_(given: argparse.Namespace) -> int:
    """Writes a table."""
    out.writable([given.file], stores=[given.store])
    if given.show_code:
        call = f"sl.Store({given.store!r}, write=False).export({str(given.file)!r}, {given.frame!r})"
        return out.script(f"print({call}, 'rows')")
    with Store(given.store, write=False) as kept:
        rows = export(kept.sweep(kept.only()), given.file, given.frame)
    print(json.dumps({"file": str(given.file), "rows": rows}) if given.json else f"written: {given.file}, {rows} rows")
    return 0


def check_(given: argparse.Namespace) -> int:
    """Reads everything."""
    if given.show_code:
        return out.script(f"sl.Store({given.store!r}, write=False).check()", "print('whole')")
    with Store(given.store, write=False) as kept:
        kept.check()
        count = len(kept) + sum(kept.others().values())
    print(json.dumps({"whole": True, "runs": count}) if given.json else f"whole: {count} runs")
    return 0
