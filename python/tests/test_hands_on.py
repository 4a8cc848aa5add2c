"""docs/hands-on.md and docs/pages.md: every block runs, in order, and prints what stands below it.

`python python/tests/test_hands_on.py` writes what is printed into the pages, and the pictures of pages.md
beside it: read and look before it is committed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "hands-on.md"
PICTURES = {"hands-on.md": ["dentry.png"], "pages.md": ["zone-map.png", "memory-growth.png"]}
"""What the blocks of each page draw."""
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def runs(text: str, folder: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Each block, and what it prints, long lines folded."""
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for block in BLOCK.finditer(text):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block[1], str(PAGE), "exec"), names)
            lines = out.getvalue().splitlines()
            folded = [textwrap.fill(line, 110, subsequent_indent="    ") if "|" not in line else line for line in lines]
            yield block, "".join(f"{line}\n" for line in folded)


@pytest.mark.parametrize(("page", "blocks"), [("hands-on.md", 15), ("pages.md", 5)])
def test_every_block_prints_what_stands_below_it(page: str, blocks: int, tmp_path: Path):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = list(runs(text, tmp_path))
    assert len(found) >= blocks
    for block, printed in found:
        assert printed == (block[2] or ""), block[1]
    for picture in PICTURES[page]:
        assert (tmp_path / picture).stat().st_size > 10_000


def test_the_page_shows_each_mechanism():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for word in (
        "fast path",
        "remote free: into slab",
        "from the partial list of node 0",
        "[72, 136, 200, 264, 328, 392, 72, 136]",
        "objects from alien[0] of node 1 to the shared array of node 0",
        "objects on the CPU's list",
        "that went back",
        "rlist of cpu 1",
        "not merged",
        "freed it on CPU",
    ):
        assert word in text, word


def test_structures_grow_as_the_page_says():
    text = (DOCS / "pages.md").read_text(encoding="utf-8")
    assert "all as said: True" in text
    for picture in PICTURES["pages.md"]:
        assert f"]({picture})" in text
        assert (DOCS / picture).stat().st_size > 10_000


def rewrite(page: Path) -> None:
    """Puts what the blocks print below them, and the pictures that the page shows beside it."""
    import shutil
    import tempfile

    text = page.read_text(encoding="utf-8")
    parts, at = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for block, printed in runs(text, Path(folder)):
            shown = f"\n```text\n{printed}```\n" if printed else ""
            parts += [text[at : block.start()], f"```python\n{block[1]}```\n{shown}"]
            at = block.end()
        for picture in PICTURES[page.name]:
            if f"]({picture})" in text:
                shutil.copy(Path(folder) / picture, page.parent / picture)
    page.write_text("".join(parts) + text[at:], encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        rewrite(DOCS / name)
