"""What could make SLUB a fifth slower than SLAB in the figure of 2007: the documented candidates.

The known mechanisms leave most of the published gap unexplained, and what is left acts like a constant time per 4 KiB
page that is allocated and freed (specs: pilot-2007). Each candidate here is a property that a machine or kernel of that
time may have had. Its cost comes from its own source and from figures of the machine, never from the published curve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slablab.config import entry
from slablab.published.model import Case
from slablab.values import Value

PAGE_LINES = 64
"""Cache lines of a page."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The figures that costs are made of, in nanoseconds."""

    cycle: float
    instruction: float
    l2: float
    memory: float
    transfer: float

    @classmethod
    def of(cls, name: str) -> Machine:
        """Those of a preset."""
        values = {k: v["value"] for k, v in entry("machine", name)["values"].items()}
        cycle = 1.0 / values["freq"]
        return cls(
            cycle=cycle,
            instruction=cycle * values["cpi"],
            l2=cycle * values["l2_lat"],
            memory=values["mem_local"],
            transfer=cycle * values["dirty_cross_socket"],
        )


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A candidate."""

    name: str
    meaning: str
    source: str
    """Where it is documented, and where the figures of its cost come from."""
    extra: Callable[[Machine], float] = lambda _: 0.0
    """Nanoseconds that each allocation and each free of a page takes beyond the model."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Other parameters that it sets."""

    def of(self, case: Case) -> Case:
        """The case with the property."""
        name = str(case.machine.document()["name"])
        extra = self.extra(Machine.of(name))
        return case.changed({**self.values, "machine.page_extra": round(extra, 1)} if extra else self.values)


def _walk(m: Machine) -> float:
    """A table walk whose four entries come from memory."""
    return 4 * m.memory


CANDIDATES = (
    Hypothesis(
        name="pages mapped and unmapped",
        meaning="a debug kernel unmaps each freed page and maps it when it is allocated: "
        "150 instructions to find and change the entry, one INVLPG, one table walk at the next touch",
        source="kernel option DEBUG_PAGEALLOC (its help: a large slowdown); INVLPG 80 cycles (AMD64 manual); "
        "150 instructions for a four-level look-up under a lock: assumed",
        extra=lambda m: 150 * m.instruction + 80 * m.cycle + _walk(m),
    ),
    Hypothesis(
        name="pages poisoned and checked",
        meaning="each freed page is filled with a pattern and each allocated one is compared with it: 512 words each, "
        "most lines from the second-level cache",
        source="the same option on machines that cannot unmap; one word per cycle, a second-level latency per line, "
        "a third of it visible",
        extra=lambda m: 512 * m.cycle + PAGE_LINES * m.l2 / 3,
    ),
    Hypothesis(
        name="translation erratum",
        meaning="the workaround for erratum 298 of the first quad-core Opterons keeps page-table entries out of the "
        "caches: a translation miss walks memory. One more miss per allocation and per free of a page",
        source="revision guide of the family; reviews of December 2007 measured 14 % less in applications and 20 % in "
        "all tests; one miss for the page's descriptor: assumed",
        extra=_walk,
    ),
    Hypothesis(
        name="code footprint",
        meaning="the page allocator's code does not stay in the 64 KiB instruction cache: 25 lines of it come from the "
        "second level on each call",
        source="50 lines per pair: pilot-2007; latency of the second-level cache: preset",
        extra=lambda m: 25 * m.l2,
    ),
    Hypothesis(
        name="long scans of per-CPU lists",
        meaning="the search for a page of the wanted mobility passes ten pages of other kinds",
        source="page-allocator.md: linear search, one line per page looked at; ten pages: pilot-2007",
        extra=lambda m: 5 * (m.l2 + 6 * m.instruction),
    ),
    Hypothesis(
        name="shared zone counters",
        meaning="one of the zone's counters is written on each call and was last written on the other node",
        source="machine preset: transfer of a dirty line between sockets",
        extra=lambda m: m.transfer,
    ),
    Hypothesis(
        name="56-byte page structures",
        meaning="descriptors of neighbouring pages share lines, and frames are handed out in scrambled order: every "
        "second descriptor costs one more second-level hit",
        source="size of struct page without options: 56 bytes",
        extra=lambda m: 0.5 * m.l2,
    ),
    Hypothesis(
        name="C1E and ondemand",
        meaning="halted CPUs go deeper, and CPUs that are not busy run at half their clock: 10 µs more per wake-up "
        "in place of the fitted idle constant",
        source="machine-model.md: C1E; the usual governor of that time",
        values={"machine.ipi_to_run_c1": 12_000.0, "machine.idle_scale": 1.0, "machine.governor": "ondemand"},
    ),
    Hypothesis(
        name="little memory per node",
        meaning="the memory of a node is so small that requests fall over to the other node",
        source="memory of the machine is not known; 64 MiB per node",
        values={"machine.arena_per_node": 64.0},
    ),
)

COMBINATIONS = (
    ("debug kernel on a first-stepping Opteron", ("pages mapped and unmapped", "translation erratum")),
    ("large and cold code, long scans", ("code footprint", "long scans of per-CPU lists", "56-byte page structures")),
    ("first stepping, large code, shared counters", ("translation erratum", "code footprint", "shared zone counters")),
)
"""Candidates that may have come together."""


def combined(name: str, parts: tuple[str, ...]) -> Hypothesis:
    """Several candidates at once: their times add up."""
    of = [h for h in CANDIDATES if h.name in parts]
    values: dict[str, Value] = {}
    for h in of:
        values |= h.values
    return Hypothesis(
        name=name,
        meaning=" + ".join(parts),
        source="as its parts",
        extra=lambda m: sum(h.extra(m) for h in of),
        values=values,
    )


def every() -> list[Hypothesis]:
    """All candidates, then their combinations."""
    return [*CANDIDATES, *(combined(name, parts) for name, parts in COMBINATIONS)]
