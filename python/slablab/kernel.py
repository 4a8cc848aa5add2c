"""A kernel to touch: caches, objects, and what each call did to the slabs.

Every call is a step of a growing script. It is checked here, and run on the simulated machine, from the start, when
somebody looks: so nothing is held between two calls but the list of steps, and the same calls show the same slabs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from slablab import config, slabmap
from slablab._core import ConfigError
from slablab.config import Native, Script
from slablab.experiment import Experiment
from slablab.slabmap import SlabView, View
from slablab.values import plain, refused, shown, truth, unknown, whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slablab.result import Result

MAX_SIZE = 4 << 20
"""Bytes of the largest slab."""

KINDS = ("normal", "reclaimable", "dma", "accounted")
"""Kinds of kmalloc."""

MAX_NAME = 255
"""Longest name of a cache."""


@dataclass(frozen=True)
class Effort:
    """What one call cost: what the allocator did on the simulated machine, and how long that took."""

    instructions: int
    """instructions besides the accesses"""
    loads: int
    stores: int
    atomics: int
    """locked read-modify-writes: spin locks, bit locks, compare-exchanges, counters that CPUs share"""
    local_exchanges: int
    """unlocked compare-exchanges of words that only this CPU changes"""
    irq_pairs: int
    """times that interrupts were off and on again"""
    object_lines: int
    """lines of objects touched, each once"""
    descriptor_lines: int
    """lines of struct page touched"""
    structure_lines: int
    """lines of the allocator's own structures touched: caches, per-CPU structures, queues, locks"""
    ns: float
    """virtual nanoseconds"""
    cycles: float
    """the same in cycles of the machine's clock"""

    @property
    def lines(self) -> int:
        """Lines touched, each once."""
        return self.object_lines + self.descriptor_lines + self.structure_lines


class Pointer:
    """What `alloc` and `kmalloc` return: an object of a cache, or memory of kmalloc, by the number of its slot."""

    def __init__(self, kernel: Kernel, slot: int, cache: KernelCache | None, words: str) -> None:
        self._kernel = kernel
        self._cache = cache
        self._words = words
        self._freed: str | None = None
        self.slot = slot
        """Number of the script's slot that holds it."""

    @property
    def is_null(self) -> bool:
        """Memory was out, and the kernel returned NULL."""
        return self.slot in self._kernel._after.failed

    @property
    def slab(self) -> int | None:
        """First frame of the slab (SLOB: of the page) it lies in; None if it lies in none: 0 bytes, or whole pages."""
        return None if (found := self._placed()) is None else found[0].frame

    @property
    def node(self) -> int | None:
        """NUMA node of that slab."""
        return None if (found := self._placed()) is None else found[0].node

    @property
    def index(self) -> int | None:
        """Its number in the slab, from 0 (SLOB: the block's)."""
        return None if (found := self._placed()) is None else found[1]

    @property
    def offset(self) -> int | None:
        """Its first byte, from the start of the slab (SLOB: the block's)."""
        return None if (found := self._placed()) is None else found[0].objects[found[1]].at

    def _placed(self) -> tuple[SlabView, int] | None:
        if self._freed:
            raise refused("p", repr(self), f"a pointer that has not been freed: {self._freed}")
        return self._kernel._after.placed(self.slot)

    def __repr__(self) -> str:
        return f"<Pointer {self.slot}: {self._words}{', freed' if self._freed else ''}>"


class KernelCache:
    """A cache of a hands-on kernel: `Kernel.cache` makes it."""

    def __init__(self, kernel: Kernel, number: int, name: str, size: int, spec: dict[str, Any]) -> None:
        self._kernel = kernel
        self._number = number
        self._spec = spec
        self._destroyed = False
        self.name = name
        """Name it was made under."""
        self.size = size
        """Bytes of one object, as asked."""

    def alloc(self, cpu: int = 0, node: int | None = None) -> Pointer:
        """Takes an object on a CPU, of that node if named (kernel: kmem_cache_alloc, kmem_cache_alloc_node)."""
        self._alive()
        return self._kernel._take("alloc", {"cache": self._number}, cpu, node, self, f"an object of {self.name}")

    def free(self, p: Pointer, cpu: int = 0) -> None:
        """Gives an object back on a CPU (kernel: kmem_cache_free)."""
        self._alive()
        self._kernel._give("free", p, cpu, self)

    def shrink(self, cpu: int = 0) -> None:
        """Returns the cache's empty slabs (kernel: kmem_cache_shrink)."""
        self._alive()
        self._kernel._step("shrink", {"cache": self._number}, cpu)

    def tune(self, limit: int, batchcount: int, sharedfactor: int) -> None:
        """Changes the tunables of a SLAB cache (kernel: a write to /proc/slabinfo), which ignores odd values."""
        self._alive()
        given = {"limit": limit, "batchcount": batchcount, "sharedfactor": sharedfactor}
        for name, value in given.items():
            whole(name, value, "a whole number", low=-(1 << 31), high=(1 << 31) - 1)
        self._kernel._try("tune", {"cache": self._number, **given})

    def write(self, attribute: str, value: int) -> None:
        """Writes to an attribute of a SLUB cache (kernel: its file in sysfs), which refuses what its release refuses.

        `min_partial` (since 2.6.30), `cpu_partial` (3.2 to 6.18), `order` (2.6.26 to 5.8), `remote_node_defrag_ratio`;
        1 to `shrink` or `validate` (6.1 on: caches with debug flags); 0 clears an event counter (since 2.6.33). Up to
        5.8 debug flags: `sanity_checks` and `trace` at any time, `red_zone`, `poison` and `store_user` while the cache
        has no slabs. A flag holds for all slabs at once; up to 3.0 the kernel marks new slabs only.
        """
        self._alive()
        if not isinstance(attribute, str):
            raise refused("attribute", shown(attribute), "the name of an attribute, as min_partial")
        value = whole(f"cache.{attribute}", value, "a whole number", low=-(1 << 63), high=(1 << 63) - 1)
        self._kernel._try("write", {"cache": self._number, "attribute": attribute, "value": value})

    def sysfs(self) -> dict[str, str]:
        """Its attributes in sysfs, as the kernel's text: geometry, limits, slabs by node, every event by CPU.

        SLUB and SLQB have such files; the others raise LookupError (`Kernel.slabinfo` shows SLAB's caches).
        """
        self._alive()
        view = self._kernel._after
        return self._kernel._result.sysfs(f"#{view.made[self._number]}")

    def destroy(self, cpu: int = 0) -> None:
        """Gives the cache up (kernel: kmem_cache_destroy). Its objects must have been freed."""
        self._alive()
        left = sum(p._cache is self and p._freed is None and not p.is_null for p in self._kernel._pointers)
        if left:
            raise refused("cache", self.name, f"a cache without objects: it still has {left}")
        self._kernel._step("destroy", {"cache": self._number}, cpu)
        self._destroyed = True

    def slabs(self) -> pd.DataFrame:
        """One row per slab: first frame, node, list, objects by what they are.

        `used` objects are in somebody's hands; `free` ones lie in their slab; `on_cpus` on the lists that CPUs allocate
        from (`cpus` says on whose, and how many); `queued` in another queue (`queues`: shared, alien, remote, RCU).
        `offset` is the first byte of object 0: SLAB's and SLQB's colour shows there. The pages of SLOB belong to all
        caches: its rows are pages, its objects blocks.
        """
        return frame(self._slabs())

    def map(self) -> str:
        """Every slab as text, a character per object: # used, . free in its slab, 0 on CPU 0's list, ~ in a queue."""
        return slabmap.text(self._slabs(), f"{self.name}: {self.size} bytes, {self._kernel.title}")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws every slab with its objects: used, free, on which CPU's list, in which queue."""
        return slabmap.plot(self._slabs(), f"{self.name}, {self.size} bytes", self._kernel.caption, ax)

    def _slabs(self) -> list[SlabView]:
        view = self._kernel._after
        return view.of(view.made[self._number])

    def _alive(self) -> None:
        if self._destroyed:
            raise refused("cache", self.name, "a cache that has not been destroyed")

    def __str__(self) -> str:
        return self.map()

    def __repr__(self) -> str:
        return f"<cache {self.name} of {self.size} bytes, {self._kernel.title}>"


class Kernel:
    """A kernel to touch, on a simulated machine, whose every state can be shown.

    >>> k = Kernel("opteron-2x4-2007", "slub@2.6.24")
    >>> c = k.cache("buffer_head", 104)
    >>> p = c.alloc(cpu=0)
    >>> c.free(p, cpu=1)
    >>> k.explain(), c.slabs(), c.plot()
    """

    def __init__(
        self, machine: config.MachineLike = "opteron-2x4-2007", allocator: config.AllocatorLike = "slub", seed: int = 1
    ) -> None:
        self._experiment = Experiment(machine=machine, allocator=allocator, workload=Script(), seed=seed)
        if isinstance(self._experiment.machine, Native):
            raise refused("machine", '"native"', "a simulated machine: what was done is run again each time one looks")
        self._steps: list[dict[str, Any]] = []
        self._caches: list[KernelCache] = []
        self._named: dict[str, list[KernelCache]] = {}
        self._pointers: list[Pointer] = []
        self._seen: tuple[int, View, View] | None = None
        self._last: Result | None = None
        self._good: set[str] = set()
        """Caches that a kernel has made when asked, as JSON with their namesakes before them."""

    @property
    def script(self) -> Script:
        """All that was done, as a workload: `sl.run(machine=…, allocator=…, workload=k.script)`."""
        return Script(ops=self._steps)

    def cache(
        self,
        name: str,
        size: int | None = None,
        *,
        align: int = 0,
        hwcache_align: bool = False,
        reclaim_account: bool = False,
        typesafe_by_rcu: bool = False,
        ctor: bool = False,
    ) -> KernelCache:
        """Makes a cache of objects of `size` bytes (kernel: kmem_cache_create); without a size, the one made before.

        What the allocator's era refuses (a size, an alignment, a name in use) is a ConfigError.
        """
        checked_name(name)
        flags = {
            "hwcache_align": hwcache_align,
            "reclaim_account": reclaim_account,
            "typesafe_by_rcu": typesafe_by_rcu,
            "ctor": ctor,
        }
        if size is None:
            for flag, value in {"align": align, **flags}.items():
                if value:
                    raise refused(f"cache.{flag}", shown(value), "a size with it: without one a cache is looked up")
            for cache in reversed(self._named.get(name, ())):
                if not cache._destroyed:
                    return cache
            raise unknown("cache", name, [c.name for c in self._caches if not c._destroyed])
        size = whole("cache.size", size, f"1..{MAX_SIZE} bytes", high=MAX_SIZE)
        align = whole("cache.align", align, "0 or a power of two", low=0, high=1 << 62)
        flags = {flag: truth(f"cache.{flag}", value) for flag, value in flags.items()}
        spec = {"name": name, "size": size, "align": align, **flags}
        self._creatable(spec)
        self._step("create", {"cache": spec}, 0)
        made = KernelCache(self, len(self._caches), name, size, spec)
        self._caches.append(made)
        self._named.setdefault(name, []).append(made)
        return made

    def kmalloc(
        self,
        bytes: int,  # noqa: A002
        cpu: int = 0,
        node: int | None = None,
        kind: Literal["normal", "reclaimable", "dma", "accounted"] = "normal",
    ) -> Pointer:
        """Takes at least `bytes` bytes (kernel: kmalloc); 0 bytes give an address of nothing, as in the kernel.

        Another `kind` than "normal" takes them from caches of their own (GFP_DMA, __GFP_RECLAIMABLE, __GFP_ACCOUNT),
        where the allocator has such caches: `Slab(kmalloc=…)`.
        """
        bytes_ = whole("bytes", bytes, f"0..{1 << 40} bytes", low=0, high=1 << 40)
        given: dict[str, Any] = {"bytes": bytes_}
        if not isinstance(kind, str) or kind not in KINDS:
            raise unknown("kind", kind, KINDS)
        if kind != "normal":
            given["kind"] = kind
            self._answers([{"op": {"kmalloc": {**given, "slot": 0}}}])
        return self._take("kmalloc", given, cpu, node, None, f"{bytes_} bytes of kmalloc")

    def kfree(self, p: Pointer, cpu: int = 0) -> None:
        """Gives back what kmalloc returned (kernel: kfree)."""
        self._give("kfree", p, cpu, None)

    def trim(self, cpu: int = 0) -> None:
        """Does a CPU's periodic work once: SLAB's reaper (cache_reap), SLQB's trimmer. Others have none."""
        self._step("trim", {}, cpu)

    def offline(self, cpu: int) -> None:
        """Takes a CPU out of service (kernel: CPU hotplug): what it holds of every cache is given up.

        SLQB leaves its queued objects where they are, as the kernel does. No call may name the CPU afterwards.
        """
        if whole("cpu", cpu, "1 or more: CPU 0 stays in service", low=0) == 0:
            raise refused("cpu", "0", "1 or more: CPU 0 stays in service")
        self._step("offline", {}, cpu)

    def wait(self, seconds: float, cpu: int = 0) -> None:
        """Lets virtual time pass on a CPU; nothing happens in it that no call asks for."""
        number = plain(seconds, "seconds")
        if not isinstance(number, int | float) or isinstance(number, bool) or not 0 <= number <= 86_400:
            raise refused("seconds", shown(seconds), "0..86400")
        self._step("wait", {"seconds": float(number)}, cpu)

    def slabs(self) -> pd.DataFrame:
        """`KernelCache.slabs` of all caches, those of kmalloc too."""
        return frame(self._after.of(None))

    def map(self) -> str:
        """Every slab of every cache as text."""
        return slabmap.text(self._after.of(None), self.title)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws every slab of every cache."""
        return slabmap.plot(self._after.of(None), "all caches", self.caption, ax)

    def slabinfo(self, options: str | None = None) -> str:
        """The text of /proc/slabinfo as it is now, or with options (`"-AD"`, `"-T"`, `"-l"`) that of the slabinfo tool.

        LookupError for an allocator that has none (SLOB).
        """
        return self._result.slabinfo(options)

    def heap(self) -> str:
        """SLOB: its heap as text, pages, free blocks and fragments; LookupError for an allocator of slabs."""
        texts = self._result.texts
        if "heap" not in texts:
            raise LookupError(f"{self.title} has no heap of its own; slabinfo() shows its caches")
        return texts["heap"]

    def queues(self) -> pd.DataFrame:
        """SLQB: who holds what in which queue, and what happened there (see `Result.queues`); of others empty."""
        import pandas as pd

        return pd.DataFrame(self._after.queues)

    def queueinfo(self) -> str:
        """SLQB: `queues` as text, a line per cache and below it one per list of a CPU or node."""
        if self._after.queues_text is None:
            raise LookupError(f"{self.title} has no such queues; SLQB has")
        return self._after.queues_text

    def explain(self) -> str:
        """Says in a sentence what the last call did: fast path, refill, flush, remote free, new and returned slabs."""
        from slablab.explain import sentence

        if not self._steps:
            return "nothing has been done yet"
        return sentence(self._steps[-1], *self._views())

    def effort(self) -> Effort:
        """Says what the last call cost: instructions, loads, stores, atomics, lines touched, time.

        Counted is what the allocator did for `alloc`, `free`, `kmalloc` or `kfree`; other calls cost nothing here.
        """
        seen = dict(self._after.effort)
        ns = seen.pop("time_ps") / 1000
        del seen["operations"]
        machine = self._full["machine"]
        preset = config.entry("machine", machine["name"])["values"]["freq"]["value"]
        return Effort(**seen, ns=ns, cycles=ns * machine.get("freq", preset))

    @cached_property
    def title(self) -> str:
        """Allocator and era."""
        allocator = self._full["allocator"]
        return f"{allocator['name']}@{allocator['era']}"

    @cached_property
    def caption(self) -> str:
        """Allocator, machine and seed, for the foot of a figure."""
        machine = self._full["machine"]
        return f"{self.title} · {machine['name']}, {machine['cpus']} CPUs · seed {self._experiment.seed}"

    def __str__(self) -> str:
        return self.map()

    def __repr__(self) -> str:
        names = ", ".join(c.name for c in self._caches) or "no cache yet"
        return f"<Kernel {self.title}, {len(self._steps)} steps: {names}>"

    @cached_property
    def _full(self) -> dict[str, Any]:
        return self._experiment.expand()

    @cached_property
    def _nodes(self) -> int:
        return self._after.nodes

    @property
    def _after(self) -> View:
        return self._views()[1]

    @property
    def _result(self) -> Result:
        """The run of all steps so far."""
        self._views()
        assert self._last is not None
        return self._last

    def _views(self) -> tuple[View, View]:
        """Before the last step and after it, from one run of the whole script."""
        if self._seen is None or self._seen[0] != len(self._steps):
            looks = [{"op": {"map": {"name": name}}} for name in ("before", "after")]
            ops = [*self._steps[:-1], looks[0], *self._steps[-1:], looks[1]]
            self._last = self._run(ops)
            before, after = (View(c["map"]) for c in self._last.checkpoints)
            self._seen = (len(self._steps), before, after)
        return self._seen[1:]

    def _run(self, ops: list[dict[str, Any]]) -> Result:
        """Runs a script on this machine with this allocator."""
        parts = self._experiment
        script = Script(ops=ops)
        try:
            return Experiment(machine=parts.machine, allocator=parts.allocator, workload=script, seed=parts.seed).run()
        except ConfigError as e:
            # Whoever makes calls has not numbered them.
            raise refused(re.sub(r"^workload\.ops\[\d+\]\.", "", e.parameter), e.value, e.expected) from None

    def _answers(self, ops: list[dict[str, Any]]) -> None:
        """Asks a kernel of its own whether it would do this, which may be a ConfigError; asked before, it did."""
        key = json.dumps(ops)
        if key not in self._good:
            self._run(ops)
            self._good.add(key)

    def _creatable(self, spec: dict[str, Any]) -> None:
        """What a kernel refuses of a cache is its size, its alignment, and its name if another one has it."""
        ops: list[dict[str, Any]] = []
        for number, cache in enumerate(self._named.get(spec["name"], ())):
            ops.append({"op": {"create": {"cache": cache._spec}}})
            if cache._destroyed:
                ops.append({"op": {"destroy": {"cache": number}}})
        # A name that nobody has is as good as any other.
        named = spec if ops else {**spec, "name": "new"}
        self._answers([*ops, {"op": {"create": {"cache": named}}}])

    def _step(self, op: str, given: Mapping[str, Any], cpu: int) -> None:
        cpus = self._full["machine"]["cpus"]
        cpu = whole("cpu", cpu, f"0..{cpus - 1} on this machine", low=0, high=cpus - 1)
        if any(step["cpu"] == cpu and "offline" in step["op"] for step in self._steps):
            raise refused("cpu", str(cpu), "a CPU in service: this one has been taken out")
        self._steps.append({"cpu": cpu, "op": {op: dict(given)}})

    def _try(self, op: str, given: Mapping[str, Any]) -> None:
        """A step that the core may refuse: it is run at once, and forgotten if so."""
        self._step(op, given, 0)
        try:
            self._views()
        except BaseException:
            self._steps.pop()
            raise

    def _take(
        self, op: str, given: dict[str, Any], cpu: int, node: int | None, cache: KernelCache | None, words: str
    ) -> Pointer:
        """An allocation into a slot of its own."""
        given["slot"] = len(self._pointers)
        if node is not None:
            last = self._nodes - 1
            given["node"] = whole("node", node, f"0..{last} on this machine", low=0, high=last)
        self._step(op, given, cpu)
        self._pointers.append(Pointer(self, given["slot"], cache, words))
        return self._pointers[-1]

    def _give(self, op: str, p: Pointer, cpu: int, cache: KernelCache | None) -> None:
        """A free, once it is sure that `p` can be freed by it."""
        if not isinstance(p, Pointer):
            raise refused("p", shown(p), "a pointer that alloc or kmalloc returned")
        if p._kernel is not self:
            raise refused("p", repr(p), "a pointer of this kernel: it is another one's")
        if p._freed:
            raise refused("p", repr(p), f"a pointer that has not been freed: {p._freed}")
        if p._cache is not cache:
            owner = "k.kfree(p)" if p._cache is None else f'that of its cache, k.cache("{p._cache.name}").free(p)'
            what = "kmalloc memory" if cache is None else f"an object of {cache.name}"
            raise refused("p", repr(p), f"{what}; the right free is {owner}")
        self._step(op, {"slot": p.slot}, cpu)
        p._freed = f"step {len(self._steps)} freed it on CPU {self._steps[-1]['cpu']}"


def checked_name(name: object) -> None:
    """Refuses names that /proc/slabinfo could not show."""
    good = isinstance(name, str) and name and name.isascii() and name.isprintable() and " " not in name
    if not good or len(str(name)) > MAX_NAME:
        right = f"a name of 1..{MAX_NAME} printable ASCII characters without blanks, as in slabinfo"
        raise refused("cache.name", shown(name), right)


def frame(slabs: list[SlabView]) -> pd.DataFrame:
    """Slabs as a frame."""
    import pandas as pd

    return pd.DataFrame([s.row() for s in slabs], columns=list(slabmap.COLUMNS))
