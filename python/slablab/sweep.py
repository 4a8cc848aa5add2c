"""A sweep: one experiment over lists of machines, allocators, workloads and parameter values."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from slablab import _core, config
from slablab.executors import elsewhere, usable
from slablab.experiment import warn_about
from slablab.result import Result, Sweep
from slablab.values import refused, shown, whole

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from slablab._core import _Crossing as Crossing
    from slablab.planning import Cell, Plan, Sample
    from slablab.store import Store

    StoreLike: TypeAlias = str | os.PathLike[str] | Store | None


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; `finished` holds the runs that it had ended by then. A store has them too."""

    def __init__(self, finished: Sweep) -> None:
        super().__init__(f"stopped after {len(finished)} runs; they are in .finished of this exception")
        self.finished = finished


class OtherVersionWarning(UserWarning):
    """A store holds runs of another version of slablab: they stay, and are not taken for this one's."""


def sweep(
    *,
    machine: config.MachineLike | Iterable[config.MachineLike] = "opteron-2x4-2007",
    allocator: config.AllocatorLike | Iterable[config.AllocatorLike],
    workload: config.WorkloadLike | Iterable[config.WorkloadLike],
    over: Mapping[str, Iterable[Any]] | None = None,
    repeats: int = 1,
    seed: int = 1,
    seeds: Iterable[int] | None = None,
    sample: int | Sample | None = None,
    store: StoreLike = None,
    threads: int | None = None,
    progress: bool = False,
    executor: Executor | None = None,
) -> Sweep:
    """Runs every combination and returns the runs in the order of the cells.

    `over` maps dotted parameters to their values: `{"workload.clients": range(1, 17), "allocator.order": [0, 3]}`.
    An axis that a machine, allocator or workload does not have gives one row for it instead of one per value.
    Repeat r runs with `seed` + r, unless `seeds` names them. `sample` runs so many combinations instead of all. A cell
    that stands twice is run once.

    `store` keeps finished runs in a file: what is there already is not run again, each run is kept as it ends, and
    several processes may work on one store. Simulated cells run side by side on `threads` host threads (all cores when
    None), native ones one at a time; `executor` takes them elsewhere instead.
    """
    if threads is not None:
        threads = whole("threads", threads, "1 or more, or None for all cores")
    usable(executor)
    made = _planned(machine, allocator, workload, over, repeats, seed, seeds, sample)
    return run(made, store=store, threads=threads, progress=progress, executor=executor)


def plan(
    *,
    machine: config.MachineLike | Iterable[config.MachineLike] = "opteron-2x4-2007",
    allocator: config.AllocatorLike | Iterable[config.AllocatorLike],
    workload: config.WorkloadLike | Iterable[config.WorkloadLike],
    over: Mapping[str, Iterable[Any]] | None = None,
    repeats: int = 1,
    seed: int = 1,
    seeds: Iterable[int] | None = None,
    sample: int | Sample | None = None,
    store: StoreLike = None,
    threads: int | None = None,
) -> Plan:
    """What `sweep` with the same arguments would run; nothing is run, and no store is made."""
    if threads is not None:
        threads = whole("threads", threads, "1 or more, or None for all cores")
    made = _planned(machine, allocator, workload, over, repeats, seed, seeds, sample)
    with ExitStack() as stack:
        kept = _entered(store, stack, write=False)
        if kept is None:
            return made
        have = kept.have(c.key for c in made.cells)
        missing = [c for c in made.cells if c.key not in have]
        seconds = _estimate(missing, kept, threads or os.cpu_count() or 1)
        return replace(made, stored=len(have), seconds=seconds, others=tuple(kept.others().items()))


def run(
    made: Plan,
    *,
    store: StoreLike = None,
    threads: int | None = None,
    progress: bool = False,
    executor: Executor | None = None,
) -> Sweep:
    """Runs a plan."""
    with ExitStack() as stack:
        kept = _entered(store, stack, write=True)
        return _Running(made, kept).run(threads, progress, executor)


class _Running:
    """A sweep under way."""

    def __init__(self, made: Plan, store: Store | None) -> None:
        self.cells = made.cells
        self.axes = made.axes
        self.store = store
        self.finished: dict[int, Result] = {}
        self.numbers = {c.key: i for i, c in enumerate(self.cells)}
        have = store.have(self.numbers) if store is not None else set()
        self.missing = [i for i, c in enumerate(self.cells) if c.key not in have]
        if store is not None and self.missing and (others := store.others()):
            said = ", ".join(f"{count} runs of {version}" for version, count in others.items())
            warnings.warn(
                f"{store.path} also holds {said}: they stay, and {len(self.missing)} cells run with {store.version}",
                OtherVersionWarning,
                stacklevel=4,
            )
        self.elsewhere = {self.numbers[key] for key in have}
        """Cells whose runs are in the store and not (yet) here."""

    def run(self, threads: int | None, progress: bool, executor: Executor | None) -> Sweep:
        from slablab.progress import Progress

        with Progress(len(self.missing), shown=progress) as bar:
            try:
                self._run(threads, executor, bar.step)
            except KeyboardInterrupt:
                raise SweepInterrupted(self._ordered()) from None
            except Exception as broken:
                # Whatever ended it, what is finished is not lost with it.
                broken.finished = self._ordered()  # type: ignore[attr-defined]
                raise
        self._fetch()
        grid = self._ordered()
        warn_about(grid)
        return grid

    def _run(self, threads: int | None, executor: Executor | None, tick: Callable[[], None]) -> None:
        order = list(self.missing)
        if self.store is not None:
            # Processes that share a store must not take the same cells at the same time; and a rate measured on cells
            # drawn at random holds for the rest.
            import random

            random.Random(os.urandom(8)).shuffle(order)

        def done(index: int, outcome: Crossing | Exception) -> Sequence[int] | None:
            cell = self.cells[index]
            if isinstance(outcome, Exception):
                outcome.add_note(f"in the run {cell.document}")
                raise outcome
            self.finished[index] = Result(outcome, cell.repeat)
            self.elsewhere.discard(index)
            tick()
            if self.store is None:
                return None
            self.store.put(cell.key, outcome)
            others = [n for key in self.store.news() if (n := self.numbers.get(key)) is not None]
            new = [n for n in others if n not in self.finished and n not in self.elsewhere]
            self.elsewhere.update(new)
            for _ in new:
                tick()
            return new

        documents = [c.document for c in self.cells]
        if executor is not None:
            elsewhere(executor, documents, order, done)
            return

        def numbered(at: int, outcome: Crossing | Exception) -> Sequence[int] | None:
            unwanted = done(order[at], outcome)
            return [places[n] for n in unwanted if n in places] if unwanted else None

        places = {index: at for at, index in enumerate(order)}
        _core.run_many([documents[i] for i in order], threads, numbered)

    def _fetch(self) -> None:
        """Reads the runs that were in the store already, or that others have put there."""
        if self.store is None:
            return
        for index in self.elsewhere:
            cell = self.cells[index]
            if (stored := self.store.get(cell.key, cell.repeat)) is not None:
                self.finished[index] = stored

    def _ordered(self) -> Sweep:
        """The finished runs in the order of the cells."""
        return Sweep([self.finished[i] for i in sorted(self.finished)], self.axes)


def _planned(
    machine: object,
    allocator: object,
    workload: object,
    over: Any,
    repeats: int,
    seed: int,
    seeds: Iterable[int] | None,
    sample: int | Sample | None,
) -> Plan:
    from slablab import planning  # here, so that importing slablab stays light

    drawn = planning.seeds_of(repeats, seed, seeds)
    return planning.plan(
        machine=planning.listed(machine, config.machine, "machine"),
        allocator=planning.listed(allocator, config.allocator, "allocator"),
        workload=planning.listed(workload, config.workload, "workload"),
        over=over,
        seeds=drawn,
        sample=sample,
    )


def _entered(store: StoreLike, stack: ExitStack, *, write: bool) -> Store | None:
    """The store, open: one that was given open stays so. A plan needs none that does not exist yet."""
    if store is None:
        return None
    from slablab.store import Store

    if isinstance(store, Store):
        if write and not store.writes:
            raise refused("store", repr(store), "a store open for writing: Store(path)")
        return store
    if not isinstance(store, str | os.PathLike):
        raise refused("store", shown(store), "the name of a file, as runs.db, or a Store")
    if not write and not os.path.exists(store):
        if not os.fspath(store) or not os.path.isdir(os.path.dirname(os.path.abspath(store))):
            raise refused("store", shown(store), "the name of a file in a folder that exists, as runs.db")
        return None
    return stack.enter_context(Store(store, write=write))


def _estimate(missing: Sequence[Cell], store: Store, threads: int) -> float | None:
    """Seconds that the missing cells may take, from the means of such runs in the store; None where it knows none."""
    import json

    total, means = 0.0, dict[tuple[str, str, str], float | None]()
    for cell in missing:
        full = json.loads(cell.document)
        kind = (
            full["machine"]["name"],
            f"{full['allocator']['name']}@{full['allocator']['era']}",
            full["workload"]["name"],
        )
        if kind not in means:
            means[kind] = store.seconds(*kind)
        mean = means[kind]
        if mean is None:
            return None
        total += mean / (1 if kind[0] == "native" else threads)
    return total
