"""Pictures of memory: free areas per order over time, and a map of each zone.

`plot.pages` is the way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from slablab.extras import needed
from slablab.result import Result, describe
from slablab.values import refused, shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ORDERS = 11
PAGE_MIB = 4096 / (1 << 20)
COLUMNS = 16
"""Cells of a row of a zone's map."""
TAKEN = "#404040"
"""Colour of a place without a free page."""


def draw(result: Result, ax: Sequence[Axes] | None) -> list[Axes]:
    """Draws on the axes, or on new ones: free memory over time, then one map per node with memory."""
    if not isinstance(result, Result):
        raise refused("result", shown(result), "one finished run (a Result)")
    cells = result.zone_map()
    nodes = sorted({int(n) for n in cells["node"]})
    plt = needed("matplotlib.pyplot", "a figure")
    if ax is None:
        size = (6.4 + 3.0 * len(nodes), 4.0)
        _, axes = plt.subplots(
            1,
            1 + len(nodes),
            figsize=size,
            layout="constrained",
            squeeze=False,
            width_ratios=[2.2] + [1.0] * len(nodes),
        )
        ax = list(axes.flat)
    from slablab.plot import drawable, note

    if not isinstance(ax, Iterable):
        raise refused("ax", shown(ax), f"a list of {1 + len(nodes)} axes of matplotlib")
    given = list(ax)
    for axis in given:
        drawable(axis)
    if len(given) != 1 + len(nodes):
        raise refused("ax", f"{len(given)} axes", f"{1 + len(nodes)}: free memory over time, and one map per node")
    colours = plt.get_cmap("viridis_r", ORDERS)
    _over_time(given[0], result.timeline(), colours)
    for axis, node in zip(given[1:], nodes, strict=True):
        _map(axis, cells[cells["node"] == node], node, colours)
    note(given[0], f"{describe(result.config)} · pages of {result.row()['pages']}")
    return given


def _over_time(ax: Axes, samples: pd.DataFrame, colours: Any) -> None:
    """Free memory as a stack of orders, smallest at the bottom."""
    ax.set_xlabel("time (s)")
    ax.set_ylabel("free (MiB)")
    ax.set_title("free blocks by order", fontsize="medium")
    if samples.empty:
        ax.text(0.5, 0.5, "a script has no timeline", transform=ax.transAxes, ha="center", color="#555555")
        return
    areas = [samples[f"free_order{o}"].to_numpy() * (PAGE_MIB * 2**o) for o in range(ORDERS)]
    ax.stackplot(
        samples["time_s"].to_numpy(),
        areas,
        colors=[colours(o) for o in range(ORDERS)],
        labels=[f"order {o}" for o in range(ORDERS)],
        linewidth=0,
    )
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], names[::-1], frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    ax.margins(x=0, y=0)


def _map(ax: Axes, cells: pd.DataFrame, node: int, colours: Any) -> None:
    """One zone, a square per stretch of memory, from its first frame at the top left."""
    import numpy as np
    from matplotlib.colors import to_rgba

    rows = -(-len(cells) // COLUMNS)
    image = np.ones((rows * COLUMNS, 4))
    for at, largest in enumerate(cells["largest"]):
        image[at] = to_rgba(TAKEN) if np.isnan(largest) else colours(int(largest))
    ax.imshow(image.reshape(rows, COLUMNS, 4), interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    mib = {name: float(cells[name].sum()) * PAGE_MIB for name in ("free", "lent", "listed", "held")}
    ax.set_title(f"node {node}, {float(cells['pages'].iloc[0]) * PAGE_MIB:g} MiB a square", fontsize="medium")
    # What is nowhere on this node is not said.
    words = {"free": "free", "lent": "lent", "listed": "on CPUs' lists", "held": "held by fragmentation"}
    ax.set_xlabel("\n".join(f"{mib[k]:.4g} MiB {words[k]}" for k in words if mib[k] or k == "free"), fontsize="small")
