"""Installs the packages of one extra of pyproject.toml, without building slablab again."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
wanted = project["optional-dependencies"][sys.argv[1]]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *wanted]))
