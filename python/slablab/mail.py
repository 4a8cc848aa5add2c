"""The plain-text table that people paste into a mail: under 80 columns, percent against a baseline, ± spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from slablab.compare import SAME, compare
from slablab.result import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from slablab.compare import Baseline

WIDEST = 79
"""Columns of a line."""


def table(
    grid: Sweep, baseline: Baseline, metric: str = "throughput", *, confidence: float = 0.95, margin: float = 0.0
) -> str:
    """The comparison as text; see `Sweep.compare`."""
    found = compare(grid, baseline, metric, confidence=confidence, margin=margin)
    return "\n".join([*_head(grid, baseline, metric, confidence, found), "", *_body(found, metric)])


def text(found: pd.DataFrame, metric: str = "throughput") -> str:
    """A frame of `compare` or `regressions` as text, without its heading."""
    return "\n".join(_body(found, metric))


def _head(grid: Sweep, baseline: Baseline, metric: str, confidence: float, found: pd.DataFrame) -> list[str]:
    frame = grid.summary()
    unit = f" ({', '.join(dict.fromkeys(frame['unit']))})" if metric == "throughput" else ""
    said = ["machine", "workload", "version"]
    names = [f"{n} {', '.join(dict.fromkeys(str(v) for v in frame[n]))}" for n in said if n not in found.columns]
    against = "the other runs" if isinstance(baseline, Sweep) else _baseline(baseline)
    lines = [
        f"{metric}{unit} against {against}",
        "; ".join(names),
        f"mean of {_span(found['repeats'])} repeat(s) ± standard deviation; change with its {confidence:.0%} interval,",
        f'which holds for all lines together; "=" is {SAME}',
    ]
    import textwrap

    return [part for line in lines if line for part in textwrap.wrap(line, WIDEST)]


def _body(found: pd.DataFrame, metric: str) -> list[str]:
    import pandas as pd

    keys = list(found.columns[: list(found.columns).index(metric)]) if len(found) else []
    if not keys and not len(found):
        return ["nothing to show"]
    one = [k for k in keys if found[k].nunique(dropna=False) == 1 and k not in ("allocator", "era")]
    lines = [f"every line: {', '.join(f'{k} {_word(found[k].iloc[0])}' for k in one)}"] if one else []
    keys = [k for k in keys if k not in one]
    if {"allocator", "era"} <= set(keys):
        keys.remove("era")
    rows = [[*keys, "this", "baseline", "change", "interval", ""]]
    records: list[dict[str, Any]] = found.to_dict("records")  # type: ignore[assignment]
    for row in records:
        words = [_word(row[k]) for k in keys]
        if "allocator" in keys and not pd.isna(row.get("era", math.nan)):
            words[keys.index("allocator")] += f"@{row['era']}"
        rows.append([*words, *_numbers(row, metric)])
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    left = len(keys)
    for line in rows:
        cells = [w.ljust(n) if c < left else w.rjust(n) for c, (w, n) in enumerate(zip(line, widths, strict=True))]
        lines += _fitted("  ".join(cells).rstrip(), left and sum(widths[:left]) + 2 * left)
    return lines


def _numbers(row: dict[str, Any], metric: str) -> list[str]:
    verdict = {"higher": "+", "lower": "-", SAME: "="}.get(row["verdict"], "?")
    change = f"{100 * (row['ratio'] - 1):+.1f}%" if math.isfinite(row["ratio"]) else "from 0"
    between = "" if math.isnan(row["low"]) else f"{_percent(row['low'])}..{_percent(row['high'])}"
    return [
        _measured(row[metric], row["spread_pct"]),
        _measured(row["baseline"], row["baseline_spread_pct"]),
        change,
        between,
        verdict,
    ]


def _percent(ratio: float) -> str:
    change = 100 * (ratio - 1)
    return f"{change:+.1f}" if abs(change) < 1000 else f"{change:+.0e}"


def _measured(value: float, spread: float) -> str:
    return f"{value:.4g}" + ("" if math.isnan(spread) else f" ±{spread:.1f}%")


def _fitted(line: str, names: int) -> list[str]:
    """A line that is too long goes on below its names."""
    if len(line) <= WIDEST or not names:
        return [line[:WIDEST]]
    return [line[:names].rstrip()[:WIDEST], "    " + line[names:].strip()[: WIDEST - 4]]


def _word(value: object) -> str:
    import pandas as pd

    if pd.isna(value):  # type: ignore[call-overload]
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _baseline(baseline: object) -> str:
    if isinstance(baseline, dict):
        return ", ".join(f"{k} {v}" for k, v in baseline.items())
    return str(baseline)


def _span(values: pd.Series[Any]) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"
