"""slablab: the Linux slab allocators SLAB, SLUB, SLOB and SLQB, on real and simulated machines.

>>> import slablab as sl
>>> one = sl.run(machine=sl.Sim("opteron-2x4-2007", cpus=8), allocator=sl.Slub("2.6.24"), workload=sl.Tbench(clients=8))
>>> one.throughput, one.unit

Importing slablab is light: numpy, pandas and matplotlib are loaded when a frame or a figure is asked for.
"""

from typing import TYPE_CHECKING, Any

from slablab import compose, plot
from slablab._core import ConfigError, SlabCorruption
from slablab._core import version as _version
from slablab.compare import regressions
from slablab.config import (
    Aim7,
    Allocator,
    Boot,
    Compose,
    Cpu2k,
    Dbench,
    Hackbench,
    Kbuild,
    Native,
    Netperf,
    Null,
    Oltp,
    Script,
    Sim,
    Slab,
    SlabTest,
    Slob,
    Slqb,
    Slub,
    Specjbb,
    Tbench,
    Volanomark,
    Workload,
    catalog,
)
from slablab.experiment import Experiment, OversubscribedWarning, RunWarning, UnsteadyWarning, run
from slablab.extras import MissingExtra
from slablab.geometry import Geometry, geometry
from slablab.reproduce import Reproduction, reproduce
from slablab.result import Result, Sweep
from slablab.sqlite import StoreError
from slablab.store import Store
from slablab.sweep import OtherVersionWarning, SweepInterrupted, plan, sweep
from slablab.validate import Validation, validate

if TYPE_CHECKING:
    from slablab.history import eras
    from slablab.kernel import Kernel
    from slablab.planning import Plan, Sample

__version__ = _version()


_LATE = {
    "Kernel": "slablab.kernel",
    "Plan": "slablab.planning",
    "Sample": "slablab.planning",
    "eras": "slablab.history",
}
"""What is loaded at its first use, and where it is."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        import importlib

        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module 'slablab' has no attribute {name!r}")


__all__ = [
    "Aim7",
    "Allocator",
    "Boot",
    "Compose",
    "ConfigError",
    "Cpu2k",
    "Dbench",
    "Experiment",
    "Geometry",
    "Hackbench",
    "Kbuild",
    "Kernel",
    "MissingExtra",
    "Native",
    "Netperf",
    "Null",
    "Oltp",
    "OtherVersionWarning",
    "OversubscribedWarning",
    "Plan",
    "Reproduction",
    "Result",
    "RunWarning",
    "Sample",
    "Script",
    "Sim",
    "Slab",
    "SlabCorruption",
    "SlabTest",
    "Slob",
    "Slqb",
    "Slub",
    "Specjbb",
    "Store",
    "StoreError",
    "Sweep",
    "SweepInterrupted",
    "Tbench",
    "UnsteadyWarning",
    "Validation",
    "Volanomark",
    "Workload",
    "__version__",
    "catalog",
    "compose",
    "eras",
    "geometry",
    "plan",
    "plot",
    "regressions",
    "reproduce",
    "run",
    "sweep",
    "validate",
]
