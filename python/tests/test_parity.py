"""Python's config objects agree with the core's catalog: names, defaults, meanings."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import pickle
from dataclasses import fields
from typing import Any

import pytest

import slablab as sl
from slablab import config
from slablab.config import TYPED, Typed

CASES = [(part, name, cls) for part, classes in TYPED.items() for name, cls in classes.items()]
IDS = [name for _, name, _ in CASES]


def meanings(cls: type[Typed]) -> dict[str, str]:
    """The string below each field of a class."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[union-attr]
    return found


def test_every_allocator_and_workload_of_the_catalog_has_its_class():
    for part in ("allocator", "workload"):
        assert {e["name"] for e in sl.catalog()[f"{part}s"]} == set(TYPED[part])


@pytest.mark.parametrize(("part", "name", "cls"), CASES, ids=IDS)
def test_fields_are_the_parameters_in_order(part: str, name: str, cls: type[Typed]):
    names = [f.name for f in fields(cls)]
    if part == "machine":
        assert sorted(names) == sorted(config.parameters(part, name))
    else:
        assert names == config.parameters(part, name)


@pytest.mark.parametrize(("part", "name", "cls"), CASES, ids=IDS)
def test_defaults_are_the_cores(part: str, name: str, cls: type[Typed]):
    entry = config.entry(part, name)
    if part == "allocator":
        assert cls.era == entry["default_era"]  # type: ignore[attr-defined]
        # An era decides the rest: the fields stay unset until somebody sets them.
        assert all(f.default is None for f in fields(cls) if f.kw_only)
        return
    defaults = {p["name"]: p["default"] for p in entry.get("parameters", [])}
    defaults |= {n: v["value"] for n, v in entry.get("values", {}).items()}
    own = {f.name: list(f.default) if f.default == () else f.default for f in fields(cls)}
    assert {n: v for n, v in own.items() if n in defaults} == defaults


@pytest.mark.parametrize(("part", "name", "cls"), CASES, ids=IDS)
def test_meanings_are_the_cores(part: str, name: str, cls: type[Typed]):
    entry = config.entry(part, name)
    said = {p["name"]: p["meaning"] for p in entry.get("parameters", [])}
    assert {n: m for n, m in meanings(cls).items() if n in said} == said


@pytest.mark.parametrize(
    "part",
    [
        sl.Sim(),
        sl.Sim(cpus=4, placement="packed", mem_local=80.0),
        sl.Sim(sockets=4, cores_per_socket=2, numa_nodes=4),
        sl.Native(),
        sl.Native(cpus=2, nodes=2),
        sl.Sim(pages="6.1", fragment=(0.5, 7), nodes=2),
        sl.Native(pages="none", fragment=[0.5, 7]),
        sl.Slab(),
        sl.Slab(order=3, batchcount=16),
        sl.Slub("2.6.24-rc2", min_partial=7),
        sl.Slob(),
        sl.Slqb(order=0),
        sl.Null(),
        sl.Allocator("slub@2.6.24", order=1),
        sl.Tbench(clients=3),
        sl.Hackbench(groups=2, transport="pipe"),
        sl.Netperf(test="UDP_STREAM", message=4096, client_cpu=0, server_cpu=1),
        sl.Volanomark(rooms=16),
        sl.Script(caches=[{"name": "a", "size": 64}], ops=[{"op": {"alloc": {"cache": 0, "slot": 0}}}]),
        sl.Workload("tbench", clients=3),
    ],
    ids=repr,
)
def test_a_config_prints_as_the_code_that_makes_it_and_is_a_value(part: Any):
    names = {n: getattr(sl, n) for n in sl.__all__}
    assert eval(repr(part), names) == part
    assert hash(copy.copy(part)) == hash(part)
    assert pickle.loads(pickle.dumps(part)) == part


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        sl.Tbench().clients = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        sl.Sim().name = "native"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("word", "made"),
    [
        ("slub", sl.Slub()),
        ("slub@2.6.24-rc2", sl.Slub("2.6.24-rc2")),
        ("slob@2.6.24", sl.Slob("2.6.24")),
        ("null", sl.Null()),
    ],
)
def test_a_string_is_the_object_it_names(word: str, made: Any):
    assert config.allocator(word) == made
    assert config.machine("native") == sl.Native()
    assert config.machine("opteron-2x4-2007") == sl.Sim()
    assert config.workload("tbench") == sl.Tbench()


def test_the_generic_form_runs_the_same_configuration():
    typed = sl.Experiment(allocator=sl.Slub("2.6.24-rc2", order=2), workload=sl.Tbench(clients=3)).expand()
    generic = sl.Experiment(
        allocator=sl.Allocator("slub@2.6.24-rc2", order=2), workload=sl.Workload("tbench", clients=3)
    ).expand()
    assert typed == generic
