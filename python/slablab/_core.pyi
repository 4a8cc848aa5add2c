"""The compiled part of slablab. Private: use `slablab.run`, `slablab.sweep` and their frames."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

__all__ = [
    "ConfigError",
    "SlabCorruption",
    "catalog",
    "expand",
    "geometry",
    "machine",
    "probe",
    "run",
    "run_many",
    "slabinfo",
    "sysfs",
    "version",
]

# Numbers are an array; words a pair (codes, names).
_Column: TypeAlias = NDArray[Any] | tuple[NDArray[Any], list[str]]
# A finished run: its document (JSON: config, summary, texts, tool, checkpoints, host), and its frames by name.
_Crossing: TypeAlias = tuple[str, dict[str, dict[str, _Column]]]

class ConfigError(ValueError):
    """A refused configuration: which parameter, which value, what would be right."""

    parameter: str
    value: str
    expected: str

class SlabCorruption(RuntimeError):
    """A broken invariant of an allocator, or a panic of the core."""

def run(config: str) -> _Crossing: ...
def run_many(
    configs: Sequence[str], threads: int | None, done: Callable[[int, _Crossing | Exception], Sequence[int] | None]
) -> None: ...
def expand(config: str) -> str: ...
def geometry(asked: str) -> str: ...
def slabinfo(tool: str, options: str) -> str: ...
def sysfs(tool: str, cache: str) -> str: ...
def machine(config: str) -> str: ...
def probe(config: str) -> str: ...
def catalog() -> str: ...
def version() -> str: ...
