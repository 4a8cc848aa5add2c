"""Machines: shown with every source, read from files, refused by the key; and the figures of where time went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slablab as sl
from slablab.cli import main
from slablab.cli.completion import candidates

# Of the table of machines, but the model has another figure in their place.
UNUSED = {"l1_lat", "copy_bw_mem"}
NAMES = [m["name"] for m in sl.catalog()["machines"] if m["simulated"]]


def shell(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_shown_with_every_source(name: str, capsys: pytest.CaptureFixture[str]):
    out = shell(capsys, "machine", "show", name)
    for key, value in next(m for m in sl.catalog()["machines"] if m["name"] == name)["values"].items():
        line = next(x for x in out.splitlines() if x.startswith(f"{key} "))
        assert value["source"] in line
        assert value["confidence"] in line
    machine = json.loads(shell(capsys, "machine", "show", name, "--json"))
    assert machine["values"].keys() == next(m for m in sl.catalog()["machines"] if m["name"] == name)["values"].keys()


def test_any_figure_can_be_replaced_by_name(capsys: pytest.CaptureFixture[str]):
    for key, value in sl.catalog()["machines"][0]["values"].items():
        if isinstance(value["value"], str):
            continue
        if key in UNUSED:
            with pytest.raises(sl.ConfigError, match=f"machine.{key} = .*the model does not use it"):
                sl.Sim(**{key: value["value"]}).figures()
            continue
        frame = sl.Sim(**{key: value["value"]}).figures().set_index("figure")
        assert frame.loc[key, "source"] == "set by the user"
    out = shell(capsys, "machine", "show", "opteron-2x4-2007", "--set", "machine.mem_local=80")
    assert any(x.split()[:3] == ["mem_local", "80", "ns"] and "set by the user" in x for x in out.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_written_to_a_file_is_the_same_machine(name: str, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(sl.Sim(name).toml())
    mine = sl.Sim(str(path))
    assert repr(mine) == f"Sim({str(path)!r})"
    assert mine.figures().equals(sl.Sim(name).figures())


def test_a_run_on_a_file_is_the_run_on_the_preset_and_carries_its_figures(tmp_path: Path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(shell(capsys, "machine", "show", "woodcrest-2x2", "--toml").replace('"woodcrest-2x2"', '"mine"'))
    short = sl.Tbench(clients=2, seconds=0.002, warmup=0.002)
    mine = sl.run(machine=sl.Sim(str(path), cpus=2), allocator="slub", workload=short)
    preset = sl.run(machine=sl.Sim("woodcrest-2x2", cpus=2), allocator="slub", workload=short)
    assert mine.throughput == preset.throughput
    assert mine.config["machine"]["name"] == "mine"
    # The result knows its machine when the file is gone.
    path.unlink()
    machine = mine.config["machine"]
    again = sl.Sim(machine["name"], cpus=2, values=machine["values"])
    assert sl.run(machine=again, allocator="slub", workload=short).to_json() != ""
    grid = sl.sweep(machine=again, allocator="slub", workload=short, over={"machine.cpi": [1.0, 4.0]})
    assert grid.summary()["throughput"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("[values.mem_local]", "[values.mem_locl]", 'did you mean "mem_local"'),
        ('source = "knowledge"', "", "source = nothing"),
        ("value = 95", "value = 0", "machine.mem_local = 0: more than 0"),
        ("value = 95", "value = -95", "machine.mem_local = -95"),
        ("value = 95", "value = ", "line"),
        ('name = "mine"', 'nam = "mine"', 'did you mean "name"'),
        ('name = "mine"', 'name = "opteron-2x4-2007"\n[values.hz]\nvalue = 100', "Cannot declare"),
    ],
)
def test_a_bad_file_is_refused_by_its_key(old: str, new: str, part: str, tmp_path: Path):
    text = sl.Sim().toml().replace('name = "opteron-2x4-2007"', 'name = "mine"')
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(sl.ConfigError) as e:
        sl.Sim(str(path))
    assert part in str(e.value)


def test_what_is_no_file_is_refused(tmp_path: Path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(sl.ConfigError, match=r"a machine file that can be read|known"):
            sl.Sim(str(path))


@pytest.mark.parametrize(
    ("figures", "part"),
    [
        ({"sockets": 0}, "machine.sockets = 0"),
        ({"cpus": 193}, "machine.cpus = 193"),
        ({"sockets": 193, "cores_per_socket": 1}, "machine.sockets = 193"),
        ({"sockets": 2, "numa_nodes": 3}, "machine.numa_nodes = 3"),
        ({"sockets": 2, "nodes": 3}, "machine.nodes = 3"),
        ({"clock_ghz": 0}, "machine.clock_ghz = 0"),
        ({"l2_kb": -5}, "machine.l2_kb = -5"),
        ({"sockets": "2"}, 'machine.sockets = "2": a number, as 2'),
        ({"mem_local": -1}, "machine.mem_local = -1"),
        ({"l2_lat": 0}, "machine.l2_lat = 0: more than 0"),
    ],
)
def test_a_machine_that_cannot_be_is_refused_by_name(figures: dict[str, int], part: str):
    with pytest.raises(sl.ConfigError) as e:
        sl.Sim(**figures).figures()
    assert part in str(e.value)
    with pytest.raises(sl.ConfigError, match="more than 192"):
        sl.Sim("epyc-genoa-2x96", smt=2).figures()


def test_presets_are_completed_behind_machine_show():
    assert "xeon-spr-2x56" in candidates("slablab machine show ")
    assert "validate" in candidates("slablab va")


@pytest.fixture(scope="module")
def grid() -> sl.Sweep:
    short = sl.Tbench(seconds=0.002, warmup=0.002)
    over = {"workload.clients": [2, 8]}
    return sl.sweep(allocator=["slab", "slob"], workload=short, over=over, repeats=2)


def test_time_is_drawn_whole(grid: sl.Sweep):
    axes = sl.plot.time(grid)
    assert [a.get_title() for a in axes] == ["slab", "slob"]
    for axis in axes:
        top = axis.collections[-1].get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx(100, abs=0.1)
    assert axes[0].get_ylabel() == "share of CPU time (%)"
    one = sl.plot.time(grid[0], col=None)[0]
    assert sum(p.get_height() for p in one.patches) == pytest.approx(100, abs=0.1)
    with pytest.raises(sl.ConfigError, match="x = "):
        sl.plot.time(grid, x="klients")


def test_latency_is_drawn_per_operation_and_path(grid: sl.Sweep):
    axes = sl.plot.latency(grid)
    assert [a.get_title() for a in axes] == ["allocations", "frees"]
    labels = [t.get_text() for t in axes[0].get_yticklabels()]
    assert any(x.startswith("slab") and "fast" in x for x in labels)
    assert any(x.startswith("slob") for x in labels)
    with pytest.raises(sl.ConfigError, match="frame = "):
        sl.plot.latency(3)  # type: ignore[arg-type]


def test_waits_are_symmetric_and_part_of_the_time(grid: sl.Sweep):
    waits = grid.waits()
    sums = waits.groupby("lock")[["waited_ps", "waited_for_ps"]].sum()
    assert (sums["waited_ps"] == sums["waited_for_ps"]).all()
    assert sums["waited_ps"].sum() > 0
    time = grid.time()
    assert sums["waited_ps"].sum() == time[time["part"].str.startswith("waiting")]["time_ps"].sum()
