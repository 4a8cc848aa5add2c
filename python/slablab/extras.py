"""Packages that slablab can use and does not need: one line that says how to get a missing one."""

from __future__ import annotations

import importlib
from typing import Any

EXTRAS = {"matplotlib": "plot", "nanoarrow": "arrow", "pyarrow": "arrow", "xarray": "xarray", "distributed": "dask"}
"""The extra that brings a package."""


class MissingExtra(ImportError):
    """A package is missing that only some uses of slablab need."""


def needed(package: str, use: str) -> Any:
    """Imports a package of an extra, or says in one line how to install it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
        extra = EXTRAS[package.partition(".")[0]]
        raise MissingExtra(f'{use} needs {package}: pip install "slablab[{extra}]"', name=package) from None
