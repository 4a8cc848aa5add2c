"""A finished run as bytes and back, for stores: its document, and its frames column by column."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slablab._core import _Column as Column
    from slablab._core import _Crossing as Crossing


def pack(crossing: Crossing) -> tuple[bytes, bytes]:
    """Document and frames of a run, each compressed. The checksum of zlib guards both."""
    import zlib

    document, frames = crossing
    head: dict[str, dict[str, list[Any]]] = {}
    columns: list[bytes] = []
    for name, frame in frames.items():
        head[name] = {}
        for column, values in frame.items():
            numbers, words = values if isinstance(values, tuple) else (values, None)
            columns.append(numbers.tobytes())
            head[name][column] = [numbers.dtype.str, len(columns[-1]), words]
    body = b"".join([json.dumps(head).encode(), b"\n", *columns])
    return zlib.compress(document.encode(), 1), zlib.compress(body, 1)


def unpack(document: bytes, frames: bytes) -> Crossing:
    """What `pack` was given. Raises ValueError for bytes that it has not made."""
    import zlib

    import numpy as np

    try:
        text, body = zlib.decompress(document).decode(), zlib.decompress(frames)
    except zlib.error as e:
        raise ValueError(str(e)) from None
    head, _, columns = body.partition(b"\n")
    at = 0
    found: dict[str, dict[str, Column]] = {}
    for name, frame in json.loads(head).items():
        found[name] = {}
        for column, (kind, size, words) in frame.items():
            # A copy: the bytes of a row are read-only, and would keep all columns alive for one.
            numbers = np.frombuffer(columns[at : at + size], dtype=kind).copy()
            found[name][column] = numbers if words is None else (numbers, words)
            at += size
    if at != len(columns):
        raise ValueError(f"{len(columns)} bytes of columns instead of {at}")
    return text, found
