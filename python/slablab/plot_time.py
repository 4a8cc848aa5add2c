"""Figures of where time went and how long calls took: `plot.time` and `plot.latency`.

Nothing is computed but the layout: shares are means over the repeats, so that they still add up to 100 percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slablab.result import Result, Sweep, short
from slablab.values import refused, shown, unknown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PARTS = {
    "workload": "#B8C4CE",
    "scheduler": "#7A8B99",
    "allocator, fast paths": "#0072B2",
    "allocator, slow paths": "#56B4E9",
    "page allocator": "#009E73",
    "idle": "#F2F2F2",
}
"""One colour per part in every figure; waits are reds, transfers are yellows."""
_WAITS = ("#8C1C13", "#BF4342", "#D9745B", "#E7A08F", "#F3CFC6")
_TRANSFERS = ("#E69F00", "#F0C75E", "#F0E442")
_SMALL = 0.5
"""Waits and transfers that are nowhere more than so many percent are drawn together."""


def time(
    frame: Sweep | Result | pd.DataFrame,
    *,
    x: str = "clients",
    col: str | None = "allocator",
    ax: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draws where the time of all CPUs went, stacked along `x`: one panel per `col`.

    Takes a sweep, a result, or the frame of their `time()`. The parts add up to 100 percent of CPUs x elapsed: the
    workload, the scheduler, the allocator, the page allocator, waiting by lock, line transfers by structure, idle.
    """
    from slablab import plot

    x, col = short(x), col and short(col)
    data = _frame(frame, "time", "share_pct")
    shares = _merged(
        data.assign(part=data["part"].astype(str)), [c for c in (col, x) if c is not None and c in data.columns]
    )
    keys = [c for c in data.columns if c not in ("part", "time_ps", "share_pct")]
    if x not in keys and len(data[keys].drop_duplicates()) <= 1:
        # A single run: its one bar has no axis.
        data, shares, x = data.assign(run=""), shares.assign(run=""), "run"
    for role, name in (("x", x), ("col", col)):
        if name is not None and name not in data.columns:
            raise unknown(role, name, keys)
    panels = [None] if col is None else list(dict.fromkeys(data[col].dropna()))
    axes = plot._panels(len(panels), ax)
    colours = _colours(list(dict.fromkeys(shares["part"])))
    for panel, axis in zip(panels, axes, strict=True):
        part = shares if panel is None else shares[shares[col] == panel]
        _stack(axis, part, x, colours)
        axis.set_xlabel(plot._LABELS.get(x, x) if x != "run" else "")
        axis.set_ylabel("share of CPU time (%)")
        axis.set_ylim(0, 100)
        if panel is not None:
            axis.set_title(str(panel) if col == "allocator" else f"{col} = {panel}")
    for axis in axes:
        axis.label_outer()
    if ax is None:
        _legend(axes)
    plot.note(axes[0], plot.caption(data))
    return axes


def latency(frame: Sweep | Result | pd.DataFrame, *, ax: Sequence[Axes] | None = None) -> list[Axes]:
    """Draws how long the allocator's calls took: one panel for allocations and one for frees, a row per path.

    Takes a sweep, a result, or the frame of their `latency()`. A row is a point at the median, a thick line to the 90th
    percentile, a thin one to the 99th, and a tick at the longest call; beside it the share of the calls.
    """
    from slablab import plot

    data = _frame(frame, "latency", "p50_ns")
    keys = _keys(data, ("operation", "path"))
    operations = [o for o in ("alloc", "free") if o in set(data["operation"])]
    axes = _columns(data, keys, operations) if ax is None else plot._panels(len(operations), ax)
    for axis, operation in zip(axes, operations, strict=True):
        rows = data[data["operation"] == operation]
        runs = [None] if not keys else list(dict.fromkeys(rows[keys].itertuples(index=False, name=None)))
        labels: list[tuple[float, str]] = []
        for number, run in enumerate(runs):
            chosen = rows if run is None else rows[(rows[keys] == list(run)).all(axis=1)]
            # Repeats are one row: what is typical of them, and the longest call of all.
            how = {"count": "sum", "p50_ns": "median", "p90_ns": "median", "p99_ns": "median", "max_ns": "max"}
            paths = chosen.groupby("path", sort=False).agg(how)
            colour = plot.COLOURS.get(
                str(run[keys.index("allocator")]) if run and "allocator" in keys else "", "#0072B2"
            )
            for path, row in paths.iterrows():
                at = -len(labels) - 0.6 * number
                axis.plot([row["p50_ns"], row["p90_ns"]], [at, at], color=colour, linewidth=5, solid_capstyle="butt")
                axis.plot([row["p90_ns"], row["p99_ns"]], [at, at], color=colour, linewidth=1.6)
                axis.plot(row["p50_ns"], at, "o", color="white", markeredgecolor=colour, markersize=5)
                axis.plot(row["max_ns"], at, "|", color=colour, markersize=9)
                share = 100 * row["count"] / paths["count"].sum()
                name = " ".join([*(str(v) for v in run or ()), str(path)])
                labels.append((at, f"{name}, {share:.3g} %"))
        axis.set_yticks([at for at, _ in labels], [text for _, text in labels], fontsize="small")
        axis.set_ylim(min(at for at, _ in labels) - 0.6, 0.6)
        axis.set_xscale("log")
        axis.set_title("allocations" if operation == "alloc" else "frees")
        axis.grid(alpha=0.25, axis="x")
    axes[-1].set_xlabel("latency (ns): median, 90 %, 99 %, longest")
    plot.note(axes[0], plot.caption(data))
    return axes


def _columns(data: pd.DataFrame, keys: list[str], operations: list[str]) -> list[Any]:
    """A panel below the other, each as high as its rows, on one axis of time."""
    from slablab.extras import needed

    plt = needed("matplotlib.pyplot", "a figure")
    rows = [len(data[data["operation"] == o].drop_duplicates([*keys, "path"])) for o in operations]
    size = (6.4, 0.26 * sum(rows) + 0.9 * len(rows) + 0.5)
    how = {"height_ratios": [n + 1 for n in rows], "sharex": True, "squeeze": False, "layout": "constrained"}
    return list(plt.subplots(len(rows), 1, figsize=size, **how)[1].flat)


def _frame(given: Any, name: str, column: str) -> pd.DataFrame:
    """The frame of a sweep or a result with its parameters in front; or a frame as it is."""
    if isinstance(given, Result):
        given = Sweep([given])
    data = given._stacked(name) if isinstance(given, Sweep) else given
    if not hasattr(data, "columns") or (len(data) and column not in data.columns):
        raise refused("frame", shown(data), f"a Sweep, a Result, or its {name}()")
    if data.empty:
        raise refused("frame", "empty", f"a simulated run: native ones have no {name}()")
    return data


def _keys(data: pd.DataFrame, own: tuple[str, ...]) -> list[str]:
    """The columns before `own` that differ between runs, seeds aside; the allocator in any case."""
    front = list(data.columns[: list(data.columns).index(own[0])])
    several = [c for c in front if c not in ("seed", "repeat") and data[c].astype(str).nunique() > 1]
    if "era" in several and not data[["allocator", "era"]].drop_duplicates()["allocator"].duplicated().any():
        several.remove("era")
    return list(dict.fromkeys([c for c in ("allocator",) if c in front] + several))


def _merged(data: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean shares per cell and part; waits and transfers that are small everywhere are one part each."""
    shares = data.groupby([*by, "part"], sort=False)["share_pct"].sum().reset_index()
    # A part that a repeat does not have had no time there: the mean is over all repeats of the cell.
    runs = data[[*by, *(c for c in ("seed", "repeat") if c in data.columns)]].drop_duplicates()
    if by:
        shares = shares.merge(runs.groupby(by, sort=False).size().rename("runs").reset_index(), on=by)
    shares["share_pct"] /= shares["runs"] if by else max(len(runs), 1)
    top = shares.groupby("part")["share_pct"].max()

    def name(part: str) -> str:
        kind = next((k for k in ("waiting for ", "line transfers") if part.startswith(k)), None)
        if kind is None or top[part] >= _SMALL:
            return part
        return "waiting for other locks" if kind == "waiting for " else "other line transfers"

    shares["part"] = shares["part"].map(name)
    merged = shares.groupby([*by, "part"], sort=False)["share_pct"].sum().reset_index()
    return merged[merged["part"].map(merged.groupby("part")["share_pct"].max()) > 0]


def _colours(parts: list[str]) -> dict[str, str]:
    """Parts in the order in which they are stacked, each with its colour."""
    waits = sorted(p for p in parts if p.startswith("waiting"))
    moves = sorted(p for p in parts if "transfers" in p)
    colours = {p: c for p, c in PARTS.items() if p in parts and p != "idle"}
    colours |= {p: _TRANSFERS[i % len(_TRANSFERS)] for i, p in enumerate(moves)}
    colours |= {p: _WAITS[i % len(_WAITS)] for i, p in enumerate(waits)}
    return colours | ({"idle": PARTS["idle"]} if "idle" in parts else {})


def _stack(axis: Any, part: pd.DataFrame, x: str, colours: dict[str, str]) -> None:
    import pandas as pd

    table = part.pivot_table(index=x, columns="part", values="share_pct", sort=False).fillna(0.0).sort_index()
    heights = [(p, table[p].to_numpy() if p in table else [0.0] * len(table)) for p in colours]
    if len(table) > 1 and pd.api.types.is_numeric_dtype(table.index.dtype):
        layers = [h for _, h in heights]
        axis.stackplot(table.index.to_numpy(float), *layers, colors=list(colours.values()), labels=list(colours))
        axis.set_xlim(float(table.index.min()), float(table.index.max()))
        if len(table) <= 8:
            axis.set_xticks(list(table.index))
        return
    below = [0.0] * len(table)
    for name, height in heights:
        axis.bar([str(v) for v in table.index], height, bottom=below, color=colours[name], label=name, width=0.6)
        below = [b + h for b, h in zip(below, height, strict=True)]


def _legend(axes: list[Any]) -> None:
    """One legend for all panels, beside them, in the order of the stack from above."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure = axes[0].get_figure(root=True)
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False, fontsize="small")
