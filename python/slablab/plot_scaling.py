"""How things scale: throughput beside where the time went (`plot.scaling`), small multiples (`plot.multiples`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slablab.extras import needed
from slablab.result import Sweep
from slablab.values import refused, shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def scaling(frame: Sweep, *, x: str = "cpus", ax: Sequence[Axes] | None = None) -> list[Axes]:
    """Draws throughput against `x`, and beside it where the time of each allocator's CPUs went.

    Returns the axes: that of throughput, then one per allocator. `ax` are as many axes to draw on.
    """
    from slablab import plot, plot_time

    if not isinstance(frame, Sweep) or not frame.results:
        raise refused("frame", shown(frame), "a Sweep of simulated runs")
    if x == "allocator":
        raise refused("x", shown(x), "a swept parameter, as cpus: each allocator has a panel of its own")
    allocators = len({r.config["allocator"]["name"] for r in frame})
    if ax is None:
        plt = needed("matplotlib.pyplot", "a figure")
        size = (5.0 + 2.1 * allocators, 3.9)
        widths = [2.0, *[1.0] * allocators]
        axes = list(plt.subplots(1, 1 + allocators, figsize=size, width_ratios=widths, layout="constrained")[1])
    else:
        axes = plot._panels(1 + allocators, ax)
    plot.throughput(frame, x=x, ax=axes[0])
    plot_time.time(frame, x=x, ax=axes[1:])
    axes[1].set_ylabel("share of CPU time (%)")
    axes[1].tick_params(labelleft=True)
    for axis in axes[1:]:
        axis.tick_params(labelbottom=True)
        _few_ticks(axis)
    if ax is None:
        plot_time._legend(axes[1:])
    return axes


def multiples(
    frame: pd.DataFrame | Sweep, *, x: str, row: str = "workload", col: str = "cpus", hue: str = "allocator"
) -> list[list[Axes]]:
    """Draws throughput against `x` in small multiples on one page: a row per `row`, a column per `col`.

    Each row has its own unit, and one scale from 0. A unit of time is a cost: less is better, and the row says so. Of
    jobs (`steady` in the frame) only those in their steady state are drawn. Returns the axes, row by row.
    """
    from slablab import plot

    plt = needed("matplotlib.pyplot", "a figure")
    for role, name in (("row", row), ("col", col)):
        if name is None:
            raise refused(role, name, "the name of a column; plot.throughput draws one panel")
    data, x, hue, row_name, col_name = plot._checked(frame, x, hue, row, col)
    if "steady" in data.columns:
        data = data[~data["steady"].isin([False])]
        if data.empty:
            raise refused("frame", "no run in its steady state", "longer runs: steady=False ones are not drawn")
    rows, columns = (list(dict.fromkeys(data[name].dropna())) for name in (row_name or row, col_name or col))
    size = (1.2 + 1.75 * len(columns), 0.9 + 0.78 * len(rows))
    figure, grid = plt.subplots(
        len(rows), len(columns), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for name, axes in zip(rows, grid, strict=True):
        of_row = data[data[row_name or row] == name]
        for value, axis in zip(columns, axes, strict=True):
            part = of_row[of_row[col_name or col] == value]
            plot._lines(axis, part, data, x, hue, None)
            _small(axis)
        unit = " and ".join(dict.fromkeys(of_row["unit"]))
        cost = "\nless is better" if unit == "s" else ""
        label = {"rotation": 0, "ha": "right", "va": "center", "fontsize": "small"}
        axes[0].set_ylabel(f"{name}\n{unit}{cost}", **label)
        axes[0].set_ylim(bottom=0)
    values = sorted(set(data[x]))
    for axis, value in zip(grid[0], columns, strict=True):
        axis.set_title(
            f"{value} CPU{'' if value == 1 else 's'}" if col_name == "cpus" else f"{col_name} = {value}",
            fontsize="medium",
        )
    for axis in grid[-1]:
        _doubling(axis, values)
        axis.set_xlabel(plot._LABELS.get(x, x), fontsize="small")
    handles = {text: h for axis in grid.flat for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=len(handles), frameon=False)
    plot.note(grid[0][0], plot.caption(data.drop(columns=["workload"], errors="ignore")))
    return [list(axes) for axes in grid]


def _small(axis: Any) -> None:
    """Lets a small panel show little but its lines."""
    from matplotlib.ticker import EngFormatter

    axis.grid(alpha=0.25)
    axis.tick_params(labelsize="x-small", length=2)
    axis.locator_params(axis="y", nbins=3)
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    for line in axis.get_lines():
        line.set_markersize(2.2)
        line.set_linewidth(1.0)


def _doubling(axis: Any, values: list[Any]) -> None:
    """Values that double stand at equal distances, each with its tick."""
    from matplotlib.ticker import NullLocator

    if all(isinstance(v, int | float) and v > 0 for v in values) and len(values) > 1 and values[-1] >= 8 * values[0]:
        axis.set_xscale("log", base=2)
        axis.set_xticks(values, [f"{v:g}" for v in values])
        axis.xaxis.set_minor_locator(NullLocator())


def _few_ticks(axis: Any) -> None:
    """Few ticks on the axis of a narrow panel."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
