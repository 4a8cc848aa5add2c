"""A store: finished runs in one SQLite file, so that a sweep outlasts its process.

A row is found by its key: a hash of the run's complete configuration, its seed and the core's version. Each finished
run is committed at once, to a write-ahead log: a killed process loses what it had not finished, and nothing else. The
log is not flushed to the disk at every commit, so a power cut may take the last moments with it, but never damages the
file. Several processes may share a store. Rows of another version stay, and are never mixed with this one's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from slablab import _core, sqlite
from slablab.packed import pack, unpack
from slablab.result import Result, Sweep
from slablab.sqlite import DAMAGED, StoreError, busy, meaning, opened
from slablab.values import refused, shown

if TYPE_CHECKING:
    from types import TracebackType

    import pandas as pd

    from slablab._core import _Crossing as Crossing

FORMAT = 1
"""Version of the tables. A file with a higher one belongs to a newer slablab."""

APPLICATION = 0x51AB1AB
"""Marks an SQLite file as a store (`file` and SQLite show it as the application id)."""

_TABLES = """
CREATE TABLE cells (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    version TEXT NOT NULL,
    machine TEXT NOT NULL,
    allocator TEXT NOT NULL,
    workload TEXT NOT NULL,
    seed INTEGER NOT NULL,
    finished TEXT NOT NULL,
    wall_s REAL NOT NULL,
    document BLOB NOT NULL,
    frames BLOB NOT NULL
);
CREATE INDEX cells_by_version ON cells (version, machine, allocator, workload);
"""

T = TypeVar("T")


class Store:
    """Finished runs in one SQLite file: `with Store("runs.db") as store: store.sweep().summary()`.

    With `write=False` nothing is changed, and the file must exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, write: bool = True) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(os.fspath(path)):
            raise StoreError(shown(path), "the name of a file, as runs.db")
        from pathlib import Path

        self.path = Path(path)
        self.version = _core.version()
        """The version whose rows this process reads and writes."""
        self.writes = write
        """Whether runs can be put into it."""
        self._heard = 0
        self._db = opened(self.path, write)
        try:
            self._checked(write)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Closes the file. The last process to close it folds the log into it."""
        with self._told():
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM cells WHERE version = ?", self.version)[0][0])

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def put(self, key: str, crossing: Crossing) -> bool:
        """Commits a finished run; False when another process was first, whose row stays."""
        from datetime import UTC, datetime

        parsed = json.loads(crossing[0])
        config = parsed["config"]
        row = (
            key,
            self.version,
            config["machine"]["name"],
            f"{config['allocator']['name']}@{config['allocator']['era']}",
            config["workload"]["name"],
            config["seed"],
            datetime.now(UTC).isoformat(timespec="seconds"),
            float(parsed["host"]["wall_s"]),
            *pack(crossing),
        )
        places = ", ".join("?" * len(row))
        columns = "key, version, machine, allocator, workload, seed, finished, wall_s, document, frames"
        done = self._do(lambda: self._db.execute(f"INSERT OR IGNORE INTO cells ({columns}) VALUES ({places})", row))
        return done.rowcount == 1

    def have(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that are finished."""
        stored = {str(k) for (k,) in self._rows("SELECT key FROM cells WHERE version = ?", self.version)}
        return stored.intersection(keys)

    def news(self) -> list[str]:
        """Keys committed by anybody since the last call."""
        rows = self._rows("SELECT id, key FROM cells WHERE id > ? AND version = ?", self._heard, self.version)
        self._heard = max([self._heard, *(int(number) for number, _ in rows)])
        return [str(key) for _, key in rows]

    def get(self, key: str, repeat: int = 0) -> Result | None:
        """The run of a key; None when it is not finished."""
        rows = self._rows("SELECT key, document, frames FROM cells WHERE key = ?", key)
        return self._result(rows[0], repeat) if rows else None

    def find(self, stem: str) -> Result:
        """The run of the only key that begins so."""
        query = "SELECT key, document, frames FROM cells WHERE key >= ? AND key < ? || 'g' LIMIT 2"
        rows = self._rows(query, stem, stem) if stem else []
        if len(rows) != 1:
            right = (
                "more of the key: several runs begin so" if rows else "the beginning of a key, as `store show` lists"
            )
            raise refused("key", shown(stem), right)
        return self._result(rows[0], 0)

    def sweep(self, version: str | None = None) -> Sweep:
        """All runs of one version (this one's when None), in the order in which they ended."""
        query = "SELECT key, document, frames FROM cells WHERE version = ? ORDER BY id"
        runs = [self._result(row, 0) for row in self._rows(query, version or self.version)]
        return Sweep.gathered(runs)

    def export(self, path: str | os.PathLike[str], frame: str = "summary") -> int:
        """Writes a frame of `sweep()` to a .parquet, .arrow or .csv file; returns its rows."""
        from slablab.export import export

        return export(self.sweep(self.only()), path, frame)

    def ls(self) -> pd.DataFrame:
        """One row per version, machine, allocator and workload: runs, seconds they took, when the last ended."""
        import pandas as pd

        columns = ["version", "machine", "allocator", "workload", "runs", "wall_s", "last"]
        rows = self._rows(
            "SELECT version, machine, allocator, workload, count(*), sum(wall_s), max(finished) FROM cells "
            "GROUP BY version, machine, allocator, workload ORDER BY version = ? DESC, version, machine, allocator",
            self.version,
        )
        return pd.DataFrame(rows, columns=columns)

    def runs(self) -> pd.DataFrame:
        """One row per run: key, version, parts, seed, when it ended, seconds it took."""
        import pandas as pd

        columns = ["key", "version", "machine", "allocator", "workload", "seed", "finished", "wall_s"]
        return pd.DataFrame(self._rows(f"SELECT {', '.join(columns)} FROM cells ORDER BY id"), columns=columns)

    def others(self) -> dict[str, int]:
        """Runs of other versions, by version."""
        found = self._rows("SELECT version, count(*) FROM cells WHERE version != ? GROUP BY version", self.version)
        return {str(version): int(count) for version, count in found}

    def only(self) -> str:
        """The version to show: this one when the store has runs of it, else the only other one."""
        others = self.others()
        if len(self) or not others:
            return self.version
        if len(others) > 1:
            raise StoreError(self.path, f"one version; this store has {', '.join(sorted(others))}")
        return next(iter(others))

    def seconds(self, machine: str, allocator: str, workload: str) -> float | None:
        """Mean time of the stored runs of this kind, else of this workload; of any version. None without any."""
        for where, values in (
            ("machine = ? AND allocator = ? AND workload = ?", (machine, allocator, workload)),
            ("workload = ?", (workload,)),
        ):
            mean = self._rows(f"SELECT avg(wall_s) FROM cells WHERE {where}", *values)[0][0]
            if mean is not None:
                return float(mean)
        return None

    def gc(self, version: str | None = None) -> int:
        """Deletes the runs of a version, or of every other version than this; returns how many, gives the room back."""
        where, value = ("version = ?", version) if version is not None else ("version != ?", self.version)
        gone = self._do(lambda: self._db.execute(f"DELETE FROM cells WHERE {where}", (value,))).rowcount
        self._do(lambda: self._db.execute("VACUUM"))
        return gone

    def check(self) -> None:
        """Reads everything; raises StoreError where something is damaged."""
        found = [str(line) for (line,) in self._rows("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise StoreError(self.path, DAMAGED.format(found[0]))
        for row in self._rows("SELECT key, document, frames FROM cells"):
            self._result(row, 0)

    def _result(self, row: tuple[Any, ...], repeat: int) -> Result:
        key, document, frames = row
        try:
            return Result(unpack(document, frames), repeat)
        except (ValueError, KeyError, TypeError) as e:
            raise StoreError(self.path, DAMAGED.format(f"run {key[:12]}: {e}")) from None

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._do(lambda: self._db.execute(query, values).fetchall())

    def _do(self, work: Callable[[], T]) -> T:
        """Does something with the file, waiting in short steps, so that Ctrl-C is heard meanwhile."""
        import sqlite3

        until = time.monotonic() + sqlite.PATIENCE
        with self._told():
            while True:
                try:
                    return work()
                except sqlite3.OperationalError as e:
                    if not busy(e) or time.monotonic() > until:
                        raise
                    time.sleep(0.02)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns SQLite's errors into ours."""
        import sqlite3

        try:
            yield
        except sqlite3.Error as e:
            raise StoreError(self.path, meaning(e)) from e

    def _checked(self, write: bool) -> None:
        """Looks whose file it is; makes the tables in an empty one."""
        found, made_by = self._rows("PRAGMA user_version")[0][0], self._rows("PRAGMA application_id")[0][0]
        empty = not self._rows("SELECT 1 FROM sqlite_master LIMIT 1")
        if empty and made_by in (0, APPLICATION):
            if not write:
                raise StoreError(self.path, "a store; this file is empty")
            self._do(self._make)
        elif made_by != APPLICATION:
            raise StoreError(self.path, "a store of slablab; this is an SQLite file of something else")
        elif found > FORMAT:
            raise StoreError(
                self.path, f"a store of this slablab (format {FORMAT} or less); a newer one wrote format {found}"
            )
        if write:
            self._do(lambda: self._db.execute("PRAGMA journal_mode = WAL").fetchall())
            self._do(lambda: self._db.execute("PRAGMA synchronous = NORMAL"))
            # Says now, not after an hour of runs, that nothing can be written.
            self._do(lambda: self._db.executescript("BEGIN IMMEDIATE; ROLLBACK;"))
        self._heard = int(self._rows("SELECT coalesce(max(id), 0) FROM cells")[0][0])

    def _make(self) -> None:
        """Makes the tables, in one transaction: another process sees all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if not self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
