"""`slablab validate`: the machine charges what its figures say, and the docs page says what the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slablab as sl
from slablab.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "machines-and-trust.md"


@pytest.fixture(scope="module")
def quick() -> sl.Validation:
    return sl.validate(quick=True)


def test_the_machine_charges_what_its_figures_say(quick: sl.Validation):
    hardware = quick.table("hardware")
    assert quick.exact()
    several = {m["name"] for m in sl.catalog()["machines"] if m["simulated"] and m["cpus"] > 1}
    assert set(hardware["machine"]) == several
    assert (hardware["largest deviation (ps)"] == 0).all()
    assert hardware["compared"].sum() > 1000


def test_every_count_that_the_tables_have_is_equal_or_explained(quick: sl.Validation):
    paths = quick.table("paths")
    assert (paths["table"] == "equal").sum() >= 8
    assert (paths[paths["table"] == "differs"]["what"].str.len() > 10).all()


def test_the_page_says_what_the_command_prints(quick: sl.Validation, capsys: pytest.CaptureFixture[str]):
    page = PAGE.read_text()
    for part in quick.markdown().split("\n## "):
        title, _, table = part.removeprefix("## ").partition("\n")
        printed = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        if title == sl.validate.__globals__["TITLES"]["modes"]:
            # The page has the long form: the same rows, other numbers.
            rows = [line.split(" | ")[:3] for line in table.splitlines() if line.startswith("|")]
            assert [line.split(" | ")[:3] for line in printed.splitlines() if line.startswith("|")] == rows
        else:
            assert printed.strip() == table.strip()
    assert page.startswith("# Machines and trust\n\n| question |")


def test_the_command_has_json_and_code(quick: sl.Validation, capsys: pytest.CaptureFixture[str]):
    assert main(["validate", "--quick", "--show-code"]) == 0
    assert "print(sl.validate(quick=True))" in capsys.readouterr().out
    assert json.loads(quick.to_json()).keys() == quick.rows.keys()
    assert "line transfers" in str(quick)
