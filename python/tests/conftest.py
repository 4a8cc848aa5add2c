"""Fixtures: runs short enough for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

import slablab as sl

os.environ.setdefault("MPLBACKEND", "Agg")

ALLOCATORS = [f"{a['name']}@{e['era']}" for a in sl.catalog()["allocators"] for e in a["eras"]]
SHORT = {"seconds": 0.01, "warmup": 0.01}


@pytest.fixture(scope="session")
def tbench() -> sl.Tbench:
    """tbench for a hundredth of a virtual second."""
    return sl.Tbench(clients=2, **SHORT)


@pytest.fixture(scope="session")
def grid(tbench: sl.Tbench) -> sl.Sweep:
    """Two allocators, one of which has no order, over clients and orders, two repeats."""
    return sl.sweep(
        allocator=["slub@2.6.24", "slob@2.6.24"],
        workload=tbench,
        over={"workload.clients": [1, 3], "allocator.order": [0, 2]},
        repeats=2,
    )


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes a package away, as if it were not installed, until the test ends."""

    def take_away(package: str) -> None:
        class Nothing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == package:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Nothing(), *sys.meta_path])

    return take_away
