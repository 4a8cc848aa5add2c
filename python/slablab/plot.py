"""Figures. Each function takes a frame or a sweep and optional axes, and returns the axes it drew on.

Nothing is computed here but the layout: repeats show as a line through their medians and a band from the lowest to the
highest. The caption says allocator, machine, workload and seed by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from slablab.extras import needed
from slablab.plot_scaling import multiples, scaling
from slablab.plot_time import latency, time
from slablab.result import Result, Sweep, short
from slablab.values import refused, shown, unknown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "caption", "latency", "multiples", "note", "scaling", "throughput", "time"]

COLOURS = {"slab": "#0072B2", "slub": "#D55E00", "slob": "#009E73", "slqb": "#CC79A7", "null": "#7F7F7F"}
"""One colour per allocator in every figure, told apart by colour-blind readers."""
_SPARE = ("#56B4E9", "#E69F00", "#000000", "#F0E442", "#8C564B", "#332288")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LABELS = {
    "clients": "clients",
    "cpus": "CPUs",
    "order": "slab order",
    "elapsed_s": "time (s)",
}


@overload
def throughput(
    frame: pd.DataFrame | Sweep,
    *,
    x: str = ...,
    hue: str = ...,
    style: str | None = ...,
    col: None = ...,
    ax: Axes | None = ...,
) -> Axes: ...
@overload
def throughput(
    frame: pd.DataFrame | Sweep,
    *,
    x: str = ...,
    hue: str = ...,
    style: str | None = ...,
    col: str,
    ax: Sequence[Axes] | None = ...,
) -> list[Axes]: ...
def throughput(
    frame: pd.DataFrame | Sweep,
    *,
    x: str = "clients",
    hue: str = "allocator",
    style: str | None = None,
    col: str | None = None,
    ax: Any = None,
) -> Axes | list[Axes]:
    """Draws throughput against `x`: one colour per `hue`, one line style per `style`, one panel per `col`.

    With `col` the result is a list of axes, one per panel.
    """
    data, x, hue, style, col = _checked(frame, x, hue, style, col)
    data = _placed(data, x)
    units = list(dict.fromkeys(data["unit"]))
    if len(units) > 1:
        raise refused("unit", " and ".join(units), "one unit per axis: draw the rows of each unit apart")
    panels = [None] if col is None else list(dict.fromkeys(data[col].dropna()))
    axes = _panels(len(panels), ax)
    for panel, axis in zip(panels, axes, strict=True):
        part = data if col is None else data[data[col] == panel]
        _lines(axis, part, data, x, hue, style)
        axis.set_xlabel(_LABELS.get(x, x))
        axis.set_ylabel(f"throughput ({units[0]})")
        _whole_ticks(axis, part[x])
        axis.grid(alpha=0.25)
        if col is not None:
            axis.set_title(f"{panel} CPU{'' if panel == 1 else 's'}" if col == "cpus" else f"{col} = {panel}")
    for axis in axes:
        # Once all are drawn: panels share the axis, and a limit set earlier would cut the later ones.
        axis.set_ylim(bottom=0)
    if col is None:
        axes[0].legend(frameon=False, fontsize="small")
        axes[0].set_title(f"{_names(data, 'workload')} throughput")
    else:
        for axis in axes:
            axis.label_outer()
        _shared_legend(axes)
    note(axes[0], caption(data))
    return axes[0] if col is None else axes


def drawable(ax: object) -> None:
    """Refuses what is no axes of matplotlib."""
    if not callable(getattr(ax, "plot", None)) or not callable(getattr(ax, "get_figure", None)):
        raise refused("ax", shown(ax), "axes of matplotlib")


def eras(
    frame: pd.DataFrame | Sweep, *, y: str, hue: str | None = None, text: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draws column `y` from era to era: a line through the medians, a band from the lowest to the highest.

    `frame` has the columns era and `y`; its eras are drawn in the order in which they come. One colour per `hue`.
    `text` is the line at the foot; without it that of a sweep.
    """
    plt = needed("matplotlib.pyplot", "a figure")
    data = frame.summary() if isinstance(frame, Sweep) else frame
    for role, name in (("frame", "era"), ("y", y), ("hue", hue)):
        if name is not None and name not in data.columns:
            raise unknown(role, name, data.columns)
    names = list(dict.fromkeys(data["era"]))
    axes: Axes = plt.subplots(figsize=(8.0, 3.6), layout="constrained")[1] if ax is None else ax
    groups = [(None, data)] if hue is None else list(data.groupby(hue, sort=False))
    for n, (label, part) in enumerate(groups):
        values = part.groupby("era")[y]
        colour = COLOURS["slub"] if hue is None else _SPARE[n % len(_SPARE)]
        at = [i for i, name in enumerate(names) if name in values.groups]
        low, mid, high = ([getattr(values, how)()[names[i]] for i in at] for how in ("min", "median", "max"))
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(at, mid, marker=_MARKERS[n % len(_MARKERS)], color=colour, label=label)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_xlabel("era of SLUB")
    unit = data["unit"].iloc[0] if y == "throughput" and "unit" in data.columns else ""
    axes.set_ylabel(f"{y} ({unit})" if unit else y)
    axes.set_ylim(min(0.0, 1.08 * float(data[y].min())), max(0.0, 1.08 * float(data[y].max())))
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if hue is not None:
        axes.legend(frameon=False, title=hue)
    note(axes, caption(data) if text is None else text)
    return axes


def pages(result: Result, *, ax: Sequence[Axes] | None = None) -> list[Axes]:
    """Draws the memory of one run: free memory by order over time, and a map of each node's zone at the end.

    In a map each square is a stretch of memory in the colour of its largest free block; without a free page it is
    dark. Returns the axes, the one over time first.
    """
    from slablab.plot_pages import draw

    return draw(result, ax)


def caption(data: pd.DataFrame) -> str:
    """One line for the foot of a figure: allocator, machine, workload, seed."""
    pairs = data[[c for c in ("allocator", "era") if c in data.columns]].drop_duplicates()
    allocators = ", ".join("@".join(str(v) for v in row) for row in pairs.itertuples(index=False))
    seeds = _span(data["seed"]) if "seed" in data.columns else ""
    words = [allocators, _names(data, "machine"), _names(data, "workload"), f"seed {seeds}" if seeds else ""]
    if "version" in data.columns:
        words.append(f"slablab {_names(data, 'version')}")
    return " · ".join(w for w in words if w)


def note(ax: Axes, text: str) -> None:
    """Writes a line at the foot of the figure that `ax` is in, wrapped to its width."""
    import textwrap

    figure = ax.get_figure(root=True)
    if figure is None:
        return
    width = int(figure.get_size_inches()[0] * 17)
    figure.supxlabel("\n".join(textwrap.wrap(text, width)), fontsize="x-small", color="#555555", x=0.01, ha="left")


def _lines(ax: Axes, part: pd.DataFrame, whole: pd.DataFrame, x: str, hue: str, style: str | None) -> None:
    """Draws one panel. Colours and dashes follow the whole frame, so that panels agree."""
    hues = _series(whole, hue)
    colours = _colours(hues)
    styles: list[Any] = [None] if style is None else list(dict.fromkeys(whole[style].dropna()))
    for number, key in enumerate(hues):
        rows = part[_matches(part, hue, key)]
        for value in [*styles, None] if style is not None else [None]:
            some = rows if style is None else rows[rows[style].isna() if value is None else rows[style] == value]
            if some.empty:
                continue
            grouped = some.groupby(x, observed=True)["throughput"]
            middle = grouped.median()
            at = middle.index.astype(str).to_numpy() if _is_words(middle.index) else middle.index.to_numpy()
            dash = "-" if value is None else _DASHES[styles.index(value) % len(_DASHES)]
            text = "@".join(key) if len(key) > 1 else key[0]
            if style is not None and value is not None:
                text += f", {style} {value}"
            ax.plot(
                at,
                middle.to_numpy(),
                color=colours[key],
                linestyle=dash,
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=3.5,
                linewidth=1.4,
                label=text,
            )
            low, high = grouped.min(), grouped.max()
            if (high > low).any():
                ax.fill_between(at, low.to_numpy(), high.to_numpy(), color=colours[key], alpha=0.15, linewidth=0)


def _checked(
    frame: Any, x: object, hue: object, style: object, col: object
) -> tuple[pd.DataFrame, str, str, str | None, str | None]:
    """The rows and the columns that a figure is drawn of."""
    data = frame.summary() if isinstance(frame, Sweep | Result) else frame
    if not hasattr(data, "columns"):
        raise refused("frame", shown(data), "a Sweep, or its summary()")
    found: list[Any] = []
    for role, column in (("x", x), ("hue", hue), ("style", style), ("col", col)):
        if column is None and role in ("style", "col"):
            found.append(None)
            continue
        if not isinstance(column, str):
            raise refused(role, shown(column), "the name of a column")
        if short(column) not in data.columns:
            raise unknown(role, short(column), data.columns)
        found.append(short(column))
    if data.empty:
        raise refused("frame", "empty", "at least one row")
    return data, found[0], found[1], found[2], found[3]


def _placed(data: pd.DataFrame, x: str) -> pd.DataFrame:
    """With words on the axis, or words among numbers, places in the order of the rows."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(data[x]):
        return data
    words = data[x].map(str)
    return data.assign(**{x: pd.Categorical(words, categories=list(dict.fromkeys(words)), ordered=True)})


def _is_words(index: pd.Index[Any]) -> bool:
    import pandas as pd

    return isinstance(index.dtype, pd.CategoricalDtype)


def _series(data: pd.DataFrame, hue: str) -> list[tuple[str, ...]]:
    """The values of `hue` in order; allocators with their era where some allocator comes in several."""
    if hue == "allocator" and "era" in data.columns:
        pairs = data[["allocator", "era"]].drop_duplicates()
        if pairs["allocator"].duplicated().any():
            return [(str(a), str(e)) for a, e in pairs.itertuples(index=False)]
    return [(str(v),) for v in dict.fromkeys(data[hue])]


def _matches(data: pd.DataFrame, hue: str, key: tuple[str, ...]) -> Any:
    chosen = data[hue].astype(str) == key[0]
    return chosen & (data["era"].astype(str) == key[1]) if len(key) > 1 else chosen


def _colours(keys: list[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """An allocator's own colour for its first series, spare ones for its other eras and for anything else."""
    spare = itertools.cycle(_SPARE)
    own = dict(COLOURS)
    return {key: own.pop(key[0], "") or next(spare) for key in keys}


def _whole_ticks(ax: Axes, values: pd.Series[Any]) -> None:
    """Keeps the ticks of counts on whole numbers."""
    from matplotlib.ticker import MaxNLocator
    from pandas.api.types import is_integer_dtype

    if is_integer_dtype(values):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _panels(count: int, ax: Any) -> list[Any]:
    if ax is not None:
        given = list(ax) if isinstance(ax, Sequence) or hasattr(ax, "__iter__") else [ax]
        if len(given) != count:
            raise refused("ax", f"{len(given)} axes", f"{count}: one per panel")
        for one in given:
            drawable(one)
        return given
    plt = needed("matplotlib.pyplot", "a figure")

    columns = min(count, 2)
    rows = -(-count // columns)
    size = (6.4, 4.8) if count == 1 else (4.8 * columns, 3.2 * rows + 0.8)
    _, axes = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained")
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.set_axis_off()
    return flat[:count]


def _shared_legend(axes: list[Any]) -> None:
    """One legend for all panels, beside them: every series of any panel once."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    figure = axes[0].get_figure(root=True)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize="small")


def _names(data: pd.DataFrame, column: str) -> str:
    return ", ".join(str(v) for v in dict.fromkeys(data[column])) if column in data.columns else ""


def _span(values: pd.Series[Any]) -> str:
    distinct = sorted({int(v) for v in values})
    if len(distinct) > 2 and distinct == list(range(distinct[0], distinct[-1] + 1)):
        return f"{distinct[0]}–{distinct[-1]}"
    return ", ".join(map(str, distinct))
