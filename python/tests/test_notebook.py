"""The notebooks run from top to bottom, and the README's example works when pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_was_committed_with_its_output(path: Path, monkeypatch):
    book = nbformat.read(path, as_version=4)
    cells = [c for c in book.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in cells), "a cell was committed without having been run"
    assert any(o.get("data", {}).get("image/png") for c in cells for o in c.outputs)
    monkeypatch.setenv("SLABLAB_FAST", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert any(o.get("data", {}).get("image/png") for c in book.cells for o in c.get("outputs", []))


def test_the_tour_is_short():
    book = nbformat.read(ROOT / "notebooks" / "00_tour.ipynb", as_version=4)
    assert len(book.cells) <= 10
    assert all(len(c.source.splitlines()) < 10 for c in book.cells if c.cell_type == "code")


def test_the_example_of_the_readme_works_when_pasted(tmp_path: Path):
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    env = os.environ | {"MPLBACKEND": "Agg"}
    command = [sys.executable, "-c", block[1]]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MB/s" in done.stdout
    assert "slabinfo - version: 2.1" in done.stdout
    assert (tmp_path / "grid.png").stat().st_size > 10_000
