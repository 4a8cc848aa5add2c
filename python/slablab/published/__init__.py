"""Published results: their figures, how to run them again, and which part of them may calibrate."""

from __future__ import annotations

from slablab.published import piggin_2007
from slablab.published.files import constants
from slablab.published.model import Ablation, Case, Claim, Constant, Fit, Published
from slablab.values import unknown

__all__ = ["ALL", "Ablation", "Case", "Claim", "Constant", "Fit", "Published", "constants", "named"]

ALL = {p.name: p for p in (piggin_2007.RESULT,)}


def named(name: str) -> Published:
    """The published result of that name."""
    if not isinstance(name, str) or name not in ALL:
        raise unknown("reproduce", name, ALL)
    return ALL[name]
