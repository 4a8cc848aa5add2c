"""A published figure, run again: the table beside the published numbers, the picture, the errors, the sensitivity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from slablab.config import Sim, entry
from slablab.extras import needed
from slablab.result import Sweep
from slablab.sweep import sweep
from slablab.values import whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slablab.published import Constant, Published
    from slablab.sweep import StoreLike

QUICK_CLIENTS = (1, 2, 4, 8, 12, 16)
"""Points of a quick look, with one seed each."""
SENSITIVITY_CLIENTS = (10, 12, 14, 16)
SENSITIVITY_FACTORS = (0.7, 1.4)


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int = 5,
    seed: int = 1,
    store: StoreLike = None,
    threads: int | None = None,
    progress: bool = False,
) -> Reproduction:
    """Runs a published figure again: every allocator at every point, best of `seeds` seeds.

    `quick` takes a few points and one seed. Two constants come fitted on the published SLAB series; everything else is
    a prediction. `store` keeps finished runs in a file, as that of `sweep` does.
    """
    from slablab import published

    figure = published.named(name)
    whole("seeds", seeds, "1 or more")
    grid = sweep(
        machine=figure.machine,
        allocator=figure.allocators,
        workload=figure.workload,
        over=_over(figure, QUICK_CLIENTS if quick else figure.clients),
        repeats=1 if quick else seeds,
        seed=seed,
        store=store,
        threads=threads,
        progress=progress,
    )
    return Reproduction(figure, grid)


class Reproduction:
    """The finished runs of a published figure beside the published values."""

    def __init__(self, figure: Published, grid: Sweep) -> None:
        from slablab import published

        self.figure = figure
        self.sweep = grid
        """The runs."""
        self.constants: tuple[Constant, ...] = published.constants(figure.name)
        """What was fitted, on what, how well."""
        self.published = published.series(figure, [figure.baseline, figure.scored])
        """The published values: allocator → clients → throughput."""
        self._names = [a.partition("@")[0] for a in figure.allocators]
        self._best = self._reduced(max)
        import statistics

        self._median = self._reduced(statistics.median)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run: `summary()` of the sweep."""
        return self.sweep.summary()

    @property
    def seeds(self) -> int:
        """Runs per point."""
        return max(r.repeat for r in self.sweep) + 1

    def compared(self) -> pd.DataFrame:
        """One row per number of clients: best and median of the seeds, the published values, and both ratios."""
        import pandas as pd

        reference, scored = self.figure.baseline, self.figure.scored
        rows = []
        for n in self._clients():
            best, median = self._best[n], self._median[n]
            said = {name: self.published[name].get(n) for name in (reference, scored)}
            row: dict[str, Any] = {"clients": n, **{f"{a}_mb_s": best[a] for a in self._names}}
            row |= {f"{a}_median_mb_s": median[a] for a in self._names}
            row |= {f"published_{a}_mb_s": value for a, value in said.items()}
            row["ratio"] = best[scored] / best[reference]
            row["median_ratio"] = median[scored] / median[reference]
            row["published_ratio"] = _ratio(said[scored], said[reference])
            rows.append(row)
        return pd.DataFrame(rows)

    def errors(self) -> pd.DataFrame:
        """One row per published point: published, simulated (best of the seeds), and the error in percent.

        `use` says what the point is: `baseline` points fitted a constant, `shape` points check the fitted series,
        `scored` ones are predictions. The last columns compare the ratio to the baseline series.
        """
        import pandas as pd

        fitted = {n for fit in self.figure.fits for n in fit.clients}
        rows = []
        for name, points in self.published.items():
            for n in (n for n in self._clients() if n in points):
                said, got = points[n], self._best[n][name]
                use = "scored" if name == self.figure.scored else "baseline" if n in fitted else "shape"
                row: dict[str, Any] = {
                    "allocator": name,
                    "clients": n,
                    "use": use,
                    "published_mb_s": said,
                    "simulated_mb_s": got,
                }
                row["error_pct"] = 100 * (got / said - 1)
                if name == self.figure.scored:
                    row["published_ratio"] = said / self.published[self.figure.baseline][n]
                    row["simulated_ratio"] = got / self._best[n][self.figure.baseline]
                    row["ratio_error_pct"] = 100 * (row["simulated_ratio"] / row["published_ratio"] - 1)
                rows.append(row)
        return pd.DataFrame(rows)

    def plateau(self) -> dict[str, float]:
        """Means over the plateau's clients: each allocator, the published ones, both ratios."""
        at = [n for n in self._clients() if n in self.figure.plateau]
        means = {a: _mean(self._best[n][a] for n in at) for a in self._names}
        said = {a: _mean(points[n] for n in self.figure.plateau) for a, points in self.published.items()}
        reference, scored = self.figure.baseline, self.figure.scored
        return {
            **means,
            **{f"published {a}": value for a, value in said.items()},
            "ratio": means[scored] / means[reference],
            "published ratio": said[scored] / said[reference],
        }

    def table(self) -> str:
        """The figure as plain text."""
        reference, scored = self.figure.baseline, self.figure.scored
        pair = f"{scored}/{reference}".upper()
        what = f"best of {self.seeds} seeds" if self.seeds > 1 else "one seed"
        heads = ["clients", *self._names, f"publ. {reference}", f"publ. {scored}", pair, "publ."]
        lines = [f"{self.figure.title}; {self.figure.unit}, {what}", *_aligned(heads, self._rows(self._best))]
        if self.seeds > 1:
            lines += ["", f"median of {self.seeds} seeds", *_aligned(heads, self._rows(self._median))]
        return "\n".join([*lines, "", *self._verdict()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the figure: lines through the best runs, a band down to the worst, crosses for published points."""
        from slablab import plot

        if ax is None:
            _, ax = needed("matplotlib.pyplot", "a figure").subplots(figsize=(6.4, 4.8), layout="constrained")
        data = self.frame
        for name, marker in zip(self._names, ("o", "s", "^", "D"), strict=False):
            grouped = data[data["allocator"] == name].groupby("clients")["throughput"]
            best, worst = grouped.max(), grouped.min()
            era = data.loc[data["allocator"] == name, "era"].iloc[0]
            colour = plot.COLOURS[name]
            at = best.index.to_numpy()
            ax.plot(
                at,
                best.to_numpy(),
                color=colour,
                marker=marker,
                markersize=4,
                linewidth=1.5,
                label=f"{name}@{era}, simulated",
            )
            ax.fill_between(at, worst.to_numpy(), best.to_numpy(), color=colour, alpha=0.12, linewidth=0)
        for name, points in self.published.items():
            ax.plot(
                list(points),
                list(points.values()),
                color=plot.COLOURS[name],
                linestyle="none",
                marker="x",
                markersize=7,
                markeredgewidth=1.8,
                label=f"{name}, published 2007",
            )
        ax.set(title=self.figure.title, xlabel="clients", ylabel=f"throughput ({self.figure.unit})")
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.25)
        ax.legend(frameon=False, fontsize="small", loc="lower right")
        fitted = ", ".join(
            f"{c.parameter.partition('.')[2]} {c.value:.3g} ({c.residual_pct:+.1f} %)" for c in self.constants
        )
        plot.note(ax, f"{plot.caption(data)} · fitted on {self.figure.baseline}: {fitted}")
        return ax

    def sensitivity(self, clients: Sequence[int] = SENSITIVITY_CLIENTS, progress: bool = False) -> pd.DataFrame:
        """The plateau ratio with each unfitted low-confidence figure of the machine scaled by 0.7 and by 1.4.

        One seed, some of the plateau's clients, nothing fitted again: it says what the ratio hangs on.
        """
        import pandas as pd

        fitted = {c.parameter for c in self.constants}
        values = entry("machine", self.figure.machine)["values"]
        used = {name: v for name, v in values.items() if not v["source"].startswith("not used by the model")}
        figures = {name: v["value"] for name, v in used.items() if v["confidence"] == "low"}
        scaled: list[tuple[str, float, float | str]] = [("(none)", 1.0, "")]
        for name, value in figures.items():
            if (
                f"machine.{name}" not in fitted
                and isinstance(value, int | float)
                and not isinstance(value, bool)
                and value
            ):
                scaled += [(name, factor, float(value) * factor) for factor in SENSITIVITY_FACTORS]
        pair = [a for a in self.figure.allocators if a.partition("@")[0] in (self.figure.baseline, self.figure.scored)]
        over = _over(self.figure, clients)
        changes: list[dict[str, Any]] = [{name: value} if value else {} for name, _, value in scaled]
        over["machine"] = [Sim(self.figure.machine, **change) for change in changes]
        data = sweep(allocator=pair, workload=self.figure.workload, over=over, progress=progress).summary()
        each = len(pair) * len(clients)
        rows = []
        for at, (name, factor, value) in enumerate(scaled):
            part = data.iloc[at * each : (at + 1) * each].groupby("allocator")["throughput"].mean()
            ratio = float(part[self.figure.scored] / part[self.figure.baseline])
            rows.append({"figure": name, "factor": factor, "value": value, "plateau_ratio": ratio})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<Reproduction of {self.figure.name}: {len(self.sweep)} runs>"

    def _clients(self) -> list[int]:
        return sorted(self._best)

    def _reduced(self, how: Any) -> dict[int, dict[str, float]]:
        """Clients → allocator → one throughput of the seeds."""
        cells: dict[int, dict[str, list[float]]] = {}
        for r in self.sweep:
            point = cells.setdefault(int(r.config["workload"]["clients"]), {})
            point.setdefault(str(r.config["allocator"]["name"]), []).append(r.throughput)
        return {n: {a: float(how(v)) for a, v in point.items()} for n, point in cells.items()}

    def _rows(self, values: dict[int, dict[str, float]]) -> Iterable[list[str]]:
        reference, scored = self.figure.baseline, self.figure.scored
        for n in self._clients():
            said = [self.published[name].get(n) for name in (reference, scored)]
            yield [
                str(n),
                *(f"{values[n][a]:.0f}" for a in self._names),
                *("" if v is None else f"{v:.0f}" for v in said),
                f"{values[n][scored] / values[n][reference]:.3f}",
                "" if None in said else f"{_ratio(said[1], said[0]):.3f}",
            ]

    def _verdict(self) -> list[str]:
        """What the comparison amounts to, in lines."""
        means, at = self.plateau(), [n for n in self._clients() if n in self.figure.plateau]
        lines = [
            f"plateau ({at[0]} to {at[-1]} clients): ratio {means['ratio']:.3f}, "
            f"published {means['published ratio']:.3f}, distance {means['ratio'] - means['published ratio']:+.3f}"
        ]
        flat = {a: [self._best[n][a] for n in at] for a in self._names}
        spreads = ", ".join(f"{a} {(max(v) - min(v)) / _mean(v):.3f}" for a, v in flat.items())
        lines.append(f"plateau (max − min)/mean: {spreads}")
        errors = self.errors()
        for name in self.published:
            part = errors.loc[errors["allocator"] == name, ["clients", "error_pct"]].reset_index(drop=True)
            off = part["error_pct"].abs()
            worst = part.iloc[int(off.to_numpy().argmax())]
            kind = "prediction" if name == self.figure.scored else "fitted series"
            lines.append(
                f"{name} against published ({kind}): mean absolute error {off.mean():.1f} %, "
                f"worst {worst['error_pct']:+.1f} % at {worst['clients']:.0f} clients"
            )
        lines += [f"fitted: {c}" for c in self.constants]
        return [*lines, f"published: {self.figure.source}"]


def _over(figure: Published, clients: Iterable[int]) -> dict[str, Iterable[Any]]:
    """The axes of a figure: its clients, and every fitted constant at its value."""
    from slablab import published

    fitted = {c.parameter: [c.value] for c in published.constants(figure.name)}
    return {**fitted, "workload.clients": list(clients)}


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _aligned(heads: list[str], rows: Iterable[list[str]]) -> list[str]:
    cells = [heads, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def _mean(values: Iterable[float]) -> float:
    import statistics

    return statistics.fmean(values)
