"""Bad input: one line that names the parameter, the value and what would be right, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import slablab as sl
from slablab import cli


def run(**parts):
    return lambda: sl.run(**({"allocator": "null", "workload": "tbench"} | parts))


def sweep(**parts):
    return lambda: sl.sweep(**({"allocator": "null", "workload": "tbench"} | parts))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (run(allocator="slubb"), ["allocator", "slubb", 'did you mean "slub"']),
        (run(allocator="slub@3.22"), ["era of slub", "3.22", "2.6.24"]),
        (lambda: sl.Slub("2.6.23"), ["era of slub", "2.6.23", "2.6.24"]),
        (run(machine="opteron"), ["machine", "opteron", "opteron-2x4-2007"]),
        (run(workload="tbenhc"), ["workload", "tbenhc", 'did you mean "tbench"']),
        (run(workload=7), ["workload", "7", "a name"]),
        (lambda: sl.Slub(min_partal=3), ["allocator.min_partal", 'did you mean "min_partial"']),
        (lambda: sl.Allocator("slub", min_partal=3), ["allocator.min_partal", 'did you mean "min_partial"']),
        (lambda: sl.Tbench(client=3), ["workload.client", 'did you mean "clients"']),
        (lambda: sl.Sim(l2_latt=3), ["machine.l2_latt", 'did you mean "l2_lat"']),
        (lambda: sl.Sim("native"), ["machine", "Native()"]),
        (run(workload=sl.Tbench(clients=0)), ["workload.clients = 0", "1.."]),
        (run(machine=sl.Sim(cpus=0)), ["machine.cpus = 0", "1..8"]),
        (run(machine=sl.Native(cpus=0)), ["machine.cpus = 0", "1.."]),
        (run(machine=sl.Sim(cpus=100000)), ["machine.cpus = 100000", "1..8"]),
        (run(machine=sl.Sim(arena_per_node=1)), ["machine.arena_per_node", "1 MiB", "8 MiB"]),
        (run(allocator=sl.Slub(order=11)), ["allocator.order = 11", "0..10"]),
        (run(allocator=sl.Slab(order=11)), ["allocator.order = 11", "0..10"]),
        (run(allocator=sl.Slqb(order=11)), ["allocator.order = 11", "0..10"]),
        (run(workload=sl.Script(ops=[{"op": {"free": {"slot": 3}}}])), ["workload.ops[0]", "slot"]),
        (run(workload=sl.Script(ops=[{"op": {"allok": {}}}])), ["workload.ops", "allok"]),
        (run(seed=-1), ["seed = -1", "from 0"]),
        (run(seed=1.5), ["seed = 1.5", "whole number"]),
        (run(seed="x"), ['seed = "x"', "whole number"]),
        (run(seed=True), ["seed = True", "whole number"]),
        (run(allocator="slub@"), ["era of slub", '""', "2.6.24"]),
        (lambda: sl.Allocator("slub@"), ["era of slub", '""', "2.6.24"]),
        (lambda: sl.Allocator("slub@2.6.24", "2.6.24-rc2"), ["allocator.era", "2.6.24-rc2", "no era after @"]),
        (lambda: sl.Allocator(3), ["allocator = 3", "a name"]),
        (lambda: sl.Slub(3), ["era of slub = 3", "2.6.24"]),
        (lambda: sl.Slub("2.6.24", 3), ["allocator = 3", "by name"]),
        (lambda: sl.Slub("2.6.24", era="2.6.24"), ["allocator.era", "given once"]),
        (lambda: sl.Slub(min_partal=3), ["allocator.min_partal = 3", 'did you mean "min_partial"']),
        (lambda: sl.Sim(3), ["machine = 3", "a name"]),
        (lambda: sl.Sim(None), ["machine = None", "a name"]),
        (lambda: sl.Sim(placement=3), ["machine.placement = 3", "packed"]),
        (lambda: sl.Sim(mem_local="x"), ['machine.mem_local = "x"', "a number"]),
        (lambda: sl.Sim(mem_local=[3]), ["machine.mem_local = [3]", "a number"]),
        (lambda: sl.Native(3), ["machine = 3", "by name"]),
        (run(machine=sl.Sim(cpus=1.5)), ["machine.cpus = 1.5", "whole number"]),
        (run(machine=sl.Native(cpus="2")), ['machine.cpus = "2"', "whole number"]),
        (lambda: sl.Workload(None), ["workload = None", "a name"]),
        (run(workload=sl.Tbench(clients=1.5)), ["workload.clients = 1.5", "connections"]),
        (run(workload=sl.Tbench(clients="2")), ['workload.clients = "2"', "a whole number, 0 or more", "connections"]),
        (run(workload=sl.Tbench(seconds=1e-300)), ["workload.seconds = ", "0.000001..3600"]),
        (
            run(workload=sl.Script(ops=[], caches=[{"name": "a", "size": 8, "algin": 8}])),
            ["workload.caches[0]", "algin"],
        ),
        (run(workload=sl.Script(ops=[], caches=[{"name": "a b", "size": 8}])), ["workload.caches[0].name", "blanks"]),
        (run(machine=sl.Sim(residency="exact", l1d=1e9)), ["machine.l1d = 1000000000", "at most 65536 KiB"]),
        (run(machine=sl.Sim(copy_bw_mem=3)), ["machine.copy_bw_mem", "does not use it"]),
        (run(machine=sl.Sim(idle_states="deep")), ["machine.idle_states", "c1 or poll"]),
        (run(machine=sl.Sim(arena_per_node=1e9)), ["machine.arena_per_node = 1000000000 MiB", "at most"]),
        (run(machine=sl.Sim(memory=0)), ["machine.memory = 0", "at least 8 MiB"]),
        (sweep(allocator="slub@2.6.22", over={"allocator.order": [0, 10]}), ["allocator.order = 10"]),
        (run(workload=sl.Tbench(clients=float("nan"))), ["workload.clients = nan", "finite"]),
        (run(workload=sl.Tbench(clients=object())), ["workload.clients", "a number"]),
        (run(workload=sl.Tbench(clients=10**400)), ["config", "in range"]),
        (run(workload=sl.Script(ops=[{"op": {"kfree": {"slot": 0}}}], caches=[{"name": 3}])), ["workload.caches[0]"]),
        (lambda: sl.Script(ops=3), ["workload.ops = 3", "a list"]),
        (lambda: sl.Script(ops="abc"), ["workload.ops", "a list"]),
        (lambda: sl.Script(ops=[{"op": {"free": {"slot": 0}}}, 3]), ["workload.ops[1] = 3", "an entry"]),
        (
            run(workload=sl.Script(ops=[{"op": {"free": {"slot": "x"}}}])),
            ["workload.ops[0]", "slot", "expected a whole number"],
        ),
        (
            run(workload=sl.Script(ops=[{"op": {"kmalloc": {"slot": 0, "bytes": float("inf")}}}])),
            ["workload.ops[0].op.kmalloc.bytes = inf", "finite"],
        ),
        (sweep(over=[1]), ["over = [1]", "axes"]),
        (sweep(over={3: [1]}), ["over = 3", "dotted"]),
        (sweep(over={"workload.clients": "12"}), ["workload.clients", "list or range"]),
        (sweep(over={"workload.clients": {"a": 1}}), ["workload.clients", "list or range"]),
        (sweep(over={"workload.clients": [1, float("nan")]}), ["workload.clients = nan", "finite"]),
        (sweep(over={"workload.clients": [1, "x"]}), ['workload.clients = "x"', "connections"]),
        (sweep(over={"workload.clients": [[1]]}), ["workload.clients = [1]", "connections"]),
        (sweep(over={"allocator.name": ["slab"]}), ["over", "allocator.name"]),
        (sweep(over={"allocator.era": [3]}), ["era of null = 3", "known: 1"]),
        (sweep(over={"machine": [3]}), ["machine = 3", "a name"]),
        (sweep(over={"workload.clients": range(1, 10**7 + 1)}), ["10000000 cells", "at most 100000", "sample=100000"]),
        (sweep(over={"workload.clients": iter(range(10**7))}), ["more than 1000000 values", "range"]),
        (sweep(repeats="2"), ['repeats = "2"', "1 or more"]),
        (sweep(repeats=2.0), ["repeats = 2.0", "1 or more"]),
        (sweep(repeats=10**9), ["repeats = 1000000000", "at most"]),
        (sweep(threads=1.5), ["threads = 1.5", "1 or more"]),
        (sweep(threads="2"), ['threads = "2"', "1 or more"]),
        (sweep(seeds=5), ["seeds = 5", "list or range"]),
        (sweep(seeds=[1, 2], repeats=5), ["seeds = [1, 2]", "repeats=5"]),
        (sweep(allocator={"slub": 1}), ["allocator", "a name"]),
        (lambda: sl.plan(allocator="null", workload="tbench", store=""), ['store = ""', "runs.db"]),
        (lambda: sl.plan(allocator="null", workload="tbench", store="/nonexistent/x.db"), ["store", "exists"]),
        (sweep(seeds="12"), ['seeds = "12"', "list or range"]),
        (sweep(seeds=[1, "x"]), ['seed = "x"', "whole number"]),
        (sweep(seed=2**63 - 1, repeats=2), ["seed", "2^63"]),
        (sweep(sample=0), ["sample = 0", "1 or more"]),
        (sweep(sample="x"), ['sample = "x"', "1 or more"]),
        (lambda: sl.Sample(3, "square"), ['sample.method = "square"', "latin"]),
        (lambda: sl.Sample(0), ["sample.count = 0", "1.."]),
        (sweep(executor=3), ["executor = 3", "Executor"]),
        (sweep(allocator=3), ["allocator = 3", "a name"]),
        (sweep(allocator=["slub", 3]), ["allocator = 3", "a name"]),
        (sweep(allocator=[]), ["allocator = []", "at least one"]),
        (lambda: sl.reproduce(3), ["reproduce = 3", "piggin-2007-tbench"]),
        (lambda: sl.reproduce("piggin-2007-tbench", seeds="x"), ['seeds = "x"', "1 or more"]),
        (lambda: sl.plot.throughput(3), ["frame = 3", "a Sweep"]),
        (sweep(over={}), ["over = {}", "at least one axis"]),
        (sweep(over={"workload.clients": []}), ["workload.clients", "at least one value"]),
        (sweep(over={"workload.clients": 3}), ["workload.clients", "3", "list or range"]),
        (sweep(over={"clients": [3]}), ["clients", "dotted"]),
        (sweep(over={"workload.client": [3]}), ["workload.client", 'did you mean "workload.clients"']),
        (sweep(over={"workload.clients": [1, 0]}), ["workload.clients = 0", "1.."]),
        (sweep(allocator=[]), ["at least one"]),
        (sweep(repeats=0), ["repeats = 0", "1 or more"]),
        (sweep(threads=0), ["threads = 0", "1 or more"]),
        (sweep(seeds=[]), ["seeds", "at least one"]),
        (lambda: sl.reproduce("piggin-2007"), ["reproduce", "piggin-2007", "piggin-2007-tbench"]),
        (lambda: sl.reproduce("piggin-2007-tbench", seeds=0), ["seeds = 0", "1 or more"]),
    ],
)
def test_a_bad_configuration_is_a_config_error_of_one_line(call, parts: list[str]):
    with pytest.raises(sl.ConfigError) as raised:
        call()
    message = str(raised.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    assert raised.value.parameter
    assert raised.value.expected
    assert isinstance(raised.value, ValueError)


SWEEP = ["sweep", "--allocator", "null", "--seconds", "0.01", "--over"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "COMMAND"),
        (["nonsense"], "nonsense"),
        (["run"], "--allocator"),
        (["run", "--allocator", "slubb"], 'did you mean "slub"'),
        (["run", "--allocator", "slub@9.9"], "era of slub"),
        (["run", "--allocator", "null", "--machine", "opteron"], "opteron-2x4-2007"),
        (["run", "--allocator", "null", "--workload", "tbenhc"], "tbench"),
        (["run", "--allocator", "null", "--seed", "-1"], "seed = -1"),
        (["run", "--allocator", "null", "--seed", "x"], "--seed"),
        (["run", "--allocator", "null", "--set", "clients=3"], "dotted name"),
        (["run", "--allocator", "null", "--set", "workload.client=3"], 'did you mean "clients"'),
        (["run", "--allocator", "null", "--set", "workload.clients=x"], "workload.clients"),
        (["run", "--allocator", "null", "--seconds", "0"], "workload.seconds"),
        (["run", "--allocator", "null", "--csv", "/nonexistent/a.csv"], "/nonexistent"),
        ([*SWEEP, "workload.clients="], "at least one value"),
        ([*SWEEP, "workload.clients=1,,2"], "between commas"),
        ([*SWEEP, "workload.clients=4..1"], "LOW at most HIGH"),
        ([*SWEEP, "workload.clients=1..99999999999999999999"], "64 bits"),
        ([*SWEEP, "workload.clients=1", "--sample-seed", "3"], "--sample N"),
        (["run", "--allocator", "null", "--set", "machine.name=native"], "--machine"),
        (["run", "--allocator", "slub@2.6.24", "--set", "allocator.era=6.1"], "without an era"),
        ([*SWEEP, "workload.clients=1..x"], "whole numbers"),
        ([*SWEEP, "workload.clients"], "NAME=VALUES"),
        ([*SWEEP, "workload.clients=0"], "workload.clients = 0"),
        ([*SWEEP, "machine.cpus=0"], "machine.cpus = 0"),
        ([*SWEEP, "machine.cpus=100000"], "machine.cpus = 100000"),
        ([*SWEEP, "allocator.order=11", "--allocator", "slub"], "allocator.order = 11"),
        ([*SWEEP, "workload.clients=1", "--repeats", "0"], "repeats = 0"),
        ([*SWEEP, "workload.clients=1", "--csv", "/nonexistent/a.csv"], "/nonexistent"),
        ([*SWEEP, "workload.clients=1", "--png", "/nonexistent/a.png"], "/nonexistent"),
        (["reproduce", "piggin"], "piggin-2007-tbench"),
        (["reproduce", "piggin-2007-tbench", "--csv", "/nonexistent/a.csv"], "/nonexistent"),
    ],
)
def test_a_bad_command_is_one_line_and_status_2(arguments: list[str], part: str, capsys, monkeypatch):
    def never(*_, **__):
        raise AssertionError("ran before the error was found")

    monkeypatch.setattr("slablab._core.run_many", never)
    try:
        status = cli.main(arguments)
    except SystemExit as left:
        status = left.code
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("# ")]
    assert status == 2
    assert len(said) == 1
    assert part in said[0]


def test_an_output_path_is_left_as_it_was(tmp_path: Path, capsys):
    old = tmp_path / "old.csv"
    old.write_text("mine")
    assert cli.main(["run", "--allocator", "slubb", "--csv", str(old)]) == 2
    assert cli.main(["run", "--allocator", "slubb", "--csv", str(tmp_path / "new.csv")]) == 2
    assert old.read_text() == "mine"
    assert not (tmp_path / "new.csv").exists()
