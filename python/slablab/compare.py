"""Comparing runs: ratios against a baseline, how sure they are, and "no difference" as an answer.

The ratio is that of the means over the repeats. Its interval comes from a bootstrap of the repeats on the logarithmic
scale, stretched as Student's t asks for so few of them (Hesterberg 2015: the plain percentile interval of a handful of
runs is too narrow), and wide enough that all intervals of a table hold together with the stated confidence
(Bonferroni): a large table compared with itself must not find a difference in every twentieth row. The effect is
Cliff's delta: of all pairs (this, baseline) the share in which this is higher less the share in which it is lower.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from slablab import config
from slablab.result import Sweep
from slablab.values import plain, refused, shown, unknown

if TYPE_CHECKING:
    import os

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from slablab.store import Store

    Baseline: TypeAlias = str | config.Part | Mapping[str, Any] | Sweep

DRAWS = 2000
"""Resamples of a bootstrap: the ends of the interval move by less than a hundredth of its width."""
SAME, HIGHER, LOWER = "no difference", "higher", "lower"
ONE_REPEAT, NO_RATIO = "unknown: one repeat", "unknown: a mean of zero"

PARTS = ("machine", "allocator", "era", "workload", "workload_era")
"""Columns that name the parts of a run."""

LOWER_IS_BETTER = ("_pct", "_kb", "_pages_peak", "_pages_end", "_per_op", "_failed", "elapsed_s")
"""Ends of the columns of which less is better; fast-path shares are none of them."""


def compare(
    grid: Sweep, baseline: Baseline, metric: str = "throughput", *, confidence: float = 0.95, margin: float = 0.0
) -> pd.DataFrame:
    """One row per cell that is not the baseline's; see `Sweep.compare`."""
    import pandas as pd

    _checked(confidence, margin)
    frame = grid.summary()
    if frame.empty:
        raise refused("compare", "a sweep without runs", "at least one run of each side")
    _numbers(frame, metric)
    if isinstance(baseline, Sweep):
        other = baseline.summary()
        if other.empty:
            raise refused("baseline", repr(baseline), "a sweep with at least one run")
        _numbers(other, metric)
        names = [c for c in _parameters(frame) if c in other.columns]
        pairs = _matched(frame, other, names, names)
        front = ["allocator", "era", *_varying(frame, ["allocator", "era"])]
        pairs = [({k: v for k, v in keys.items() if k in front}, ours, theirs) for keys, ours, theirs in pairs]
    else:
        fixed = _fixed(frame, baseline)
        chosen = _where(frame, fixed)
        if not chosen.any():
            raise refused("baseline", _spelled(fixed), f"one that is in the frame: {'; '.join(_present(frame, fixed))}")
        if chosen.all():
            raise refused("baseline", _spelled(fixed), "something to compare with: every run is the baseline's")
        names = _varying(frame, fixed)
        pairs = _matched(frame[~chosen], frame[chosen], [*fixed, *names], names)
    if not pairs:
        raise refused("baseline", _word(baseline), "cells that differ from others in nothing else; none do")
    level = 1 - (1 - confidence) / len(pairs)
    rows = []
    for keys, ours, theirs in pairs:
        units = dict.fromkeys([*ours["unit"], *theirs["unit"]])
        if metric == "throughput" and len(units) > 1:
            # What a native machine does without the protocol's work is no throughput of the same thing.
            raise refused("metric", metric, f"runs of one unit; these are in {' and in '.join(units)}")
        sides = (ours[metric].to_numpy(float), theirs[metric].to_numpy(float))
        rows.append(keys | _row(*sides, metric, level, margin))
    made = pd.DataFrame(rows)
    behind = [metric, "spread_pct", "baseline", "baseline_spread_pct", "repeats", "ratio", "low", "high"]
    front = [c for c in frame.columns if c in made.columns and c not in behind]
    return made[[*front, *behind, "effect", "verdict"]]


def regressions(
    old: str | os.PathLike[str] | Store | Sweep,
    new: str | os.PathLike[str] | Store | Sweep,
    metric: str = "throughput",
    *,
    confidence: float = 0.95,
    margin: float = 0.0,
) -> pd.DataFrame:
    """The cells that `new` does worse than `old`, worst first: two stores, or two sweeps.

    A store stands for its runs of this version, or of its only one. The columns are those of `Sweep.compare`; an empty
    frame means that nothing is known to have become worse.
    """
    found = compare(_runs(new, "new"), _runs(old, "old"), metric, confidence=confidence, margin=margin)
    worse = HIGHER if lower_is_better(metric) else LOWER
    bad = found[found["verdict"] == worse]
    return bad.sort_values("ratio", ascending=worse == LOWER).reset_index(drop=True)


def lower_is_better(metric: str) -> bool:
    """True for waits, memory and work per operation; throughput and fast-path shares are better when higher."""
    return metric.endswith(LOWER_IS_BETTER) and not metric.endswith("_fast_pct")


def _row(ours: NDArray[Any], theirs: NDArray[Any], metric: str, level: float, margin: float) -> dict[str, Any]:
    if metric == "throughput" and not (ours.all() and theirs.all()):
        # A throughput of 0 is none: nothing was completed, or a job was not seen in its steady state.
        ratio = low = high = math.nan
    else:
        ratio, low, high = interval(ours, theirs, level)
    verdict = SAME
    if math.isnan(low):
        verdict = ONE_REPEAT if math.isfinite(ratio) and ratio > 0 else NO_RATIO
    elif low > 1 + margin:
        verdict = HIGHER
    elif high < 1 / (1 + margin):
        verdict = LOWER
    return {
        metric: float(ours.mean()),
        "spread_pct": _spread(ours),
        "baseline": float(theirs.mean()),
        "baseline_spread_pct": _spread(theirs),
        "repeats": min(len(ours), len(theirs)),
        "ratio": ratio,
        "low": low,
        "high": high,
        "effect": effect(ours, theirs),
        "verdict": verdict,
    }


def interval(ours: NDArray[Any], theirs: NDArray[Any], level: float) -> tuple[float, float, float]:
    """Ratio of the means with the ends of its interval; NaN ends without repeats, or when one mean is zero."""
    import numpy as np

    top, bottom = float(ours.mean()), float(theirs.mean())
    ratio = 1.0 if top == bottom else top / bottom if bottom else math.inf
    if len(ours) < 2 or len(theirs) < 2 or not ratio or not math.isfinite(ratio):
        return ratio, math.nan, math.nan
    if not bottom:
        return 1.0, 1.0, 1.0
    # A fixed seed: the same runs give the same answer.
    chance = np.random.default_rng(1)
    logs = np.log(np.maximum(_resampled(ours, chance), 1e-300)) - np.log(np.maximum(_resampled(theirs, chance), 1e-300))
    middle = math.log(ratio)
    below, above = np.quantile(logs, [0.025, 0.975]) - middle
    width = student(level, _freedom(ours, theirs)) / 1.959964
    # The bootstrap of n runs has the variance of n - 1 of them.
    width *= math.sqrt(min(len(ours), len(theirs)) / (min(len(ours), len(theirs)) - 1))
    return ratio, math.exp(max(middle + width * below, -700.0)), math.exp(min(middle + width * above, 700.0))


def effect(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Cliff's delta."""
    import numpy as np

    return float(np.sign(ours[:, None] - theirs[None, :]).mean())


def student(level: float, freedom: float) -> float:
    """The two-sided quantile of Student's t: |t| is below it with probability `level`.

    Found by bisection over the distribution function, which for t = sqrt(n) tan(a) is an integral of cos(a)^(n - 1).
    """
    import numpy as np

    angles = np.linspace(0, math.pi / 2, 20001)
    density = np.cos(angles) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(level, area / area[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)


def _resampled(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Means of resamples of the repeats."""
    means: NDArray[Any] = values[chance.integers(0, len(values), (DRAWS, len(values)))].mean(axis=1)
    return means


def _freedom(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Degrees of freedom for two samples of unequal spread (Welch, Satterthwaite)."""
    parts = [(float(v.var(ddof=1)) / len(v) / float(v.mean()) ** 2, len(v)) for v in (ours, theirs)]
    total = sum(p for p, _ in parts)
    if total == 0:
        return float(len(ours) + len(theirs) - 2)
    return max(1.0, total**2 / sum(p**2 / (n - 1) for p, n in parts))


def _spread(values: NDArray[Any]) -> float:
    """Standard deviation of the repeats in percent of their mean."""
    mean = float(values.mean())
    return 100 * float(values.std(ddof=1)) / mean if len(values) > 1 and mean else math.nan


# Which rows belong together.


def _parameters(frame: pd.DataFrame) -> list[str]:
    """Columns that say what was run: those before the seed."""
    return list(frame.columns[: list(frame.columns).index("seed")])


def _fixed(frame: pd.DataFrame, baseline: object) -> dict[str, Any]:
    """The columns that a baseline names, with its values."""
    if isinstance(baseline, str):
        name, era = config.named_era(baseline)
        if name not in [e["name"] for e in config.catalog()["allocators"]]:
            raise unknown("baseline", baseline, dict.fromkeys(str(a) for a in frame["allocator"]))
        eras = dict.fromkeys(f"{name}@{e}" for e in frame.loc[frame["allocator"] == name, "era"])
        if era is None and len(eras) > 1:
            raise refused("baseline", shown(baseline), f"one era: {', '.join(eras)}")
        return {"allocator": name} | ({"era": era} if era else {})
    if isinstance(baseline, config.Part):
        words = baseline.document()
        found: dict[str, Any] = {baseline.part: words.pop("name")} | words
        return {("workload_era" if (k, baseline.part) == ("era", "workload") else k): v for k, v in found.items()}
    if not isinstance(baseline, Mapping) or not baseline:
        raise refused(
            "baseline", shown(baseline), 'an allocator, as "slab@2.6.24"; columns, as {"cpus": 4}; or a Sweep'
        )
    for name in baseline:
        if name not in _parameters(frame):
            raise unknown("baseline", name, _parameters(frame))
    return {name: plain(value, f"baseline.{name}") for name, value in baseline.items()}


def _where(frame: pd.DataFrame, fixed: Mapping[str, Any]) -> pd.Series[bool]:
    import pandas as pd

    chosen = pd.Series(True, index=frame.index)
    for name, value in fixed.items():
        if name not in frame.columns:
            raise unknown("baseline", name, _parameters(frame))
        if isinstance(value, list | dict):
            raise refused(f"baseline.{name}", shown(value), "one value of the column")
        chosen &= frame[name].isna() if value is None else (frame[name] == value).fillna(False).astype(bool)
    return chosen


def _varying(frame: pd.DataFrame, fixed: Iterable[str]) -> list[str]:
    """The parameters that vary among runs which agree in the baseline's columns: the axes of the comparison.

    What follows from the choice of machine, allocator and workload, as an era's own tunables, is no axis.
    """
    fixed = list(fixed)

    def within(columns: list[str], names: list[str]) -> list[str]:
        groups = frame.groupby(columns, dropna=False, sort=False)
        return [n for n in names if n not in columns and (groups[n].nunique(dropna=False) > 1).any()]

    chosen = within(fixed, [c for c in PARTS if c in frame.columns])
    if "allocator" in chosen and "era" not in fixed:
        chosen = list(dict.fromkeys([*chosen, "era"]))
    names = [n for n in dict.fromkeys([*fixed, *PARTS]) if n in frame.columns]
    return [*chosen, *within(names, [c for c in _parameters(frame) if c not in PARTS])]


def _matched(
    ours: pd.DataFrame, theirs: pd.DataFrame, shown_columns: Sequence[str], names: Sequence[str]
) -> list[tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]]:
    """Every cell with the baseline's cell that agrees in `names`; a parameter that one side lacks binds nobody."""
    bases = [(dict(zip(names, key, strict=True)), rows) for key, rows in _cells(theirs, names)]
    exact = {tuple(key.values()): rows for key, rows in bases}
    pairs = []
    for key, rows in _cells(ours, list(dict.fromkeys([*shown_columns, *names]))):
        mine = dict(zip(dict.fromkeys([*shown_columns, *names]), key, strict=True))
        base = exact.get(tuple(mine[n] for n in names))
        if base is None:
            fits = [b for k, b in bases if all(_agree(mine[n], k[n]) for n in names)]
            base = fits[0] if fits else None
        if base is not None:
            pairs.append((mine, rows, base))
    return pairs


def _cells(frame: pd.DataFrame, names: Sequence[str]) -> Iterable[tuple[tuple[Hashable, ...], pd.DataFrame]]:
    """The rows by the values of some columns, missing ones as None."""
    import pandas as pd

    cells: dict[tuple[Hashable, ...], list[int]] = {}
    columns = [frame[n].tolist() for n in names]
    for at, key in enumerate(zip(*columns, strict=True) if names else [()] * len(frame)):
        plain = tuple(None if pd.isna(v) else v for v in key)
        cells.setdefault(plain, []).append(at)
    return [(key, frame.iloc[rows]) for key, rows in cells.items()]


def _agree(mine: object, theirs: object) -> bool:
    return mine is None or theirs is None or mine == theirs


def _numbers(frame: pd.DataFrame, metric: str) -> None:
    """Refuses a metric that is no measured number."""
    import pandas as pd

    behind = list(frame.columns)[list(frame.columns).index("seed") + 2 :]
    kinds = pd.api.types
    known = [c for c in behind if kinds.is_numeric_dtype(frame[c]) and not kinds.is_bool_dtype(frame[c])]
    if metric not in known:
        raise unknown("metric", metric, known)


def _checked(confidence: object, margin: object) -> None:
    confidence, margin = plain(confidence, "confidence"), plain(margin, "margin")
    if not isinstance(confidence, float) or not 0.5 <= confidence < 1:
        raise refused("confidence", shown(confidence), "a number from 0.5 to below 1, as 0.95")
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 <= margin < 1:
        raise refused("margin", shown(margin), "a share from 0 to below 1, as 0.01 for one percent")


def _present(frame: pd.DataFrame, fixed: Mapping[str, Any]) -> list[str]:
    """The values that a baseline could have had."""
    rows = frame[list(fixed)].drop_duplicates().head(8)
    return ["@".join(str(v) for v in row) for row in rows.itertuples(index=False)]


def _spelled(fixed: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in fixed.items())


def _word(baseline: object) -> str:
    return repr(baseline) if isinstance(baseline, Sweep) else shown(baseline)


def _runs(given: object, parameter: str) -> Sweep:
    """The runs of a store, or a sweep as it is."""
    import os

    from slablab.store import Store

    if isinstance(given, Sweep):
        return given
    if isinstance(given, Store):
        return given.sweep(given.only())
    if not isinstance(given, str | os.PathLike):
        raise refused(parameter, shown(given), "a Sweep, a Store, or the name of a store's file")
    with Store(given, write=False) as kept:
        return kept.sweep(kept.only())
