"""A progress bar for terminals and notebooks: cells done, rate, time left. Nothing to install, little to print."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from slablab.planning import spelled

EVERY = 0.1
"""Seconds between two drawings."""
WIDTH = 30


class Progress:
    """Counts runs: `with Progress(total, shown=True) as bar: bar.step()`."""

    def __init__(self, total: int, *, shown: bool, label: str = "runs") -> None:
        self.total = total
        self.done = 0
        self._shown = shown and total > 0
        self._label = label
        self._began = time.monotonic()
        self._drawn = 0.0
        self._notebook: Any = None

    def __enter__(self) -> Progress:
        if self._shown:
            self._notebook = _display(self._html())
            self._draw()
        return self

    def step(self, count: int = 1) -> None:
        """Counts finished runs."""
        self.done += count
        if self._shown and time.monotonic() - self._drawn >= EVERY:
            self._draw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._draw()
            if self._notebook is None:
                print(file=sys.stderr, flush=True)

    def words(self) -> str:
        """What stands beside the bar: 12/48 runs, 3.1 runs/s, 12 s left."""
        passed = time.monotonic() - self._began
        text = f"{self.done}/{self.total} {self._label}"
        if not self.done or passed <= 0:
            return text
        rate = self.done / passed
        speed = f"{rate:.3g} {self._label}/s" if rate >= 1 else f"{spelled(1 / rate)} per run"
        if self.done == self.total:
            return f"{text}, {speed}, took {spelled(passed)}"
        return f"{text}, {speed}, {spelled((self.total - self.done) / rate)} left"

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._notebook is not None:
            self._notebook.update(_Html(self._html()))
            return
        full = WIDTH * self.done // self.total
        # Back to the start of the line, and what was longer before is wiped.
        print(f"\r[{'#' * full}{'.' * (WIDTH - full)}] {self.words()}\x1b[K", end="", file=sys.stderr, flush=True)

    def _html(self) -> str:
        return f'<progress value="{self.done}" max="{self.total}"></progress> {self.words()}'


class _Html:
    """A piece of HTML, as notebooks show it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return ""


def _display(text: str) -> Any:
    """The handle of a display in a notebook; None in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    return display(_Html(text), display_id=True)  # type: ignore[no-untyped-call, unused-ignore]
