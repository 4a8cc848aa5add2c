"""What a run and a sweep give back: totals, tidy frames, texts.

One row per observation; columns are named after the parameters; a quantity carries its unit in its name. Frames are
made when asked for: until then a result is a document and some arrays.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from slablab import _core
from slablab.values import refused, shown

if TYPE_CHECKING:
    import pandas as pd

    from slablab._core import _Column as Column
    from slablab._core import _Crossing as Crossing
    from slablab.arrow import ArrowTable
    from slablab.config import Part

Row: TypeAlias = dict[str, Any]

FRAMES = ("summary", "caches", "stats", "locks", "queues", "pages", "page_stats", "zone_map", "timeline")
"""Frames of a run and of a sweep."""


def short(dotted: str) -> str:
    """Names the column of a dotted parameter: its last word, but a workload's era is told from the allocator's."""
    return "workload_era" if dotted == "workload.era" else dotted.rpartition(".")[2]


class Result:
    """One finished run."""

    def __init__(self, crossing: Crossing, repeat: int = 0) -> None:
        document, self._frames = crossing
        parsed = json.loads(document)
        self.config: dict[str, Any] = parsed["config"]
        """The complete configuration that was run."""
        self.host: dict[str, Any] = parsed["host"]
        """What the host had to do with it: not compared between runs."""
        self.texts: dict[str, str] = parsed["texts"]
        """Ready-made texts by name."""
        tool: str | None = parsed.get("tool")
        # Seldom read and long: a tenth of it is kept.
        self._packed = None if tool is None else zlib.compress(tool.encode(), 1)
        self.checkpoints: list[dict[str, Any]] = parsed["checkpoints"]
        """What the checkpoints of a script saw: name, filled slots, and the state of each of its caches."""
        self.repeat = repeat
        """Which repeat of its cell it is, from 0."""
        self._summary: Row = parsed["summary"]
        self._profile: dict[str, Column] | None = self._frames.get("profile")

    @property
    def throughput(self) -> float:
        """What the workload counts, per second, in `unit`."""
        return float(self._summary["throughput"])

    @property
    def unit(self) -> str:
        """Unit of `throughput`."""
        return str(self._summary["unit"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.config["seed"])

    def row(self) -> Row:
        """The row of `summary()`: every parameter, seed and repeat, and the totals of the run."""
        row: Row = {}
        for name, value in self._summary.items():
            row[name] = value
            if name == "seed":
                row["repeat"] = self.repeat
        return row

    def summary(self) -> pd.DataFrame:
        """One row: every parameter and the totals of the run."""
        return table([self.row()])

    def caches(self) -> pd.DataFrame:
        """One row per cache: the columns of /proc/slabinfo and of slabinfo."""
        return self._frame("caches")

    def stats(self) -> pd.DataFrame:
        """One row per cache, CPU and event counter: of all steps that began inside the measured time.

        `latency` counts the calls that lie inside it as a whole: the two differ by at most a step on each CPU. What is
        freed when the run is over is in neither.
        """
        return self._frame("stats")

    def locks(self) -> pd.DataFrame:
        """One row per class of locks: how often taken, and what was waited for it.

        Times `acquired`, times the taker had to wait (`contended`), and nanoseconds waited over all CPUs (`wait_ns`):
        the part "waiting for ..." of `time()`, to the picosecond, and the sum of `waits()` over the CPUs.
        `lock_wait_pct` of the summary is the sum over the locks as a share of CPUs x measured time. A wait begins with
        the access that finds the lock taken and ends when the CPU goes on to take it; the access that takes it is none
        of it.
        """
        return self._frame("locks")

    def pages(self) -> pd.DataFrame:
        """Who asked for which order: one row per order and asker, after the warm-up.

        `asker` is a cache, or "(kmalloc pages)" beyond the largest one, "(skb fragments)", "(heap)" (SLOB's small
        objects), "(other)"; an order that nobody asked for has one row, of "(nobody)". Blocks `allocated` and `freed`;
        `failed` requests; attempts that were refused and made up for: `fallback` (to a smaller order, or another node),
        `reclaim` (asked again after reclaim); `fallback_node` blocks came from another node; `held` now, since boot.
        `free_blocks` and the two indices (0 to 1, see /sys/kernel/debug/extfrag) are the order's, in each of its rows.
        """
        return self._frame("pages")

    def queues(self) -> pd.DataFrame:
        """SLQB: one row per cache and list of a CPU or node, who holds what and what happened to it; else empty.

        `total_objects` of its `slabs`, of which free in its pages (`free_in_pages`), on its queues (`lifo`, `rlist`,
        `remote_free`); events: `allocs` and `frees` with their fast shares, `remote_frees`, `flushes` of the LIFO with
        the objects `flushed`, rlists `sent` home, `claims` of remote_free with the objects `claimed`. `check`: the
        owner has been told of its remote_free. Lists that had nothing to do are left out.
        """
        return self._frame("queues")

    def queueinfo(self) -> str:
        """SLQB: `queues` as text, a line per cache and below it one per list."""
        if "queues" not in self.texts:
            raise LookupError(f"{self.config['allocator']['name']} has no such queues; SLQB has")
        return self.texts["queues"]

    def page_stats(self) -> pd.DataFrame:
        """One row per CPU, node and event counter of the page allocator."""
        return self._frame("page_stats")

    def zone_map(self) -> pd.DataFrame:
        """Where memory is at the end: one row per stretch of each node's zone, at most 256 of them.

        `pages` from frame `first` on are `free`, `listed` on CPUs' lists, `held` by fragmentation or `lent`; `largest`
        is the order of the largest free block there (missing: none).
        """
        return self._frame("zone_map")

    def timeline(self) -> pd.DataFrame:
        """Memory over time: seconds, pages of the slab layer, free blocks per order (per-CPU lists not included).

        At most 1024 evenly spaced samples, the warm-up included; empty for a `Script`.
        """
        return self._frame("timeline")

    def series(self) -> pd.DataFrame:
        """Operations and throughput over time: one row per interval of the measured seconds, `time_s` at its end.

        `Tbench(interval=…)` sets its length, one second for other workloads; empty for a `Script`. Of a workload whose
        throughput is a time (`Hackbench`) the rows give operations per second.
        """
        return self._frame("series")

    def time(self) -> pd.DataFrame:
        """Where the time of all CPUs went: one row per part, in picoseconds and percent; they add up to CPUs x elapsed.

        Parts: the workload, the allocator's fast and slow paths, the page allocator, the scheduler, waiting for each
        class of lock, line transfers by structure, idle. Empty on `Native`.
        """
        return self._frame("time")

    def waits(self) -> pd.DataFrame:
        """Who waits for whom: one row per lock and CPU, how long it waited and how long others waited for it, in ps.

        Over all CPUs of a lock both columns have the same sum, and that is its part of `time()`. Empty on `Native`.
        """
        return self._frame("waits")

    def latency(self) -> pd.DataFrame:
        """How long the allocator's calls took: one row per operation and path, in ns.

        Quantiles are right to 6 percent, count, mean and longest exact. Paths: fast; refill (a free: remote); node
        list, when a lock of lists was taken; page, when the page allocator was asked. Empty on `Native`.
        """
        return self._frame("latency")

    def laps(self) -> pd.DataFrame:
        """What a workload timed itself (`SlabTest`): one row per test, part, size and bulk.

        `operations`, and `ns` and `cycles` of one of them (cycles of the machine's clock; natively of the host's, if it
        says which it has). Empty for workloads without a stopwatch.
        """
        return self._frame("laps")

    def profile(self) -> pd.DataFrame:
        """The allocation profile: one row per cache and kmalloc class that the workload used, most used first.

        `allocs`, `frees` and both per operation, `free_remote_pct` (freed on another CPU), `life_p50`, `life_p90`,
        `life_p99` (allocations of all caches between an object's allocation and its free; lower ends of powers of two),
        `life_mean_us`, `in_flight_peak` (objects). kmalloc classes are the same for every allocator.

        It is made at the first call by running the configuration once more with a recorder, which takes no virtual
        time: a simulated run is the same run. On `Native` it is another run, slowed down by the recorder.
        """
        if self._profile is None:
            self._profile = _core.run(json.dumps(self.config | {"profile": True}))[1].get("profile", {})
        return _made(self._profile)

    def buddyinfo(self) -> str:
        """The text of /proc/buddyinfo at the end of the run."""
        return self.texts["buddyinfo"]

    def slabinfo(self, options: str | None = None) -> str:
        """The text of /proc/slabinfo at the end of the run; with options what the slabinfo tool prints.

        `slabinfo("-AD")` is its activity, the busiest cache first, `"-T"` its totals, `"-l"` its listing. SLUB has the
        tool's own columns (those of its era), SLAB and SLQB columns on their queues: see docs/reports.md. An allocator
        that has nothing to show raises LookupError, an option that is not built ConfigError.
        """
        if options is not None:
            if not isinstance(options, str):
                raise refused("options", shown(options), 'letters of the slabinfo tool, as "-AD", "-T" or "-l"')
            return _core.slabinfo(self._tool("slabinfo"), options)
        if "slabinfo" not in self.texts:
            name = self._era.partition("@")[0]
            raise LookupError(f"{name} has no /proc/slabinfo; caches() shows what it has")
        return self.texts["slabinfo"]

    def sysfs(self, cache: str) -> dict[str, str]:
        """The attributes of a cache in sysfs at the end of the run, as the kernel's text (without its closing newline).

        `cache` is a name it was asked for under, or the name of its directory (`:0000104`). Counts have those of their
        nodes behind them (`N0=`), events those of their CPUs (`C0=`). SLUB and SLQB have such files; SLAB has
        /proc/slabinfo, SLOB nothing: a LookupError. An unknown cache is a ConfigError.
        """
        if not isinstance(cache, str):
            raise refused("cache", shown(cache), "the name of a cache")
        tool = self._tool("sysfs")
        if not json.loads(tool)["sysfs"]:
            raise LookupError(f"{self._era} has no directory in sysfs: slabinfo() is where it shows its caches")
        files: dict[str, str] = json.loads(_core.sysfs(tool, cache))
        return files

    @property
    def tool(self) -> dict[str, Any] | None:
        """What the slabinfo tool reads at the end: every cache's directory in sysfs; None if it has nothing to read."""
        return None if self._packed is None else dict(json.loads(zlib.decompress(self._packed)))

    @property
    def _era(self) -> str:
        allocator = self.config["allocator"]
        return f"{allocator['name']}@{allocator['era']}"

    def _tool(self, call: str) -> str:
        """What the tool reads, for the core."""
        if self._packed is None:
            raise LookupError(no_tool(self._era, call))
        return zlib.decompress(self._packed).decode()

    def to_json(self) -> str:
        """The result as a document.

        Its `result` is byte-identical for the same configuration, seed and version; its `host` is not compared.
        """
        frames = {name: {c: _listed(v) for c, v in columns.items()} for name, columns in self._frames.items()}
        result = {
            "config": self.config,
            "summary": self._summary,
            "frames": frames,
            "texts": self.texts,
            "tool": self.tool,
            "checkpoints": self.checkpoints,
        }
        return json.dumps({"result": result, "host": self.host}, allow_nan=False)

    def columns(self, frame: str) -> dict[str, Column]:
        """The arrays under a frame: numbers as they are, words as a pair (codes, names)."""
        return self._frames.get(frame, {})

    def to_arrow(self, frame: str = "summary") -> ArrowTable:
        """A frame by name (see FRAMES) for polars, pyarrow and duckdb; needs nanoarrow."""
        from slablab.arrow import arrow_table

        return arrow_table([self], (), frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from slablab.html import listing

        row = self.row()
        names = [
            "throughput",
            "unit",
            "elapsed_s",
            "ops",
            "alloc_fast_pct",
            "free_fast_pct",
            "lock_wait_pct",
        ]
        return listing(describe(self.config), [(n, row[n]) for n in names if n in row])

    def __repr__(self) -> str:
        return f"<Result {describe(self.config)}: {self.throughput:.6g} {self.unit}>"

    def _frame(self, name: str) -> pd.DataFrame:
        return _made(self._frames.get(name, {}))


def _made(columns: Mapping[str, Column]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({c: _words(v) if isinstance(v, tuple) else v for c, v in columns.items()})


class Sweep(Sequence[Result]):
    """The finished runs of a sweep, in the order of its cells."""

    def __init__(self, results: Iterable[Result], axes: Sequence[str] = ()) -> None:
        self.results = list(results) if isinstance(results, Iterable) else [results]
        for run in self.results:
            if not isinstance(run, Result):
                raise refused("results", shown(run), "finished runs (Result)")
        self.axes = tuple(axes)
        """Columns of the swept parameters."""

    @classmethod
    def gathered(cls, results: Iterable[Result]) -> Sweep:
        """Runs from anywhere as one sweep: its axes are the parameters that differ, repeats count the seeds."""
        runs = list(results)
        seen: dict[str, int] = {}
        for run in runs:
            config = json.dumps({k: v for k, v in run.config.items() if k != "seed"}, sort_keys=True)
            run.repeat = seen.get(config, 0)
            seen[config] = run.repeat + 1
        rows = [r.row() for r in runs]
        parts = ("machine", "allocator", "era", "workload")
        names = dict.fromkeys(n for row in rows for n in itertools.takewhile(lambda n: n != "seed", row))
        # What follows from the choice of the parts, as an era's own tunables, is no axis.
        values: dict[tuple[str, str], set[str]] = {}
        for row in rows:
            choice = json.dumps([row.get(p) for p in parts])
            for n in names:
                values.setdefault((n, "" if n in parts else choice), set()).add(json.dumps(row.get(n)))
        several = {n for (n, _), found in values.items() if len(found) > 1}
        if "allocator" in several:
            several.add("era")
        return cls(runs, [n for n in dict.fromkeys([*parts, *names]) if n in several])

    def summary(self) -> pd.DataFrame:
        """One row per run, swept columns in front; a parameter that an allocator does not have is missing there."""
        frame = table([r.row() for r in self.results])
        front = [c for c in self.axes if c in frame.columns]
        return frame[front + [c for c in frame.columns if c not in front]]

    def best(self) -> pd.DataFrame:
        """Of each cell the row of the repeat with the highest throughput."""
        frame = self.summary()
        if frame.empty:
            return frame
        best: pd.DataFrame = frame.loc[self._cells(frame)["throughput"].idxmax()]
        return best.reset_index(drop=True)

    def median(self) -> pd.DataFrame:
        """Of each cell one row with the medians of its repeats; `seed` and `repeat` give way to `repeats`."""
        frame = self.summary()
        if frame.empty:
            return frame
        measured = [c for c in _behind_seed(frame) if _numeric(frame[c])]
        how = {c: ("median" if c in measured else "first") for c in frame.columns if c not in ("seed", "repeat")}
        cells = self._cells(frame)
        reduced = cast("pd.DataFrame", cells.agg(how))
        reduced.insert(len(self.axes), "repeats", cells.size())
        return reduced.reset_index(drop=True)

    def compare(
        self,
        baseline: str | Part | Mapping[str, Any] | Sweep,
        metric: str = "throughput",
        *,
        confidence: float = 0.95,
        margin: float = 0.0,
    ) -> pd.DataFrame:
        """Every cell against the baseline's cell that differs in nothing else, one row each.

        `baseline` is an allocator ("slab@2.6.24"), columns with values ({"cpus": 4}), or another sweep, whose cells of
        the same configuration are taken. `metric` is a column of `summary()`. Columns: the parameters that vary, the
        mean and its spread on both sides (standard deviation in percent), `ratio` of the means with its interval `low`
        to `high`, `effect` (Cliff's delta, -1 to 1), and `verdict`: "higher", "lower", or "no difference" when the
        interval holds 1. A difference below `margin` (a share) is none. With one repeat there is no interval, and the
        verdict says so. All intervals of a table hold together with `confidence`.
        """
        from slablab.compare import compare

        return compare(self, baseline, metric, confidence=confidence, margin=margin)

    def table(self, baseline: str | Part | Mapping[str, Any] | Sweep, metric: str = "throughput", **how: float) -> str:
        """`compare` as plain text for a mail: under 80 columns, percent against the baseline, ± spread."""
        from slablab.mail import table

        return table(self, baseline, metric, **how)

    def caches(self) -> pd.DataFrame:
        """`Result.caches()` of every run, swept columns in front."""
        return self._stacked("caches")

    def stats(self) -> pd.DataFrame:
        """`Result.stats()` of every run, swept columns in front."""
        return self._stacked("stats")

    def locks(self) -> pd.DataFrame:
        """`Result.locks()` of every run, swept columns in front."""
        return self._stacked("locks")

    def pages(self) -> pd.DataFrame:
        """`Result.pages()` of every run, swept columns in front."""
        return self._stacked("pages")

    def queues(self) -> pd.DataFrame:
        """`Result.queues()` of every run of SLQB, swept columns in front."""
        return self._stacked("queues")

    def page_stats(self) -> pd.DataFrame:
        """`Result.page_stats()` of every run, swept columns in front."""
        return self._stacked("page_stats")

    def zone_map(self) -> pd.DataFrame:
        """`Result.zone_map()` of every run, swept columns in front."""
        return self._stacked("zone_map")

    def timeline(self) -> pd.DataFrame:
        """`Result.timeline()` of every run, swept columns in front."""
        return self._stacked("timeline")

    def time(self) -> pd.DataFrame:
        """`Result.time()` of every run, swept columns in front."""
        return self._stacked("time")

    def latency(self) -> pd.DataFrame:
        """`Result.latency()` of every run, swept columns in front."""
        return self._stacked("latency")

    def waits(self) -> pd.DataFrame:
        """`Result.waits()` of every run, swept columns in front."""
        return self._stacked("waits")

    def laps(self) -> pd.DataFrame:
        """`Result.laps()` of every run, swept columns in front."""
        return self._stacked("laps")

    def profile(self) -> pd.DataFrame:
        """`Result.profile()` of every run, swept columns in front.

        At the first call each simulated run is run once more, on all cores of the host (see `Result.profile`).
        """
        self._record()
        return self._stacked("profile")

    def to_arrow(self, frame: str = "summary") -> ArrowTable:
        """A frame by name (see FRAMES) for polars, pyarrow and duckdb; needs nanoarrow."""
        from slablab.arrow import arrow_table

        return arrow_table(self.results, self._keys() if frame != "summary" else self.axes, frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_xarray(self) -> Any:
        """An xarray Dataset: a dimension per axis and for the repeats, a variable per measured column; needs xarray."""
        from slablab.labelled import dataset

        if not self.results:
            raise refused("to_xarray", "a sweep without runs", "at least one run")
        return dataset(self.summary(), self.axes)

    def to_json(self) -> str:
        """A list of the documents of `Result.to_json`."""
        return "[" + ",\n".join(r.to_json() for r in self.results) + "]"

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.results[index]
        return Sweep(chosen, self.axes) if isinstance(chosen, list) else chosen

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        return f"<Sweep of {len(self)} runs over {', '.join(self.axes) or 'nothing'}>"

    def _repr_html_(self) -> str:
        from html import escape

        title = f"<b>{escape(repr(self)[1:-1])}</b>"
        if not self.results:
            return f"<div>{title}</div>"
        frame = self.summary()
        keys = [c for c in frame.columns if c in (*self.axes, "machine", "allocator", "era", "workload", "seed")]
        shown = frame[[*keys, "throughput", "unit", "alloc_fast_pct", "lock_wait_pct", "used_kb"]]
        return f"<div>{title}{shown.to_html(max_rows=20, index=False)}</div>"

    def _record(self) -> None:
        """Runs what has no profile yet once more with a recorder."""
        missing = [r for r in self.results if r._profile is None]
        documents = [json.dumps(r.config | {"profile": True}) for r in missing]

        def done(at: int, outcome: Crossing | Exception) -> None:
            if isinstance(outcome, Exception):
                raise outcome
            missing[at]._profile = outcome[1].get("profile", {})

        _core.run_many(documents, None, done)

    def _keys(self) -> list[str]:
        return list(dict.fromkeys((*self.axes, "machine", "allocator", "era", "workload", "seed", "repeat")))

    def _cells(self, frame: pd.DataFrame) -> Any:
        """Groups the rows that differ in nothing but seed and repeat, in order of first appearance."""
        cells: dict[str, int] = {}
        numbers = []
        for result in self.results:
            config = {k: v for k, v in result.config.items() if k != "seed"}
            numbers.append(cells.setdefault(json.dumps(config, sort_keys=True), len(cells)))
        return frame.groupby(numbers, sort=True)

    def _stacked(self, name: str) -> pd.DataFrame:
        import pandas as pd

        parts = []
        for result in self.results:
            frame, row = getattr(result, name)(), result.row()
            for at, key in enumerate(self._keys()):
                value: Any = row.get(key)
                if key in frame.columns:
                    frame = frame.rename(columns={key: f"{name}.{key}"})
                frame.insert(at, key, value)
            parts.append(frame)
        return whole_columns(pd.concat(parts, ignore_index=True)) if parts else pd.DataFrame()


def table(rows: Sequence[Row]) -> pd.DataFrame:
    """A frame of rows whose columns may differ; a column that some rows lack stands where the others have it."""
    import pandas as pd

    order: list[str] = []
    # Many rows have the same columns: each kind of row is looked at once.
    for names in dict.fromkeys(tuple(row) for row in rows):
        at = 0
        for name in names:
            if name not in order:
                order.insert(at, name)
            at = order.index(name) + 1
    return whole_columns(pd.DataFrame({c: [row.get(c) for row in rows] for c in order}))


def no_tool(allocator: str, call: str) -> str:
    """Why an allocator has nothing for `slabinfo` or `sysfs` to show."""
    why = {
        "slob": "its objects share the pages of one heap, no cache has slabs",
        "null": "it is no allocator of a kernel",
    }.get(allocator.partition("@")[0], "the run was kept by an earlier slablab")
    return f"{allocator} has no {call}: {why}; caches() shows what it has"


def describe(config: Mapping[str, Any]) -> str:
    """One line that says what was run."""
    machine, allocator, workload = config["machine"], config["allocator"], config["workload"]
    clients = f" clients={workload['clients']}" if "clients" in workload else ""
    return (
        f"{allocator['name']}@{allocator['era']} {workload['name']}{clients} "
        f"on {machine['name']} cpus={machine['cpus']} seed={config['seed']}"
    )


def whole_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Turns columns of whole numbers with gaps, which pandas makes floats or objects, into nullable integers."""
    for name in frame.columns:
        column = frame[name]
        if not column.isna().any():
            continue
        present = column.dropna()
        if present.empty:
            frame[name] = column.astype("float64")
        if len(present) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
            whole = all(float(v).is_integer() for v in present)
            frame[name] = column.astype("Float64").astype("Int64") if whole else column.astype("Float64")
    return frame


def _behind_seed(frame: pd.DataFrame) -> list[str]:
    """Columns that were measured: what stands behind seed and repeat."""
    return list(frame.columns[list(frame.columns).index("repeat") + 1 :])


def _numeric(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _words(column: tuple[Any, list[str]]) -> Any:
    import numpy as np

    codes, names = column
    return np.array(names, dtype=object)[codes] if names else np.array([], dtype=object)


def _listed(column: Column) -> list[Any]:
    if isinstance(column, tuple):
        return [column[1][code] for code in column[0].tolist()]
    return [None if isinstance(v, float) and math.isnan(v) else v for v in column.tolist()]
