"""SLUB's eras as a table, made from the code: when each was, what it is known for, which policies changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slablab.config import catalog

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("era", "when", "policy", "before", "after")


def steps() -> list[dict[str, Any]]:
    """One entry per era, oldest first: era, when, what, its changes, and the event counters that came and went."""
    found: list[dict[str, Any]] = catalog()["history"]["slub"]
    return found


def eras() -> pd.DataFrame:
    """SLUB's eras as a frame: one row per era and policy that it changed, with the value before and after.

    The first era has no row: it is where the others start. `sl.catalog()` has every default of every era.
    """
    import pandas as pd

    rows = [
        {"era": s["era"], "when": s["when"], **{k: change[k] for k in ("policy", "before", "after")}}
        for s in steps()
        for change in s["changes"]
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def page() -> str:
    """The same as the page `docs/eras.md`."""
    lines = [
        "# SLUB's eras",
        "",
        "Written by `slablab eras --markdown`; a test compares it with the code. Each era is the one before with the",
        "policies of its row changed; `sl.Slub(era, policy=value)` changes any of them alone. What a policy means, and",
        "its default in every era: `slablab catalog`. Policies in italics belong to the era and are not parameters.",
        "",
        "| era | when | what changed | policy: before → after | event counters |",
        "|---|---|---|---|---|",
    ]
    names = {p["name"] for a in catalog()["allocators"] if a["name"] == "slub" for p in a["parameters"]}
    for step in steps():
        changes = "<br>".join(
            f"{_name(c['policy'], names)}: {_shown(c['before'])} → {_shown(c['after'])}" for c in step["changes"]
        )
        words = [f"`{step['era']}`", step["when"], step["what"], changes or "where the others start", _counters(step)]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join([*lines, ""])


def _name(policy: str, parameters: set[str]) -> str:
    return f"`{policy}`" if policy in parameters else f"*{policy}*"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(v)}" for key, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _counters(step: dict[str, Any]) -> str:
    if not step["counters"]:
        return "none"
    said = [f"{step['counters']}"]
    if len(step["came"]) < step["counters"]:
        said += ["+ " + ", ".join(step["came"])] if step["came"] else []
        said += ["− " + ", ".join(step["went"])] if step["went"] else []
    return "<br>".join(said)
