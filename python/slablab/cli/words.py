"""From words of the shell to parts, axes and values."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from slablab import config
from slablab.config import PARTS, Part
from slablab.config import allocator as an_allocator
from slablab.config import machine as a_machine
from slablab.config import workload as a_workload
from slablab.planning import MAX_VALUES, Sample, listed
from slablab.values import Value, refused, shown


def parts(given: argparse.Namespace) -> list[Part]:
    """The three parts of one experiment, with what --set says of them."""
    made: list[Part] = [a_machine(given.machine), an_allocator(given.allocator), a_workload(given.workload)]
    return [changed(part, given) for part in made]


def several(given: argparse.Namespace) -> dict[str, Any]:
    """The parts of a sweep: one, or a list where several were named."""
    make: dict[str, Callable[[str], Part]] = {"machine": a_machine, "allocator": an_allocator, "workload": a_workload}
    named = {}
    for part in PARTS:
        words = [w.strip() for w in getattr(given, part).split(",")]
        named[part] = [changed(p, given) for p in listed(words, make[part])]
    return {part: found[0] if len(found) == 1 else found for part, found in named.items()}


def changed(part: Part, given: argparse.Namespace) -> Any:
    """The part with what --set and --seconds say of it."""
    words = [*given.set, *([f"workload.seconds={given.seconds}"] if given.seconds is not None else [])]
    once(words, getattr(given, "over", None) or [])
    new: dict[str, Value] = {}
    for word in words:
        name, equals, text = word.partition("=")
        kind, dot, parameter = name.partition(".")
        if not equals or not dot or kind not in PARTS or not parameter:
            raise refused("--set", word, "NAME=VALUE with a dotted name, as workload.clients=8")
        if parameter == "name":
            raise refused("--set", word, f"a parameter; which {kind} it is, --{kind} says")
        if kind == part.part:
            new[parameter] = value(name, text)
        if name == "allocator.era" and "@" in given.allocator:
            raise refused("--set", word, f"an allocator without an era; --allocator {given.allocator} has one")
    if not new:
        return part
    return config.changed(part, **new)


def once(words: Sequence[str], axes: Sequence[str] = ()) -> None:
    """Refuses two values of one parameter: of two --set, of --set and --seconds, of --set and --over."""
    names = [word.partition("=")[0] for word in words]
    for at, name in enumerate(names):
        if name in names[:at] or name in {axis.partition("=")[0] for axis in axes}:
            raise refused(name, words[at].partition("=")[2], "one value: it is set twice (--set, --seconds, --over)")


def only(given: argparse.Namespace, *kinds: str) -> None:
    """Refuses a --set of a part that the command does not take."""
    for word in given.set:
        if (kind := word.partition(".")[0]) in PARTS and kind not in kinds:
            raise refused("--set", word, f"a parameter of the {' or the '.join(kinds)}: nothing else is taken here")


def over(words: Iterable[str]) -> dict[str, Sequence[Value]]:
    """The axes of --over; one given twice is one axis with all its values."""
    axes: dict[str, Sequence[Value]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name:
            raise refused("--over", word, "NAME=VALUES, as workload.clients=1..16 or machine.cpus=1,2,4")
        if not values:
            raise refused(f"--over {name}", '""', "at least one value, as 1..16 or 1,2,4")
        spans = [span(name, item.strip()) for item in values.split(",")]
        if len(spans) == 1 and name not in axes:
            # A lone range stays one: a sample of it needs no list of all its values.
            axes[name] = spans[0]
            continue
        if sum(len(s) for s in spans) > MAX_VALUES:
            raise refused(f"--over {name}", values, f"at most {MAX_VALUES} values, or one range")
        axes[name] = [*axes.get(name, []), *(v for s in spans for v in s)]
    return axes


def span(name: str, item: str) -> Sequence[Value]:
    """A value, or all whole numbers from `low..high`, both ends included."""
    low, dots, high = item.partition("..")
    if not dots:
        if not item:
            raise refused(f"--over {name}", '""', "a value between commas")
        return [value(name, item)]
    try:
        numbers = range(int(low), int(high) + 1)
    except ValueError:
        raise refused(f"--over {name}", item, "LOW..HIGH with whole numbers") from None
    if not numbers:
        raise refused(f"--over {name}", item, "LOW..HIGH with LOW at most HIGH")
    if numbers.stop > 2**63 or numbers.start < -(2**63):
        raise refused(f"--over {name}", item, "whole numbers that 64 bits hold")
    return numbers


def value(name: str, word: str) -> Value:
    """A number, true, false or null where the word reads as one; else the word. Releases are words, as 6.1."""
    if name.endswith((".era", ".pages", ".kernel")):
        return word
    if name == "machine.fragment":
        return fragment(word)
    try:
        found = json.loads(word)
    except ValueError:
        return word
    return found if isinstance(found, bool | int | float) or found is None else word


def fragment(word: str) -> Value:
    """LEVEL:SEED of pre-fragmented memory, or LEVEL alone with seed 1."""
    level, _, seed = word.partition(":")
    try:
        return [float(level), int(seed or "1")]
    except ValueError:
        raise refused("machine.fragment", shown(word), "LEVEL:SEED, as 0.8:1, or LEVEL from 0 to 1 alone") from None


def sample(word: str | None, seed: int | None) -> Sample | None:
    """The sample that --sample asks for: 100, or latin:100."""
    if word is None:
        if seed is not None:
            raise refused("--sample-seed", seed, "nothing without --sample N")
        return None
    method, colon, count = word.rpartition(":")
    if not count.isdecimal() or (colon and method not in ("random", "latin")):
        raise refused("--sample", shown(word), "a number of combinations, as 100 or latin:100")
    return Sample(int(count), "latin" if method == "latin" else "random", 1 if seed is None else seed)
