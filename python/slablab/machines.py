"""Machines as files and as tables: every figure with its unit, its source and how far to trust it.

A machine file is TOML in the form of the built-in presets: a name, and for each figure a table `[values.KEY]` with
value, unit, confidence and source. `Sim("file.toml")` reads one, `Sim(…).toml()` writes one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slablab import _core
from slablab.values import refused, shown, unknown

if TYPE_CHECKING:
    import pandas as pd


def read(path: str) -> tuple[str, dict[str, Any]]:
    """Name and figures of a machine file; what is no machine file is refused, by the key where there is one."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise refused("machine", shown(path), f"a machine file that can be read ({e.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise refused("machine", shown(path), f"a machine file in TOML ({e})") from None
    for key in document:
        if key not in ("name", "values"):
            raise unknown(f"{path}: key", key, ("name", "values"))
    name, values = document.get("name"), document.get("values")
    if not isinstance(name, str) or not name:
        raise refused(f"{path}: name", shown(name) if name is not None else "nothing", "the machine's name, a word")
    if not isinstance(values, dict):
        raise refused(f"{path}: values", shown(values) if values is not None else "nothing", "tables [values.KEY]")
    return name, values


def complete(document: Mapping[str, Any]) -> dict[str, Any]:
    """The machine of a configuration: every figure as it will be used, the CPUs in use, the memory of each node."""
    from slablab.config import encoded

    machine: dict[str, Any] = json.loads(_core.machine(encoded(document)))
    return machine


def figures(document: Mapping[str, Any]) -> pd.DataFrame:
    """One row per figure of a machine: figure, value, unit, confidence, source."""
    import pandas as pd

    rows = [{"figure": key, **entry} for key, entry in complete(document)["values"].items()]
    return pd.DataFrame(rows, columns=["figure", "value", "unit", "confidence", "source"])


def toml(document: Mapping[str, Any]) -> str:
    """A machine as a machine file."""
    machine = complete(document)
    # Other figures are another machine: its file needs a name of its own.
    name = machine["name"] + ("-changed" if set(document) - {"name", "cpus", "placement", "values"} else "")
    lines = [f"name = {_toml(name)}"]
    for key, entry in machine["values"].items():
        lines += ["", f"[values.{key}]"]
        lines += [f"{field} = {_toml(entry[field])}" for field in ("value", "unit", "confidence", "source")]
    return "\n".join(lines) + "\n"


def _toml(value: float | str) -> str:
    """A TOML number or string: JSON's are TOML's."""
    return json.dumps(value, ensure_ascii=False)
