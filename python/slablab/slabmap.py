"""What a `map` of a script saw: slabs with their objects, as rows, as text, as a picture."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = 4096
WIDTH = 64
"""Characters of a line of a text map."""
_CPUS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_COLOURS = {"used": "#4D4D4D", "free": "#F2F2F2"}
_QUEUE_COLOURS = ("#D55E00", "#7F0000", "#E377C2", "#BCBD22")
_CPU_COLOURS = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#8C564B", "#332288")

Key: TypeAlias = tuple[int | None, int]
"""A slab: its cache (None: shared by all caches) and its first frame."""


@dataclass(frozen=True)
class Block:
    """An object of a slab; for SLOB a block of a page."""

    at: int
    """first byte, from the start of the slab"""
    bytes: int
    """bytes of its slot"""
    state: str
    """used, free (in its slab), cpu N (on the list CPU N allocates from), or the name of another queue"""

    @property
    def cpu(self) -> int | None:
        """The CPU on whose list it is."""
        return cpu_of(self.state)


def cpu_of(state: str) -> int | None:
    """The CPU of "cpu 3"."""
    found = re.fullmatch(r"cpu (\d+)", state)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class SlabView:
    """A slab."""

    cache: int | None
    name: str
    """name of its cache"""
    frame: int
    """first frame"""
    pages: int
    node: int
    list: str
    """the list it is on, or whose it is"""
    objects: tuple[Block, ...]

    @property
    def key(self) -> Key:
        """What it is known by: its cache and first frame."""
        return (self.cache, self.frame)

    @cached_property
    def states(self) -> Counter[str]:
        """How many of its objects are what."""
        return Counter(o.state for o in self.objects)

    def block(self, at: int) -> Block | None:
        """The object that byte `at` lies in."""
        return next((o for o in self.objects if o.at <= at < o.at + o.bytes), None)

    def row(self) -> dict[str, Any]:
        """A row of `slabs()`."""
        cpus = {cpu: n for state, n in self.states.items() if (cpu := cpu_of(state)) is not None}
        queues = {s: n for s, n in self.states.items() if s not in ("used", "free") and cpu_of(s) is None}
        return {
            "cache": self.name,
            "slab": self.frame,
            "pages": self.pages,
            "node": self.node,
            "list": self.list,
            "offset": self.objects[0].at if self.objects else 0,
            "objects": len(self.objects),
            "used": self.states["used"],
            "free": self.states["free"],
            "on_cpus": sum(cpus.values()),
            "cpus": ", ".join(f"{cpu}: {cpus[cpu]}" for cpu in sorted(cpus)),
            "queued": sum(queues.values()),
            "queues": ", ".join(f"{name}: {queues[name]}" for name in sorted(queues)),
        }

    def cells(self) -> str:
        """One character per object; of a SLOB page, one per 64 bytes."""
        if self.cache is not None:
            return "".join(letter(o.state) for o in self.objects)
        bytes_ = "".join(letter(o.state) * o.bytes for o in self.objects)
        step = self.pages * PAGE // WIDTH
        cells = (set(bytes_[at : at + step]) for at in range(0, len(bytes_), step))
        return "".join(cell.pop() if len(cell) == 1 else "+" for cell in cells)


COLUMNS = tuple(SlabView(None, "", 0, 1, 0, "", ()).row())
"""Columns of `slabs()`."""


class View:
    """Everything a `map` saw."""

    def __init__(self, seen: Mapping[str, Any]) -> None:
        self.made: list[int] = seen["made"]
        """The allocator's number of each cache of the script."""
        self.names: dict[int, str] = {c["cache"]: c["name"] for c in seen["caches"]}
        self.events: dict[int | None, dict[str, int]] = {c["cache"]: c["events"] for c in seen["caches"]}
        self.events[None] = seen["uncached"]
        self.nodes: int = seen["nodes"]
        self.cpu_nodes: list[int] = seen["cpu_nodes"]
        """Node of each CPU."""
        self.pages: int = seen["pages"]
        """Pages lent by the page allocator."""
        self.queues: list[dict[str, Any]] = seen["queues"]
        """Who holds what in which queue: rows, of SLQB only."""
        self.queues_text: str | None = seen["queues_text"]
        self.failed: set[int] = set(seen["failed"])
        self.effort: dict[str, int] = seen["effort"]
        """What the allocator's operations have cost since the map before."""
        self.slots: dict[int, dict[str, Any]] = {s["slot"]: s for s in seen["slots"]}
        self._slabs = [
            SlabView(
                cache=s["cache"],
                name="" if s["cache"] is None else self.names[s["cache"]],
                frame=s["slab"],
                pages=s["pages"],
                node=s["node"],
                list=s["list"],
                objects=tuple(itertools.starmap(Block, s["objects"])),
            )
            for s in seen["slabs"]
        ]
        self.slabs: dict[Key, SlabView] = {s.key: s for s in self._slabs}

    def of(self, cache: int | None) -> list[SlabView]:
        """The slabs of a cache; pages that caches share are of every cache. None: all."""
        return [s for s in self._slabs if cache is None or s.cache in (cache, None)]

    def placed(self, slot: int) -> tuple[SlabView, int] | None:
        """Slab and index of what a slot of the script holds; None if that is not in a slab."""
        at = self.slots.get(slot, {}).get("at")
        return None if at is None else (self._slabs[at[0]], at[1])


def letter(state: str) -> str:
    """The character of a state in a text map."""
    cpu = cpu_of(state)
    if cpu is not None:
        return _CPUS[cpu] if cpu < len(_CPUS) else "*"
    return {"used": "#", "free": "."}.get(state, "~")


def text(slabs: Iterable[SlabView], title: str) -> str:
    """A map: a line or more per slab, one character per object."""
    lines = [title]
    states: dict[str, str] = {}
    for slab in slabs:
        name = f"{slab.name} " if slab.name else ""
        head = f"{name}slab {slab.frame:>7} node {slab.node} {slab.list:<18} "
        cells = slab.cells()
        for at in range(0, len(cells), WIDTH):
            lines.append(f"{head if at == 0 else ' ' * len(head)}|{cells[at : at + WIDTH]}|")
        states |= {o.state: letter(o.state) for o in slab.objects}
    if len(lines) == 1:
        return f"{title}\n(no slabs)"
    return "\n".join([*lines, _legend(states, any(s.cache is None for s in slabs))])


def _legend(states: Mapping[str, str], blocks: bool) -> str:
    words = {"#": "used", ".": "free in its slab"}
    said = []
    for mark in dict.fromkeys(sorted(states.values(), key="#.".find, reverse=True)):
        meant = sorted(s for s, m in states.items() if m == mark)
        said.append(f"{mark} {words.get(mark, ', '.join(meant))}")
    return "   ".join([*said, "+ several"] if blocks else said)


def plot(slabs: list[SlabView], title: str, caption: str, ax: Axes | None) -> Axes:
    """Draws every slab as a bar with its objects."""
    from slablab.extras import needed
    from slablab.plot import drawable, note

    plt = needed("matplotlib.pyplot", "a figure")
    patches = needed("matplotlib.patches", "a figure")
    axes: Axes
    if ax is None:
        height = min(20.0, 1.8 + 0.32 * len(slabs))
        _, axes = plt.subplots(figsize=(8.0, height), layout="constrained")
    else:
        drawable(ax)
        axes = ax
    legend: dict[str, Any] = {}
    states = sorted({o.state for slab in slabs for o in slab.objects})
    queues = [s for s in states if s not in _COLOURS and cpu_of(s) is None]
    for row, slab in enumerate(slabs):
        for (label, colour), blocks in _kinds(slab, queues):
            axes.broken_barh(
                [(o.at, o.bytes) for o in blocks],
                (row - 0.4, 0.8),
                facecolors=colour,
                edgecolors="#FFFFFF" if label == "used" else "#777777",
                linewidth=0.5,
            )
            legend.setdefault(label, patches.Patch(facecolor=colour, edgecolor="#999999", label=label))
    names = len({s.name for s in slabs}) > 1
    axes.set_yticks(
        range(len(slabs)),
        [f"{s.name + ' ' if names else ''}{s.frame} · node {s.node} · {s.list}" for s in slabs],
        fontsize="x-small",
    )
    axes.set_ylim(max(len(slabs), 1) - 0.5, -0.5)
    axes.set_xlim(0, max((s.pages * PAGE for s in slabs), default=PAGE))
    heap = bool(slabs) and all(s.cache is None for s in slabs)
    axes.set_xlabel("byte of the page" if heap else "byte of the slab")
    axes.set_title(title)
    if legend:
        handles = [legend[label] for label in sorted(legend, key=_order)]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="x-small")
    note(axes, caption)
    return axes


def _kinds(slab: SlabView, queues: list[str]) -> Iterator[tuple[tuple[str, str], list[Block]]]:
    """The objects of a slab by what they are: label and colour, objects."""
    kinds: dict[tuple[str, str], list[Block]] = {}
    for o in slab.objects:
        if o.cpu is not None:
            kind = (f"on CPU {o.cpu}'s list", _CPU_COLOURS[o.cpu % len(_CPU_COLOURS)])
        elif o.state in _COLOURS:
            kind = ("used" if o.state == "used" else "free in its slab", _COLOURS[o.state])
        else:
            kind = (o.state, _QUEUE_COLOURS[queues.index(o.state) % len(_QUEUE_COLOURS)])
        kinds.setdefault(kind, []).append(o)
    yield from kinds.items()


def _order(label: str) -> tuple[int, int, str]:
    cpu = re.search(r"CPU (\d+)", label)
    first = ("used", "free in its slab").index(label) if label in ("used", "free in its slab") else 2 if cpu else 3
    return (first, int(cpu[1]) if cpu else 0, label)
