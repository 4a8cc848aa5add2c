"""docs/hands-on.md, reports.md, slob-head-merge.md: every block runs, in order, and prints what stands below it.

`python python/tests/test_hands_on.py` writes what is printed into the pages, and their pictures beside them: read
and look before they are committed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "hands-on.md"
PAGES = {
    PAGE: (["dentry.png"], 15),
    DOCS / "pages.md": (["zone-map.png", "memory-growth.png"], 5),
    DOCS / "reports.md": ([], 9),
    DOCS / "slob-head-merge.md": (["slob-head-merge.png"], 3),
}
"""Each page with the pictures that it makes and the blocks it has at least."""
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def runs(page: Path, text: str, folder: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Each block, and what it prints, long lines folded."""
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for block in BLOCK.finditer(text):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block[1], str(page), "exec"), names)
            lines = out.getvalue().splitlines()
            folded = [textwrap.fill(line, 110, subsequent_indent="    ") if "|" not in line else line for line in lines]
            yield block, "".join(f"{line}\n" for line in folded)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_prints_what_stands_below_it(page: Path, tmp_path: Path):
    pictures, blocks = PAGES[page]
    found = list(runs(page, page.read_text(encoding="utf-8"), tmp_path))
    assert len(found) >= blocks
    for block, printed in found:
        assert printed == (block[2] or ""), block[1]
    for picture in pictures:
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
    page = DOCS / "pages.md"
    text = page.read_text(encoding="utf-8")
    assert "all as said: True" in text
    for picture in PAGES[page][0]:
        assert f"]({picture})" in text
        assert (DOCS / picture).stat().st_size > 10_000


def rewrite(page: Path) -> None:
    """Puts what the blocks print below them, and the pictures that the page shows beside it."""
    import shutil
    import tempfile

    text = page.read_text(encoding="utf-8")
    parts, at = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for block, printed in runs(page, text, Path(folder)):
            shown = f"\n```text\n{printed}```\n" if printed else ""
            parts += [text[at : block.start()], f"```python\n{block[1]}```\n{shown}"]
            at = block.end()
        for picture in PAGES[page][0]:
            if f"]({picture})" in text:
                shutil.copy(Path(folder) / picture, DOCS)
    page.write_text("".join(parts) + text[at:], encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        rewrite(page)
