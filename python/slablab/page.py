"""One self-contained page of reproduced results: tables, figures, errors, ablations, sensitivity. It opens offline."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from slablab.curve import Curve
from slablab.extras import needed
from slablab.values import refused

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slablab.reproduce import Reproduction

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
pre, td { font-family: ui-monospace, monospace; font-size: 13px }
pre { background: #f6f6f6; padding: 0.8rem; overflow-x: auto }
table { border-collapse: collapse } td, th { padding: 0.15rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } img { max-width: 100% } .no { color: #b00020; font-weight: 600 }
"""


def page(results: Sequence[Reproduction], *, ablations: bool = True, sensitivity: bool = True) -> str:
    """The page as HTML. With ablations or sensitivity it runs their cases."""
    from slablab import __version__

    parts = [
        f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>slablab: published results</title>"
        f"<style>{_STYLE}</style></head><body><h1>Published results, predicted</h1>",
        f"<p>slablab {escape(__version__)}. Constants are fitted on baseline numbers alone, before any comparison; "
        "every scored number is a prediction. A missed target stands where a met one would.</p>",
        _table(scores(results)),
        *(_result(r, ablations=ablations, sensitivity=sensitivity) for r in results),
        "</body></html>",
    ]
    return "\n".join(parts)


def scores(results: Sequence[Reproduction]) -> pd.DataFrame:
    """The score of each result, and of all together."""
    import pandas as pd

    frame = pd.DataFrame([r.score() for r in results])
    if len(frame) > 1:
        sums = ["scored", "signs_right", "signs", "targets_met", "targets", "constants", "constants_outside"]
        scored = pd.concat([r.points() for r in results])
        whole = {
            **frame[sums].sum().to_dict(),
            "result": "all",
            "median_error": scored.median(),
            "worst_error": scored.max(),
        }
        frame = pd.concat([frame, pd.DataFrame([whole])[frame.columns]], ignore_index=True)
    return frame


BEGIN, END = "<!-- accuracy -->", "<!-- /accuracy -->"


def accuracy(results: Sequence[Reproduction]) -> str:
    """The scores as a Markdown table."""
    rows = []
    for row in scores(results).to_dict("records"):
        signs, met = f"{row['signs_right']} of {row['signs']}", f"{row['targets_met']} of {row['targets']}"
        errors = [f"{row[e]:.1f}" if not math.isnan(row[e]) else "" for e in ("median_error", "worst_error")]
        constants = f"{row['constants']}" + (f", {n} failed" if (n := row["constants_outside"]) else "")
        rows.append(f"| {row['result']} | {row['scored']} | {signs} | {' | '.join(errors)} | {met} | {constants} |")
    heads = "| result | scored | signs right | median error | worst | targets met | fitted constants |"
    return "\n".join([heads, "|---|---|---|---|---|---|---|", *rows])


def put_accuracy(text: str, results: Sequence[Reproduction]) -> str:
    """A page with the table between its two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise refused("--readme", "a page without markers", f"one with {BEGIN} and {END}, between which the table goes")
    return f"{before}{BEGIN}\n{accuracy(results)}\n{END}{after}"


def _result(made: Reproduction, *, ablations: bool, sensitivity: bool) -> str:
    figure = made.figure
    parts = [
        f"<h2 id='{escape(figure.name)}'>{escape(figure.title)}</h2>",
        f"<p><b>{escape(figure.question)}</b><br>{escape(figure.source)}</p>",
        _picture(made.plot()),
        *([_picture(made.plot_mail())] if isinstance(made, Curve) else []),
        f"<pre>{escape(made.table())}</pre>",
        "<h3>Every number</h3>",
        _table(made.errors()),
    ]
    if ablations and figure.ablations:
        parts += [
            "<h3>Ablations: one mechanism taken away, nothing fitted again</h3>",
            _table(made.ablations()),
            "<p>Where the time of all CPUs went in these runs:</p>",
            _picture(made.plot_ablations()[0]),
        ]
    if sensitivity:
        parts += [
            "<h3>Sensitivity: one figure of low confidence scaled, nothing fitted again</h3>",
            _table(made.sensitivity()),
        ]
    if isinstance(made, Curve):
        parts += ["<h3>What would make the published ratio come out</h3>", _table(made.hypotheses())]
    if figure.limits:
        parts += ["<h3>Not modelled</h3><ul>", *(f"<li>{escape(text)}</li>" for text in figure.limits), "</ul>"]
    parts += [f"<details><summary>Every case, as code</summary><pre>{escape(made.config())}</pre></details>"]
    return "\n".join(parts)


def _picture(axes: Axes) -> str:
    plt = needed("matplotlib.pyplot", "a page")
    drawn: Any = axes.get_figure(root=True)
    title = " ".join(axes.get_title().split())
    out = io.BytesIO()
    drawn.savefig(out, dpi=110, format="png")
    plt.close(drawn)
    words = base64.b64encode(out.getvalue()).decode()
    return f"<img alt='{escape(title)}' src='data:image/png;base64,{words}'>"


def _table(frame: pd.DataFrame) -> str:
    columns = [c for c in frame.columns if not frame[c].isin(["", None]).all()]
    head = "".join(f"<th>{escape(str(c)).replace('_', ' ')}</th>" for c in columns)
    body = "".join(f"<tr>{''.join(_cell(c, row[c]) for c in columns)}</tr>" for _, row in frame.iterrows())
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(column: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<td></td>"
    if column in ("met", "sign_right"):
        return "<td>yes</td>" if value else "<td class='no'>no</td>"
    return f"<td>{value:.4g}</td>" if isinstance(value, float) else f"<td>{escape(str(value))}</td>"
