"""Runs whose figures do not say what they seem to: a warning names the run and the reason."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import slablab as sl
from slablab import compose as c


def test_memory_that_ran_out():
    with pytest.warns(sl.RunWarning, match=r"had allocations that failed, .* \(boot on slab, small-2008\)"):
        one = sl.run(machine="small-2008", allocator="slab@2.6.24", workload=sl.Boot(scale=5.0))
    assert one.row()["alloc_failed"] > 0


def test_tasks_that_wait_for_each_other():
    tasks = [c.task(c.recv("a"), c.send("b"), c.done()), c.task(c.recv("b"), c.send("a"), c.done())]
    stuck = sl.Workload(queues=[c.queue("a"), c.queue("b")], tasks=tasks, seconds=0.001)
    with pytest.warns(sl.RunWarning, match=r"finished no operation, the first compose in 0\.001 s"):
        assert sl.run(allocator="slub", workload=stuck).throughput == 0


def test_tunables_of_a_cache_that_is_not_there():
    short = sl.Hackbench(groups=1, fds=2, seconds=0.02, warmup=0.02)
    option = "skbuff_head_cache:min_partial=20;kmalloc-*:cpu_partial=0"
    with warnings.catch_warnings():
        warnings.simplefilter("error", sl.RunWarning)
        sl.run(allocator=sl.Slub("6.1", per_cache=option), workload=short)
    with pytest.warns(sl.RunWarning, match='per_cache = "skbuf_head": known: kmalloc-8, '):
        sl.run(allocator=sl.Slub("6.1", per_cache="skbuf_head:order=1"), workload=short)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: c.read_histogram("/nowhere/at/all"), 'path = "/nowhere/at/all": a readable text file'),
        (lambda: sl.reproduce("piggin-2007-tbench", quick="yes"), 'quick = "yes": True or False'),
        (lambda: sl.validate(quick=1), "quick = 1: True or False"),
        (lambda: sl.geometry("slub", range(10**12)), "geometry.size = more than 1048576 sizes: at most 1048576"),
        (lambda: sl.geometry("slub", 64, flags={"ctor": False}), "geometry.flags = {'ctor': False}: names of"),
        (lambda: sl.geometry("slub", 64, kmalloc=True, name="x"), 'cache.name = "x": none with kmalloc'),
        (lambda: sl.Sweep([3]), "results = 3: finished runs"),
        (lambda: sl.reproduce("piggin-2007-tbench", seed=2**63 - 1, seeds=2), "seed = 9223372036854775808: "),
        (lambda: sl.Sim(kernel="9.9").figures(), 'machine.kernel = "9.9": a release up to 7.1'),
        (lambda: sl.Kernel("opteron-2x4-2007", "slub").slabinfo(3), "options = 3: letters of the slabinfo tool"),
    ],
)
def test_what_is_refused(wrong, words: str):
    with pytest.raises(sl.ConfigError) as caught:
        wrong()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("caches", "words"),
    [
        ([c.cache("a b", 8)], 'caches[0].name = "a b": 1..255 printable ASCII'),
        ([c.cache("a", 8), c.cache("a", 16)], 'caches[1].name = "a": a name of its own'),
    ],
)
def test_names_of_composed_caches(caches, words: str):
    one = sl.Workload(caches=caches, tasks=[c.task(c.alloc(kmalloc=8), c.free())])
    with pytest.raises(sl.ConfigError) as caught:
        sl.run(allocator="slub", workload=one)
    assert words in str(caught.value)


def test_histograms_name_a_cache_once_and_may_begin_with_a_mark(tmp_path):
    path = tmp_path / "live.csv"
    path.write_text("cache,bytes,count\na,64,3\n", encoding="utf-8-sig")
    rows = c.read_histogram(path)
    assert list(rows) == [("a", 64, 3)]
    with pytest.raises(sl.ConfigError, match=r'histogram\[1\] = "a" again: each cache once'):
        sl.run(allocator="slub", workload=sl.Boot(source="histogram", histogram=[*rows, *rows]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["geometry", "--allocator", "slub", "--size", "64", "--set", "machine.cpus=3"],
            "a parameter of the allocator",
        ),
        (["machine", "show", "opteron-2x4-2007", "--set", "allocator.order=1"], "a parameter of the machine"),
        (["bench", "workloads", "--set", "workload.clients=1"], "a parameter of the machine or the allocator"),
    ],
)
def test_a_set_of_another_part_is_refused(words, said: str, capsys):
    from slablab import cli

    assert cli.main(words) == 2
    assert said in capsys.readouterr().err


def test_a_cache_is_looked_up_without_flags():
    k = sl.Kernel("opteron-2x4-2007", "slub")
    made = k.cache("a", 64, align=np.int64(16), ctor=np.bool_(True))
    assert k.cache("a") is made
    with pytest.raises(sl.ConfigError, match=r"cache\.align = 64: a size with it"):
        k.cache("a", align=64)
    with pytest.raises(sl.ConfigError, match='kind = "foo": known: normal, reclaimable, dma, accounted'):
        k.kmalloc(100, kind="foo")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--allocator", "slub", "--seconds", "0.01", "--set", "workload.seconds=0.02"],
        ["run", "--allocator", "slub", "--set", "workload.clients=1", "--set", "workload.clients=2"],
        ["sweep", "--allocator", "slub", "--over", "workload.clients=1,2", "--set", "workload.clients=4"],
        ["geometry", "--allocator", "slub", "--size", "64", "--debug", "Z", "--set", "allocator.debug=P"],
    ],
)
def test_two_values_of_one_parameter_are_refused(words, capsys):
    from slablab import cli

    assert cli.main(words) == 2
    assert "it is set twice" in capsys.readouterr().err


def test_a_stored_run_takes_no_options_of_a_run(tmp_path, capsys):
    from slablab import cli

    stored = ["slabinfo", "-T", "--store", str(tmp_path / "runs.db"), "--key", "55"]
    for option in (["--machine", "small-2008"], ["--set", "workload.clients=2"], ["--seed", "9"]):
        assert cli.main([*stored, *option]) == 2
        assert f"{option[0]} = " in capsys.readouterr().err


def test_further_runs_of_a_result_have_its_seed_and_store(tmp_path):
    kept = tmp_path / "runs.db"
    made = sl.reproduce("enberg-2008-boot-memory", quick=True, seed=50, seeds=1, store=str(kept))
    had = len(sl.Store(kept).sweep())
    made.ablations(seeds=1)
    rows = sl.Store(kept).sweep().summary()
    assert set(rows["seed"]) == {50}
    assert len(rows) > had
    for wrong in (0, -1, "2", 1.5):
        with pytest.raises(sl.ConfigError, match=r"seeds = .*: 1 or more"):
            made.ablations(seeds=wrong)
    with pytest.raises(sl.ConfigError, match=r"ax = 3: axes of matplotlib"):
        made.plot(ax=3)


def test_figures_that_cannot_be_drawn_say_why():
    pytest.importorskip("matplotlib")
    grid = sl.sweep(allocator=["slab", "slub"], workload=sl.Tbench(clients=1, seconds=0.002, warmup=0.0))
    with pytest.raises(sl.ConfigError, match='x = "allocator": a swept parameter'):
        sl.plot.scaling(grid, x="allocator")
    with pytest.raises(sl.ConfigError, match="row = None: the name of a column"):
        sl.plot.multiples(grid, x="clients", row=None)
    unsteady = grid.summary().assign(steady=False)
    with pytest.raises(sl.ConfigError, match="no run in its steady state"):
        sl.plot.multiples(unsteady, x="clients")
