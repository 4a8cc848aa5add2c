"""Values from the user: what they may be, and the error that names parameter, value and what would be right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from slablab._core import ConfigError

Value: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
"""What a parameter may be."""

LONGEST = 200
"""Characters of a refused value that an error shows."""


def refused(parameter: str, value: object, expected: str) -> ConfigError:
    """Makes the ConfigError of a refused value, worded as the core words it."""
    error = ConfigError(f"{parameter} = {value}: {expected}")
    error.parameter, error.value, error.expected = parameter, str(value), expected
    return error


def unknown(parameter: str, value: object, known: Iterable[str]) -> ConfigError:
    """Makes the ConfigError of an unknown name, offering the nearest known one."""
    return refused(parameter, shown(value), _known(str(value), known))


def unknown_parameter(part: str, name: str, value: object, known: Iterable[str]) -> ConfigError:
    """Makes the ConfigError of a parameter that a part does not have."""
    return refused(f"{part}.{name}", shown(value), f"there is no {part} parameter of this name; {_known(name, known)}")


def _known(name: str, known: Iterable[str]) -> str:
    import difflib

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}known: {', '.join(names) or 'none'}"


def shown(value: object) -> str:
    """A refused value as the user wrote it: words in quotes, on one line, not too long."""
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def whole(parameter: str, value: object, expected: str, low: int = 1, high: int | None = None) -> int:
    """A whole number in its range, NumPy's kinds too; anything else is refused."""
    number = plain(value, parameter)
    good = isinstance(number, int) and not isinstance(number, bool)
    if not good or number < low or (high is not None and number > high):  # type: ignore[operator]
        raise refused(parameter, shown(value), expected)
    return number  # type: ignore[return-value]


def truth(parameter: str, value: object) -> bool:
    """True or false, NumPy's kind too; anything else is refused."""
    given = plain(value, parameter)
    if not isinstance(given, bool):
        raise refused(parameter, shown(value), "True or False")
    return given


def finite(name: str, value: object) -> None:
    """Refuses a number that is none, by the name of its place."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(name, value, "a finite number")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            finite(f"{name}.{key}", inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            finite(f"{name}[{at}]", inner)


def plain(value: object, parameter: str = "value") -> Value:
    """A parameter's value as JSON knows it: NumPy scalars become Python's own."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [plain(v, f"{parameter}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{parameter}.{k}") for k, v in value.items()}
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return plain(item(), parameter)
        except ValueError:
            # An array of several values has no single one.
            pass
    raise refused(parameter, shown(value), "a number, a word, true or false")


def text(part: str, given: object) -> str:
    """Refuses what is neither a config object nor a string."""
    if not isinstance(given, str):
        raise refused(part, shown(given), f"a name (str) or a config object of slablab for the {part}")
    return given
