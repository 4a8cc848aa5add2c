"""The SQLite file under a store: how it is opened, and what its errors mean for the user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from slablab._core import ConfigError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

PATIENCE = 10.0
"""Seconds to wait for another process that holds the store."""

DAMAGED = "a whole file; this one is damaged ({}): `sqlite3 FILE .recover` may save what is left"


class StoreError(ConfigError):
    """A store that cannot be used: which file, what is wrong with it, what would be right."""

    def __init__(self, path: Path | str, expected: str) -> None:
        super().__init__(f"store = {path}: {expected}")
        self.parameter, self.value, self.expected = "store", str(path), expected

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreError, (self.value, self.expected)


def opened(path: Path, write: bool) -> sqlite3.Connection:
    """Opens a store's file, for reading alone unless `write`."""
    import sqlite3

    _looked_at(path, write)
    try:
        if write:
            return _connected(path, "rwc")
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            # Who may write can take away the log's files on leaving, as a reader alone cannot.
            found = _connected(path, "rw")
            found.execute("PRAGMA query_only = ON")
            return found
        found = _connected(path, "ro")
        try:
            found.execute("SELECT 1 FROM sqlite_master").fetchall()
        except sqlite3.OperationalError as e:
            # A log needs a file beside it even to be read. Without a log, and without the right to make one, the file
            # alone is the whole store.
            if busy(e) or path.with_name(f"{path.name}-wal").exists():
                return found
            found.close()
            return _connected(path, "ro&immutable=1")
        return found
    except sqlite3.Error as e:
        raise StoreError(path, meaning(e)) from e


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    import sqlite3

    # One connection serves one thread at a time; the sweep that owns it may live in another thread than its maker.
    name = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(name, uri=True, timeout=0.0, isolation_level=None, check_same_thread=False)


def _looked_at(path: Path, write: bool) -> None:
    """Refuses what cannot be a store: SQLite itself would say it less clearly, or too late."""
    try:
        if path.is_dir():
            raise StoreError(path, "a file, as runs.db; this is a folder")
        if not path.parent.is_dir():
            raise StoreError(path, f"a file in a folder that exists; {path.parent} does not")
        if path.exists():
            _file(path, write)
        elif not write:
            raise StoreError(path, "a store; there is no such file")
        elif not os.access(path.parent, os.W_OK):
            raise StoreError(path, f"a folder that can be written; {path.parent} is read-only")
    except OSError as e:
        raise StoreError(path, f"a file that can be opened ({e.strerror})") from None


def _file(path: Path, write: bool) -> None:
    if not path.is_file():
        raise StoreError(path, "a regular file")
    with path.open("rb") as file:
        start = file.read(16)
    if start and start != b"SQLite format 3\0":
        raise StoreError(path, "a store, or a name that is free; this is a file of another kind")
    if write and not os.access(path, os.W_OK):
        raise StoreError(path, "a file that can be written; this one is read-only")


def busy(error: sqlite3.Error) -> bool:
    """True when somebody else holds the file: worth another try."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def meaning(error: sqlite3.Error) -> str:
    """What an error of SQLite means for the user."""
    name = getattr(error, "sqlite_errorname", "")
    if busy(error):
        return f"a store that others let go of; another process has held it for {PATIENCE:g} s"
    if name.startswith("SQLITE_FULL"):
        return "a disk with room; this one is full. What was committed before is kept"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"a file and folder that can be written ({error})"
    if name.startswith("SQLITE_IOERR"):
        return f"a disk that takes what is written ({error}). What was committed before is kept"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DAMAGED.format(error)
    return f"a store that works ({error})"
