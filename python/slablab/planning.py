"""What a sweep will do: its cells, each checked by the core, before any of them runs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from slablab import _core, config
from slablab.config import PARTS, Part
from slablab.experiment import checked_seed
from slablab.result import short
from slablab.values import plain, refused, shown, unknown, whole

if TYPE_CHECKING:
    from random import Random

MAX_CELLS = 100_000
"""Most cells of one sweep: each is a run of seconds."""

MAX_VALUES = 1_000_000
"""Most values of one axis, but for a range, which is never listed."""


@dataclass(frozen=True)
class Sample:
    """So many combinations of a sweep instead of all, drawn from a seed; each gets all its repeats.

    "random" draws without repetition. "latin" (a latin hypercube) cuts every axis into `count` equal parts and takes
    each part once, so that few combinations still meet every value; combinations that fall together are kept once.
    """

    count: int
    method: Literal["random", "latin"] = "random"
    seed: int = 1

    def __post_init__(self) -> None:
        whole("sample.count", self.count, f"1..{MAX_CELLS}", 1, MAX_CELLS)
        if self.method not in ("random", "latin"):
            raise refused("sample.method", shown(self.method), '"random" or "latin"')
        checked_seed(self.seed)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: its complete configuration as JSON, its key in a store, and which repeat it is."""

    document: str
    key: str
    repeat: int


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep. Prints as what `--dry-run` shows."""

    cells: tuple[Cell, ...]
    axes: tuple[str, ...]
    """Columns of the swept parameters."""
    combinations: int
    """Of all parts and axis values, before sampling and repeats."""
    taken: int
    """Combinations that are in the sample, or all."""
    repeats: int
    duplicates: int
    """Cells left out because the same configuration and seed stands earlier."""
    idle: tuple[str, ...]
    """Axes that do not apply somewhere, as "allocator.order: slob@2.6.24"."""
    stored: int = 0
    """Cells that the store has already."""
    seconds: float | None = None
    """Estimate for the rest, from the store's own history; None when it has none."""
    others: tuple[tuple[str, int], ...] = ()
    """Other versions in the store with their runs, which stay apart."""

    def __len__(self) -> int:
        return len(self.cells)

    def __str__(self) -> str:
        return "\n".join(f"{name:<16}{text}" for name, text in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        of = "all" if self.taken == self.combinations else f"a sample of {self.taken}"
        known = "unknown: the store has no such runs yet" if self.seconds is None else f"about {spelled(self.seconds)}"
        return [
            ("combinations", f"{self.combinations}, {of}"),
            ("cells", f"{len(self.cells)}, {self.repeats} repeat(s) each"),
            ("duplicates", f"{self.duplicates} dropped"),
            *(("does not apply", axis) for axis in self.idle),
            ("stored", f"{self.stored}, so {len(self.cells) - self.stored} to run"),
            *(("kept apart", f"{count} runs of version {version}") for version, count in self.others),
            ("time", known),
        ]

    def _repr_html_(self) -> str:
        from slablab.html import listing

        return listing("a sweep that has not run", self._lines())

    def to_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "cells": len(self.cells),
            "combinations": self.combinations,
            "sampled": self.taken,
            "repeats": self.repeats,
            "duplicates": self.duplicates,
            "does_not_apply": list(self.idle),
            "stored": self.stored,
            "to_run": len(self.cells) - self.stored,
            "seconds": self.seconds,
            "other_versions": dict(self.others),
        }


def spelled(seconds: float) -> str:
    """A time for people: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def key_of(document: str) -> str:
    """The key of a run: a hash of its complete configuration with its seed, and of the core's version."""
    import hashlib

    canonical = json.dumps(json.loads(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{_core.version()}\n{canonical}".encode()).hexdigest()


def plan(
    *,
    machine: Sequence[Part],
    allocator: Sequence[Part],
    workload: Sequence[Part],
    over: Mapping[str, Iterable[Any]] | None,
    seeds: Sequence[int],
    sample: int | Sample | None = None,
) -> Plan:
    """The cells of a sweep, each checked by the core, and the columns of its axes."""
    axes = _axes(over)
    parts: dict[str, Sequence[Part]] = {"machine": machine, "allocator": allocator, "workload": workload}
    blocks, idle = _blocks(axes, parts)
    combinations = sum(b.size for b in blocks)
    drawn = sample if isinstance(sample, Sample) or sample is None else Sample(whole("sample", sample, "1 or more"))
    chosen = combinations if drawn is None else min(drawn.count, combinations)
    if chosen * len(seeds) > MAX_CELLS:
        raise refused(
            "sweep",
            f"{chosen * len(seeds)} cells",
            f"at most {MAX_CELLS}: fewer values in over, fewer repeats, or sample={max(1, MAX_CELLS // len(seeds))} "
            "for so many combinations drawn at random",
        )
    cells: dict[str, Cell] = {}
    for full in _drawn(blocks, drawn):
        for repeat, seed in enumerate(seeds):
            made = cell(full, repeat, seed)
            cells.setdefault(made.key, made)
    several = [p for p in PARTS if len(parts[p]) > 1]
    columns = dict.fromkeys([*several, *(short(name) for name in axes)])
    named = dict.fromkeys(c for name in columns for c in ([name, "era"] if name == "allocator" else [name]))
    duplicates = chosen * len(seeds) - len(cells)
    return Plan(tuple(cells.values()), tuple(named), combinations, chosen, len(seeds), duplicates, idle)


def explicit(choices: Iterable[tuple[Part, Part, Part]], seeds: Sequence[int]) -> Plan:
    """The cells of machine, allocator and workload as they stand, each with every seed."""
    chosen = list(choices)
    cells: dict[str, Cell] = {}
    for choice in chosen:
        full: dict[str, Any] = {part.part: part.document() for part in choice}
        for repeat, seed in enumerate(seeds):
            made = cell(full, repeat, seed)
            cells.setdefault(made.key, made)
    duplicates = len(chosen) * len(seeds) - len(cells)
    return Plan(tuple(cells.values()), (), len(chosen), len(chosen), len(seeds), duplicates, ())


def cell(full: Mapping[str, Any], repeat: int, seed: int) -> Cell:
    """One run, checked by the core."""
    document = _core.expand(config.encoded({**full, "seed": seed}))
    return Cell(document, key_of(document), repeat)


def listed(given: Any, made: Callable[[Any], Part], parameter: str = "sweep") -> list[Part]:
    """One part or several, as config objects."""
    if isinstance(given, str | Part | Mapping) or not isinstance(given, Iterable):
        return [made(given)]
    parts = [made(g) for g in given]
    if not parts:
        raise refused(parameter, "[]", "at least one machine, allocator and workload")
    return parts


def seeds_of(repeats: object, seed: object, seeds: object) -> list[int]:
    """The seeds of the repeats of each cell."""
    if seeds is not None:
        if repeats != 1 or seed != 1:
            said = f"repeats={shown(repeats)}" if repeats != 1 else f"seed={shown(seed)}"
            raise refused("seeds", shown(seeds), f"seeds alone: {said} says it too")
        if isinstance(seeds, str | bytes | Mapping) or not isinstance(seeds, Iterable):
            raise refused("seeds", shown(seeds), "a list or range of whole numbers")
        chosen = [checked_seed(s) for s in itertools.islice(seeds, MAX_CELLS + 1)]
        if not chosen:
            raise refused("seeds", "[]", "at least one seed")
        return chosen
    count = whole("repeats", repeats, f"1 or more, at most {MAX_CELLS}", 1, MAX_CELLS)
    first = checked_seed(seed)
    checked_seed(first + count - 1)
    return list(range(first, first + count))


@dataclass(frozen=True)
class _Block:
    """One choice of machine, allocator and workload with the axes that apply to it."""

    documents: dict[str, dict[str, Any]]
    axes: dict[str, Sequence[Any]]

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def at(self, index: int) -> dict[str, Any]:
        """The combination of that number, counted as nested loops would, the last axis fastest."""
        numbers = {}
        for name, values in reversed(self.axes.items()):
            index, numbers[name] = divmod(index, len(values))
        full = {p: dict(d) for p, d in self.documents.items()}
        for name, values in self.axes.items():
            part, _, parameter = name.partition(".")
            full[part][parameter] = values[numbers[name]]
        return full


def _blocks(axes: dict[str, Sequence[Any]], parts: dict[str, Sequence[Part]]) -> tuple[list[_Block], tuple[str, ...]]:
    """Every choice of parts, and the axes that do not apply somewhere."""
    makers: dict[str, Callable[[Any], Part]] = {
        "machine": config.machine,
        "allocator": config.allocator,
        "workload": config.workload,
    }
    for name in PARTS:
        if name in axes:
            parts[name] = [makers[name](v) for v in itertools.islice(axes[name], MAX_CELLS)]
    dotted = {name: values for name, values in axes.items() if name not in PARTS}
    if math.prod(len(parts[p]) for p in PARTS) > MAX_CELLS:
        raise refused("sweep", f"{math.prod(len(parts[p]) for p in PARTS)} choices of parts", f"at most {MAX_CELLS}")
    blocks = []
    used: set[str] = set()
    idle: dict[str, None] = {}
    for choice in itertools.product(*(parts[p] for p in PARTS)):
        documents: dict[str, dict[str, Any]] = {part.part: dict(part.document()) for part in choice}
        known = {
            f"{p}.{name}"
            for p, d in documents.items()
            for name in config.parameters(p, str(d["name"]), d.get("values"))
        }
        own = {name: values for name, values in dotted.items() if name in known}
        used.update(own)
        for era in own.get("allocator.era", ()):
            config.check_era(str(documents["allocator"]["name"]), era)
        for name in dotted:
            if name not in known:
                of = documents[name.partition(".")[0]]
                idle[f"{name}: {of['name']}" + (f"@{of['era']}" if "era" in of else "")] = None
        blocks.append(_Block(documents, own))
    for name in dotted:
        if name not in used:
            _known_somewhere(name)
    return blocks, tuple(idle)


def _drawn(blocks: list[_Block], sample: Sample | None) -> Iterator[dict[str, Any]]:
    """The combinations to run: all, or those of the sample, in the order of the whole."""
    starts = [0, *itertools.accumulate(b.size for b in blocks)]
    if sample is None or sample.count >= starts[-1]:
        for block in blocks:
            yield from (block.at(i) for i in range(block.size))
        return
    import random

    chance = random.Random(sample.seed)
    if sample.method == "latin":
        yield from _latin(blocks, sample.count, chance)
        return
    numbers = sorted(chance.sample(range(starts[-1]), sample.count))
    at = 0
    for number in numbers:
        while number >= starts[at + 1]:
            at += 1
        yield blocks[at].at(number - starts[at])


def _latin(blocks: list[_Block], count: int, chance: Random) -> Iterator[dict[str, Any]]:
    """`count` points of a latin hypercube over the choice of parts and every axis."""
    sizes: dict[str, int] = {"": len(blocks)}
    for block in blocks:
        sizes |= {name: len(values) for name, values in block.axes.items()}
    strata = {}
    for name, size in sizes.items():
        order = list(range(count))
        chance.shuffle(order)
        strata[name] = [int((part + chance.random()) / count * size) for part in order]
    points = []
    for point in range(count):
        number = strata[""][point]
        index = 0
        for name, values in blocks[number].axes.items():
            index = index * len(values) + strata[name][point]
        points.append((number, index))
    for number, index in sorted(points):
        yield blocks[number].at(index)


def _known_somewhere(name: str) -> None:
    """Refuses an axis that nothing in the catalog has; one that just these parts lack is no error."""
    part = name.partition(".")[0]
    names = [e["name"] for e in config.catalog()[f"{part}s"]]
    known = sorted({f"{part}.{k}" for n in names for k in config.parameters(part, n)})
    if name not in known:
        raise unknown("over", name, known)


def _axes(over: object) -> dict[str, Sequence[Any]]:
    """The axes with their values listed."""
    if over is None:
        return {}
    if not isinstance(over, Mapping):
        raise refused("over", shown(over), 'axes with their values, as {"workload.clients": [1, 2, 4]}')
    if not over:
        raise refused("over", "{}", 'at least one axis, as {"workload.clients": [1, 2, 4]}; leave it out for none')
    axes: dict[str, Sequence[Any]] = {}
    for name, values in over.items():
        if not isinstance(name, str):
            raise refused("over", shown(name), "a dotted parameter: machine.…, allocator.… or workload.…")
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise refused(f"over[{name!r}]", shown(values), "a list or range of values")
        if name not in PARTS and name.partition(".")[0] not in PARTS:
            raise refused("over", f'"{name}"', "a dotted parameter: machine.…, allocator.… or workload.…")
        # A range stays one: a sample of it needs no list of all its values.
        found = values if isinstance(values, range) else list(itertools.islice(values, MAX_VALUES + 1))
        if not isinstance(found, range) and len(found) > MAX_VALUES:
            raise refused(f"over[{name!r}]", f"more than {MAX_VALUES} values", f"at most {MAX_VALUES}, or a range")
        axes[name] = found if isinstance(found, range) or name in PARTS else [plain(v, name) for v in found]
        if not axes[name]:
            raise refused(f"over[{name!r}]", "[]", "at least one value")
    return axes
