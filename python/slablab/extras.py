"""Packages that slablab can use and does not need: one line that says how to get a missing one."""

from __future__ import annotations

import importlib
from typing import Any

EXTRAS = {"matplotlib": "plot", "nanoarrow": "arrow", "pyarrow": "arrow", "xarray": "xarray", "distributed": "dask"}
"""The extra that brings a package."""


class MissingExtra(ImportError):
    """A package is missing that only some uses of slablab need."""


def needed(package: str, use: str) -> Any:
    """Imports a module of an extra, or says in one line how to install its package."""
    root = package.partition(".")[0]
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != root:
            raise
        raise MissingExtra(f'{use} needs {root}: pip install "slablab[{EXTRAS[root]}]"', name=root) from None
