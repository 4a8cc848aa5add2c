"""`slablab geometry` and `slablab slabinfo`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from slablab.cli import out, runs, words
from slablab.config import allocator as an_allocator
from slablab.experiment import run as run_one
from slablab.geometry import FLAGS
from slablab.geometry import geometry as shape_of
from slablab.planning import listed
from slablab.result import Result, no_tool
from slablab.store import Store
from slablab.values import refused, shown

RUN = ("machine", "workload", "seed", "seconds", "set")
"""Options of a run that a stored one takes none of."""


def add(commands: Any) -> None:
    """Adds the commands."""
    asked = commands(
        "geometry",
        geometry,
        "Say what a cache looks like: slot, order, objects, waste and limits. No machine is needed.",
        "slablab geometry --allocator slub@6.1 --size 192 --cpus 8 --page-size 65536 --debug ZU\n"
        "  slablab geometry --allocator slab@2.6.24,slub@2.6.24 --size 32,104,4096 --cpus 8\n"
        "  slablab geometry --allocator slub@2.6.27 --size 8..8192 --cpus 8 --set allocator.max_order=0 --csv g.csv",
    )
    asked.add_argument("--allocator", required=True, metavar="NAME", help="as slub@2.6.24; several with commas")
    asked.add_argument("--size", required=True, metavar="BYTES", help="bytes: one, several with commas, or LOW..HIGH")
    shape = [
        ("--cpus", 1, "CPUs of the machine"),
        ("--page-size", 4096, "bytes of a page: 4096, 16384, 65536"),
        ("--cache-line", 64, "bytes of a cache line, 16 to 256"),
        ("--word", 8, "bytes of a word: 8, or 4 for a 32-bit machine"),
        ("--memory-mib", 1024, "MiB of memory; SLAB's larger slabs need more than 32"),
        ("--align", 0, "alignment that the creator asks for, in bytes"),
    ]
    for option, default, about in shape:
        asked.add_argument(option, type=int, default=default, metavar="N", help=f"{about} (default {default})")
    asked.add_argument("--flags", default="", metavar="NAMES", help=f"of {', '.join(FLAGS)}; several with commas")
    asked.add_argument("--kmalloc", action="store_true", help="the cache that serves a kmalloc of that size")
    asked.add_argument("--name", default="cache", metavar="NAME", help="name of the cache (default %(default)s)")
    asked.add_argument("--debug", metavar="OPTION", help="debug letters and names, as ZU; short for allocator.debug")
    asked.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a tunable, as allocator.max_order=0"
    )
    asked.set_defaults(seconds=None)
    asked.add_argument("--csv", type=Path, metavar="FILE", help="write one row per allocator and size as CSV")

    tool = commands(
        "slabinfo",
        slabinfo,
        "Run a workload and print what the slabinfo tool says of its caches, or take a run of a store.",
        "slablab slabinfo -AD --allocator slub@6.1 --workload tbench --set workload.clients=4\n"
        "  slablab slabinfo -T --allocator slab@2.6.24\n"
        "  slablab slabinfo --sysfs kmalloc-512 --allocator slub@6.1\n"
        "  slablab slabinfo -AD --store runs.db --key 3fa2c0",
    )
    tool.add_argument("-l", "--slabs", action="store_true", help="the listing: one line per cache (the default)")
    tool.add_argument("-A", "--activity", action="store_true", help="the most active caches first")
    tool.add_argument("-D", "--display-active", action="store_true", help="columns of activity")
    tool.add_argument("-T", "--Totals", action="store_true", help="totals over all caches")
    tool.add_argument("--proc", action="store_true", help="the text of /proc/slabinfo instead")
    tool.add_argument("--sysfs", metavar="CACHE", help="the attributes of a cache in sysfs instead")
    tool.add_argument("--store", metavar="FILE", help="take a run of this store")
    tool.add_argument("--key", metavar="KEY", help="the beginning of its key, as `store ls --runs` lists it")
    runs.experiment(tool)
    tool.set_defaults(not_given={option: tool.get_default(option) for option in RUN})
    for action in tool._actions:
        if action.dest == "allocator":
            action.required = False


def geometry(given: argparse.Namespace) -> int:
    """Prints one cache as a record, several as a table."""
    words.only(given, "allocator")
    words.once([*given.set, *([] if given.debug is None else [f"allocator.debug={given.debug}"])])
    out.writable([given.csv])
    tunables = {} if given.debug is None else {"debug": given.debug}
    parts = [words.changed(p, given) for p in listed(_names(given.allocator), an_allocator)]
    sizes = _sizes(given.size)
    arguments: dict[str, Any] = {"": parts if len(parts) > 1 else parts[0], "size": sizes}
    plain = {"cpus": 1, "page_size": 4096, "cache_line": 64, "word": 8, "memory_mib": 1024, "align": 0, "flags": ""}
    for name, default in {**plain, "kmalloc": False, "name": "cache"}.items():
        if getattr(given, name) != default:
            arguments[name] = getattr(given, name)
    arguments |= tunables
    call = out.call("geometry", arguments)
    record = len(parts) == 1 and isinstance(sizes, int)
    if given.show_code:
        if record and not given.csv:
            return out.script(*(["import json", ""] if given.json else []), _shown_record(call, given.json))
        made = f"frame = {call if not record else call.replace(f'size={sizes}', f'size=[{sizes}]')}"
        text = "frame.to_json(orient='records')" if given.json else "frame.to_string(index=False, na_rep='-')"
        return out.script(made, out.csv("frame", given.csv), f"print({text})")
    keywords = {k: v for k, v in arguments.items() if k not in ("", "size")}
    if record:
        found = shape_of(parts[0], sizes, **keywords)
        if given.csv:
            shape_of(parts[0], [sizes], **keywords).to_csv(given.csv, index=False)
        if given.json:
            print(json.dumps(dict(found), indent=1))
        else:
            print(found)
        return 0
    frame = shape_of(parts, sizes if not isinstance(sizes, int) else [sizes], **keywords)
    if given.csv:
        frame.to_csv(given.csv, index=False)
    out.frame(frame, given.json)
    return 0


def _shown_record(call: str, as_json: bool) -> str:
    return f"print(json.dumps(dict({call}), indent=1))" if as_json else f"print({call})"


def _names(text: str) -> list[str]:
    return [w.strip() for w in text.split(",")]


def _sizes(text: str) -> int | list[int] | range:
    """Sizes of --size."""
    spans = [words.span("--size", item.strip()) for item in text.split(",")]
    if len(spans) == 1 and isinstance(spans[0], range):
        return spans[0]
    sizes = [size for span in spans for size in span]
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool):
            raise refused("--size", shown(size), "a whole number of bytes, several with commas, or LOW..HIGH")
    return sizes[0] if len(sizes) == 1 else sizes  # type: ignore[return-value]


def slabinfo(given: argparse.Namespace) -> int:
    """Prints a report of one run."""
    letters = [("A", given.activity), ("D", given.display_active), ("T", given.Totals)]
    options = "-" + ("".join(letter for letter, on in letters if on) or "l")
    if given.proc + (given.sysfs is not None) + (options != "-l" or given.slabs) > 1:
        raise refused("options", f"{options} with --proc or --sysfs", "one of them")
    make, arguments = _source(given)
    asked = None if given.proc else options
    if given.show_code:
        if given.sysfs is not None:
            loop = [f"for name, text in one.sysfs({given.sysfs!r}).items():", "    print(name, text)"]
            return out.script(f"one = {make}", *loop)
        return out.script(f"one = {make}", f"print(one.slabinfo({'' if asked is None else repr(asked)}), end='')")
    if arguments is None:
        with Store(given.store, write=False) as kept:
            one = kept.find(given.key)
    else:
        _refuse_early(arguments["allocator"])
        out.echo("run", arguments)
        one = run_one(**arguments)
    try:
        if given.sysfs is not None:
            files = one.sysfs(given.sysfs)
            if given.json:
                print(json.dumps(files, indent=1))
                return 0
            return out.row({name: text or "(empty)" for name, text in files.items()})
        text = one.slabinfo(asked)
    except LookupError as e:
        raise _nothing(one.config["allocator"], e) from None
    if given.json:
        print(json.dumps({"options": asked, "text": text, "caches": _rows(one)}, indent=1))
    else:
        sys.stdout.write(text)
    return 0


def _rows(one: Result) -> Any:
    return json.loads(one.caches().to_json(orient="records", double_precision=15))


def _source(given: argparse.Namespace) -> tuple[str, dict[str, Any] | None]:
    """The Python that gives the run, and the arguments of one that must be made."""
    if given.store is not None:
        if given.allocator is not None:
            raise refused("--allocator", shown(given.allocator), "none with --store, whose run has its own")
        for option, default in given.not_given.items():
            if (value := getattr(given, option)) != default:
                raise refused(f"--{option}", shown(value), "none with --store, whose run has its own")
        if given.key is None:
            raise refused("--key", "none", f"the beginning of a run's key: slablab store ls {given.store} --runs")
        return f"sl.Store({given.store!r}, write=False).find({given.key!r})", None
    if given.key is not None:
        raise refused("--key", shown(given.key), "--store with it")
    if given.allocator is None:
        raise refused("--allocator", "none", "an allocator, as slub@6.1, or --store and --key of a finished run")
    machine, allocator, workload = words.parts(given)
    arguments = {"machine": machine, "allocator": allocator, "workload": workload, "seed": given.seed}
    return out.call("run", arguments), arguments


def _refuse_early(allocator: Any) -> None:
    """SLOB has none of these: there is nothing to run for."""
    document = allocator.document()
    if document["name"] == "slob":
        raise _nothing(document, LookupError(no_tool(f"slob@{document['era']}", "slabinfo")))


def _nothing(allocator: dict[str, Any], why: LookupError) -> Exception:
    return refused("slabinfo", f"{allocator['name']}@{allocator['era']}", str(why))
