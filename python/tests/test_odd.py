"""Odd input to SLAB and SLOB of every era, from Python: it works as in the kernel, or is refused with a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import ALLOCATORS

import slablab as sl

SLABS = [a for a in ALLOCATORS if a.startswith("slab@")]
SLOBS = [a for a in ALLOCATORS if a.startswith("slob@")]
ONE = sl.Sim("opteron-2x4-2007", cpus=1)
TWO = sl.Sim("opteron-2x4-2007", cpus=2)
MIB = 1 << 20


def script(allocator: str, *ops: dict[str, Any], caches: list[dict[str, Any]]) -> sl.Result:
    return sl.run(machine=ONE, allocator=allocator, workload=sl.Script(caches=caches, ops=[{"op": op} for op in ops]))


def used(allocator: str, size: int, align: int = 0, name: str = "odd") -> None:
    """An object of such a cache is taken, written, and given back."""
    script(
        allocator,
        {"alloc": {"cache": 0, "slot": 0}},
        {"touch": {"slot": 0, "bytes": size}},
        {"free": {"slot": 0}},
        {"destroy": {"cache": 0}},
        caches=[{"name": name, "size": size, "align": align}],
    )
    if name == "odd":
        k = sl.Kernel(ONE, allocator)
        c = k.cache("odd", size, align=align)
        p = c.alloc()
        assert p.offset is None or p.offset % max(align, 1) == 0
        c.free(p)


@pytest.mark.parametrize("allocator", SLABS + SLOBS)
def test_sizes_and_alignments(allocator: str):
    smallest = 8 if allocator == "slab@2.6.24" else 1
    for size in (1, 7, 4 * MIB):
        if size >= smallest:
            used(allocator, size)
    for align in (4096, 8192):
        used(allocator, 8192, align)
    refused: list[tuple[int, int, str]] = [
        (0, 0, "cache.size = 0: "),
        (4 * MIB + 1, 0, "cache.size = 4194305: "),
        (64, 3, "cache.align = 3: 0 or a power of two"),
    ]
    # 2.6.24 refuses what is smaller than a word; a block of SLOB lies within a page.
    refused += [(size, 0, f"cache.size = {size}: 8..4194304") for size in (1, 7) if size < smallest]
    refused += [(64, 8192, "cache.align = 8192: at most 4096 for 64 bytes")] if allocator in SLOBS else []
    for size, align, words in refused:
        for ask in (
            lambda s, a: used(allocator, s, a),
            lambda s, a: sl.Kernel(ONE, allocator).cache("odd", s, align=a),
        ):
            with pytest.raises(sl.ConfigError, match=re.escape(words)):
                ask(size, align)
    if allocator in SLABS:
        used(allocator, 64, 8192)


@pytest.mark.parametrize("allocator", SLABS + SLOBS)
def test_names(allocator: str):
    for name in ("", "two words", "größe", "x" * 300):
        for ask in (lambda n: used(allocator, 64, name=n), lambda n: sl.Kernel(ONE, allocator).cache(n, 64)):
            with pytest.raises(sl.ConfigError, match="printable ASCII"):
                ask(name)
    k = sl.Kernel(ONE, allocator)
    first = k.cache("twice", 64)
    if allocator == "slab@2.6.24":
        with pytest.raises(sl.ConfigError, match=r'cache\.name = "twice": a name that no cache has'):
            k.cache("twice", 64)
        first.destroy()
        k.cache("twice", 64)
        return
    # 6.1 looks at names in debug builds only, SLOB never: a second cache. In SLAB of 6.1 it shares the first slabs.
    second = k.cache("twice", 64)
    if allocator == "slab@6.1":
        assert "shares the slabs of" in k.explain()
    assert k.cache("twice") is second
    first.free(first.alloc())
    first.destroy()
    second.free(second.alloc())


@pytest.mark.parametrize("allocator", [*SLABS, "slob@6.1"])
def test_ten_thousand_caches(allocator: str):
    k = sl.Kernel(ONE, allocator)
    caches = [k.cache(f"c{n}", 64 + 8 * (n % 5)) for n in range(10_000)]
    objects = [c.alloc() for c in caches[::1000]]
    assert len({(p.slab, p.offset) for p in objects}) == 10
    for p, c in zip(objects, caches[::1000], strict=True):
        c.free(p)
    caches[1].destroy()
    with pytest.raises(sl.ConfigError, match="has not been destroyed"):
        caches[1].alloc()


@pytest.mark.parametrize("allocator", SLABS + SLOBS)
def test_frees(allocator: str):
    k = sl.Kernel(ONE, allocator)
    one, two = k.cache("one", 64), k.cache("two", 200)
    p, q = one.alloc(), k.kmalloc(100)
    for wrong, words in (
        (lambda: two.free(p), 'an object of two; the right free is that of its cache, k.cache("one").free(p)'),
        (lambda: k.kfree(p), 'kmalloc memory; the right free is that of its cache, k.cache("one").free(p)'),
        (lambda: one.free(q), "an object of one; the right free is k.kfree(p)"),
        (lambda: k.kfree(0x1234), "p = 4660: a pointer that alloc or kmalloc returned"),  # type: ignore[arg-type]
        (lambda: k.kfree(sl.Kernel(ONE, allocator).kmalloc(8)), "a pointer of this kernel: it is another one's"),
    ):
        with pytest.raises(sl.ConfigError, match=re.escape(words)):
            wrong()
    one.free(p)
    with pytest.raises(sl.ConfigError, match="has not been freed: step 5 freed it on CPU 0"):
        one.free(p)
    take = {"alloc": {"cache": 0, "slot": 0}}
    for last, words in (
        ([take, {"free": {"slot": 0}}, {"free": {"slot": 0}}], "workload.ops[2].slot = 0"),
        ([take, {"kfree": {"slot": 0}}], "holds kmalloc memory: this one holds an object of a cache"),
        ([{"free": {"slot": 7}}], "workload.ops[0].slot = 7"),
        ([take, {"destroy": {"cache": 0}}], "a cache without objects: it still has 1"),
    ):
        with pytest.raises(sl.ConfigError, match=re.escape(words)):
            script(allocator, *last, caches=[{"name": "a", "size": 64}])


@pytest.mark.parametrize("allocator", SLABS + SLOBS)
def test_the_largest_kmalloc_is_four_mebibytes(allocator: str):
    k = sl.Kernel(ONE, allocator)
    assert not k.kmalloc(4 * MIB).is_null
    assert k.kmalloc(4 * MIB + 1).is_null
    assert k.explain() == "more than the largest block of pages: the allocation returned NULL"


def test_kmalloc_of_a_kind_has_caches_of_its_own():
    for allocator, kind, name in (
        (sl.Slab("2.6.24"), "dma", "size-128(DMA)"),
        (sl.Slab("6.1"), "reclaimable", "kmalloc-rcl-128"),
        (sl.Slab("6.1", kmalloc="rcl,cg"), "accounted", "kmalloc-cg-128"),
        (sl.Slub("2.6.24", kmalloc="dma"), "dma", "kmalloc_dma-128"),
        (sl.Slub("3.2", kmalloc="dma"), "dma", "dma-kmalloc-128"),
        (sl.Slub("6.1"), "reclaimable", "kmalloc-rcl-128"),
        (sl.Slub("6.18"), "accounted", "kmalloc-cg-128"),
        (sl.Slub("6.18"), "dma", "dma-kmalloc-128"),
        (sl.Slub("7.1", kmalloc="cg"), "accounted", "kmalloc-cg-128"),
    ):
        k = sl.Kernel(TWO, allocator)
        k.kfree(k.kmalloc(100, kind=kind))  # type: ignore[arg-type]
        assert name in set(k.slabs().cache), (allocator, kind)
    for other, kind in (
        ("slab@2.6.24", "reclaimable"),
        ("slab@6.1", "dma"),
        ("slob@6.1", "dma"),
        ("slub@6.1", "dma"),
        ("slub@2.6.24", "dma"),
        ("slub@6.1", "odd"),
    ):
        with pytest.raises(sl.ConfigError, match=f'kind.*"{kind}"|unknown variant `{kind}`'):
            sl.Kernel(TWO, other).kmalloc(100, kind=kind)  # type: ignore[arg-type]


HEAD = r"\S.{16,} "
LINE = HEAD + r" *\d+ +\d+ +\d+ +\d+ +\d+ : tunables +\d+ +\d+ +\d+ : slabdata +\d+ +\d+ +\d+"


@pytest.mark.parametrize("allocator", SLABS)
@pytest.mark.parametrize("statistics", [False, True])
def test_slabinfo_is_as_the_kernel_prints_it_to_the_last_blank(allocator: str, statistics: bool):
    k = sl.Kernel(TWO, sl.Slab(allocator[5:], statistics=statistics, merge=False if allocator == "slab@6.1" else None))
    c = k.cache("buffer_head", 104)
    for p in [c.alloc() for _ in range(100)]:
        c.free(p, cpu=1)
    text = k.slabinfo()
    first, second, newest, *rest = text.splitlines()
    assert first == "slabinfo - version: 2.1" + (" (statistics)" if statistics else "")
    assert second == (
        "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
        " : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>"
    ) + (
        " : globalstat <listallocs> <maxobjs> <grown> <reaped> <error> <maxfreeable> <nodeallocs> <remotefrees>"
        " <alienoverflow> : cpustat <allochit> <allocmiss> <freehit> <freemiss>"
        if statistics
        else ""
    )
    # 100 objects of slabs of 37 (39): the array holds the rest, aliens and the shared array what came from node 1.
    num, slabs = (37, 3) if allocator == "slab@2.6.24" else (39, 3)
    objects = num * slabs
    line = f"buffer_head       {objects:6} {objects:6}    104 {num:4}    1 : tunables  120   60    8 : slabdata"
    assert newest.startswith(f"{line} {slabs:6} {slabs:6} {96:6}"), newest
    if statistics:
        g = re.search(
            r" : globalstat (.{7}) (.{6}) (.{5}) (.{4}) (.{4}) (.{4}) (.{4}) (.{4}) (.{4}) : cpustat (.*)$", newest
        )
        assert g, newest
        assert [int(n) for n in g.groups()[:9]] == [objects, objects, slabs, 0, 0, 0, 0, 100, 8]
        assert re.fullmatch(r"(.{6}) (.{6}) (.{6}) (.{6})", g[10])
        hit, miss, *frees = (int(n) for n in g[10].split())
        assert (hit + miss, frees) == (100, [0, 0])
    for row in rest:
        assert re.fullmatch(LINE, row.split(" : globalstat")[0]), row
        wider = max(len(row.split()[3]) - 6, 0)
        assert len(row.split(" : ")[0]) == 17 + 7 + 7 + 7 + 5 + 5 + wider
    names = [row.split()[0] for row in rest]
    assert (
        names[:2]
        == {"slab@2.6.24": ["size-4194304(DMA)", "size-4194304"], "slab@6.1": ["kmalloc-rcl-8k", "kmalloc-rcl-4k"]}[
            allocator
        ]
    )
    assert text == sl.run(machine=TWO, allocator=k._experiment.allocator, workload=k.script).slabinfo()


def test_slob_has_no_slabinfo_but_a_heap():
    k = sl.Kernel(ONE, sl.Slob("6.1", descriptor=0))
    with pytest.raises(LookupError, match="slob has no /proc/slabinfo"):
        k.slabinfo()
    k.kmalloc(100)
    k.kmalloc(8192)
    assert k.heap().startswith("slob: 1 heap pages, 2 big pages (12 KiB), 8292 bytes live, efficiency 67.5 %")
    with pytest.raises(LookupError, match="no heap of its own"):
        sl.Kernel(ONE, "slab").heap()
