"""The figure of November 2007: throughput over clients, two published series, a plateau."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from slablab.extras import needed
from slablab.published import piggin_2007
from slablab.reproduce import Reproduction, aligned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

REFERENCE, SCORED = "slab", "slub"


class Curve(Reproduction):
    """The figure's runs beside its published series."""

    @property
    def published(self) -> dict[str, dict[int, float]]:
        """The published values: allocator → clients → MB/s."""
        return {name: piggin_2007.published(name) for name in (REFERENCE, SCORED)}

    def compared(self) -> pd.DataFrame:
        """One row per number of clients: best and median of the seeds, the published values, and both ratios."""
        import pandas as pd

        best, median, said = self._points(max), self._points(statistics.median), self.published
        rows = []
        for n in best:
            row: dict[str, Any] = {"clients": n, **{f"{a}_mb_s": value for a, value in best[n].items()}}
            row |= {f"{a}_median_mb_s": value for a, value in median[n].items()}
            row |= {f"published_{a}_mb_s": said[a][n] for a in said}
            row["ratio"] = best[n][SCORED] / best[n][REFERENCE]
            row["median_ratio"] = median[n][SCORED] / median[n][REFERENCE]
            row["published_ratio"] = said[SCORED][n] / said[REFERENCE][n]
            rows.append(row)
        return pd.DataFrame(rows)

    def plateau(self) -> dict[str, float]:
        """Means over the plateau's clients: each allocator, the published ones, both ratios."""
        best = self._points(max)
        at = [n for n in best if n in piggin_2007.PLATEAU]
        means = {a: statistics.fmean(best[n][a] for n in at) for a in best[at[0]]}
        said = {a: statistics.fmean(points[n] for n in piggin_2007.PLATEAU) for a, points in self.published.items()}
        return {
            **means,
            **{f"published {a}": value for a, value in said.items()},
            "ratio": means[SCORED] / means[REFERENCE],
            "published ratio": said[SCORED] / said[REFERENCE],
        }

    def table(self) -> str:
        """The figure as plain text."""
        what = f"best of {self.seeds} seeds" if self.seeds > 1 else "one seed"
        best = self._points(max)
        names = list(next(iter(best.values())))
        heads = ["clients", *names, f"publ. {REFERENCE}", f"publ. {SCORED}", f"{SCORED}/{REFERENCE}".upper(), "publ."]
        lines = [f"{self.figure.title}; MB/s, {what}", *aligned(heads, self._rows(best))]
        if self.seeds > 1:
            lines += ["", f"median of {self.seeds} seeds", *aligned(heads, self._rows(self._points(statistics.median)))]
        return "\n".join([*lines, "", *self._shape(), *self.verdict()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the figure: lines through the best runs, a band down to the worst, crosses for published points."""
        from slablab import plot

        if ax is None:
            _, ax = needed("matplotlib.pyplot", "a figure").subplots(figsize=(6.4, 4.8), layout="constrained")
        best, worst = self._points(max), self._points(min)
        at = list(best)
        eras = {str(c.tested[0].allocator.document()["name"]): c.tested[0].allocator.document() for c in self.claims}
        for name, marker in zip(best[at[0]], ("o", "s", "^", "D"), strict=False):
            colour = plot.COLOURS[name]
            high, low = [best[n][name] for n in at], [worst[n][name] for n in at]
            label = f"{name}@{eras[name]['era']}, simulated"
            ax.plot(at, high, color=colour, marker=marker, markersize=4, linewidth=1.5, label=label)
            ax.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
        for name, points in self.published.items():
            style = {"linestyle": "none", "marker": "x", "markersize": 7, "markeredgewidth": 1.8}
            label = f"{name}, published 2007"
            ax.plot(list(points), list(points.values()), color=plot.COLOURS[name], label=label, **style)  # type: ignore[arg-type]
        ax.set(title=self.figure.title, xlabel="clients", ylabel="throughput (MB/s)")
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.25)
        ax.legend(frameon=False, fontsize="small", loc="lower right")
        fitted = ", ".join(
            f"{c.parameter.partition('.')[2]} {c.value:.3g} ({c.residual_pct:+.1f} %)"
            for c in self.constants
            if c.machine == piggin_2007.MACHINE
        )
        plot.note(ax, f"{plot.caption(self.frame)} · fitted on {REFERENCE}: {fitted}")
        return ax

    def _points(self, how: Any) -> dict[int, dict[str, float]]:
        """Clients → allocator → one throughput of the seeds."""
        points: dict[int, dict[str, float]] = {}
        for claim in self.claims:
            if claim.x is not None:
                runs = self.runs.by_case[claim.tested[0]]
                points.setdefault(int(claim.x), {})[claim.series] = float(how([r.throughput for r in runs]))
        return dict(sorted(points.items()))

    def _rows(self, values: dict[int, dict[str, float]]) -> Iterable[Sequence[str]]:
        said = self.published
        for n, point in values.items():
            yield [
                str(n),
                *(f"{value:.0f}" for value in point.values()),
                *(f"{said[name][n]:.0f}" for name in (REFERENCE, SCORED)),
                f"{point[SCORED] / point[REFERENCE]:.3f}",
                f"{said[SCORED][n] / said[REFERENCE][n]:.3f}",
            ]

    def _shape(self) -> list[str]:
        """Plateau and errors, in lines."""
        means, best = self.plateau(), self._points(max)
        at = [n for n in best if n in piggin_2007.PLATEAU]
        lines = [
            f"plateau ({at[0]} to {at[-1]} clients): ratio {means['ratio']:.3f}, "
            f"published {means['published ratio']:.3f}, distance {means['ratio'] - means['published ratio']:+.3f}"
        ]
        flat = {a: [best[n][a] for n in at] for a in best[at[0]]}
        spreads = ", ".join(f"{a} {(max(v) - min(v)) / statistics.fmean(v):.3f}" for a, v in flat.items())
        lines.append(f"plateau (max − min)/mean: {spreads}")
        for name, points in self.published.items():
            off = {n: 100 * (best[n][name] / points[n] - 1) for n in best}
            worst = max(off, key=lambda n: abs(off[n]))
            kind = "prediction" if name == SCORED else "fitted series"
            mean = statistics.fmean(abs(v) for v in off.values())
            lines.append(
                f"{name} against published ({kind}): mean absolute error {mean:.1f} %, "
                f"worst {off[worst]:+.1f} % at {worst} clients"
            )
        if {1, 4, 8} <= set(best):
            both = {"": {n: best[n][REFERENCE] for n in best}, "published ": self.published[REFERENCE]}
            rise = [f"{w}{p[8] / p[4]:.2f} from 4 to 8 clients, {p[8] / p[1]:.1f} from 1 to 8" for w, p in both.items()]
            lines.append(f"rise of {REFERENCE}: {'; '.join(rise)}")
        return lines
