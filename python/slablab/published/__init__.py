"""Published results: their figures, how to run them again, and which part of them may calibrate."""

from __future__ import annotations

from slablab.published import chen_2007, enberg_2008, lameter_2011, piggin_2007, rientjes_2011, zhang_2008
from slablab.published.files import constants
from slablab.published.model import Ablation, Case, Claim, Constant, Fit, Published
from slablab.values import unknown

__all__ = ["ALL", "Ablation", "Case", "Claim", "Constant", "Fit", "Published", "constants", "named"]

MODULES = (piggin_2007, chen_2007, enberg_2008, zhang_2008, lameter_2011, rientjes_2011)
ALL: dict[str, Published] = {m.RESULT.name: m.RESULT for m in MODULES}


def named(name: str) -> Published:
    """The published result of that name."""
    if not isinstance(name, str) or name not in ALL:
        raise unknown("reproduce", name, ALL)
    return ALL[name]
