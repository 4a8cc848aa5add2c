"""A published result, run again: each number beside the published one, the errors, the picture, what carries it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slablab.config import entry
from slablab.experiment import checked_seed
from slablab.extras import needed
from slablab.runs import Runs, run_cases
from slablab.values import truth, whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slablab.published import Case, Claim, Constant, Published
    from slablab.result import Sweep
    from slablab.sweep import StoreLike

AS_IT_IS = "(as it is)"
SENSITIVITY_FACTORS = (0.7, 1.4)
ABLATION_SEEDS = 3


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    seed: int = 1,
    store: StoreLike = None,
    threads: int | None = None,
    progress: bool = False,
) -> Reproduction:
    """Runs a published result again: every case that its claims need, with as many seeds as the mail had runs.

    `quick` takes a few claims and one seed. The constants come fitted on the baseline series; everything else is a
    prediction. `store` keeps finished runs in a file, as that of `sweep` does.
    """
    # Late: most who import the package reproduce nothing.
    from slablab import published

    figure = published.named(name)
    quick = truth("quick", quick)
    count = whole("seeds", figure.seeds if seeds is None else seeds, "1 or more")
    claims = [c for c in fixed(figure) if not quick or figure.quick(c)]
    cases = [case for claim in claims for case in claim.cases]
    count = 1 if quick and seeds is None else count
    if threads is not None:
        threads = whole("threads", threads, "1 or more")
    seed = checked_seed(seed)
    checked_seed(seed + count - 1)
    runs = run_cases(figure, cases, seeds=count, seed=seed, store=store, threads=threads, progress=progress)
    from slablab.curve import Curve

    made = (Curve if figure.curve else Reproduction)(figure, claims, runs)
    made.how = How(seed=seed, threads=threads, store=store)
    return made


def fixed(figure: Published) -> list[Claim]:
    """The claims of a result, with its fitted constants in every case."""
    return [fixed_claim(figure, claim) for claim in figure.claims()]


def fixed_claim(figure: Published, claim: Claim) -> Claim:
    """A claim with the fitted constants in its cases."""
    from slablab.published.files import constants as fitted

    constants = fitted(figure.name)
    return claim.with_cases(lambda case: case.fixed(constants))


class Reproduction:
    """The finished runs of a published result beside the published values."""

    def __init__(self, figure: Published, claims: Sequence[Claim], runs: Runs) -> None:
        self.figure = figure
        self.claims = list(claims)
        """What is compared, with the fitted constants in its cases."""
        self.runs = runs
        from slablab.published.files import constants

        self.constants: tuple[Constant, ...] = constants(figure.name)
        """What was fitted, on what, how well."""
        self.how = How()
        """With which first seed, threads and store its further runs are made."""
        self._ablated: dict[tuple[int, str], Varied] = {}

    @property
    def sweep(self) -> Sweep:
        """The runs."""
        return self.runs.sweep

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run: `summary()` of the sweep."""
        return self.sweep.summary()

    @property
    def seeds(self) -> int:
        """Runs per case."""
        return max(len(r) for r in self.runs.by_case.values())

    def errors(self) -> pd.DataFrame:
        """One row per claim: published, simulated with its range over seeds, the error, the sign, the target.

        `use` says what a number is: `baseline` numbers fitted a constant, `shape` checks the fitted series elsewhere,
        `scored` ones are predictions, `not claimed` ones are out of the model's reach, a `prediction` has nothing
        published beside it. `error` is in percent for levels, in the value's own unit for changes, ratios and
        differences, from the nearest published end. `within` is the target for it and `met` whether it was reached.
        """
        import pandas as pd

        rows = []
        for claim in self.claims:
            value = self.runs.value(claim)
            low, high = self.runs.spread(claim)
            error = claim.error(value)
            rows.append(
                {
                    "row": claim.row,
                    "use": claim.use,
                    "unit": claim.unit,
                    "published_low": claim.published[0] if claim.published else None,
                    "published_high": claim.published[1] if claim.published else None,
                    "simulated": value,
                    "simulated_min": low,
                    "simulated_max": high,
                    "error": error,
                    "error_unit": "%" if claim.how == "level" else claim.unit,
                    "sign_right": claim.sign(value),
                    "within": claim.within,
                    "met": None if claim.within is None or error is None else abs(error) <= claim.within,
                    "why": claim.why,
                }
            )
        return pd.DataFrame(rows)

    def compared(self) -> pd.DataFrame:
        """The table that is written to files: `errors()`, or what the result's own figure shows."""
        return self.errors()

    def score(self) -> dict[str, Any]:
        """The result in a line: signs right, median and worst error of the scored claims, targets, constants.

        Errors are those of `points()`.
        """
        errors, off = self.errors(), self.points()
        scored = errors[errors["use"] == "scored"]
        signs = [bool(s) for s in scored["sign_right"] if s is not None]
        met = [bool(m) for m in errors["met"] if m is not None]
        return {
            "result": self.figure.name,
            "scored": len(scored),
            "signs_right": sum(signs),
            "signs": len(signs),
            "median_error": float(off.median()),
            "worst_error": float(off.max()),
            "targets_met": sum(met),
            "targets": len(met),
            "constants": len(self.constants),
            "constants_outside": sum(c.failed for c in self.constants),
        }

    def points(self) -> pd.Series[float]:
        """The absolute error of each scored claim: percent for levels, points for changes, hundredths for ratios."""
        import pandas as pd

        errors = self.errors()
        scored = errors[errors["use"] == "scored"]
        return pd.Series([_points(row) for _, row in scored.iterrows()], index=scored["row"], dtype=float)

    def table(self) -> str:
        """The result as plain text under 80 columns."""
        lines = [self.figure.title, f"{self.seeds} seed(s), {self.figure.reduce}; range over seeds in brackets", ""]
        heads = ["", "published", "simulated", "range", "error", ""]
        lines += aligned(heads, [_line(row) for _, row in self.errors().iterrows()])
        if self.figure.mail is not None:
            lines += ["", *self.figure.mail(self.runs)]
        return "\n".join([*lines, "", *self.verdict()])

    def verdict(self) -> list[str]:
        """What the comparison amounts to, in lines."""
        said = self.score()
        lines = []
        if said["scored"]:
            lines.append(
                f"{said['scored']} scored: {said['signs_right']} of {said['signs']} signs right, median error "
                f"{said['median_error']:.1f}, worst {said['worst_error']:.1f} (percent or points)"
            )
        if said["targets"]:
            lines.append(f"targets: {said['targets_met']} of {said['targets']} met")
        reasons: dict[str, list[str]] = {}
        for claim in self.claims:
            if claim.why:
                reasons.setdefault(claim.why, []).append(claim.row)
        lines += [f"{'; '.join(rows)}: {why}" for why, rows in reasons.items()]
        lines += [f"fitted: {c}" for c in self.constants]
        lines += [f"published: {self.figure.source}"]
        return [part for line in lines for part in textwrap.wrap(line, 79, subsequent_indent="  ")]

    def config(self) -> str:
        """Every case as the code that makes it."""
        return "\n".join(str(case) for case in self.runs.by_case)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws each comparison: the published number or range, and the simulated value with its range over seeds.

        Levels (MB/s, seconds) are in the table alone, where a result has comparisons. The axis is logarithmic beyond
        the published numbers where a value is far outside them.
        """
        from slablab import plot

        if ax is not None:
            plot.drawable(ax)
        compared = [i for i, c in enumerate(self.claims) if c.how != "level"] or list(range(len(self.claims)))
        errors = self.errors().iloc[compared].iloc[::-1].reset_index(drop=True)
        if ax is None:
            size = (6.4, 1.6 + 0.3 * len(errors))
            _, ax = needed("matplotlib.pyplot", "a figure").subplots(figsize=size, layout="constrained")
        at = range(len(errors))
        low, high = errors["published_low"].astype(float), errors["published_high"].astype(float)
        ax.hlines(at, low, high, color="black", linewidth=4, alpha=0.35)
        ax.plot(low, at, "kx", markersize=7, markeredgewidth=1.8, label="published")
        ax.plot(high, at, "kx", markersize=7, markeredgewidth=1.8)
        colour = plot.COLOURS["slub"]
        ax.hlines(at, errors["simulated_min"], errors["simulated_max"], color=colour, linewidth=1.5)
        ax.plot(errors["simulated"], at, "o", color=colour, markersize=5, label="simulated")
        ax.set_yticks(list(at), list(errors["row"]))
        far, near = errors["simulated"].abs().max(), max(low.abs().max(), high.abs().max())
        if far > 5 * near > 0:
            ax.set_xscale("symlog", linthresh=near)
        title = "\n".join(textwrap.wrap(self.figure.title, 46))
        ax.set(title=title, xlabel=_axis(self.claims[i] for i in compared))
        ax.grid(alpha=0.25)
        ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
        plot.note(ax, plot.caption(self.frame))
        return ax

    def ablations(
        self, *, seeds: int = ABLATION_SEEDS, progress: bool = False, store: StoreLike = None
    ) -> pd.DataFrame:
        """The headline claims with one mechanism taken away at a time, nothing fitted again.

        A mechanism that carries the result moves the value when it is gone: `moved` is by how much. Seeds count from
        the result's first one, and its store keeps these runs too, unless another is given.
        """
        words = {a.name: a.meaning for a in self.figure.ablations}
        frame = self._ablations(seeds, progress, store).moved()
        frame.insert(1, "meaning", [words.get(name, "") for name in frame["changed"]])
        return frame

    def plot_ablations(
        self, *, seeds: int = ABLATION_SEEDS, progress: bool = False, store: StoreLike = None
    ) -> list[Axes]:
        """Draws where the time of all CPUs went in the runs of `ablations()`: a bar per mechanism that is taken away.

        One panel per allocator of each headline claim. The runs are those of the table: they are made once.
        """
        from slablab import plot

        varied = self._ablations(seeds, progress, store)
        frame = varied.time()
        axes = plot.time(frame, x="changed", col="run")
        for ax, run in zip(axes, frame["run"].unique(), strict=True):
            ax.set(title="\n".join(textwrap.wrap(run, 36)), xlabel="")
            ax.title.set_fontsize("medium")
            ax.tick_params(axis="x", labelrotation=35, labelsize="small")
            for label in ax.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
        about = plot.caption(varied.runs.sweep.summary())
        plot.note(axes[0], f"{self.figure.name}, one mechanism taken away at a time · {about}")
        return axes

    def _ablations(self, seeds: int, progress: bool, store: StoreLike) -> Varied:
        key = (whole("seeds", seeds, "1 or more"), str(store))
        if key not in self._ablated:
            changes = {a.name: a.of for a in self.figure.ablations}
            self._ablated[key] = self._varied(changes, seeds, progress, store)
        return self._ablated[key]

    def sensitivity(self, *, seeds: int = 1, progress: bool = False, store: StoreLike = None) -> pd.DataFrame:
        """The headline claims with each unfitted low-confidence figure of the machines scaled by 0.7 and by 1.4.

        Nothing is fitted again: it says what the result hangs on. With one seed differences of a percent are noise.
        """
        from functools import partial

        fitted = {c.parameter for c in self.constants}
        headline = self.figure.headline()
        names = {str(case.machine.document()["name"]) for claim in headline for case in claim.cases}
        figures = {
            name
            for machine in names
            for name, v in entry("machine", machine)["values"].items()
            if v["confidence"] == "low" and f"machine.{name}" not in fitted and _scalable(v["value"])
            # Some stand in the table of machines, and the model has another in their place.
            if not v["source"].startswith("not used by the model")
            # Counts of sockets and cores are another machine, not an uncertain figure.
            and not (v["unit"] == "" and float(v["value"]).is_integer())
        }
        changes = {
            f"{name} × {factor}": partial(_scaled, name, factor)
            for name in sorted(figures)
            for factor in SENSITIVITY_FACTORS
        }
        return self._varied(changes, seeds, progress, store).moved()

    def _varied(self, changes: Mapping[str, Any], seeds: int, progress: bool, store: StoreLike) -> Varied:
        """The headline claims with each change made to their cases."""
        shown = [fixed_claim(self.figure, claim) for claim in self.figure.headline()]
        varied = {
            (name, claim.row): claim.with_cases(change)
            for name, change in {AS_IT_IS: lambda case: case, **changes}.items()
            for claim in shown
        }
        cases = [case for claim in varied.values() for case in claim.cases]
        return Varied(varied, self._more(cases, seeds, progress, store))

    def _more(self, cases: Sequence[Case], seeds: int, progress: bool, store: StoreLike) -> Runs:
        """Further runs, made as those of the result were."""
        return run_cases(
            self.figure,
            cases,
            seeds=whole("seeds", seeds, "1 or more"),
            seed=self.how.seed,
            store=self.how.store if store is None else store,
            threads=self.how.threads,
            progress=progress,
        )

    def __repr__(self) -> str:
        return f"<Reproduction of {self.figure.name}: {len(self.sweep)} runs>"


@dataclass(frozen=True)
class How:
    """How the runs of a result are made."""

    seed: int = 1
    threads: int | None = None
    store: StoreLike = None


@dataclass(frozen=True)
class Varied:
    """The headline claims, each as it is and with one change at a time, and the runs of them all."""

    claims: Mapping[tuple[str, str], Claim]
    """(change, row) → the claim with the change in its cases."""
    runs: Runs

    def moved(self) -> pd.DataFrame:
        """One row per change and claim: the value, and by how much the change moved it."""
        import pandas as pd

        rows = []
        for (name, row), claim in self.claims.items():
            value, was = self.runs.value(claim), self.runs.value(self.claims[AS_IT_IS, row])
            rows.append({"changed": name, "row": row, "value": value, "moved": value - was, "unit": claim.unit})
        return pd.DataFrame(rows)

    def time(self) -> pd.DataFrame:
        """`Result.time()` of every run, in front the change, and allocator and claim as `run`."""
        import pandas as pd

        parts = []
        seen = set()
        for (name, row), claim in self.claims.items():
            for cases in (claim.base, claim.tested):
                # Several claims may have one base.
                if not cases or (name, cases) in seen:
                    continue
                seen.add((name, cases))
                run = f"{_short(cases[0])}: {row}"
                done = [result for case in cases for result in self.runs.by_case[case]]
                parts += [r.time().assign(changed=name, run=run, repeat=i) for i, r in enumerate(done)]
        front = ["changed", "run", "repeat"]
        frame = pd.concat(parts, ignore_index=True)
        return frame[[*front, *(c for c in frame.columns if c not in front)]]


def _short(case: Case) -> str:
    """Allocator and era of a case."""
    document = case.allocator.document()
    return f"{document['name']}@{document['era']}" if "era" in document else str(document["name"])


def _scaled(name: str, factor: float, case: Any) -> Any:
    machine = case.machine.document()
    has = entry("machine", str(machine["name"]))["values"][name]["value"]
    value = machine.get(name, has)
    return case.changed({f"machine.{name}": value * factor}) if _scalable(value) else case


def _scalable(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value != 0


def _points(row: Any) -> float:
    """An error in percent: a level's own, a change's points, a ratio's hundredths; a difference's share."""
    if row["error_unit"] == "%":
        return abs(float(row["error"]))
    if row["error_unit"] == "":
        return 100 * abs(float(row["error"]))
    return 100 * abs(float(row["error"])) / max(abs(float(row["published_low"])), abs(float(row["published_high"])))


def _line(row: Any) -> list[str]:
    digits = 3 if row["unit"] == "" else 1 if row["unit"] == "%" else 0 if abs(row["simulated"]) >= 100 else 2
    sign = "+" if row["unit"] == "%" else ""
    number = f"{{:{sign}.{digits}f}}".format
    low, high = row["published_low"], row["published_high"]
    said = "" if low is None or math.isnan(low) else number(low) if low == high else f"{number(low)}..{number(high)}"
    mark = row["use"] if row["met"] is None else "met" if row["met"] else "MISSED"
    if row["sign_right"] is False:
        mark += ", sign wrong"
    error = "" if row["error"] is None or math.isnan(row["error"]) else f"{row['error']:+.{3 if digits == 3 else 1}f}"
    span = f"{number(row['simulated_min'])}..{number(row['simulated_max'])}"
    unit = f" {row['unit']}" if row["unit"] else ""
    return [row["row"], said, number(row["simulated"]) + unit, span, error, mark]


def _axis(claims: Iterable[Claim]) -> str:
    units = dict.fromkeys(c.unit for c in claims)
    return ", ".join(u or "ratio" for u in units)


def aligned(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A text table: the first column to the left, the others to the right."""
    cells = [heads, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    lines = []
    for row in cells:
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join([first, *rest]).rstrip())
    return lines
