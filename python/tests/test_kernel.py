"""sl.Kernel: what it shows is what the script did, in every era of every allocator, and what cannot be is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ALLOCATORS

import slablab as sl

LAB = [a for a in ALLOCATORS if not a.startswith("null")]
SLABS = [a for a in LAB if not a.startswith("slob")]
NODES = sl.Sim("opteron-2x4-2007", cpus=4)


@pytest.mark.parametrize("allocator", LAB)
def test_slabs_add_up_to_what_is_held_and_pointers_stay_where_they_are(allocator: str):
    k = sl.Kernel(NODES, allocator)
    one, two = k.cache("one", 104), k.cache("two", 700, hwcache_align=True)
    dice = random.Random(5)
    held: list[tuple[Any, Any]] = []
    for n in range(200):
        cache = dice.choice((one, two, None))
        cpu = dice.randrange(4)
        p = k.kmalloc(dice.randrange(1, 900), cpu=cpu) if cache is None else cache.alloc(cpu=cpu)
        held.append((p, cache))
        if n % 3 == 2:
            p, cache = held.pop(dice.randrange(len(held)))
            (k.kfree if cache is None else cache.free)(p, cpu=dice.randrange(4))
    places = {p.slot: (p.slab, p.index, p.node, p.offset) for p, _ in held}
    assert len({(slab, offset) for slab, _, _, offset in places.values()}) == len(held)
    assert not any(p.is_null for p, _ in held)
    for cache in (one, two):
        frame = cache.slabs()
        if not allocator.startswith("slob"):
            assert frame.used.sum() == sum(c is cache for _, c in held)
            assert set(frame.cache) == {cache.name}
        assert (frame.used + frame.free + frame.on_cpus + frame.queued == frame.objects).all()
        assert {p.slab for p, c in held if c is cache} <= set(frame.slab)
        text = str(cache)
        if not allocator.startswith("slob"):
            cells = "".join(line.rpartition(" |")[2][:-1] for line in text.splitlines() if line.endswith("|"))
            assert (len(cells), cells.count("#")) == (frame.objects.sum(), frame.used.sum())
            assert cells.count("~") == frame.queued.sum()
    # The script has grown, but nothing before has changed.
    one.alloc(cpu=1)
    k.trim(cpu=1)
    assert {p.slot: (p.slab, p.index, p.node, p.offset) for p, _ in held} == places
    assert len(k.slabs()) >= max(len(one.slabs()), len(two.slabs()))
    # What was done is a workload like any other.
    again = sl.run(machine=NODES, allocator=allocator, workload=k.script)
    assert again.summary()["ops"][0] == len(k.script.ops)


@pytest.mark.parametrize("allocator", LAB)
def test_a_cpu_out_of_service_holds_nothing_and_serves_no_call(allocator: str):
    k = sl.Kernel(NODES, allocator)
    c = k.cache("one", 200)
    held = [c.alloc(cpu=2) for _ in range(50)]
    for p in held[:40]:
        c.free(p, cpu=3)
    k.offline(3)
    assert k.explain().startswith("CPU 3 taken out of service: ")
    queued = " ".join(c.slabs().cpus.astype(str))
    assert "3:" not in queued.split() or allocator.startswith("slqb")
    with pytest.raises(sl.ConfigError, match=r"cpu = 3: a CPU in service"):
        c.alloc(cpu=3)
    with pytest.raises(sl.ConfigError, match=r"cpu = 0: 1 or more"):
        k.offline(0)
    for p in held[40:]:
        c.free(p, cpu=1)
    k.offline(2)
    assert not c.alloc(cpu=1).is_null
    # The same as steps of a script, which refuses by number.
    ops = [*k.script.ops, {"cpu": 3, "op": {"trim": {}}}]
    with pytest.raises(sl.ConfigError, match=rf"ops\[{len(ops) - 1}\].cpu = 3: a CPU in service"):
        sl.run(machine=NODES, allocator=allocator, workload=sl.Script(ops=ops))


@pytest.mark.parametrize("allocator", LAB)
def test_each_first_call_is_explained(allocator: str):
    k = sl.Kernel(NODES, allocator)
    assert k.explain() == "nothing has been done yet"
    c = k.cache("buffer_head", 104)
    p = c.alloc(cpu=0)
    first = k.explain()
    q = c.alloc(cpu=0)
    second = k.explain()
    if allocator.startswith("slob"):
        assert "a block of 104 bytes" in first
        assert second.startswith("first fit: a block of 104 bytes")
    else:
        assert first.startswith("new slab of order 0 (frame ")
        fast = not allocator.startswith("slqb") and allocator != "slub@2.6.21-mm1"
        assert second.startswith(
            "fast path: the object was on CPU 0's own list" if fast else "one object straight out of"
        )
    c.free(q, cpu=0)
    c.free(p, cpu=1)
    for bytes_, said in ((0, "0 bytes: "), (3_000_000, "")):
        x = k.kmalloc(bytes_, cpu=2)
        assert k.explain().startswith(said)
        k.kfree(x, cpu=2)
        assert k.explain().startswith(said)
    c.shrink(cpu=1)
    assert k.explain().startswith("shrink: ")
    c.destroy()
    assert k.explain().startswith("destroy: ")


@pytest.mark.parametrize("allocator", SLABS)
def test_a_remote_free_is_seen_where_the_era_puts_it(allocator: str):
    k = sl.Kernel(sl.Sim("opteron-2x4-2007", cpus=2), allocator)
    c = k.cache("skbuff", 256)
    p, q = c.alloc(cpu=0), c.alloc(cpu=0)
    assert (p.node, q.slab) == (0, p.slab)
    c.free(p, cpu=1)
    said, row = k.explain(), c.slabs().iloc[0]
    assert "remote free" in said
    if allocator.startswith("slub"):
        assert "into slab" in said or "straight into its slab" in said
    else:
        where = {"slab": "alien[0] of node 1: 1", "slqb": "rlist of cpu 1: 1"}[allocator[:4]]
        assert (row.queues, row.queued) == (where, 1)


def test_a_refill_names_its_source_and_a_flush_where_it_goes():
    k = sl.Kernel(sl.Sim("opteron-2x4-2007", cpus=1), "slab@6.1")
    c = k.cache("inode", 600)
    c.tune(limit=6, batchcount=3, sharedfactor=0)
    objects, filled = [], []
    for _ in range(12):
        objects.append(c.alloc())
        filled.append(k.explain())
    assert any(s.startswith("refill: 3 objects from the partial list of node 0, 1 slab touched") for s in filled)
    flushed = []
    for p in objects:
        c.free(p)
        flushed.append(k.explain())
    assert any(s.startswith("flush of 3 objects from CPU 0's list: ") for s in flushed)


def test_a_plot_draws_every_object_on_the_axes_it_is_given():
    from matplotlib import pyplot as plt

    for allocator in ("slab@2.6.24", "slub@6.1", "slub@7.1", "slqb", "slob"):
        k = sl.Kernel(NODES, allocator)
        c = k.cache("dentry", 208)
        objects = [c.alloc(cpu=n % 4) for n in range(90)]
        for p in objects[::2]:
            c.free(p, cpu=0)
        _, ax = plt.subplots()
        assert c.plot(ax) is ax
        drawn = sum(len(bars.get_paths()) for bars in ax.collections)
        assert drawn == c.slabs().objects.sum()
        labels = [t.get_text() for t in ax.get_legend().get_texts()]
        assert labels[0] == "used"
        assert any("CPU 0" in label for label in labels) == (allocator != "slob")
        assert len(ax.get_yticks()) == len(c.slabs())
        k.plot()
        plt.close("all")


def test_memory_can_run_out():
    k = sl.Kernel(sl.Sim("opteron-2x4-2007", cpus=1, arena_per_node=8), "slub@2.6.24")
    got = [k.kmalloc(2 << 20) for _ in range(8)]
    assert k.explain() == "no memory: the allocation returned NULL"
    assert got[-1].is_null
    assert not got[0].is_null
    k.kfree(got[-1])
    assert k.explain() == "nothing: the pointer was NULL"


def test_a_refused_cache_leaves_the_kernel_as_it_was():
    k = sl.Kernel(NODES, "slab@2.6.24")
    c = k.cache("one", 64)
    p = c.alloc()
    place = (p.slab, p.index)
    for again in (lambda: k.cache("one", 64), lambda: k.cache("odd", 64, align=3)):
        with pytest.raises(sl.ConfigError, match=r"cache\.(name|align)"):
            again()
    assert (p.slab, p.index) == place
    assert k.cache("one") is c
    c.free(p, cpu=np.int64(1))


@pytest.fixture(scope="module")
def kernel() -> sl.Kernel:
    k = sl.Kernel(NODES, "slub@2.6.24")
    k.cache("dentry", 208)
    k.cache("inode", 600)
    return k


def freed_twice(k: sl.Kernel) -> None:
    p = k.cache("dentry").alloc()
    k.cache("dentry").free(p)
    k.cache("dentry").free(p)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (freed_twice, ["p = <Pointer", "has not been freed", "on CPU 0"]),
        (
            lambda k: k.cache("inode").free(k.cache("dentry").alloc()),
            ["an object of inode", 'k.cache("dentry").free(p)'],
        ),
        (lambda k: k.cache("inode").free(k.kmalloc(3)), ["an object of inode", "k.kfree(p)"]),
        (lambda k: k.kfree(k.cache("dentry").alloc()), ["kmalloc memory", 'k.cache("dentry").free(p)']),
        (lambda k: k.kfree(sl.Kernel(NODES, "slub").kmalloc(3)), ["another one's"]),
        (lambda k: k.kfree(1234), ["p = 1234", "alloc or kmalloc"]),
        (lambda k: k.cache("dentry").alloc(cpu=4), ["cpu = 4", "0..3"]),
        (lambda k: k.cache("dentry").alloc(cpu=-1), ["cpu = -1", "0..3"]),
        (lambda k: k.cache("dentry").alloc(cpu=True), ["cpu = True"]),
        (lambda k: k.cache("dentry").alloc(node=2), ["node = 2", "0..1"]),
        (lambda k: k.kmalloc(-1), ["bytes = -1"]),
        (lambda k: k.kmalloc(1.5), ["bytes = 1.5"]),
        (lambda k: k.cache("dentri"), ['"dentri"', 'did you mean "dentry"']),
        (lambda k: k.cache(""), ["cache.name", "printable ASCII"]),
        (lambda k: k.cache("größe", 64), ["größe", "printable ASCII"]),
        (lambda k: k.cache("a" * 256, 64), ["cache.name", "1..255"]),
        (lambda k: k.cache("two words", 64), ["two words", "without blanks"]),
        (lambda k: k.cache(7, 64), ["cache.name = 7"]),
        (lambda k: k.cache("none", 0), ["cache.size = 0", "1.."]),
        (lambda k: k.cache("huge", 5 << 20), ["cache.size", "4194304"]),
        (lambda k: k.cache("odd", 64, align=3), ["align", "3", "power of two"]),
        (lambda k: k.cache("odd", 64, ctor=1), ["cache.ctor = 1", "True or False"]),
        (lambda k: (k.cache("dentry").alloc(), k.cache("dentry").destroy()), ["without objects: it still has"]),
        (lambda k: k.cache("dentry").tune(1, 1, 1), ["nothing to tune"]),
        (lambda k: k.wait(-1), ["seconds = -1"]),
        (lambda _: sl.Kernel("native", "slub"), ["machine", "simulated"]),
        (lambda _: sl.Kernel("opteron", "slub"), ["machine", "opteron-2x4-2007"]),
        (lambda _: sl.Kernel(NODES, "slubb"), ["allocator", "slub"]),
    ],
)
def test_odd_input_is_refused_with_what_would_be_right(
    kernel: sl.Kernel, wrong: Callable[[sl.Kernel], object], words: list[str]
):
    with pytest.raises(sl.ConfigError) as caught:
        wrong(kernel)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400
    kernel.explain()


def test_a_destroyed_cache_is_gone():
    k = sl.Kernel(NODES, "slqb")
    c = k.cache("one", 64)
    c.free(c.alloc())
    c.destroy()
    for use in (c.alloc, c.shrink, c.destroy, lambda: k.cache("one")):
        with pytest.raises(sl.ConfigError):
            use()
    assert c.slabs().empty
    assert "(no slabs)" in str(c)


def test_what_the_kernel_has_no_memory_for_is_refused_and_forgotten():
    for era in ("slab@2.6.24", "slab@6.1"):
        k = sl.Kernel(sl.Sim(cpus=2), era)
        c = k.cache("x", 64)
        with pytest.raises(sl.ConfigError, match=r"limit = 2147483647: 1\.\.\d+: .*ENOMEM"):
            c.tune((1 << 31) - 1, 1, 1)
        c.tune(6, 3, 0)
        assert c.alloc().slot == 0
        # 6.1 gives it slots of kmalloc-64.
        assert ("x" if era == "slab@2.6.24" else "kmalloc-64") in k.map()
