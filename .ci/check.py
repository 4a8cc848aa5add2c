"""Runs every check of `make test`, all of them even when one fails, and closes with `N passed, N failed`.

Rust's and Python's tests count one by one, each of the other checks as one. Fails when anything failed, and when a
suite ran no test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
# What a test of recordings prints: `oracle: KIND/FILE: N of M lines equal`.
ORACLE_LINE = re.compile(r"oracle: (\w+)/\S+: (\d+) of (\d+) ([\w ]+) equal")
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


def recordings(output: str) -> list[str]:
    """What share of the recordings is equal, by kind and by what was compared."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kind, equal, total, what in ORACLE_LINE.findall(output):
        sums.setdefault((kind, what), []).extend((int(equal), int(total)))
    rows = [(key, sum(n[::2]), sum(n[1::2])) for key, n in sorted(sums.items())]
    return [
        f"recordings, {kind}: {equal} of {total} {what} equal, {100 * equal / total:.2f} %"
        for (kind, what), equal, total in rows
    ]


def pytest(output: str) -> tuple[int, int]:
    """Passed and failed tests of pytest: its closing line."""
    counts: dict[str, int] = {}
    for line in reversed(output.splitlines()):
        if found := PYTEST_LINE.findall(line):
            counts = {word: int(n) for n, word in found}
            break
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)


def main() -> int:
    """Runs the checks; returns the exit status."""
    passed = failed = 0
    broken = []
    shares: list[str] = []
    for command in LINTS:
        status, _ = run(command)
        passed, failed = passed + (status == 0), failed + (status != 0)
        if status:
            broken.append(command)
    for command, count in ((RUST, rust), (PYTEST, pytest)):
        status, output = run(command)
        shares += recordings(output)
        good, bad = count(output)
        if (status and not bad) or (not status and not good):
            # Did not build, died, or ran nothing: a failure that no test counted.
            bad += 1
        passed, failed = passed + good, failed + bad
        if bad:
            broken.append(command)
    print()
    print(*shares, sep="\n")
    for command in broken:
        print(f"failed: {' '.join(Path(w).name if w.startswith('/') else w for w in command)}")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
