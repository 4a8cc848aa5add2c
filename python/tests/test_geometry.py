"""Geometry as a call: every row of the recordings, arrays and records, page sizes and words, what is refused."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import slablab as sl

DATA = Path(__file__).resolve().parents[2] / "src" / "tests" / "oracle" / "data" / "geometry"

OURS = {
    "slab_size": "slot_size",
    "objs_per_slab": "objects_per_slab",
    "objects": "objects_per_slab",
    "min_objs_per_slab": "min_objects_per_slab",
    "fp_offset": "free_pointer",
    "sheaf_capacity_auto": "sheaf_capacity",
    "freelist_size": "management",
}
"""Columns of the recordings that have another name here."""

NOT_GEOMETRY = {"cache", "unique_id", "total_objects", "slabs", "partial", "aliases", "has_ctor", "ctor", "req_size",
                "req_align", "req_flags", "hwcache_align", "reclaim_account", "destroy_by_rcu", "cache_dma", "usersize",
                "kernel", "allocator", "goes_to", "size", "era", "cpus", "request", "min_objects_param",
                "max_order_param"}  # fmt: skip
"""Columns that name a row, say what was asked, or count what was in use."""

FLAG_BITS = {0x2000: "hwcache_align", 0x2_0000: "reclaim_account", 0x8_0000: "typesafe_by_rcu"}
DEBUG_BITS = 0x1_0D00
KNOWN_FLAGS = 0xC000_0000 | sum(FLAG_BITS) | DEBUG_BITS
"""Flags that are an allocator's matter; the others (panic on failure, page spreading) are only carried."""


def rows(file: str) -> list[dict[str, str]]:
    with (DATA / file).open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def number(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


Question = tuple[str, tuple[tuple[str, Any], ...]]


def compare(file: str, asked: list[tuple[str, int, dict[str, Any]]], leave_out: set[str] = frozenset()) -> int:
    """Asks for all rows of a file, those that differ in size alone in one call; returns how many fields were equal."""
    recorded = rows(file)
    assert len(recorded) == len(asked)
    together: dict[Question, list[int]] = defaultdict(list)
    for at, (allocator, _, options) in enumerate(asked):
        together[allocator, tuple(sorted(options.items()))].append(at)
    compared = 0
    for (allocator, options), places in together.items():
        found = sl.geometry(allocator, [asked[at][1] for at in places], **dict(options))
        for at, ours in zip(places, found.to_dict("records"), strict=True):
            for column, text in recorded[at].items():
                if column in NOT_GEOMETRY | leave_out or text == "":
                    continue
                value = ours[OURS.get(column, column)] if column not in ("off_slab", "objfreelist") else column
                if column == "flags":
                    twin = ours["cache"].startswith("kmalloc-") and recorded[at]["cache"] != ours["cache"]
                    known = KNOWN_FLAGS & ~0x2_0000 if twin else KNOWN_FLAGS
                    assert number(value) == number(text) & known, (recorded[at], ours)
                elif value == "off_slab":
                    assert (ours["management_place"] == "off_slab") == (text == "1"), (recorded[at], ours)
                elif value == "objfreelist":
                    assert (ours["management_place"] == "in_object") == (text == "1"), (recorded[at], ours)
                else:
                    assert int(value) == number(text), (column, recorded[at], ours)
                compared += 1
    return compared


def flags_of(row: dict[str, str]) -> str:
    """The creation flags of a recorded cache."""
    bits = number(row["flags"])
    names = [name for bit, name in FLAG_BITS.items() if bits & bit]
    return ",".join([*names, *(["ctor"] if row.get("has_ctor") == "1" else [])])


def swept(allocator: str, row: dict[str, str], **options: Any) -> tuple[str, int, dict[str, Any]]:
    """A cache made on purpose: what was asked stands there."""
    align = int(row["req_align"])
    return allocator, int(row["req_size"]), {"align": align, "flags": flags_of(row), **options}


@pytest.mark.parametrize(
    ("file", "allocator", "options"),
    [
        ("sweep_slub.csv", "slub@6.1", {}),
        ("sweep_slub_debug_FZPU.csv", "slub@6.1", {"debug": "FZPU"}),
        ("sweep_slub_min_objects16_max_order4.csv", "slub@6.1", {"min_objects": 16, "max_order": 4}),
        ("sweep_slab.csv", "slab@6.1", {}),
        ("sweep_slob.csv", "slob@6.1", {}),
    ],
)
def test_every_cache_made_on_purpose_is_equal(file: str, allocator: str, options: dict[str, Any]):
    asked = []
    for row in rows(file):
        # SLOB's flags do not say whether there was a constructor: the request does.
        given = dict(row)
        if "has_ctor" not in given:
            given["has_ctor"] = "1" if "ctor" in row["req_flags"] else "0"
        asked.append(swept(allocator, given, **options))
    leave_out = {"flags"} if allocator.startswith("slob") else set()
    assert compare(file, asked, leave_out) >= 1781 * 3


@pytest.mark.parametrize(
    ("file", "cpus", "options"),
    [
        ("geometry_slub.csv", 1, {}),
        ("geometry_slub_smp2.csv", 2, {}),
        ("geometry_slub_debug_FZPU.csv", 1, {"debug": "FZPU"}),
        ("geometry_slub_min_objects16_max_order4.csv", 1, {"min_objects": 16, "max_order": 4}),
    ],
)
def test_every_cache_of_booted_slub_kernels_is_equal(file: str, cpus: int, options: dict[str, Any]):
    asked = []
    for row in rows(file):
        # The two caches made before the debug options were read have none.
        debugged = number(row["flags"]) & DEBUG_BITS
        given = {k: v for k, v in options.items() if k != "debug" or debugged}
        if row["cache"].startswith(("kmalloc-", "dma-kmalloc-")):
            # Of these the allocator chooses the alignment. Their twins for reclaimable and DMA memory differ in a flag.
            asked.append(("slub@6.1", int(row["object_size"]), {"kmalloc": True, "cpus": cpus, **given}))
            continue
        align = int(row["align"])
        asked.append(
            ("slub@6.1", int(row["object_size"]), {"align": align, "flags": flags_of(row), "cpus": cpus, **given})
        )
    assert compare(file, asked) == 114 * 13


@pytest.mark.parametrize(("file", "cpus"), [("geometry_slab.csv", 1), ("geometry_slab_smp2.csv", 2)])
def test_every_cache_of_booted_slab_kernels_is_equal(file: str, cpus: int):
    asked = [
        (
            "slab@6.1",
            int(row["object_size"]),
            {"align": int(row["align"]), "flags": flags_of(row), "cpus": cpus},
        )
        for row in rows(file)
    ]
    assert compare(file, asked) == 109 * 14


def test_every_cache_of_a_booted_slob_kernel_is_equal():
    asked = [("slob@6.1", int(row["slab_size"]), {"align": int(row["align"])}) for row in rows("geometry_slob.csv")]
    assert compare("geometry_slob.csv", asked, {"flags", "object_size"}) == 86 * 2


def test_every_cache_of_a_real_machine_is_equal():
    asked: list[tuple[str, int, dict[str, Any]]] = []
    for row in rows("geometry_slub_host618.csv"):
        # Two caches have sheaves by their names; of the others the size says all.
        named = {"name": row["cache"]} if row["cache"] in ("vm_area_struct", "maple_node") else {}
        asked.append(("slub@6.18", int(row["slab_size"]), {"cpus": 2, **named}))
    assert compare("geometry_slub_host618.csv", asked, {"object_size", "align", "objects"}) == 429 * 6


def test_every_example_of_the_specification_is_equal():
    asked = []
    for row in rows("slub_geometry_examples.csv"):
        options: dict[str, Any] = {"cpus": int(row["cpus"])}
        if row["min_objects_param"]:
            options |= {"min_objects": int(row["min_objects_param"]), "max_order": int(row["max_order_param"])}
        asked.append((f"slub@{row['era']}", int(row["size"]), options))
    assert compare("slub_geometry_examples.csv", asked) > 4774 * 3


def test_kmalloc_goes_where_the_original_sources_send_it():
    file = "kmalloc_route_era26_slub.csv"
    asked = [(f"slub@{r['kernel']}", int(r["request"]), {"kmalloc": True, "cpus": int(r["cpus"])}) for r in rows(file)]
    for row, (allocator, size, options) in zip(rows(file), asked, strict=True):
        found = sl.geometry(allocator, size, **options)
        assert found.cache == (row["cache"] if row["goes_to"] == "cache" else "(page allocator)")
        if row["goes_to"] == "cache":
            kept = (found.slot_size, found.objects_per_slab, found.order, found.min_partial)
            assert kept == tuple(int(row[c]) for c in ("slot", "objs_per_slab", "order", "min_partial"))


def test_one_size_is_a_record_and_many_are_a_frame():
    one = sl.geometry("slub@6.1", 192, cpus=16)
    assert (one.slot_size, one.order, one.objects_per_slab, one["cpu_partial_slabs"]) == (192, 1, 42, 6)
    assert dict(one)["waste"] == 8192 - 42 * 192
    assert "slot_size" in dir(one)
    assert repr(one) == "<geometry slub@6.1 192 bytes: slot 192, order 1, 42 objects>"
    assert "cpu_partial_slabs     6" in str(one)
    with pytest.raises(AttributeError, match="no column 'slots'"):
        _ = one.slots
    for sizes in (range(8, 4097, 8), np.arange(8, 4097, 8), pd.Series(range(8, 4097, 8)), list(range(8, 4097, 8))):
        frame = sl.geometry("slub@6.1", sizes, cpus=16)
        assert len(frame) == 512
        assert {k: None if pd.isna(v) else v for k, v in frame.iloc[23].items()} == dict(one)
    assert sl.geometry("slub@6.1", np.int64(192), cpus=16) == one
    assert sl.geometry("slub@6.1", [192], cpus=16)["order"].tolist() == [1]
    assert sl.geometry("slub@6.1", []).empty


def test_several_allocators_share_a_frame():
    frame = sl.geometry([sl.Slub("2.6.24", order=0), "slab@2.6.24", "slqb", "slob", "null"], [104, 4096], cpus=8)
    assert frame["allocator"].tolist() == [
        "slub",
        "slub",
        "slab",
        "slab",
        "slqb",
        "slqb",
        "slob",
        "slob",
        "null",
        "null",
    ]
    assert frame["order"].tolist() == [0] * 10
    assert frame.loc[frame["allocator"] == "slab", "sharedfactor"].tolist() == [8, 8]
    assert frame.loc[frame["allocator"] == "slab", "limit"].tolist() == [120, 24]
    assert frame.loc[frame["allocator"] == "slqb", "hiwater"].tolist() == [1024, 256]
    assert frame.loc[frame["allocator"] == "slub", "limit"].isna().all()


def test_pages_lines_and_words_of_other_machines():
    def of(allocator: str, size: int, *columns: str, **options: Any) -> tuple[Any, ...]:
        found = sl.geometry(allocator, size, **options)
        return tuple(found[c] for c in columns)

    # 2.6.22 to 2.6.25 want 8 objects and take order 2 on larger pages, and kmalloc's limits are in pages.
    shape = ("order", "objects_per_slab")
    assert of("slub@2.6.24", 65_536, *shape, page_size=65_536) == (2, 4)
    assert of("slub@2.6.24", 8192, *shape, page_size=65_536) == (0, 8)
    assert of("slub@2.6.24", 32_768, "cache", page_size=65_536, kmalloc=True) == ("kmalloc-32768",)
    assert of("slub@2.6.24", 32_769, "cache", page_size=65_536, kmalloc=True) == ("(page allocator)",)
    assert of("slub@2.6.24", 65_536, *shape, page_size=65_536, max_order=0) == (0, 1)
    assert of("slub@6.1", 192, *shape, page_size=65_536, cpus=8) == (0, 341)
    assert of("slub@6.1", 192, *shape, page_size=16_384, cpus=8) == (0, 85)
    assert of("slub@6.1", 20_000, "cpu_partial", page_size=65_536) == (24,)
    # A line of 128 bytes takes SLAB's size-192 away.
    assert of("slab@2.6.24", 190, "cache", cache_line=128, kmalloc=True) == ("size-256",)
    assert of("slqb", 190, "cache", cache_line=128, kmalloc=True) == ("kmalloc-256",)
    assert of("slab@2.6.24", 90, "cache", cache_line=32, kmalloc=True) == ("size-96",)
    assert of("slub@6.1", 100, "slot_size", cache_line=128, flags="hwcache_align") == (128,)
    # 32-bit: shorter headers, free pointers and tracks.
    assert of("slab@2.6.24", 32, "objects_per_slab", "management", word=4, kmalloc=True) == (113, 480)
    assert of("slub@2.6.22", 104, "slot_size", word=4, debug="U") == (104 + 2 * 16,)
    assert of("slub@2.6.24", 28, "inuse", "slot_size", word=4) == (28, 32)
    assert of("slob@2.6.24", 4, "slot_size", "align", "header", word=4, kmalloc=True) == (8, 4, 4)
    # SLOB counts in units of 4 bytes on the largest pages, SLAB names objects by two bytes.
    assert of("slob@6.1", 102, "slot_size", "unit", page_size=65_536) == (104, 4)
    assert of("slab@6.1", 8, "slot_size", "objects_per_slab", page_size=65_536) == (8, 6553)
    assert of("slab@2.6.24", 3000, "order", memory_mib=32) == (0,)
    assert of("slab@2.6.24", 3000, "order", memory_mib=64) == (1,)


def test_the_call_of_the_issue_and_what_it_adds_up_to():
    found = sl.geometry(
        "slub@6.1", size=192, cpus=8, page_size=65536, cache_line=128, debug="ZU", align=64, flags="hwcache_align"
    )
    assert (found.align, found.debug, found.red_left_pad, found.cpu_partial) == (128, "ZU", 128, 0)
    assert found.objects_per_slab * found.slot_size + found.waste == found.slab_bytes
    for allocator in sl.catalog()["allocators"]:
        for era in allocator["eras"]:
            name = f"{allocator['name']}@{era['era']}"
            for page_size in (4096, 16_384, 65_536):
                frame = sl.geometry(name, range(8, 20_000, 104), cpus=64, page_size=page_size)
                used = frame["objects_per_slab"] * frame["slot_size"] + frame["waste"]
                inside = frame.get("management_place", pd.Series("", frame.index)) == "on_slab"
                used = used + frame.get("management", pd.Series(0, frame.index)).where(inside, 0)
                assert (used == frame["slab_bytes"]).all(), (name, page_size)
                assert (frame["slot_size"] >= frame["object_size"]).all()


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: sl.geometry("slub@6.1", 0), ["cache.size = 0", "1..4194304 bytes"]),
        (lambda: sl.geometry("slub@6.1", -8), ["cache.size = -8"]),
        (lambda: sl.geometry("slub@6.1", [8, 0]), ["size[1]", "= 0"]),
        (lambda: sl.geometry("slub@6.1", [8, "x"]), ["geometry.size[1]", "whole number"]),
        (lambda: sl.geometry("slub@6.1", "192"), ['geometry.size = "192"', "whole number"]),
        (lambda: sl.geometry("slub@6.1", 8.5), ["cache.size = 8.5"]),
        (lambda: sl.geometry("slub@6.1", 192, page_size=8192), ["geometry.page_size = 8192", "4096, 16384 or 65536"]),
        (lambda: sl.geometry("slub@6.1", 192, cache_line=48), ["geometry.cache_line = 48", "16, 32, 64"]),
        (lambda: sl.geometry("slub@6.1", 192, word=2), ["geometry.word = 2", "32-bit"]),
        (lambda: sl.geometry("slub@7.1", 192, word=4), ["geometry.word = 4", "sheaf_capacity"]),
        (lambda: sl.geometry("slub@6.1", 192, cpus=0), ["geometry.cpus = 0", "1..4096"]),
        (lambda: sl.geometry("slub@6.1", 192, cpus=9999), ["geometry.cpus = 9999", "1..4096"]),
        (lambda: sl.geometry("slub@6.1", 192, align=24), ["cache.align = 24", "power of two"]),
        (lambda: sl.geometry("slub@6.1", 192, flags="hwcache"), ["geometry.flags", "hwcache_align"]),
        (lambda: sl.geometry("slub@6.1", 192, kmalloc=True, align=64), ["geometry.align = 64", "kmalloc"]),
        (lambda: sl.geometry("slub@6.1", 192, kmalloc=True, flags="ctor"), ["geometry.flags", "ctor"]),
        (lambda: sl.geometry("slub@6.1", 192, kmalloc=1), ["geometry.kmalloc = 1"]),
        (lambda: sl.geometry("slqb", 1 << 22, kmalloc=True), ["geometry.size = 4194304", "1..2097152"]),
        (lambda: sl.geometry("slub@6.1", 192, linesize=3), ["allocator.linesize = 3", "known: era, order"]),
        (lambda: sl.geometry("slub@6.1", 192, max_order=11), ["allocator.max_order = 11", "0..10 (since 2.6.22)"]),
        (lambda: sl.geometry("slub@6.1", 192, debug="Q"), ["allocator.debug", "F Z P U T"]),
        (lambda: sl.geometry("slub@3.3", 192), ["era of slub", "3.3", "3.2"]),
        (lambda: sl.geometry("slab@2.6.24", 64, word=4, debug="Z"), ["geometry.word = 4", "64-bit"]),
        (lambda: sl.geometry("slab@2.6.24", 4), ["cache.size = 4", "8.."]),
        (lambda: sl.geometry([], 192), ["allocator = []"]),
        (lambda: sl.geometry("slub@6.1", 192, name="a b"), ["cache.name", "without blanks"]),
        (lambda: sl.geometry(3, 192), ["allocator = 3"]),
    ],
)
def test_what_no_kernel_has_is_refused_by_name(call: Any, parts: list[str]):
    with pytest.raises(sl.ConfigError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_needs_no_machine_and_imports_no_pandas_for_one_size():
    code = "import sys, slablab as sl; sl.geometry('slub@6.1', 192); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
