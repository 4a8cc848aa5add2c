"""A reader of what the slabinfo tool prints and sysfs holds, written from the description of the formats alone.

It imports nothing of slablab: columns are told by their heads, numbers with a unit come back as the range
they stand for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Span:
    """A printed number: exact, or all that are truncated to the same text."""

    low: int
    high: int

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high


def number(text: str) -> Span:
    """`40.9K` stands for 40900 to 40999, `1000` for itself."""
    found = re.fullmatch(r"(\d+)(?:\.(\d)([KMG]))?", text)
    assert found, text
    if found[3] is None:
        return Span(int(text), int(text))
    unit = UNITS[found[3]]
    low = int(found[1]) * unit + int(found[2]) * (unit // 10)
    return Span(low, low + unit // 10 - 1)


@dataclass
class Line:
    """One cache of a listing."""

    name: str
    values: dict[str, Span] = field(default_factory=dict)
    slabs: tuple[int, ...] = ()
    """The parts of the column of slabs."""
    flags: str = ""


def listing(text: str) -> list[Line]:
    """The normal listing."""
    head, *lines = text.splitlines()
    names = head.split()
    assert names[0] == "Name" and names[-1] == "Flg", head  # noqa: PT018
    found = []
    for line in lines:
        name = line[:21].rstrip()
        cells = line[len(name) :].split()
        # The letters may be missing.
        flags = cells.pop() if len(cells) == len(names) - 1 else ""
        one = Line(name, flags=flags)
        for column, cell in zip(names[1:-1], cells, strict=True):
            if column.startswith("Slabs/"):
                one.slabs = tuple(int(part) for part in cell.split("/"))
            elif "/" in column and column != "O/S":
                parts = zip(column.split("/"), cell.split("/"), strict=True)
                one.values |= {part: number(value) for part, value in parts}
            else:
                one.values[column] = number(cell)
        found.append(one)
    return found


def activity(text: str) -> list[Line]:
    """The listing of -D: under %Fast stand two numbers, of allocations and of frees."""
    head, *lines = text.splitlines()
    names = head.split()
    at = names.index("%Fast")
    names[at : at + 1] = ["%Alloc", "%Free"]
    found = []
    for line in lines:
        name, *cells = line.split()
        found.append(Line(name, {c: number(v) for c, v in zip(names[1:], cells, strict=True)}))
    return found


@dataclass
class Totals:
    """The summary."""

    head: dict[str, Span]
    per_cache: dict[str, list[Span]]
    """Average, least, most, total."""
    per_object: dict[str, list[Span]]
    """Average, least, most."""


def totals(text: str) -> Totals:
    """The text of -T."""
    top, caches, objects = text.split("\n\n")
    head = {}
    pairs = re.findall(r"(Slabcaches|Active|Memory used|Loss|MRatio|Objects|PartObj|ORatio): ([\d.]+[KMG]?)%?", top)
    for name, value in pairs:
        head[name] = number(value)
    links = re.search(r"Aliases: (\d+)->(\d+)", top)
    assert links, top
    head |= {"aliases": number(links[1]), "targets": number(links[2])}

    def table(block: str) -> dict[str, list[Span]]:
        return {line[:10].strip(): [number(v) for v in line[10:].split()] for line in block.splitlines()[1:]}

    return Totals(head, table(caches), table(objects))


def proc(text: str) -> dict[str, dict[str, int]]:
    """/proc/slabinfo 2.1: of each cache its columns by the names in the second line."""
    first, second, *lines = text.splitlines()
    assert first.startswith("slabinfo - version: 2.1")
    names = re.findall(r"<(\w+)>", second)
    found = {}
    for line in lines:
        name, *cells = line.split()
        values = [int(c) for c in cells if c.lstrip("-").isdigit()]
        found[name] = dict(zip(names, values, strict=True))
    return found


def attribute(text: str) -> tuple[int, dict[str, int]]:
    """`10 N0=7 N1=3`: the total, and what stands behind it by place."""
    total, *places = text.split()
    return int(total), {place: int(n) for place, n in (p.split("=") for p in places)}


def cpu_partial(text: str) -> tuple[tuple[int, int], dict[str, tuple[int, int]]]:
    """`12(2) C0=6(1) C1=6(1)`: objects and slabs, in all and by CPU."""

    def pair(word: str) -> tuple[int, int]:
        found = re.fullmatch(r"(\d+)\((\d+)\)", word)
        assert found, word
        return int(found[1]), int(found[2])

    total, *places = text.split()
    return pair(total), {cpu: pair(value) for cpu, value in (p.split("=") for p in places)}
