"""Runs every check of `make test`, all of them even when one fails, and closes with `N passed, N failed`.

Rust's and Python's tests count one by one, each of the other checks as one. Fails when anything failed, and when a
suite ran no test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent

LINTS = [
    ["cargo", "fmt", "--all", "--check"],
    ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    [str(BIN / "ruff"), "check", "."],
    [str(BIN / "ruff"), "format", "--check", "."],
    [str(BIN / "mypy")],
    [PYTHON, "-m", "mypy.stubtest", "slablab._core"],
]
RUST = ["cargo", "test", "--locked", "--no-fail-fast"]
PYTEST = [PYTHON, "-m", "pytest"]

# Of the long recordings a fixed part, chosen by a hash; `make oracle` replays them whole.
ENVIRONMENT = {"SLABLAB_ORACLE": "part"} | os.environ | {"NO_COLOR": "1"}

RUST_LINE = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.MULTILINE)
PYTEST_LINE = re.compile(r"(\d+) (passed|failed|error)")


def run(command: list[str]) -> tuple[int, str]:
    """Runs a command in the root, showing its output as it comes; returns its status and its stdout."""
    print(f"\n$ {' '.join(Path(w).name if w.startswith('/') else w for w in command)}", flush=True)
    began = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as p:
        assert p.stdout is not None
        lines = []
        for line in p.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    print(f"# status {p.returncode}, {time.monotonic() - began:.0f} s", flush=True)
    return p.returncode, "".join(lines)


def rust(output: str) -> tuple[int, int]:
    """Passed and failed tests of `cargo test`: one line per binary and for the doc tests."""
    found = RUST_LINE.findall(output)
    return sum(int(p) for p, _ in found), sum(int(f) for _, f in found)


def pytest(output: str) -> tuple[int, int]:
    """Passed and failed tests of pytest: its closing line."""
    counts: dict[str, int] = {}
    for line in reversed(output.splitlines()):
        if found := PYTEST_LINE.findall(line):
            counts = {word: int(n) for n, word in found}
            break
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)


def shares(folder: Path) -> str:
    """How much of what was recorded of real kernels is equal: a line per allocator and kind of what the tests left."""
    sums: dict[tuple[str, str], list[int]] = {}
    for file in sorted(folder.iterdir()):
        name, what, equal, total = file.read_text(encoding="utf-8").split("\t")
        allocator = next((a for a in ("slab", "slub", "slob", "slqb") if a in name), name)
        sums.setdefault((allocator, "objects placed" if name.startswith("placement") else what), []).extend(
            (int(equal), int(total))
        )
    lines = []
    for (allocator, what), numbers in sorted(sums.items()):
        equal, total = sum(numbers[0::2]), sum(numbers[1::2])
        lines.append(f"{allocator}: {equal} of {total} {what} equal, {100 * equal / max(total, 1):.2f} %")
    return "\n".join(lines)


def main() -> int:
    """Runs the checks; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        ENVIRONMENT["SLABLAB_TALLY"] = folder
        passed, failed = checks()
        print("equal to recordings of real kernels (of the long sequences a fixed fifth; `make oracle` replays all):")
        print(shares(Path(folder)))
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def checks() -> tuple[int, int]:
    """Runs all of them; returns how many passed and failed."""
    passed = failed = 0
    broken = []
    for command in LINTS:
        status, _ = run(command)
        passed, failed = passed + (status == 0), failed + (status != 0)
        if status:
            broken.append(command)
    for command, count in ((RUST, rust), (PYTEST, pytest)):
        status, output = run(command)
        good, bad = count(output)
        if (status and not bad) or (not status and not good):
            # Did not build, died, or ran nothing: a failure that no test counted.
            bad += 1
        passed, failed = passed + good, failed + bad
        if bad:
            broken.append(command)
    print()
    for command in broken:
        print(f"failed: {' '.join(Path(w).name if w.startswith('/') else w for w in command)}")
    return passed, failed


if __name__ == "__main__":
    sys.exit(main())
