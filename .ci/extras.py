"""Installs the packages of one extra of pyproject.toml, without building slablab again."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]


def packages(extra: str) -> list[str]:
    """The requirements of an extra; `slablab[a,b]` in it stands for those of a and b."""
    found: list[str] = []
    for wanted in PROJECT["optional-dependencies"][extra]:
        own = re.fullmatch(r"slablab\[([\w,]+)\]", wanted)
        found += [p for inner in own[1].split(",") for p in packages(inner)] if own else [wanted]
    return found


sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *packages(sys.argv[1])]))
