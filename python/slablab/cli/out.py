"""What goes out: outputs checked before a run, pictures, the Python of a command, colours."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slablab.config import classes
from slablab.result import Sweep
from slablab.values import refused

if TYPE_CHECKING:
    import pandas as pd

PICTURES = (".pdf", ".png", ".svg")
"""Endings of a picture's file name."""

STORE_FILES = ("", "-wal", "-shm")
"""Endings of the files that a store is made of."""

_CLASS = re.compile(rf"(?<![\w.])(?=(?:{'|'.join([*classes(), 'Sample'])})\()")
"""Where the name of a class of slablab begins."""


def writable(paths: Iterable[Path | None], picture: Path | None = None, stores: Iterable[str | None] = ()) -> None:
    """Refuses an output path before anything has run: two outputs in one file, a store's file, unknown formats too."""
    asked = [p for p in (*paths, picture) if p is not None]
    if len({p.resolve() for p in asked}) < len(asked):
        raise refused("output", asked[-1], "a file of its own for each output")
    kept = {Path(f"{s}{tail}").resolve() for s in stores if s for tail in STORE_FILES if "\0" not in s}
    for path in asked:
        if path.resolve() in kept or any(_same(path, store) for store in kept):
            raise refused("output", path, "a file of its own; this one is the store's")
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


def _same(path: Path, other: Path) -> bool:
    """Two names of one file, a hard link too."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def made(folder: Path) -> None:
    """Makes the folder of --out, or refuses it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise refused("--out", folder, f"a folder that can be made ({e.strerror})") from None
    writable([folder / ".probe"])


def draw(grid: Sweep, axes: Sequence[str], path: Path) -> None:
    """Throughput against the first axis; panels by the CPUs, line style by another axis."""
    from slablab import plot

    chosen = drawn_with(axes)
    drawn: Any = plot.throughput(grid, **chosen)
    picture(drawn[0] if "col" in chosen else drawn, path)


def drawn_with(axes: Sequence[str]) -> dict[str, Any]:
    """The arguments of `plot.throughput` for a sweep over these axes."""
    from slablab.result import short

    columns = [short(a) for a in axes]
    x = "clients" if "clients" in columns or not columns else columns[0]
    others = [c for c in columns if c not in (x, "allocator", "era")]
    col = "cpus" if "cpus" in others else None
    others = [c for c in others if c != col]
    chosen = {"x": x, "style": others[0] if others else None, "col": col}
    return {name: column for name, column in chosen.items() if column is not None}


def picture(axes: Any, path: Path) -> None:
    """Writes the figure that `axes` is in."""
    import matplotlib.pyplot as plt

    figure = axes.get_figure(root=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def call(function: str, arguments: Mapping[str, Any]) -> str:
    """The call as Python: what is None, False or an empty dict is left out."""
    given = {k: v for k, v in arguments.items() if v is not None and v is not False and v != {}}
    line = ", ".join(f"{k}={v!r}" if k else repr(v) for k, v in given.items())
    return f"sl.{function}({_CLASS.sub('sl.', line)})"


def echo(function: str, arguments: Mapping[str, Any]) -> None:
    """Prints the Python line that does the same, to stderr so that stdout stays the result."""
    print(f"# {call(function, arguments)}", file=sys.stderr)


def script(*lines: str | None) -> int:
    """Prints the Python of --show-code; nothing is run."""
    print("\n".join(["import slablab as sl", "", *(line for line in lines if line is not None)]))
    return 0


def csv(variable: str, path: Path | None) -> str | None:
    """The line of a script that writes a frame as CSV."""
    return None if path is None else f"{variable}.to_csv({str(path)!r}, index=False)"


def frame(data: pd.DataFrame, as_json: bool, empty: str = "nothing") -> None:
    """Prints a frame, as JSON (a list of rows) or as text."""
    if as_json:
        print(json.dumps(json.loads(data.to_json(orient="records", double_precision=15)), indent=1))
    elif data.empty:
        print(empty)
    else:
        print(data.to_string(index=False, na_rep="-"))


def number(value: object) -> str:
    """A value for people."""
    if value is None:
        return "unset"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def row(values: Mapping[str, object]) -> int:
    """Prints a row as one line per column, and returns the exit status of a command that ends so."""
    width = max(len(c) for c in values)
    for name, value in values.items():
        print(f"{name:<{width}}  {number(value)}")
    return 0


def coloured(text: str, code: int, stream: Any = None) -> str:
    """The text in a colour of the terminal; as it is where no terminal reads it, or NO_COLOR is set."""
    stream = sys.stdout if stream is None else stream
    terminal = stream is not None and stream.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{code}m{text}\x1b[0m"
