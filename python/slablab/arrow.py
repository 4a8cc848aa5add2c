"""Frames through the Arrow stream interface: polars, pyarrow and duckdb take them without pandas in between.

The columns are built from the runs' own arrays; nanoarrow, a small package, knows the C structures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slablab.extras import needed
from slablab.result import FRAMES, Result
from slablab.values import unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from slablab._core import _Column as Column


class ArrowTable:
    """A table that Arrow consumers read: `polars.DataFrame(t)`, `pyarrow.table(t)`, `duckdb.sql("FROM t")`."""

    def __init__(self, columns: dict[str, list[Any] | NDArray[Any]]) -> None:
        na = needed("nanoarrow", "to_arrow()")
        self.columns = tuple(columns)
        self.rows = len(next(iter(columns.values()), ()))
        made = [_array(na, values) for values in columns.values()]
        schema = na.struct({name: kind for name, (kind, _) in zip(columns, made, strict=True)})
        children = [array for _, array in made]
        self._array = na.c_array_from_buffers(schema, self.rows, [None], null_count=0, children=children)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = needed("nanoarrow", "to_arrow()").c_array_stream(self._array)
        return stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._array.schema.__arrow_c_schema__()

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<ArrowTable of {self.rows} rows: {', '.join(self.columns)}>"


def arrow_table(results: Sequence[Result], keys: Sequence[str], frame: str) -> ArrowTable:
    """A frame of the runs: "summary", or one of the others with the columns `keys` of each run in front."""
    if frame not in FRAMES:
        raise unknown("frame", frame, FRAMES)
    rows = [r.row() for r in results]
    if frame == "summary":
        names = dict.fromkeys(n for row in rows for n in row)
        front = [k for k in keys if k in names]
        return ArrowTable({n: [row.get(n) for row in rows] for n in dict.fromkeys([*front, *names])})
    import numpy as np

    frames = [r.columns(frame) for r in results]
    lengths = [_length(columns) for columns in frames]
    made: dict[str, list[Any] | NDArray[Any]] = {}
    names = dict.fromkeys(n for columns in frames for n in columns)
    for key in keys:
        values = [row.get(key) for row in rows]
        made[key] = [v for v, count in zip(values, lengths, strict=True) for _ in range(count)]
    for name in names:
        parts = [_plain(columns.get(name), count) for columns, count in zip(frames, lengths, strict=True)]
        # As in the pandas frames: a column of the run keeps its name.
        column = f"{frame}.{name}" if name in keys else name
        if any(isinstance(p, list) for p in parts):
            made[column] = [v for p in parts for v in p]
        else:
            made[column] = np.concatenate(parts)
    return ArrowTable(made)


def _length(columns: dict[str, Column]) -> int:
    first = next(iter(columns.values()), ())
    return len(first[0]) if isinstance(first, tuple) and first else len(first)


def _plain(column: Column | None, count: int) -> Any:
    """Words as a list, numbers as they are; a column that a run lacks as Nones."""
    if column is None:
        return [None] * count
    if isinstance(column, tuple):
        return [column[1][code] for code in column[0].tolist()]
    return column


def _array(na: Any, values: list[Any] | NDArray[Any]) -> tuple[Any, Any]:
    """Type and array of a column. NaN stands for "does not exist" here, so it becomes a null."""
    import numpy as np

    if isinstance(values, list):
        missing = np.array([v is None for v in values], dtype=bool)
        present = [v for v in values if v is not None]
        if not all(isinstance(v, bool | int | float) for v in present) or _mixed(present):
            return na.string(), _words(na, values, missing)
        kind = np.bool_ if present and isinstance(present[0], bool) else np.float64
        if present and kind is np.float64 and all(isinstance(v, int) for v in present):
            kind = np.int64
        numbers: NDArray[Any] = np.array([0 if v is None else v for v in values], dtype=kind)
    else:
        numbers, missing = np.ascontiguousarray(values), np.zeros(len(values), dtype=bool)
    if numbers.dtype.kind == "f":
        missing |= np.isnan(numbers)
    kinds = {"b": na.bool_, "i": na.int64, "u": na.uint64, "f": na.float64}
    type_ = kinds[numbers.dtype.kind]()
    body = np.packbits(numbers, bitorder="little") if numbers.dtype.kind == "b" else numbers
    return type_, na.c_array_from_buffers(type_, len(numbers), [_validity(missing), body])


def _mixed(present: list[Any]) -> bool:
    """True and False among numbers: two kinds in one column."""
    return len({isinstance(v, bool) for v in present}) > 1


def _words(na: Any, values: list[Any], missing: NDArray[Any]) -> Any:
    import numpy as np

    texts = [b"" if v is None else (v if isinstance(v, str) else json.dumps(v)).encode() for v in values]
    ends = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int32)
    return na.c_array_from_buffers(na.string(), len(values), [_validity(missing), ends, b"".join(texts)])


def _validity(missing: NDArray[Any]) -> Any:
    import numpy as np

    return np.packbits(~missing, bitorder="little") if missing.any() else None
