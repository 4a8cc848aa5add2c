"""Pages under the allocators: which page allocator, fragmented memory, who asked for what, queues, odd machines."""

from __future__ import annotations

import pytest

import slablab as sl
from slablab import cli, config

SMALL = sl.Tbench(clients=2, seconds=0.004, warmup=0.004)


def script(*ops: tuple[int, str, dict[str, object]], caches: int = 1, size: int = 1024) -> sl.Script:
    """A script of (CPU, operation, arguments) over caches c0, c1, …"""
    return sl.Script(
        caches=[{"name": f"c{i}", "size": size} for i in range(caches)],
        ops=[{"cpu": cpu, "op": {op: given}} for cpu, op, given in ops],
    )


def taken(count: int, cpu: int = 0) -> list[tuple[int, str, dict[str, object]]]:
    return [(cpu, "alloc", {"cache": 0, "slot": i}) for i in range(count)]


ERAS = {
    "slab@2.6.24": "2.6.24", "slab@6.1": "6.1", "slub@2.6.22": "2.6.24", "slub@2.6.24": "2.6.24",
    "slub@2.6.25": "2.6.27", "slub@2.6.27": "2.6.27", "slub@2.6.31": "2.6.27", "slub@3.1": "3.1", "slub@3.2": "3.1",
    "slub@6.1": "6.1", "slub@6.8": "6.8", "slub@6.18": "6.8", "slub@7.1": "6.8", "slob@2.6.24": "2.6.24",
    "slob@2.6.24-headmerge": "2.6.24", "slob@2.6.27": "2.6.27", "slob@6.1": "6.1", "slqb@2.6.29": "2.6.27",
    "null": "2.6.24",
}  # fmt: skip


@pytest.mark.parametrize("allocator", ERAS)
def test_each_allocator_uses_the_pages_of_its_time_unless_told_otherwise(allocator: str):
    one = sl.run(allocator=allocator, workload=script(*taken(1)))
    assert one.row()["pages"] == ERAS[allocator]
    other = sl.run(machine=sl.Sim(pages="none"), allocator=allocator, workload=script(*taken(1)))
    assert other.row()["pages"] == "none"
    assert "pcp_hit" not in set(other.page_stats()["stat"])


def test_pages_and_fragmentation_are_axes_of_a_sweep():
    grid = sl.sweep(
        allocator="slqb",
        workload=script(*taken(3)),
        over={"machine.pages": ["2.6.24", "6.1"], "machine.fragment": [(0.0, 1), (0.5, 1), (0.5, 2)]},
    )
    frame = grid.summary()
    assert list(frame.columns[:2]) == ["pages", "fragment"]
    assert list(frame["pages"]) == ["2.6.24"] * 3 + ["6.1"] * 3
    assert list(frame["fragment"]) == [0.0, 0.5, 0.5] * 2
    assert list(frame["fragment_seed"]) == [1, 1, 2] * 2
    unusable = grid.pages().query("order == 1").drop_duplicates(["fragment", "pages"])["unusable_index"]
    assert [round(v, 1) for v in unusable] == [0.0, 0.5] * 2


def test_fragmented_memory_repeats_and_another_seed_is_another_memory():
    def cells(seed: int) -> list[int]:
        machine = sl.Sim(arena_per_node=16, fragment=(0.5, seed))
        return list(sl.run(machine=machine, allocator="null", workload=script(*taken(1))).zone_map()["held"])

    assert cells(1) == cells(1) != cells(2)


def test_the_aliases_of_a_machine_to_order_are_parameters():
    machine = sl.Sim(sockets=2, cores_per_socket=2, threads_per_core=2, nodes=2, clock_ghz=3.0, l2_kb=1024, memory=1)
    full = sl.Experiment(machine=machine, allocator="null", workload=SMALL).expand()["machine"]
    assert full["cpus"] == 8
    assert {"threads_per_core", "nodes", "clock_ghz", "l2_kb"} <= set(config.parameters("machine", "opteron-2x4-2007"))
    grid = sl.sweep(machine=sl.Sim(sockets=4, cores_per_socket=1), allocator="null", workload=script(*taken(1)),
                    over={"machine.nodes": [1, 2, 4]})  # fmt: skip
    assert [r.zone_map()["node"].nunique() for r in grid] == [1, 2, 4]


def test_the_catalog_lists_them_with_unit_and_meaning():
    for machine in sl.catalog()["machines"]:
        listed = {p["name"]: p for p in machine["parameters"]}
        assert {"cpus", "pages", "fragment"} <= set(listed)
        assert all(p["meaning"] for p in listed.values())
        assert "self-tuning" in listed["pages"]["meaning"]
        assert not set(listed) & set(machine["values"])


RIGHT = "(level, seed)"
BAD = [
    (lambda: sl.Sim(fragment=(2.0, 1)), ["machine.fragment", "2.0", RIGHT]),
    (lambda: sl.Sim(fragment=2.0), ["machine.fragment = 2.0", RIGHT]),  # type: ignore[arg-type]
    (lambda: sl.Sim(fragment=(0.5,)), ["machine.fragment", RIGHT]),
    (lambda: sl.Sim(fragment=(0.5, -1)), ["machine.fragment", RIGHT]),
    (lambda: sl.Native(fragment=(0.5, 1.5)), ["machine.fragment", RIGHT]),
    (lambda: sl.Sim(pages=6.1), ["machine.pages = 6.1", "2.6.24"]),  # type: ignore[arg-type]
    (lambda: sl.run(machine=sl.Sim(pages="6.2"), allocator="null", workload=SMALL), ['machine.pages = "6.2"', "6.1"]),
    (
        lambda: sl.sweep(allocator="null", workload=SMALL, over={"machine.fragment": [(2.0, 1)]}),
        ["machine.fragment = 2", "0 (none) to 1"],
    ),
    (
        lambda: sl.sweep(allocator="null", workload=SMALL, over={"machine.fragment": [0.5]}),
        ["machine.fragment = 0.5", "[level, seed]"],
    ),
    (
        lambda: sl.run(machine=sl.Sim(nodes=1, numa_nodes=1), allocator="null", workload=SMALL),
        ["machine.nodes = 1", "machine.numa_nodes is the same"],
    ),
    (
        lambda: sl.run(machine=sl.Sim(arena_per_node=3), allocator="null", workload=SMALL),
        ["machine.arena_per_node = 3 MiB", "at least 8 MiB"],
    ),
    (
        lambda: sl.run(machine=sl.Sim(numa_nodes=1, memory=3 / 1024), allocator="null", workload=SMALL),
        ["machine.memory = 0.0029296875 GiB", "at least 8 MiB per node, not 3"],
    ),
    (
        lambda: sl.run(machine=sl.Native(memory_mib=3), allocator="null", workload=SMALL),
        ["machine.memory_mib = 3", "at least 8 MiB"],
    ),
    (
        lambda: sl.run(machine=sl.Sim(memoryless_nodes=2), allocator="null", workload=SMALL),
        ["machine.memoryless_nodes = 2", "fewer than the 2 nodes"],
    ),
    (
        lambda: sl.run(allocator=sl.Slqb(hiwater=10, freebatch=20), workload=SMALL),
        ["allocator.hiwater = 10", "19"],
    ),
    (lambda: sl.run(allocator=sl.Slqb(order=11), workload=SMALL), ["allocator.order = 11", "0..10"]),
    (lambda: sl.run(allocator=sl.Slqb(min_objects=0), workload=SMALL), ["allocator.min_objects = 0", "1"]),
    (lambda: sl.run(allocator=sl.Slqb(freebatch=0), workload=SMALL), ["allocator.freebatch = 0", "1"]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "parts"), BAD)
def test_an_impossible_memory_is_refused_with_what_would_be_right(call, parts: list[str]):
    with pytest.raises(sl.ConfigError) as raised:
        call()
    message = str(raised.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("machine.fragment=2.0", "from 0 (whole) to 1"),
        ("machine.fragment=half", "LEVEL:SEED"),
        ("machine.pages=6.2", 'machine.pages = "6.2"'),
        ("machine.arena_per_node=3", "at least 8 MiB"),
        ("allocator.order=11", "0..10"),
        ("allocator.hiwater=3", ""),
    ],
)
def test_the_shell_refuses_the_same_in_one_line(words: str, part: str, capsys):
    arguments = ["run", "--allocator", "slqb", "--seconds", "0.002", "--set", words]
    if words == "allocator.hiwater=3":
        arguments += ["--set", "allocator.freebatch=9"]
        part = "allocator.hiwater = 3"
    assert cli.main(arguments) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("# ")]
    assert len(said) == 1
    assert part in said[0]


def test_the_shell_sweeps_over_pages_and_fragmentation(capsys):
    arguments = ["sweep", "--allocator", "slqb", "--seconds", "0.002", "--set", "workload.warmup=0", "--json"]
    arguments += ["--over", "machine.pages=2.6.24,6.1", "--over", "machine.fragment=0,0.5:7"]
    assert cli.main(arguments) == 0
    out = capsys.readouterr()
    assert out.out.count('"fragment_seed": 7') == 2
    assert '"pages": "6.1"' in out.out


def test_pages_says_who_asked_for_which_order_and_how_it_ended():
    others = [(0, "kmalloc", {"bytes": 3 << 20, "slot": 9}), (0, "alloc_pages", {"order": 0, "slot": 10})]
    one = sl.run(
        machine=sl.Sim(arena_per_node=16, fragment=(1.0, 1)),
        allocator="slub@2.6.27",
        workload=script(*taken(9), *others),
    )
    frame = one.pages()
    assert sorted(set(frame["order"])) == list(range(11))
    assert not frame.duplicated(["order", "asker"]).any()
    rows = frame.set_index(["asker", "order"])
    # c0 is merged into the kmalloc cache of its size; its order-3 slab is refused, and it goes on with a smaller one.
    cache = rows.loc["kmalloc-1024"] if "kmalloc-1024" in set(frame["asker"]) else rows.loc[":0001024"]
    assert cache.loc[3, "fallback"] >= 1
    assert cache.loc[3, "allocated"] == 0
    assert cache.loc[0, "allocated"] == cache.loc[0, "held"] == 3
    large = rows.loc[("(kmalloc pages)", 10)]
    assert (large["allocated"], large["failed"]) == (0, 1)
    assert large["reclaim"] == 1
    assert rows.loc[("(other)", 0), "held"] == 1
    row = one.row()
    assert row["page_failures"] == frame["failed"].sum() == 1
    assert row["page_fallbacks"] == frame["fallback"].sum()


def test_the_fragments_of_packets_have_their_own_row():
    askers = set(
        sl.run(allocator="slub@2.6.24", workload=sl.Tbench(clients=2, seconds=0.01, warmup=0.01)).pages()["asker"]
    )
    assert "(skb fragments)" in askers
    heap = sl.run(allocator="slob@2.6.24", workload=script(*taken(3), size=100)).pages()
    assert heap.query("asker == '(heap)'")["allocated"].sum() >= 1


def test_a_zone_map_accounts_for_every_page_of_every_node():
    one = sl.run(machine=sl.Sim(arena_per_node=16), allocator="slab@2.6.24", workload=SMALL)
    cells = one.zone_map()
    assert (cells["pages"] == cells[["free", "listed", "held", "lent"]].sum(axis=1)).all()
    assert list(cells.groupby("node")["pages"].sum()) == [4096, 4096]
    held = one.pages()
    assert cells["lent"].sum() == (held["held"] * 2 ** held["order"]).sum()


def test_plot_pages_draws_orders_over_time_and_a_map_per_node(tmp_path):
    one = sl.run(machine=sl.Sim(arena_per_node=32, fragment=(0.6, 1)), allocator="slub@2.6.27", workload=SMALL)
    axes = sl.plot.pages(one)
    assert len(axes) == 3
    assert axes[0].get_ylabel() == "free (MiB)"
    assert axes[0].get_xlabel() == "time (s)"
    assert "node 1" in axes[2].get_title()
    axes[0].figure.savefig(tmp_path / "pages.png")
    assert (tmp_path / "pages.png").stat().st_size > 10_000
    with pytest.raises(sl.ConfigError, match=r"2 axes: 3: free"):
        sl.plot.pages(one, ax=axes[:2])
    with pytest.raises(sl.ConfigError, match="list of 3 axes"):
        sl.plot.pages(one, ax=3)  # type: ignore[arg-type]
    with pytest.raises(sl.ConfigError, match="one finished run"):
        sl.plot.pages(3)  # type: ignore[arg-type]


def test_slqb_says_who_holds_what_in_which_queue():
    ops = [*taken(12), *((1, "free", {"slot": i}) for i in range(5)), *((0, "free", {"slot": i}) for i in range(5, 8))]
    one = sl.run(machine=sl.Sim(cpus=2), allocator=sl.Slqb(freebatch=4), workload=script(*ops))
    frame = one.queues().query("cache == 'c0'").set_index("list")
    own, other = frame.loc["cpu0"], frame.loc["cpu1"]
    assert (own["slabs"], own["total_objects"], own["lifo"], own["remote_free"], own["check"]) == (3, 12, 3, 4, 1)
    assert (other["rlist"], other["rlist_to"], other["remote_frees"], other["sent"]) == (1, "cpu0", 5, 1)
    assert (own["alloc_fast_pct"], other["free_fast_pct"]) == (0.0, 0.0)
    live = one.caches().set_index("cache").loc["c0", "live_objects"]
    queued = frame[["lifo", "rlist", "remote_free", "free_in_pages"]].to_numpy().sum()
    assert frame["total_objects"].sum() == live + queued
    assert one.queueinfo().splitlines()[0].split()[:4] == ["Name", "Objects", "Slabs", "Partial"]
    other_one = sl.run(allocator="slub", workload=script(*taken(1)))
    assert other_one.queues().empty
    with pytest.raises(LookupError, match="SLQB"):
        other_one.queueinfo()


def test_a_kernel_shows_slqb_s_queues_after_each_call():
    k = sl.Kernel(sl.Sim("opteron-2x4-2007", cpus=2), sl.Slqb(freebatch=4))
    c = k.cache("buffer_head", 104)
    held = [c.alloc(cpu=0) for _ in range(8)]
    for p in held[:4]:
        c.free(p, cpu=1)
    assert k.queues().query("cache == 'buffer_head' and list == 'cpu0'")["remote_free"].item() == 4
    assert "4!" in k.queueinfo()
    held[4] = c.alloc(cpu=0)
    assert sl.Kernel(allocator="slab").queues().empty
    with pytest.raises(LookupError, match="SLQB"):
        sl.Kernel(allocator="slab").queueinfo()


@pytest.mark.parametrize("allocator", ["slab@2.6.24", "slub@2.6.24", "slub@6.18", "slob@2.6.24", "slqb@2.6.29"])
def test_a_node_without_memory_is_served_by_another(allocator: str):
    machine = sl.Sim("opteron-2x4-2007", memoryless_nodes=1, arena_per_node=32)
    cpus = [1, 5]  # One of each node.
    ops = [(cpu, "alloc", {"cache": 0, "slot": i * 2 + n}) for i in range(40) for n, cpu in enumerate(cpus)]
    frees = [(cpu, "free", {"slot": i * 2 + n}) for i in range(40) for n, cpu in enumerate(reversed(cpus))]
    one = sl.run(machine=machine, allocator=allocator, workload=script(*ops, *frees))
    assert one.row()["alloc_failed"] == 0
    assert set(one.zone_map()["node"]) == {0}
    if allocator.startswith("slqb"):
        # It names the node itself: the slabs are those of that node's own list.
        assert one.queues().set_index(["cache", "list"]).loc[("c0", "node0"), "slabs"] > 0
    else:
        assert one.pages()["fallback_node"].sum() > 0


@pytest.mark.parametrize("pages", ["2.6.24", "3.1", "6.8"])
def test_a_tebibyte_is_committed_when_it_is_touched(pages: str):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one = sl.run(machine=sl.Sim(numa_nodes=1, memory=1024, pages=pages), allocator="slqb", workload=script(*taken(100)))
    assert one.zone_map()["pages"].sum() == 1 << 28
    assert one.row()["alloc_failed"] == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
