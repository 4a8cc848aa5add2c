"""Geometry as a call: what a cache of an era looks like, on a machine that need not exist.

The figures come from the code by which the allocators of a run make their caches; nothing is computed here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from slablab import _core, config
from slablab.values import Value, finite, plain, refused, shown, unknown, whole

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

FLAGS = ("hwcache_align", "reclaim_account", "typesafe_by_rcu", "ctor")
"""Creation flags of a cache."""

MAX_SIZES = 1 << 20
"""Sizes that one call takes."""


class Geometry(Mapping[str, Any]):
    """What one cache looks like: columns as items and as attributes. `docs/reports.md` says what each means.

    A column that the era does not have is None: `cpu_partial` before 3.2, `sheaf_capacity` before 6.18.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = dict(row)

    def __getitem__(self, column: str) -> Any:
        return self._row[column]

    def __getattr__(self, column: str) -> Any:
        if column.startswith("_"):
            raise AttributeError(column)
        try:
            return self._row[column]
        except KeyError:
            raise AttributeError(f"no column {column!r}; there are {', '.join(self._row)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._row]

    def __str__(self) -> str:
        width = max(len(c) for c in self._row)
        return "\n".join(f"{c:<{width}}  {'-' if v is None or v == '' else v}" for c, v in self._row.items())

    def __repr__(self) -> str:
        r = self._row
        return (
            f"<geometry {r['allocator']}@{r['era']} {r['object_size']} bytes: slot {r['slot_size']}, "
            f"order {r['order']}, {r['objects_per_slab']} objects>"
        )

    def _repr_html_(self) -> str:
        from slablab.html import listing

        return listing(repr(self)[1:-1], list(self._row.items()))


@overload
def geometry(
    allocator: config.AllocatorLike,
    size: int,
    *,
    cpus: int = 1,
    page_size: int = 4096,
    cache_line: int = 64,
    word: int = 8,
    memory_mib: int = 1024,
    align: int = 0,
    flags: str | Iterable[str] = (),
    kmalloc: bool = False,
    name: str = "cache",
    **tunables: Value,
) -> Geometry: ...
@overload
def geometry(
    allocator: config.AllocatorLike | Sequence[config.AllocatorLike],
    size: ArrayLike,
    *,
    cpus: int = 1,
    page_size: int = 4096,
    cache_line: int = 64,
    word: int = 8,
    memory_mib: int = 1024,
    align: int = 0,
    flags: str | Iterable[str] = (),
    kmalloc: bool = False,
    name: str = "cache",
    **tunables: Value,
) -> pd.DataFrame: ...
def geometry(
    allocator: Any,
    size: Any,
    *,
    cpus: int = 1,
    page_size: int = 4096,
    cache_line: int = 64,
    word: int = 8,
    memory_mib: int = 1024,
    align: int = 0,
    flags: str | Iterable[str] = (),
    kmalloc: bool = False,
    name: str = "cache",
    **tunables: Value,
) -> Geometry | pd.DataFrame:
    """What a cache of `size` bytes looks like: slot, order, objects per slab, waste, and what the allocator keeps.

    One size of one allocator gives a `Geometry`; an array of sizes, or a list of allocators, a frame with a row for
    each. `slablab geometry` is the same in a shell.

    >>> geometry("slub@6.1", 192, cpus=8, page_size=65536, cache_line=128, debug="ZU").slot_size
    >>> geometry(["slab@2.6.24", "slub@2.6.24"], range(8, 8193, 8), cpus=8)[["allocator", "object_size", "waste"]]

    `cpus` are the machine's: SLUB's orders follow it since 2.6.26, SLAB's shared arrays always. `page_size` is 4096,
    16384 or 65536, `cache_line` 16 to 256, `word` 8, or 4 for a 32-bit machine, all in bytes. SLAB takes slabs of order
    1 on machines with more than 32 MiB (`memory_mib`). `align` and `flags` (hwcache_align, reclaim_account,
    typesafe_by_rcu, ctor; several with commas or in a list) are what the creator asks for. With `kmalloc=True` it is
    the cache that serves a kmalloc of that size, or the block of pages where none does. `name` matters where an option
    names caches, and to the two caches that have sheaves in 6.18. Tunables are those of the allocator (`max_order=0`,
    `min_objects=16`, `debug="ZU"`).

    Raises ConfigError for what no kernel has, naming the parameter, the value and what would be right.
    """
    several = isinstance(allocator, Iterable) and not isinstance(allocator, str)
    parts = [_with(a, tunables) for a in (allocator if several else [allocator])]
    if not parts:
        raise refused("allocator", "[]", "at least one")
    sizes, one = _sizes(size)
    asked: dict[str, Any] = {
        "sizes": sizes,
        "cpus": whole("geometry.cpus", cpus, "1..4096"),
        "page_size": whole("geometry.page_size", page_size, "4096, 16384 or 65536 bytes"),
        "cache_line": whole("geometry.cache_line", cache_line, "16, 32, 64, 128 or 256 bytes"),
        "word": whole("geometry.word", word, "8 bytes (64-bit) or 4 (32-bit)"),
        "memory_mib": whole("geometry.memory_mib", memory_mib, "1 or more MiB", high=1 << 40),
        "align": whole("cache.align", align, "0 or a power of two", low=0, high=1 << 40),
        "name": _name(name),
        **dict.fromkeys(_flags(flags), True),
    }
    if not isinstance(kmalloc, bool):
        raise refused("geometry.kmalloc", shown(kmalloc), "true or false")
    if kmalloc and name != "cache":
        raise refused("cache.name", shown(name), "none with kmalloc: the size says which cache serves it")
    asked["kmalloc"] = kmalloc
    answers = [(part, _ask(part, asked)) for part in parts]
    if one and not several:
        part, columns = answers[0]
        return Geometry({**_named(part), **{c: values[0] for c, values in columns.items()}})
    return _frame(answers, len(sizes))


def _with(given: config.AllocatorLike, tunables: Mapping[str, Value]) -> config.AllocatorConfig | config.Allocator:
    """The allocator with tunables set on top of its own."""
    part = config.allocator(given)
    if not tunables:
        return part
    document = part.document()
    made: config.AllocatorConfig | config.Allocator = config.build(
        "allocator", str(document.pop("name")), {**document, **tunables}
    )
    return made


def _sizes(size: object) -> tuple[list[int], bool]:
    """Sizes in bytes, and whether it was one number."""
    right = "a whole number of bytes, or an array of them"
    if isinstance(size, str | bytes | Mapping):
        raise refused("geometry.size", shown(size), right)
    if not isinstance(size, Iterable) or getattr(size, "ndim", 1) == 0:
        return [whole("cache.size", size, "1 or more bytes", low=0, high=1 << 62)], True
    # A long range, or one without an end, is never made a list whole.
    listed: list[Any] = list(itertools.islice(getattr(size, "flat", size), MAX_SIZES + 1))
    if len(listed) > MAX_SIZES:
        raise refused("geometry.size", f"more than {MAX_SIZES} sizes", f"at most {MAX_SIZES}")
    sizes = [whole(f"geometry.size[{at}]", s, right, low=0, high=1 << 62) for at, s in enumerate(listed)]
    return sizes, False


def _flags(flags: object) -> list[str]:
    """The flags of a text or a list."""
    names = flags.split(",") if isinstance(flags, str) else flags
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise refused("geometry.flags", shown(flags), f"names of {', '.join(FLAGS)}")
    found = [str(n).strip() for n in names]
    for flag in found:
        if flag and flag not in FLAGS:
            raise unknown("geometry.flags", flag, FLAGS)
    return [f for f in found if f]


def _name(name: object) -> str:
    from slablab.kernel import checked_name

    checked_name(name)
    return str(name)


def _ask(part: config.AllocatorConfig | config.Allocator, asked: Mapping[str, Any]) -> dict[str, list[Any]]:
    document = plain(part.document(), "allocator")
    finite("allocator", document)
    answer: dict[str, list[Any]] = json.loads(_core.geometry(json.dumps({"allocator": document, **asked})))
    return answer


def _named(part: config.AllocatorConfig | config.Allocator) -> dict[str, Any]:
    """The columns in front: allocator and era."""
    document = part.document()
    return {"allocator": document["name"], "era": document["era"]}


def _frame(answers: list[tuple[Any, dict[str, list[Any]]]], rows: int) -> pd.DataFrame:
    """All answers as one frame; a column that an allocator or era does not have is missing there."""
    import pandas as pd

    from slablab.result import whole_columns

    parts: dict[str, list[Any]] = {}
    for at, (part, columns) in enumerate(answers):
        whole_part = {**{c: [v] * rows for c, v in _named(part).items()}, **columns}
        for column in [c for c in whole_part if c not in parts]:
            parts[column] = [None] * (at * rows)
        for column, values in parts.items():
            values.extend(whole_part.get(column, [None] * rows))
    return whole_columns(pd.DataFrame(parts))
