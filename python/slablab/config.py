"""The parts of an experiment: machine, allocator, workload.

Configs are frozen: comparable, hashable, and printed as the code that makes them. A field left at None takes the value
that the core gives it (the era's, the preset's); `expand` of an experiment shows every one. Strings are accepted
wherever a config object is: "slub@2.6.24", "opteron-2x4-2007", "native", "tbench".

A parameter of the core is added here with the same name, default and meaning; the parity test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, dataclass_transform

from slablab import _core
from slablab.values import Value, finite, plain, refused, shown, text, unknown, unknown_parameter

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("machine", "allocator", "workload")


@cache
def catalog() -> dict[str, Any]:
    """What exists: allocators with eras and parameters, workloads, machines, statistics."""
    entries: dict[str, Any] = json.loads(_core.catalog())
    return entries


def entry(part: str, name: str) -> dict[str, Any]:
    """The catalog's entry of a machine, allocator or workload."""
    entries: list[dict[str, Any]] = catalog()[f"{part}s"]
    for candidate in entries:
        if candidate["name"] == name:
            return candidate
    raise unknown(part, name, [e["name"] for e in entries])


def parameters(part: str, name: str, values: object = None) -> list[str]:
    """Names of the parameters that a machine, allocator or workload has; `values`: those of a machine file."""
    if values is not None:
        every = {key: None for m in catalog()["machines"] if m["simulated"] for key in m["values"]}
        return ["cpus", "placement", "pages", "fragment", "values", *every]
    found = entry(part, name)
    if part == "machine":
        return [*(p["name"] for p in found["parameters"]), *found["values"]]
    return [*(["era"] if part == "allocator" else []), *(p["name"] for p in found["parameters"])]


def encoded(document: Mapping[str, Any]) -> str:
    """A configuration as JSON; refuses numbers that JSON does not have, by name."""
    try:
        return json.dumps(document, allow_nan=False)
    except ValueError:
        for part in PARTS:
            finite(part, document[part])
        raise


class Part:
    """A machine, an allocator or a workload."""

    part: ClassVar[str]
    """Which of the three it is."""

    def document(self) -> dict[str, Value]:
        """The JSON form of it: its name, and what was given."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from slablab.html import listing

        words = self.document()
        return listing(f"{self.part} {words.pop('name')}", words.items())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Part) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash(json.dumps(self.document(), sort_keys=True))


class Typed(Part):
    """A part whose parameters are dataclass fields."""

    kind: ClassVar[str]
    """The name the core knows it by."""

    def document(self) -> dict[str, Value]:  # noqa: D102
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"name": self.kind} | {
            name: plain(value, f"{self.part}.{name}") for name, value in given.items() if value is not None
        }

    def __repr__(self) -> str:
        words = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            default = f.default if f.default is not MISSING else None
            if not f.kw_only:
                words.append(repr(value))
            elif value != default and (value or default != ()):
                words.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(words)})"


T = TypeVar("T", bound=Typed)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def config(cls: type[T]) -> type[T]:
    """Makes a frozen keyword-only dataclass whose constructor refuses an unknown parameter as ConfigError."""
    made = dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)
    construct: Callable[..., None] = made.__init__
    names = [f.name for f in fields(made)]  # type: ignore[arg-type]
    positional = [f.name for f in fields(made) if not f.kw_only]  # type: ignore[arg-type]

    def __init__(self: T, *args: object, **given: object) -> None:  # noqa: N807
        for name, value in given.items():
            if name not in names:
                raise unknown_parameter(made.part, name, value, names)
            if name in positional[: len(args)]:
                raise refused(f"{made.part}.{name}", shown(value), f"given once; {shown(args[0])} says it already")
        if len(args) > len(positional):
            raise refused(made.part, shown(args[-1]), f"parameters by name, as {made.__name__}({names[-1]}=…)")
        construct(self, *args, **given)

    __init__.__wrapped__ = construct  # type: ignore[attr-defined]
    made.__init__ = __init__  # type: ignore[method-assign, assignment]
    return made


class Named(Part):
    """A part given by name and keyword parameters, whatever the core knows under that name."""

    name: str
    given: tuple[tuple[str, Value], ...]

    def _set(self, name: str, given: Mapping[str, object]) -> None:
        known = parameters(self.part, text(self.part, name), given.get("values"))
        for key, value in given.items():
            if key not in known:
                raise unknown_parameter(self.part, key, value, known)
        values = {k: plain(v, f"{self.part}.{k}") for k, v in sorted(given.items()) if v is not None}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "given", tuple(values.items()))

    def document(self) -> dict[str, Value]:  # noqa: D102
        return {"name": self.name, **dict(self.given)}

    def __repr__(self) -> str:
        words = [repr(self.name), *(f"{k}={v!r}" for k, v in self.given)]
        return f"{type(self).__name__}({', '.join(words)})"


# Allocators


class AllocatorConfig(Typed):
    """An allocator in one of its eras; None in a field means "as the era has it"."""

    part = "allocator"
    era: str

    def __post_init__(self) -> None:
        check_era(self.kind, self.era)


def check_era(name: str, era: object) -> None:
    """Refuses an era that the allocator never had."""
    eras = [str(e["era"]) for e in entry("allocator", name)["eras"]]
    if era not in eras:
        raise unknown(f"era of {name}", era, eras)


def named_era(word: str) -> tuple[str, str | None]:
    """Name and era of "slub@2.6.24"; no era in "slub"; an @ with nothing behind it is refused."""
    name, at, era = word.partition("@")
    if at:
        check_era(name, era)
    return name, era if at else None


@config
class Slab(AllocatorConfig):
    """SLAB: arrays of free objects per CPU, per node and for other nodes, over full, partial and free slabs."""

    kind = "slab"
    era: str = field(default="2.6.24", kw_only=False)
    order: int | None = None
    """order at which the search for a slab's order stops, 0..10"""
    limit: int | None = None
    """capacity of each CPU's array in every cache"""
    batchcount: int | None = None
    """objects that a refill or a flush moves, at most limit"""
    sharedfactor: int | None = None
    """capacity of a node's shared array, 0 for none"""
    metadata: Literal["kmalloc", "free"] | None = None
    """where arrays and off-slab headers come from: kmalloc (own caches, as in the kernel) or free"""
    reaper: bool | None = None
    """the periodic reaper runs, every 2 s on each CPU: true or false"""
    reap_spread: bool | None = None
    """a cache's first trim by the reaper is put off by its address, by up to 4 s: true or false"""
    merge: bool | None = None
    """caches of equal slots share their slabs (6.1): true or false"""
    aliens: bool | None = None
    """nodes keep arrays for the objects of other nodes, else each goes home alone: true or false"""
    freelist_random: bool | None = None
    """objects of a new slab are handed out in random order (6.1): true or false"""
    freelist_hardened: bool | None = None
    """an object freed twice in a row is ignored with a warning (6.1): true or false"""
    kmalloc: str | None = None
    """kinds of kmalloc caches besides the ordinary: dma (2.6.24); rcl, dma, cg (6.1); empty: none"""
    statistics: bool | None = None
    """slabinfo shows the globalstat and cpustat columns: true or false"""
    debug: str | None = None
    """debug letters F Z P U or - and a prefix of names, as "FZ,size-"; empty: none"""


@config
class Slub(AllocatorConfig):
    """SLUB: one slab per CPU with its own free list, partial slabs per node, no queues."""

    kind = "slub"
    era: str = field(default="2.6.24", kw_only=False)
    order: int | None = None
    """order of every slab: min_order = max_order = order, 0..10, or null (since 2.6.22)"""
    min_order: int | None = None
    """smallest slab order tried, 0..10, at most max_order (since 2.6.22)"""
    max_order: int | None = None
    """largest slab order tried while the object fits, 0..10 (since 2.6.22)"""
    min_objects: int | Literal["by_cpus"] | None = None
    """objects a slab should hold, 1..65536 (since 2.6.22), or by_cpus: 4 (fls(CPUs) + 1) (since 2.6.26)"""
    order_search: Literal["halve_from8", "halve_from16", "step_from16", "fit_from16"] | None = None
    """halve_from8, halve_from16 (2.6.26), step_from16 (2.6.30) or fit_from16 (6.7)"""
    order_fallback: Literal["none", "kmalloc_block", "min_order"] | None = None
    """without pages of the preferred order: none, kmalloc_block (2.6.25) or min_order (2.6.26)"""
    min_partial: int | Literal["log2", "half_log2"] | None = None
    """partial slabs a node keeps before it returns empty ones: a number, log2 (2.6.27) or half_log2 (3.2)"""
    first_free: Literal["head", "tail"] | None = None
    """where on the node list a full slab goes at its first free: head or tail"""
    deactivate: Literal["head", "tail_unless_private", "head_unless_remote"] | None = None
    """where a given-up partial cpu slab goes: head, tail_unless_private (2.6.25), head_unless_remote (3.1)"""
    discard_empty: Literal["freed_always", "above", "from"] | None = None
    """empty slabs are returned: freed_always, above min_partial (3.1), from min_partial (3.16)"""
    remote_node_defrag_ratio: int | None = None
    """how often an allocation looks at other nodes' partial slabs, 0 (never) .. 1024 (always)"""
    named_node: Literal["then_any", "then_new", "two_attempts"] | None = None
    """a named node's partial slabs, then_any node's, then_new slab (3.1), or two_attempts (6.12)"""
    kmalloc_max: int | None = None
    """largest kmalloc served from a cache, a power of two, 256..4194304; larger ones take pages"""
    kmalloc_order3: bool | None = None
    """kmalloc caches of few objects a page get order 3: true (2.6.25) or false"""
    kmalloc_random: bool | None = None
    """each kmalloc class exists sixteen times: true or false (since 6.6)"""
    merge: bool | None = None
    """caches of equal slots share their slabs: true or false"""
    merge_walk: Literal["newest", "oldest"] | None = None
    """which cache is shared, if several could be: newest or oldest (3.18)"""
    hw_align: Literal["whole_line", "halved_line"] | None = None
    """what HWCACHE_ALIGN aligns to: whole_line or halved_line (2.6.25)"""
    free_pointer: Literal["start", "middle"] | None = None
    """place of the free pointer in a free object: start or middle (5.7)"""
    freelist_hardened: bool | None = None
    """free pointers are stored XORed with a secret: true or false (since 4.14)"""
    freelist_random: bool | None = None
    """new slabs are linked in random order: true or false (since 4.8)"""
    fast_path: Literal["slab_lock", "descriptor", "irq_off", "double_cas", "sheaf"] | None = None
    """slab_lock, descriptor (2.6.22), irq_off (2.6.24), double_cas (2.6.39) or sheaf (7.0)"""
    slow_path: Literal["locked", "lockless"] | None = None
    """what guards a slab: locked, or lockless (3.1)"""
    atomic_unlock: bool | None = None
    """the slab lock is released by a locked operation: true, or false (2.6.25)"""
    cpu_partial: int | Literal["none", "by_size"] | None = None
    """free objects on each CPU's list of partial slabs: a number, by_size or none (since 3.2)"""
    cpu_partial_count: Literal["objects", "slabs"] | None = None
    """what limits that list: objects (3.2) or slabs (5.16)"""
    delayed_freezing: bool | None = None
    """slabs are frozen when used, not when listed: true (6.8) or false"""
    sheaf_capacity: int | Literal["none", "by_creator", "by_size"] | None = None
    """objects of each CPU's sheaves: a number, by_creator (since 6.18), by_size (since 7.0) or none"""
    barn_max_full: int | None = None
    """full sheaves a node's barn takes (since 6.18)"""
    barn_max_empty: int | None = None
    """empty sheaves it keeps after RCU frees (since 6.18)"""
    kmalloc: str | None = None
    """kinds of kmalloc caches besides the ordinary: dma; since 6.1 also rcl and cg; empty: none"""
    debug: str | None = None
    """debug letters F Z P U T O A and names, as on the kernel's command line; empty: none"""
    per_cache: str | None = None
    """tunables of single caches, as kmalloc-512:min_partial=20,cpu_partial=0;dentry*:order=1; empty: none"""


@config
class Slob(AllocatorConfig):
    """SLOB: one heap of partly free pages under one lock, first fit; objects of all caches share its pages."""

    kind = "slob"
    era: str = field(default="2.6.24", kw_only=False)
    lists: Literal["one", "three"] | None = None
    """lists of partly free pages: one, or three by block size"""
    head_merge: bool | None = None
    """join a block freed below the first free block of its page with that block"""
    relist: Literal["always_small", "by_size"] | None = None
    """with three lists, where a full page goes on its first free: always_small or by_size"""
    rotation: Literal["old", "new"] | None = None
    """next fit after a page became full: old goes on at its successor, new where the search began"""
    natural_align: bool | None = None
    """align kmalloc objects of a power-of-two size to their size"""
    create: Literal["own", "common"] | None = None
    """cache geometry: own (size as given, whole cache lines) or common (whole units, halved lines)"""
    page_return: Literal["locked", "unlocked"] | None = None
    """return empty pages with slob_lock held (locked) or after it (unlocked)"""
    descriptor: int | None = None
    """block of the heap that each cache's descriptor takes; 0 for none"""


@config
class Slqb(AllocatorConfig):
    """SLQB: a queue of free objects per CPU, lists of remotely freed ones, flushed in batches."""

    kind = "slqb"
    era: str = field(default="2.6.29", kw_only=False)
    order: int | None = None
    """smallest slab order tried, 0..10 (slqb_min_order; unset: 0)"""
    min_objects: int | None = None
    """fewest objects per slab accepted, 1 or more (slqb_min_objects)"""
    hiwater: int | None = None
    """length of a CPU's LIFO above which one batch is flushed, freebatch - 1 or more (unset: 4 freebatch)"""
    freebatch: int | None = None
    """objects flushed in one batch, 1 or more (unset: 16 KiB worth or 256 objects within 256 KiB)"""
    metadata: Literal["own", "free"] | None = None
    """where cache, CPU and node structures come from: own (three caches, as in the kernel) or free"""
    debug: str | None = None
    """debug letters F Z P U or - and a prefix of names, as "FZ,kmalloc"; empty: none (slqb_debug)"""
    quirk_double_count: bool | None = None
    """count an allocation of a CPU without local memory on its own list too, as the original"""
    quirk_lost_crossing: bool | None = None
    """miss the check flag when freebatch is lowered below a queue's length, as the original"""
    quirk_destroy_leftovers: bool | None = None
    """destroy a cache in one pass, which can leave objects and lose their pages, as the original"""


@config
class Null(AllocatorConfig):
    """Hands out objects in O(1) and never returns a page: what a run costs without an allocator."""

    kind = "null"
    era: str = field(default="1", kw_only=False)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Allocator(Named):
    """Any allocator of the catalog by name: `Allocator("slub@2.6.24", order=3)`."""

    part = "allocator"
    name: str
    given: tuple[tuple[str, Value], ...]

    def __init__(self, name: str, era: str | None = None, **parameters: Value) -> None:
        name, era_of_name = named_era(text("allocator", name))
        if era is not None and era_of_name not in (None, era):
            raise refused("allocator.era", shown(era), f'"{era_of_name}", or no era after @')
        era = era if era is not None else era_of_name or entry("allocator", name)["default_era"]
        check_era(name, era)
        self._set(name, {"era": era, **parameters})

    def __repr__(self) -> str:
        given = dict(self.given)
        words = [repr(f"{self.name}@{given.pop('era')}"), *(f"{k}={v!r}" for k, v in given.items())]
        return f"Allocator({', '.join(words)})"


# Machines


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Sim(Named):
    """A simulated machine: a preset, `cpus` of its CPUs, and any of its figures replaced.

    `Sim()` is the eight-CPU machine of the 2007 figure. `Sim(sockets=4, cores_per_socket=8, numa_nodes=4)` is a
    machine to order, derived from it. `pages` names the page allocator ("2.6.24", "6.1", "none", …), else it is that of
    the allocator's time; `fragment=(level, seed)` fragments its memory beforehand: level 0 leaves it whole, at 1 only
    single pages can be had. `slablab catalog` lists the presets and every figure with its unit, source and confidence.
    `Sim("file.toml")` reads a machine file (see `slablab machine show NAME --toml`); its figures go with the
    configuration, so that a result does not hang on the file.
    """

    part = "machine"
    name: str
    given: tuple[tuple[str, Value], ...]
    file: ClassVar[str | None] = None
    """Name of the machine file it was read from."""

    def __init__(
        self,
        name: str = "opteron-2x4-2007",
        *,
        cpus: int | None = None,
        placement: Literal["spread", "packed"] | None = None,
        pages: str | None = None,
        fragment: Sequence[float] | None = None,
        values: Mapping[str, Any] | None = None,
        **figures: float | str | None,
    ) -> None:
        if values is None and text("machine", name).endswith(".toml"):
            from slablab import machines

            object.__setattr__(self, "file", name)
            name, values = machines.read(name)
        if name == "native":
            raise refused("machine", '"native"', "Native() for the host itself, or a simulated preset")
        if placement not in (None, "spread", "packed"):
            raise refused("machine.placement", shown(placement), '"spread" or "packed"')
        _memory(pages, fragment)
        own = {} if values is None else {"values": values}
        given = {"cpus": cpus, "placement": placement, "pages": pages, "fragment": fragment}
        self._set(name, {**given, **own, **figures})
        if values is not None:
            from slablab import machines

            machines.complete(self.document())
            return
        has = entry("machine", name)["values"]
        for figure, value in self.given:
            if figure in has:
                _figure(figure, value, has[figure])
            elif isinstance(value, bool | str) and figure in ALIASES:
                raise refused(f"machine.{figure}", shown(value), "a number")

    def figures(self) -> pd.DataFrame:
        """Every figure of the machine, one row each: figure, value, unit, confidence, source."""
        from slablab import machines

        return machines.figures(self.document())

    def toml(self) -> str:
        """The machine as a machine file, which `Sim("file.toml")` reads."""
        from slablab import machines

        return machines.toml(self.document())

    def __repr__(self) -> str:
        if self.file is None:
            return super().__repr__()
        words = [repr(self.file), *(f"{k}={v!r}" for k, v in self.given if k != "values")]
        return f"Sim({', '.join(words)})"


ALIASES = ("threads_per_core", "nodes", "clock_ghz", "l2_kb")
"""Figures of a machine to order under their usual names."""


def _memory(pages: object, fragment: object) -> None:
    """Refuses what names no page allocator and no fragmentation; which of them exist, the core knows."""
    if pages is not None and not isinstance(pages, str):
        raise refused("machine.pages", shown(pages), 'a name in quotes, as "2.6.24", "6.1" or "none"')
    if fragment is None:
        return
    pair = plain(fragment, "machine.fragment")
    right = "(level, seed): a number from 0 (whole) to 1 (single pages only), and a whole number of 0 or more"
    if not isinstance(pair, list) or len(pair) != 2:
        raise refused("machine.fragment", shown(fragment), right)
    level, seed = pair
    good = isinstance(level, int | float) and not isinstance(level, bool) and 0 <= level <= 1
    if not good or not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise refused("machine.fragment", shown(fragment), right)


def _figure(name: str, value: Value, has: Mapping[str, Any]) -> None:
    """Refuses a figure of another kind than the preset's."""
    words = isinstance(has["value"], str)
    good = isinstance(value, str) if words else isinstance(value, int | float) and not isinstance(value, bool)
    if not good:
        like = shown(has["value"]) if words else f"{has['value']:g}"
        unit = f" ({has['unit']})" if has["unit"] else ""
        raise refused(f"machine.{name}", shown(value), f"{'a word' if words else 'a number'}{unit}, as {like}")


@config
class Native(Typed):
    """The host itself: one pinned worker per CPU, real memory, wall-clock time."""

    part = "machine"
    kind = "native"
    cpus: int | None = None
    """CPUs used; all of the machine when none is given"""
    nodes: int = 1
    """logical NUMA nodes"""
    memory_mib: int = 1024
    """memory of each node, committed when touched"""
    pages: str | None = None
    """
    page allocator: hot-cold, single, watermark, self-tuning, none, 2.6.24, 2.6.27, 3.1, 6.1, 6.8; that of the
    allocator's time when none is given
    """
    fragment: Sequence[float] | None = None
    """memory fragmented beforehand, [level, seed]: level 0 (not) to 1 (single pages only), a seed from 0"""

    def __post_init__(self) -> None:
        _memory(self.pages, self.fragment)


# Workloads


Era: TypeAlias = Literal["machine", "2.6.24", "2.6.28", "3.0", "6.1", "6.18"]


@config
class Tbench(Typed):
    """File-server traffic over loopback TCP: one request and one response at a time per client."""

    part = "workload"
    kind = "tbench"
    clients: int = 8
    """connections; each has a client and a server task"""
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.3
    """seconds before the measurement"""
    interval: float = 1.0
    """seconds of one row of series()"""
    era: Era = "machine"
    """kernel whose network rules hold: 2.6.24, 2.6.28, 3.0, 6.1, 6.18, or machine: the machine's"""
    pinning: Literal["free", "together", "next", "across"] = "free"
    """client and server: free, together on one CPU, on the next CPU, or across half the machine"""
    skb_defer: int | None = None
    """length of a CPU's list of deferred frees, 0 for none (unset: 64 since 5.19)"""
    tcp_header: int | None = None
    """room for headers in a TCP buffer, 128..512 (unset: the era's MAX_TCP_HEADER)"""
    protocol_scale: float = 1.0
    """factor on the protocol's CPU per message"""
    user_footprint_lines: int = 64
    """lines of its own that user code touches per exchange"""
    native_work: Literal["skip", "spin"] = "skip"
    """protocol work on native: skip (allocator only) or spin"""


@config
class Hackbench(Typed):
    """Groups of tasks pass short messages over sockets or pipes; throughput is the seconds of the whole job.

    The job is scaled from the steady state: `scaled_by` of `summary()` says by how much, `job_ops` how many messages it
    has, `steady` whether sockets neither filled up nor drained meanwhile. A window in which messages were only written,
    or only read, is not scaled: throughput is 0. Starting the tasks and their end are not in it. Over sockets each
    message is a header and a buffer that the sender's CPU allocates and the receiver's frees.
    """

    part = "workload"
    kind = "hackbench"
    groups: int = 10
    """groups, each of fds senders and fds receivers"""
    fds: int = 20
    """senders, and receivers, of a group"""
    loops: int = 100
    """messages from each sender to each receiver of its group in the whole job"""
    datasize: int = 100
    """bytes of a message"""
    mode: Literal["process", "thread"] = "process"
    """process, or thread: tasks share memory and file table"""
    transport: Literal["socket", "pipe"] = "socket"
    """socket (AF_UNIX stream pairs) or pipe"""
    sndbuf: int | None = None
    """SO_SNDBUF asked for, which the kernel doubles (unset: the era's default)"""
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement, to fill the sockets"""
    era: Era = "machine"
    """kernel whose network rules hold: 2.6.24, 2.6.28, 3.0, 6.1, 6.18, or machine: the machine's"""
    memcg: bool = False
    """a memory cgroup accounts for socket buffers: they come from kmalloc, not skbuff_small_head (6.18)"""
    protocol_scale: float = 1.0
    """factor on the protocol's CPU per message"""
    native_work: Literal["skip", "spin"] = "skip"
    """protocol work on native: skip (allocator only) or spin"""


@config
class Netperf(Typed):
    """Streams and request/response over TCP and UDP: on loopback, or with the other end on another machine.

    `Netperf(test="UDP_STREAM", message=4096, pairs=8)`; `Netperf(test="TCP_RR", pairs=160, link="wire", irq_cpus=1)`.
    A stream's throughput is what was sent, in Mbit/s; `dropped_per_op` of `summary()` says how much did not arrive.
    """

    part = "workload"
    kind = "netperf"
    test: Literal["TCP_STREAM", "TCP_RR", "UDP_STREAM", "UDP_RR"] = "TCP_RR"
    """TCP_STREAM, TCP_RR, UDP_STREAM or UDP_RR"""
    pairs: int = 1
    """clients, each with a server of its own"""
    message: int | None = None
    """message or request (unset: 16384 TCP_STREAM, 1024 UDP_STREAM, 1 for requests)"""
    response: int | None = None
    """response (unset: 1)"""
    client_cpu: int | None = None
    """CPU of the first client, those of further pairs follow (unset: where the scheduler puts it)"""
    server_cpu: int | None = None
    """the same of the servers"""
    rcvbuf: int | None = None
    """SO_RCVBUF asked for, which the kernel doubles (unset: the era's default)"""
    window: int | None = None
    """what a TCP stream has under way (unset: 2097152, 128 segments)"""
    link: Literal["loopback", "wire"] = "loopback"
    """loopback, or wire: the server is another machine that answers after round_trip_us"""
    irq_cpus: int | None = None
    """CPUs from 0 on that take interrupts (unset: 1)"""
    ring: int | None = None
    """receive buffers ready on each (unset: 256)"""
    refill: int | None = None
    """used before the ring is filled up, 1..ring (unset: 32)"""
    rx_buffer: int | None = None
    """kmalloc request of one (unset: 2048)"""
    moderation_us: float | None = None
    """time between two interrupts (unset: 20)"""
    round_trip_us: float | None = None
    """from request to response (unset: 180)"""
    late_completion: float | None = None
    """share of packets noticed to be sent after their acknowledgement (unset: 0.333)"""
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.05
    """seconds before the measurement"""
    era: Era = "machine"
    """kernel whose network rules hold: 2.6.24, 2.6.28, 3.0, 6.1, 6.18, or machine: the machine's"""
    skb_defer: int | None = None
    """length of a CPU's list of deferred frees, 0 for none (unset: 64 since 5.19)"""
    tcp_header: int | None = None
    """room for headers in a TCP buffer, 128..512 (unset: the era's MAX_TCP_HEADER)"""
    protocol_scale: float = 1.0
    """factor on the protocol's CPU per message"""
    native_work: Literal["skip", "spin"] = "skip"
    """protocol work on native: skip (allocator only) or spin"""


@config
class Volanomark(Typed):
    """A chat server and its clients over loopback TCP: rooms of users, four threads per connection, many yields.

    Throughput is messages per second that the server handles: one in and as many out as the room has users.
    """

    part = "workload"
    kind = "volanomark"
    rooms: int = 10
    """chat rooms"""
    users: int = 20
    """users of a room, one connection and four threads each"""
    message: int = 100
    """bytes of a message"""
    yields: float = 0.5
    """probability that a thread yields before its next message"""
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement"""
    era: Era = "machine"
    """kernel whose network rules hold: 2.6.24, 2.6.28, 3.0, 6.1, 6.18, or machine: the machine's"""
    skb_defer: int | None = None
    """length of a CPU's list of deferred frees, 0 for none (unset: 64 since 5.19)"""
    tcp_header: int | None = None
    """room for headers in a TCP buffer, 128..512 (unset: the era's MAX_TCP_HEADER)"""
    protocol_scale: float = 1.0
    """factor on the protocol's CPU per message"""
    user_footprint_lines: int = 64
    """lines of its own that user code touches per message"""
    user_us: float = 7.0
    """Java work of a message, half where it is sent"""
    native_work: Literal["skip", "spin"] = "skip"
    """protocol work on native: skip (allocator only) or spin"""


@config
class Dbench(Typed):
    """File-server traffic on a local file system: the load of tbench without the network."""

    part = "workload"
    kind = "dbench"
    clients: int = 8
    """clients, one task each"""
    era: str = "2.6.24"
    """kernel release whose objects are used: 2.6.24, 2.6.28, 3.0 (files on a disk), 6.1 or 6.18 (in memory)"""
    file_pages: int = 1024
    """pages of files that a client keeps, 32..1048576"""
    user_us: float = 2.0
    """user work of an operation"""
    seconds: float = 0.3
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "skip"
    """work on native: skip (allocator only) or spin"""


@config
class Kbuild(Typed):
    """`make -jN`: processes, path look-ups and page faults of compilations."""

    part = "workload"
    kind = "kbuild"
    jobs: int = 16
    """compilations at the same time (make -jN)"""
    mix: Literal["gcc", "shell"] = "gcc"
    """a unit is a compilation with gcc, or a pass of a shell script: gcc or shell"""
    era: str = "2.6.24"
    """kernel release whose objects are used: 2.6.24, 2.6.28, 3.0, 6.1 or 6.18"""
    user_ms: float = 250.0
    """user work of a unit"""
    seconds: float = 16.0
    """seconds measured, virtual on Sim"""
    warmup: float = 1.0
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "skip"
    """work on native: skip (allocator only) or spin"""


@config
class Aim7(Typed):
    """Multiuser job mix: files, processes, pipes, signals, disk blocks, arithmetic."""

    part = "workload"
    kind = "aim7"
    tasks: int = 16
    """tasks at the same time, each with a child for its forks"""
    job: str = "all"
    """all, or one of creat, link, fork, exec, pipe, signal, disk, arithmetic"""
    era: str = "2.6.24"
    """kernel release whose objects are used: 2.6.24, 2.6.28, 3.0, 6.1 or 6.18"""
    user_us: float = 500.0
    """user work of a job"""
    seconds: float = 0.5
    """seconds measured, virtual on Sim"""
    warmup: float = 0.2
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "skip"
    """work on native: skip (allocator only) or spin"""


@config
class Oltp(Typed):
    """Database I/O: objects taken by submitters on all CPUs, freed by the disks' interrupt handlers."""

    part = "workload"
    kind = "oltp"
    submitters: int = 32
    """tasks that submit transactions"""
    irq_cpus: int = 1
    """CPUs that complete I/O, from CPU 0 on; one disk queue each"""
    depth: int = 256
    """I/Os under way per disk queue, 1..65536"""
    disk_us: float = 500.0
    """time of an I/O on its disk"""
    ios: int = 10
    """I/Os of a transaction"""
    user_us: float = 200.0
    """user work of a transaction"""
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "skip"
    """work on native: skip (allocator only) or spin"""


@config
class Specjbb(Typed):
    """Java server benchmark: a null test, little kernel allocation after start."""

    part = "workload"
    kind = "specjbb"
    warehouses: int = 8
    """warehouses, one task each; at least one per CPU"""
    step_us: float = 500.0
    """mean user work between two steps into the kernel, 1..1000"""
    seconds: float = 2.0
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "spin"
    """work on native: skip (allocator only) or spin"""


@config
class Cpu2k(Typed):
    """SPEC CPU2000: a null test, page faults and nothing else."""

    part = "workload"
    kind = "cpu2k"
    copies: int = 8
    """copies of the benchmark, one task each; at least one per CPU"""
    step_us: float = 500.0
    """mean user work between two steps into the kernel, 1..1000"""
    seconds: float = 2.0
    """seconds measured, virtual on Sim"""
    warmup: float = 0.1
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "spin"
    """work on native: skip (allocator only) or spin"""


@config
class Boot(Typed):
    """Footprint after a boot: a recorded one, its live objects scaled, or a histogram.

    `caches()` of the result shows the objects in place. A histogram is rows of one's own, or read from a file, a CSV or
    a saved /proc/slabinfo: `Boot(source="histogram", histogram=sl.compose.read_histogram("slabinfo.txt"))`.
    """

    part = "workload"
    kind = "boot"
    source: str = "slub-6.1"
    """recorded on 6.1 with one CPU: slub-6.1, slab-6.1 or slob-6.1; january-2008; or histogram"""
    scale: float | None = None
    """leave out what the boot freed, and take this many times the live objects; none: replay all of it"""
    frees: bool = False
    """with scale: what the boot freed again is allocated and freed too, scaled alike"""
    sizes: str | None = None
    """era whose object sizes replace the recorded ones where they are known: 2.6.24 .. 6.18; none: as recorded"""
    other_kb: int = 0
    """memory in use that no slab allocator gave out, counted in used_kb"""
    histogram: Sequence[tuple[str, int, int]] = ()
    """rows of live objects, with source=histogram: cache, bytes of an object, number"""

    def __post_init__(self) -> None:
        copied(self, "histogram", '("dentry", 192, 2000)', list, tuple)


@config
class SlabTest(Typed):
    """The in-kernel microbenchmark: bursts, pairs, remote frees and bulk calls, cycles per operation.

    `laps()` of the result is its table.
    """

    part = "workload"
    kind = "slab_test"
    shape: str = "all"
    """all, or one of burst, pair, burst_all, pair_all, remote_free, one_allocator, bulk"""
    size: int | None = None
    """one object size, 1..4194304; none: 8, 16, .. 16384"""
    objects: int = 1000
    """objects that each CPU allocates in a shape"""


@config
class Compose(Typed):
    """Tasks put together from primitives: loops of alloc, free, send, recv, touch, work.

    `slablab.compose` has a function for each; `Workload(tasks=[…])` is the same.
    """

    part = "workload"
    kind = "compose"
    caches: Sequence[Mapping[str, Any]] = ()
    """caches that steps name: name, size, align, flags"""
    queues: Sequence[Mapping[str, Any]] = ()
    """queues that steps name: name, capacity (messages), delay_us"""
    tasks: Sequence[Mapping[str, Any]] = ()
    """
    tasks: loop (steps: alloc, free, touch, copy, send, recv, work, pause, syscall, yield, done, repeat),
    count, cpu, urgent
    """
    seconds: float = 0.1
    """seconds measured, virtual on Sim"""
    warmup: float = 0.05
    """seconds before the measurement"""
    native_work: Literal["skip", "spin"] = "skip"
    """work on native: skip (allocator only) or spin"""

    def __post_init__(self) -> None:
        copied(self, "caches", '{"name": "dentry", "size": 208}', Mapping)
        copied(self, "queues", '{"name": "disk", "capacity": 64}', Mapping)
        copied(self, "tasks", '{"loop": [{"work": {"us": 5}}]}', Mapping)


def copied(made: Typed, name: str, example: str, *kinds: type) -> None:
    """Makes a list of entries of these kinds the config's own: what the caller does to his later does not reach it."""
    given = getattr(made, name)
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise refused(f"workload.{name}", shown(given), f"a list of entries as {example}")
    entries = list(given)
    for at, one in enumerate(entries):
        if not isinstance(one, kinds):
            raise refused(f"workload.{name}[{at}]", shown(one), f"an entry as {example}")
    object.__setattr__(made, name, plain(entries, f"workload.{name}"))


@config
class Script(Typed):
    """An explicit list of operations, each on the CPU it names, one at a time.

    `Script(caches=[{"name": "dentry", "size": 208}], ops=[{"op": {"alloc": {"cache": 0, "slot": 7}}},
    {"cpu": 1, "op": {"free": {"slot": 7}}}, {"op": {"checkpoint": {"name": "freed on another CPU"}}}])`; the result's
    `checkpoints` hold the state of the caches at each checkpoint.
    """

    part = "workload"
    kind = "script"
    caches: Sequence[Mapping[str, Any]] = ()
    """caches made before the first step: name, size, align, flags"""
    ops: Sequence[Mapping[str, Any]] = ()
    """
    steps: cpu and op (alloc, free, kmalloc, kfree, alloc_pages, free_pages, alloc_bulk, free_bulk,
    free_rcu, rcu_barrier, prefill, alloc_prefilled, refill, return_prefilled, touch, shrink, trim, tune, write,
    create, destroy, checkpoint, map)
    """

    def __post_init__(self) -> None:
        copied(self, "caches", '{"name": "dentry", "size": 208}', Mapping)
        copied(self, "ops", '{"op": {"free": {"slot": 7}}}', Mapping)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Workload(Named):
    """Any workload of the catalog by name: `Workload("tbench", clients=4)`.

    Without a name it is one's own, put together from primitives: `Workload(tasks=[…])` (see `slablab.compose`).
    """

    part = "workload"
    name: str
    given: tuple[tuple[str, Value], ...]

    def __init__(self, name: str = "compose", **parameters: Any) -> None:
        self._set(name, parameters)


MachineLike: TypeAlias = Sim | Native | str
AllocatorLike: TypeAlias = AllocatorConfig | Allocator | str
WorkloadLike: TypeAlias = Typed | Workload | str

TYPED: dict[str, dict[str, type[Typed]]] = {
    "allocator": {cls.kind: cls for cls in (Slab, Slub, Slob, Slqb, Null)},
    "machine": {"native": Native},
    "workload": {
        cls.kind: cls
        for cls in (
            Tbench,
            Hackbench,
            Netperf,
            Volanomark,
            Dbench,
            Kbuild,
            Aim7,
            Oltp,
            Specjbb,
            Cpu2k,
            Boot,
            SlabTest,
            Compose,
            Script,
        )
    },
}


def classes() -> list[str]:
    """Names of all config classes."""
    return [cls.__name__ for kinds in TYPED.values() for cls in kinds.values()] + ["Sim", "Allocator", "Workload"]


def build(part: str, name: str, given: Mapping[str, Any]) -> Any:
    """The config object of a machine, allocator or workload by name: of its own class where it has one."""
    if typed := TYPED[part].get(name):
        return typed(**given)
    generic: dict[str, Callable[..., Part]] = {"machine": Sim, "allocator": Allocator, "workload": Workload}
    return generic[part](name, **given)


def changed(part: Part, **values: Value) -> Any:
    """The same config object with these parameters."""
    words: dict[str, Any] = part.document() | values
    return build(part.part, words.pop("name"), words)


def machine(given: MachineLike) -> Sim | Native:
    """The machine that a string or an object means."""
    if isinstance(given, Sim | Native):
        return given
    made: Sim | Native = build("machine", text("machine", given), {})
    return made


def allocator(given: AllocatorLike) -> AllocatorConfig | Allocator:
    """The allocator that a string ("slub", "slub@2.6.24") or an object means."""
    if isinstance(given, AllocatorConfig | Allocator):
        return given
    name, era = named_era(text("allocator", given))
    made: AllocatorConfig | Allocator = build("allocator", name, {"era": era} if era else {})
    return made


def workload(given: WorkloadLike) -> Typed | Workload:
    """The workload that a string or an object means."""
    if isinstance(given, Workload) or (isinstance(given, Typed) and given.part == "workload"):
        return given
    made: Typed | Workload = build("workload", text("workload", given), {})
    return made
