"""A sweep: one experiment over lists of machines, allocators, workloads and parameter values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slablab import _core, config
from slablab.config import PARTS, Part, refused, unknown
from slablab.experiment import checked_seed, warn_oversubscribed
from slablab.result import Result, Sweep, short

if TYPE_CHECKING:
    from slablab._core import _Crossing as Crossing


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; `finished` holds the runs that had ended by then."""

    def __init__(self, finished: Sweep) -> None:
        super().__init__(f"stopped after {len(finished)} runs; they are in .finished of this exception")
        self.finished = finished


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: its configuration as JSON, and which repeat it is."""

    document: str
    repeat: int


MAX_CELLS = 100_000
"""Most cells of one sweep: each is a run of seconds."""


def sweep(
    *,
    machine: config.MachineLike | Iterable[config.MachineLike] = "opteron-2x4-2007",
    allocator: config.AllocatorLike | Iterable[config.AllocatorLike],
    workload: config.WorkloadLike | Iterable[config.WorkloadLike],
    over: Mapping[str, Iterable[Any]] | None = None,
    repeats: int = 1,
    seed: int = 1,
    seeds: Iterable[int] | None = None,
    threads: int | None = None,
    progress: bool = False,
    executor: Executor | None = None,
) -> Sweep:
    """Runs every combination and returns the runs in the order of the cells.

    `over` maps dotted parameters to their values: `{"workload.clients": range(1, 17), "allocator.order": [0, 3]}`.
    An axis that a machine, allocator or workload does not have gives one row for it instead of one per value.
    Repeat r runs with `seed` + r, unless `seeds` names them. Simulated cells run side by side on `threads` host
    threads (all cores when None), native ones one at a time; `executor` takes them elsewhere instead.
    """
    cells, axes = plan(
        machine=listed(machine, config.machine),
        allocator=listed(allocator, config.allocator),
        workload=listed(workload, config.workload),
        over=over,
        seeds=_seeds(repeats, seed, seeds),
    )
    if threads is not None and threads < 1:
        raise refused("threads", threads, "1 or more, or None for all cores")
    finished: dict[int, Result] = {}
    failure: list[Exception] = []
    with _bar(len(cells), progress) as tick:

        def done(index: int, outcome: Crossing | Exception) -> None:
            if isinstance(outcome, Exception):
                outcome.add_note(f"in the run {cells[index].document}")
                failure.append(outcome)
                raise outcome
            finished[index] = Result(outcome, cells[index].repeat)
            tick()

        try:
            if executor is None:
                _core.run_many([c.document for c in cells], threads, done)
            else:
                _elsewhere(executor, cells, done)
        except KeyboardInterrupt:
            raise SweepInterrupted(_ordered(finished, axes)) from None
        except _core.SlabCorruption as broken:
            broken.finished = _ordered(finished, axes)  # type: ignore[attr-defined]
            raise
    grid = _ordered(finished, axes)
    warn_oversubscribed(grid)
    return grid


def plan(
    *,
    machine: list[Part],
    allocator: list[Part],
    workload: list[Part],
    over: Mapping[str, Iterable[Any]] | None,
    seeds: list[int],
) -> tuple[list[Cell], list[str]]:
    """The cells of a sweep, each checked by the core, and the columns of its axes."""
    axes = _axes(over)
    combinations = list(
        itertools.product(*_replaced(axes, {"machine": machine, "allocator": allocator, "workload": workload}))
    )
    dotted = {name: values for name, values in axes.items() if name not in PARTS}
    most = len(combinations) * math.prod(len(values) for values in dotted.values()) * len(seeds)
    if most > MAX_CELLS:
        raise refused("sweep", f"up to {most} cells", f"at most {MAX_CELLS}: fewer values in over, or fewer repeats")
    used: set[str] = set()
    cells: list[Cell] = []
    for parts in combinations:
        documents = {part.part: part.document() for part in parts}
        known = {f"{p}.{name}" for p, d in documents.items() for name in config.parameters(p, str(d["name"]))}
        own = [name for name in dotted if name in known]
        used.update(own)
        for values in itertools.product(*(dotted[name] for name in own)):
            full = {p: dict(d) for p, d in documents.items()}
            for name, value in zip(own, values, strict=True):
                p, _, parameter = name.partition(".")
                full[p][parameter] = value
            cells += [Cell(_core.expand(config.encoded({**full, "seed": s})), repeat) for repeat, s in enumerate(seeds)]
    for name in dotted:
        if name not in used:
            _known_somewhere(name)
    several = [
        p for p, given in (("machine", machine), ("allocator", allocator), ("workload", workload)) if len(given) > 1
    ]
    columns = dict.fromkeys([*several, *(short(name) for name in axes)])
    return cells, [c for name in columns for c in ([name, "era"] if name == "allocator" else [name])]


def listed(given: Any, made: Callable[[Any], Part]) -> list[Part]:
    """One part or several, as config objects."""
    if isinstance(given, str | Part) or not isinstance(given, Iterable):
        return [made(given)]
    parts = [made(g) for g in given]
    if not parts:
        raise refused("sweep", "[]", "at least one machine, allocator and workload")
    return parts


def _known_somewhere(name: str) -> None:
    """Refuses an axis that nothing in the catalog has; one that just these parts lack is no error."""
    part = name.partition(".")[0]
    names = [e["name"] for e in config.catalog()[f"{part}s"]]
    known = sorted({f"{part}.{k}" for n in names for k in config.parameters(part, n)})
    if name not in known:
        raise unknown("over", name, known)


def _axes(over: Mapping[str, Iterable[Any]] | None) -> dict[str, list[Any]]:
    """The axes with their values listed."""
    if over is None:
        return {}
    if not over:
        raise refused("over", "{}", 'at least one axis, as {"workload.clients": [1, 2, 4]}; leave it out for none')
    axes: dict[str, list[Any]] = {}
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise refused(f"over[{name!r}]", repr(values), "a list or range of values")
        axes[name] = [v if name in PARTS else config.plain(v) for v in values]
        if not axes[name]:
            raise refused(f"over[{name!r}]", "[]", "at least one value")
        if name not in PARTS and name.partition(".")[0] not in PARTS:
            raise refused("over", f'"{name}"', "a dotted parameter: machine.…, allocator.… or workload.…")
    return axes


def _replaced(axes: dict[str, list[Any]], parts: dict[str, list[Part]]) -> Iterator[list[Part]]:
    """The parts, with those taken from the axes `machine`, `allocator`, `workload` where given."""
    makers: dict[str, Callable[[Any], Part]] = {
        "machine": config.machine,
        "allocator": config.allocator,
        "workload": config.workload,
    }
    for name in PARTS:
        yield [makers[name](v) for v in axes[name]] if name in axes else parts[name]


def _seeds(repeats: int, seed: int, seeds: Iterable[int] | None) -> list[int]:
    if seeds is not None:
        chosen = [checked_seed(s) for s in seeds]
        if not chosen:
            raise refused("seeds", "[]", "at least one seed")
        return chosen
    if repeats < 1:
        raise refused("repeats", repeats, "1 or more")
    return [checked_seed(seed + r) for r in range(repeats)]


def _ordered(finished: dict[int, Result], axes: list[str]) -> Sweep:
    return Sweep((finished[i] for i in sorted(finished)), axes)


def _elsewhere(executor: Executor, cells: list[Cell], done: Callable[[int, Crossing | Exception], None]) -> None:
    """Runs the cells on an executor. What is not begun when one fails, or at Ctrl-C, is taken back."""
    futures = {executor.submit(_core.run, cell.document): i for i, cell in enumerate(cells)}
    try:
        for future in as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            done(futures[future], error or future.result())
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[], object]]:
    """A progress bar, or none: gives the function to call at each step."""
    if not shown:
        yield lambda: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="run") as bar:
        yield bar.update
