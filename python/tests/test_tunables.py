"""SLUB's tunables from Python and the shell: each is reachable, each refusal says what is right and since when."""

from __future__ import annotations

import json
from typing import Any

import pytest

import slablab as sl
from slablab.cli import main

TINY = ["--workload", "tbench", "--set", "workload.warmup=0", "--seconds", "0.002", "--set", "machine.cpus=2"]

REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("3.3", {}, ["era of slub", "3.3", 'did you mean "3.', "2.6.21-mm1, 2.6.22", "7.1"]),
    ("6.1", {"max_order": -1}, ["allocator.max_order = -1", "0..10 (since 2.6.22)"]),
    ("6.1", {"max_order": 11}, ["allocator.max_order = 11", "0..10 (since 2.6.22)"]),
    ("6.1", {"min_order": 11}, ["allocator.min_order = 11", "0..10 (since 2.6.22)"]),
    ("6.1", {"order": -1}, ["allocator.order = -1", "0..10", "(since 2.6.22)"]),
    ("6.1", {"min_objects": 0}, ["allocator.min_objects = 0", "1..65536 (since 2.6.22)", "by_cpus", "(since 2.6.26)"]),
    ("6.1", {"debug": "Q"}, ["allocator.debug", "Q", "F Z P U T (since 2.6.22), O (2.6.32), A (2.6.34)"]),
    ("2.6.24", {"debug": "FO"}, ["allocator.debug", "FO", "O exists since 2.6.32"]),
    ("6.8", {"sheaf_capacity": 32}, ["allocator.sheaf_capacity = 32", "none in 6.8", "since 6.18"]),
    ("2.6.24", {"cpu_partial": 30}, ["allocator.cpu_partial = 30", "none in 2.6.24", "from 3.2 to 6.18"]),
    ("7.1", {"cpu_partial": 30}, ["allocator.cpu_partial = 30", "none in 7.1", "from 3.2 to 6.18"]),
    ("2.6.24", {"barn_max_full": 3}, ["allocator.barn_max_full = 3", "10 in 2.6.24", "since 6.18"]),
    (
        "6.1",
        {"remote_node_defrag_ratio": 1025},
        ["allocator.remote_node_defrag_ratio = 1025", "0..1024 (since 2.6.22)"],
    ),
    ("6.1", {"per_cache": "dentry:order=11"}, ["allocator.per_cache", "order of 0..10"]),
    ("2.6.24", {"per_cache": "dentry:cpu_partial=3"}, ["allocator.per_cache", "from 3.2 to 6.18"]),
    ("6.1", {"per_cache": "dentry:colour=3"}, ["allocator.per_cache", "parameters order", "since 6.18"]),
]


@pytest.mark.parametrize(("era", "given", "parts"), REFUSED, ids=[f"{e} {g}" for e, g, _ in REFUSED])
def test_each_refusal_names_parameter_value_what_is_right_and_since_when(
    era: str, given: dict[str, Any], parts: list[str], capsys: pytest.CaptureFixture[str]
):
    calls = [
        lambda: sl.run(allocator=sl.Slub(era, **given), workload=sl.Tbench(seconds=0.002, warmup=0.0)),
        lambda: sl.geometry(f"slub@{era}", 192, **given),
        lambda: sl.Kernel(sl.Sim(cpus=1), sl.Slub(era, **given)).cache("a", 8),
    ]
    for call in calls:
        with pytest.raises(sl.ConfigError) as caught:
            call()
        for part in parts:
            assert part in str(caught.value)
        assert {"parameter", "value", "expected"} <= set(vars(caught.value))
    words = ["run", "--allocator", f"slub@{era}", *TINY]
    for name, value in given.items():
        words += ["--set", f"allocator.{name}={value}"]
    capsys.readouterr()
    assert main(words) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("# ")]
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]


def files(allocator: Any, cache: str = "test", **spec: Any) -> dict[str, str]:
    k = sl.Kernel(sl.Sim(cpus=2), allocator)
    return k.cache(cache, **({"size": 512} | spec)).sysfs()


def test_every_tunable_of_the_kernel_is_reachable():
    assert files(sl.Slub("6.1", order=0))["order"] == "0"
    assert files(sl.Slub("6.1", min_order=3))["order"] == "3"
    assert files(sl.Slub("6.1", max_order=0))["objs_per_slab"] == "8"
    assert files(sl.Slub("6.1", min_objects=16, max_order=4))["objs_per_slab"] == "16"
    assert files(sl.Slub("6.1", min_partial=9))["min_partial"] == "9"
    assert files(sl.Slub("6.1", cpu_partial=7))["cpu_partial"] == "7"
    assert files(sl.Slub("6.1", cpu_partial="none"))["cpu_partial"] == "0"
    assert files(sl.Slub("6.1", remote_node_defrag_ratio=500))["remote_node_defrag_ratio"] == "50"
    assert files(sl.Slub("6.18", sheaf_capacity=32))["sheaf_capacity"] == "32"
    assert files(sl.Slub("7.1", sheaf_capacity=32))["sheaf_capacity"] == "32"
    assert sl.Kernel(sl.Sim(cpus=2), sl.Slub("6.1")).cache("kmalloc_like", 512).sysfs()["aliases"] == "1"
    assert files(sl.Slub("6.1", merge=False))["aliases"] == "0"
    # F alone does not keep caches apart.
    letters = {"F": "sanity_checks", "Z": "red_zone", "P": "poison", "U": "store_user", "T": "trace", "A": "failslab"}
    for letter, file in letters.items():
        assert files(sl.Slub("6.1", debug=letter))[file] == "1"
        assert files(sl.Slub("6.1", debug=f"{letter},other"))[file] == "0"
        assert files(sl.Slub("6.1", debug=f"{letter},te*", merge=False))[file] == "1"
        assert files(sl.Slub("3.1", debug=f"{letter},te", merge=False))[file] == "1"
    assert files(sl.Slub("6.1", debug="ZPUO"), size=4096)["slab_size"] == "4096"
    assert files(sl.Slub("6.1", debug="ZPU"), size=4096)["slab_size"] != "4096"


def test_barn_limits_bound_the_barns():
    def full(limit: int) -> int:
        caches = [{"name": "test", "size": 512}]
        ops: list[Any] = [{"op": {"alloc": {"cache": 0, "slot": n}}} for n in range(800)]
        ops += [{"op": {"free": {"slot": n}}} for n in range(800)]
        ops.append({"op": {"checkpoint": {"name": "end"}}})
        allocator = sl.Slub("7.1", sheaf_capacity=16, barn_max_full=limit)
        one = sl.run(machine=sl.Sim(cpus=1), allocator=allocator, workload=sl.Script(caches=caches, ops=ops))
        return int(one.checkpoints[0]["caches"][0]["node"][0]["barn_full"])

    assert [full(limit) for limit in (0, 3, 10)] == [0, 3, 10]


def test_single_caches_have_tunables_of_their_own():
    allocator = sl.Slub(
        "6.1", per_cache="dentry:order=0,min_partial=20,cpu_partial=0;kmalloc-5*:min_objects=64,max_order=4"
    )
    dentry = files(allocator, "dentry")
    assert [dentry[f] for f in ("order", "min_partial", "cpu_partial", "aliases")] == ["0", "20", "0", "0"]
    other = files(allocator, "other", size=500)
    assert [other[f] for f in ("order", "min_partial", "cpu_partial")] == ["1", "5", "52"]
    one = sl.run(machine=sl.Sim(cpus=2), allocator=allocator, workload=sl.Tbench(seconds=0.002, warmup=0.0))
    assert one.sysfs("kmalloc-512")["objs_per_slab"] == "64"
    assert one.sysfs("kmalloc-64")["objs_per_slab"] == "64"
    assert sl.geometry(allocator, 512, kmalloc=True).order == 3
    assert files(sl.Slub("6.18", per_cache="test:sheaf_capacity=40"))["sheaf_capacity"] == "40"
    assert files(sl.Slub("7.1", per_cache="test:sheaf_capacity=0"))["sheaf_capacity"] == "0"
    swept = sl.sweep(
        allocator="slub@6.1",
        workload=sl.Tbench(seconds=0.002, warmup=0.0),
        over={"allocator.per_cache": ["", "kmalloc-512:order=0"]},
    )
    assert [r.sysfs("kmalloc-512")["order"] for r in swept] == ["2", "0"]


def test_run_time_changes_are_steps_of_a_script_with_the_kernel_s_refusals():
    def after(era: str, attribute: str, value: int, **spec: Any) -> dict[str, str]:
        k = sl.Kernel(sl.Sim(cpus=2), sl.Slub(era, **spec.pop("tunables", {})))
        c = k.cache("test", 512, ctor=True)
        c.write(attribute, value)
        # The step is one of the script: the same run shows the same.
        assert k.script.ops[-1]["op"]["write"]["attribute"] == attribute
        return c.sysfs()

    assert after("2.6.31", "min_partial", 99)["min_partial"] == "10", "clamped at first"
    assert after("6.1", "min_partial", 99)["min_partial"] == "99"
    assert after("6.1", "cpu_partial", 33)["cpu_partial"] == "33"
    assert after("2.6.27", "order", 2)["order"] == "2"
    assert after("6.1", "remote_node_defrag_ratio", 50)["remote_node_defrag_ratio"] == "50"
    for era, attribute, value, parts in [
        ("2.6.24", "min_partial", 3, ["cache.min_partial = 3", "since 2.6.30"]),
        ("2.6.24", "cpu_partial", 3, ["cache.cpu_partial = 3", "from 3.2 to 6.18"]),
        ("7.1", "cpu_partial", 3, ["cache.cpu_partial = 3", "from 3.2 to 6.18"]),
        ("6.1", "order", 2, ["cache.order = 2", "from 2.6.26 to 5.8"]),
        ("2.6.31", "order", 9, ["cache.order = 9", "0..3"]),
        ("6.1", "remote_node_defrag_ratio", 101, ["cache.remote_node_defrag_ratio = 101", "0..100"]),
        ("6.1", "slabs", 1, ["cache.slabs = 1", "min_partial (since 2.6.30)"]),
    ]:
        with pytest.raises(sl.ConfigError) as caught:
            after(era, attribute, value)
        for part in parts:
            assert part in str(caught.value)
    with pytest.raises(sl.ConfigError, match="debug flags has no per-CPU partial lists"):
        after("6.1", "cpu_partial", 3, tunables={"debug": "F"})


@pytest.mark.parametrize(
    ("era", "policy"),
    [
        ("2.6.24", {"fast_path": "slab_lock"}),
        ("2.6.24", {"min_partial": 2, "first_free": "head"}),
        ("2.6.31", {"fast_path": "double_cas"}),
        ("3.1", {"cpu_partial": 30}),
        ("6.1", {"cpu_partial": "none"}),
        ("6.1", {"order_search": "halve_from8"}),
        ("6.1", {"cpu_partial_count": "objects"}),
        ("6.1", {"delayed_freezing": True}),
        ("6.1", {"free_pointer": "start"}),
        ("6.1", {"discard_empty": "above"}),
        ("6.1", {"deactivate": "tail_unless_private"}),
        ("6.1", {"named_node": "then_any"}),
        ("6.1", {"freelist_random": True}),
        ("6.1", {"freelist_hardened": True}),
        ("6.1", {"kmalloc_max": 2048}),
        ("2.6.24", {"hw_align": "halved_line"}),
        ("2.6.24", {"atomic_unlock": False}),
        ("2.6.24", {"order_fallback": "min_order"}),
        ("2.6.24", {"min_objects": "by_cpus"}),
        ("2.6.24", {"kmalloc_order3": True}),
        ("7.1", {"sheaf_capacity": 32, "barn_max_full": 10}),
        ("6.18", {"sheaf_capacity": "by_size", "barn_max_empty": 2}),
    ],
)
def test_a_single_policy_can_be_switched_alone(era: str, policy: dict[str, Any]):
    one = sl.run(
        machine=sl.Sim(cpus=2), allocator=sl.Slub(era, **policy), workload=sl.Tbench(seconds=0.002, warmup=0.0)
    )
    assert one.throughput > 0
    used = one.config["allocator"]
    assert {k: used[k] for k in policy} == policy
    default = json.loads(json.dumps(sl.Experiment(allocator=sl.Slub(era), workload="tbench").expand()["allocator"]))
    assert {k for k in default if default[k] != used[k]} <= set(policy)
