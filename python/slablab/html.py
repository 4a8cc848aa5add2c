"""What notebooks show of a config, a result, a sweep."""

from __future__ import annotations

from collections.abc import Iterable


def listing(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A small table of names and values under a title."""
    from html import escape

    left = ' style="text-align:left"'
    lines = "".join(
        f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(_shown(value))}</td></tr>" for name, value in rows
    )
    return f"<div><b>{escape(title)}</b><table>{lines}</table></div>"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) <= 100 else text[:99] + "…"
