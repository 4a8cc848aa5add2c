"""Frames of a sweep as files: Parquet and Arrow through pyarrow, CSV without it."""

from __future__ import annotations

import os
from pathlib import Path

from slablab.extras import needed
from slablab.result import FRAMES, Sweep
from slablab.values import refused, shown, unknown

KINDS = (".parquet", ".arrow", ".csv")
"""Endings of a file's name, and so its format. Arrow is the IPC file format (Feather 2)."""


def export(grid: Sweep, file: object, frame: str = "summary") -> int:
    """Writes a frame of the runs; returns its rows. The file appears when it is whole."""
    if not isinstance(file, str | os.PathLike):
        raise refused("file", shown(file), f"a name that ends in one of {', '.join(KINDS)}")
    path = Path(file)
    if path.suffix.lower() not in KINDS:
        raise refused("file", shown(str(path)), f"a name that ends in one of {', '.join(KINDS)}")
    if frame not in FRAMES:
        raise unknown("frame", frame, FRAMES)
    if path.is_dir():
        raise refused("file", shown(str(path)), "a file; this is a folder")
    part = path.with_name(f".{path.name}.part")
    try:
        rows = _written(grid, part, path.suffix.lower(), frame)
        part.replace(path)
    except OSError as e:
        raise refused("file", shown(str(path)), f"a file that can be written ({e.strerror})") from e
    finally:
        part.unlink(missing_ok=True)
    return rows


def _written(grid: Sweep, path: Path, kind: str, frame: str) -> int:
    if kind == ".csv":
        table = getattr(grid, frame)()
        table.to_csv(path, index=False)
        return len(table)
    pa = needed("pyarrow", f"a {kind} file")
    whole = pa.table(grid.to_arrow(frame))
    if kind == ".parquet":
        needed("pyarrow.parquet", "a .parquet file").write_table(whole, path)
    else:
        needed("pyarrow.feather", "an .arrow file").write_feather(whole, path, compression="uncompressed")
    return int(whole.num_rows)
