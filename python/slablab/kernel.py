"""A kernel to touch: caches, objects, and what each call did to the slabs.

Every call is a step of a growing script. It is checked here, and run on the simulated machine, from the start, when
somebody looks: so nothing is held between two calls but the list of steps, and the same calls show the same slabs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slablab import config, slabmap
from slablab.config import Native, Script
from slablab.experiment import Experiment
from slablab.slabmap import SlabView, View
from slablab.values import refused, shown, unknown, whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MAX_SIZE = 4 << 20
"""Bytes of the largest slab."""

MAX_NAME = 255
"""Longest name of a cache."""


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

    def __init__(self, kernel: Kernel, number: int, name: str, size: int) -> None:
        self._kernel = kernel
        self._number = number
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
        self._pointers: list[Pointer] = []
        self._seen: tuple[int, View, View] | None = None

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
        if size is None:
            for cache in reversed(self._caches):
                if cache.name == name and not cache._destroyed:
                    return cache
            raise unknown("cache", name, [c.name for c in self._caches if not c._destroyed])
        size = whole("cache.size", size, f"1..{MAX_SIZE} bytes", high=MAX_SIZE)
        whole("cache.align", align, "0 or a power of two", low=0, high=1 << 62)
        flags = {
            "hwcache_align": hwcache_align,
            "reclaim_account": reclaim_account,
            "typesafe_by_rcu": typesafe_by_rcu,
            "ctor": ctor,
        }
        for flag, value in flags.items():
            if not isinstance(value, bool):
                raise refused(f"cache.{flag}", shown(value), "true or false")
        self._try("create", {"cache": {"name": name, "size": size, "align": align, **flags}})
        made = KernelCache(self, len(self._caches), name, size)
        self._caches.append(made)
        return made

    def kmalloc(self, bytes: int, cpu: int = 0, node: int | None = None) -> Pointer:  # noqa: A002
        """Takes at least `bytes` bytes (kernel: kmalloc); 0 bytes give an address of nothing, as in the kernel."""
        bytes_ = whole("bytes", bytes, f"0..{1 << 40} bytes", low=0, high=1 << 40)
        return self._take("kmalloc", {"bytes": bytes_}, cpu, node, None, f"{bytes_} bytes of kmalloc")

    def kfree(self, p: Pointer, cpu: int = 0) -> None:
        """Gives back what kmalloc returned (kernel: kfree)."""
        self._give("kfree", p, cpu, None)

    def trim(self, cpu: int = 0) -> None:
        """Does a CPU's periodic work once: SLAB's reaper (cache_reap), SLQB's trimmer. Others have none."""
        self._step("trim", {}, cpu)

    def wait(self, seconds: float, cpu: int = 0) -> None:
        """Lets virtual time pass on a CPU; nothing happens in it that no call asks for."""
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= 86_400
        if not good:
            raise refused("seconds", shown(seconds), "0..86400")
        self._step("wait", {"seconds": float(seconds)}, cpu)

    def slabs(self) -> pd.DataFrame:
        """`KernelCache.slabs` of all caches, those of kmalloc too."""
        return frame(self._after.of(None))

    def map(self) -> str:
        """Every slab of every cache as text."""
        return slabmap.text(self._after.of(None), self.title)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws every slab of every cache."""
        return slabmap.plot(self._after.of(None), "all caches", self.caption, ax)

    def explain(self) -> str:
        """Says in a sentence what the last call did: fast path, refill, flush, remote free, new and returned slabs."""
        from slablab.explain import sentence

        if not self._steps:
            return "nothing has been done yet"
        return sentence(self._steps[-1], *self._views())

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

    def _views(self) -> tuple[View, View]:
        """Before the last step and after it, from one run of the whole script."""
        if self._seen is None or self._seen[0] != len(self._steps):
            looks = [{"op": {"map": {"name": name}}} for name in ("before", "after")]
            ops = [*self._steps[:-1], looks[0], *self._steps[-1:], looks[1]]
            parts = self._experiment
            script = Experiment(
                machine=parts.machine, allocator=parts.allocator, workload=Script(ops=ops), seed=parts.seed
            )
            before, after = (View(c["map"]) for c in script.run().checkpoints)
            self._seen = (len(self._steps), before, after)
        return self._seen[1:]

    def _step(self, op: str, given: Mapping[str, Any], cpu: int) -> None:
        cpus = self._full["machine"]["cpus"]
        cpu = whole("cpu", cpu, f"0..{cpus - 1} on this machine", low=0, high=cpus - 1)
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
