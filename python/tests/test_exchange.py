"""Frames for others: Arrow consumers, xarray, notebooks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pandas as pd
import pytest
from conftest import SHORT

import slablab as sl
from slablab.progress import Progress

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
xr = pytest.importorskip("xarray")


def same(ours: pd.Series, theirs: list[object]) -> bool:
    mine = [None if pd.isna(v) else v for v in ours.tolist()]
    return mine == [None if isinstance(v, float) and np.isnan(v) else v for v in theirs]


@pytest.mark.parametrize("frame", ["summary", "caches", "stats", "locks", "pages"])
def test_arrow_consumers_get_the_values_of_the_pandas_frame(grid: sl.Sweep, frame: str):
    ours = getattr(grid, frame)()
    stream = grid.to_arrow(frame)
    arrow, polars = pa.table(stream), pl.DataFrame(stream)
    assert len(stream) == len(ours) == arrow.num_rows == polars.height
    assert duckdb.sql("SELECT count(*) FROM stream").fetchall() == [(len(ours),)]
    for name in ours.columns:
        assert same(ours[name], arrow[name].to_pylist()), name
        assert same(ours[name], polars[name].to_list()), name


def test_results_and_sweeps_are_arrow_streams_themselves(grid: sl.Sweep):
    assert pa.table(grid).num_rows == len(grid)
    assert pl.DataFrame(grid[0])["throughput"].to_list() == [grid[0].throughput]
    assert pa.table(grid)["order"].null_count == 4
    assert str(pa.table(grid)["clients"].type) == "int64"
    assert "ArrowTable of 12 rows" in repr(grid.to_arrow())
    with pytest.raises(sl.ConfigError, match="did you mean"):
        grid.to_arrow("cache")


def test_the_stream_does_not_load_pandas():
    code = textwrap.dedent("""
        import sys, slablab as sl, polars as pl
        grid = sl.sweep(allocator="null", workload=sl.Tbench(seconds=0.001, warmup=0.0), repeats=2)
        print(pl.DataFrame(grid.to_arrow("stats")).height > 0, "pandas" in sys.modules, "pyarrow" in sys.modules)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


def test_an_empty_sweep_is_an_empty_stream():
    assert pa.table(sl.Sweep([]).to_arrow()).num_rows == 0
    with pytest.raises(sl.ConfigError, match="at least one run"):
        sl.Sweep([]).to_xarray()


def test_xarray_has_a_dimension_per_axis(grid: sl.Sweep):
    data = grid.to_xarray()
    assert dict(data.sizes) == {"allocator": 2, "clients": 2, "order": 3, "repeat": 2}
    frame = grid.summary()
    for at in range(len(frame)):
        row = frame.iloc[at]
        place = data["throughput"].sel(allocator=f"{row['allocator']}@{row['era']}", clients=row["clients"])
        orders = [-1 if pd.isna(v) else v for v in data["order"].values]
        order = orders.index(-1 if pd.isna(row["order"]) else row["order"])
        assert float(place.isel(order=order, repeat=row["repeat"])) == row["throughput"]
    assert int(data["throughput"].notnull().sum()) == len(frame)
    assert data.attrs["unit"] == "MB/s"


def test_xarray_keeps_cells_apart_that_no_axis_names():
    machines = [sl.Sim(cpus=2), sl.Sim(cpus=4)]
    grid = sl.sweep(machine=machines, allocator="null", workload=sl.Tbench(**SHORT))
    assert grid.to_xarray()["throughput"].notnull().sum() == 2


@pytest.mark.parametrize("package", ["nanoarrow", "xarray", "matplotlib"])
def test_a_missing_extra_is_one_line_that_says_how_to_get_it(package: str, without, grid: sl.Sweep):
    figure = partial(sl.plot.throughput, grid)
    use = {"nanoarrow": grid.to_arrow, "xarray": grid.to_xarray, "matplotlib": figure}[package]
    without(package)
    with pytest.raises(sl.MissingExtra) as raised:
        use()
    assert "\n" not in str(raised.value)
    assert 'pip install "slablab[' in str(raised.value)


def test_notebooks_show_configs_results_sweeps_and_plans(grid: sl.Sweep, tbench: sl.Tbench):
    for shown, part in [
        (sl.Slub(order=3), "<td"),
        (sl.Sim(cpus=4), "opteron-2x4-2007"),
        (tbench, "clients"),
        (grid[0], "throughput"),
        (grid, "slob"),
        (sl.Sweep([]), "0 runs"),
        (sl.plan(allocator="slub", workload=tbench), "combinations"),
    ]:
        text = shown._repr_html_()
        assert text.startswith("<div")
        assert part in text
    assert "<script>" not in sl.Workload("script", ops=[{"op": "<script>"}])._repr_html_()


def test_progress_says_cells_rate_and_time_left(capsys):
    with Progress(4, shown=True) as bar:
        bar._began -= 10
        bar.step()
        assert "1/4 runs" in bar.words()
        assert "10 s per run, 30 s left" in bar.words()
        bar.step(3)
        assert "took" in bar.words()
    said = capsys.readouterr().err
    assert said.endswith("\x1b[K\n")
    assert "4/4 runs" in said
    with Progress(4, shown=False) as bar:
        bar.step()
    assert capsys.readouterr().err == ""


def test_progress_in_a_notebook_updates_one_display(monkeypatch):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what._repr_html_())

    monkeypatch.setattr("slablab.progress._display", lambda text: Handle())
    with Progress(2, shown=True) as bar:
        bar.step(2)
    assert 'value="2" max="2"' in shown[-1]
