"""Cells of a sweep on an executor of the user's: threads, processes, a dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from slablab import _core
from slablab.values import refused, shown

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from slablab._core import _Crossing as Crossing

    Done = Callable[[int, Crossing | Exception], Sequence[int] | None]

TRIES = 4
"""Times that a cell is handed out before its worker's death is taken for its own fault."""


def usable(executor: object) -> None:
    """Refuses what is no executor."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise refused("executor", shown(executor), "a concurrent.futures.Executor, as ProcessPoolExecutor(4)")


def elsewhere(executor: Executor, documents: Sequence[str], order: Sequence[int], done: Done) -> None:
    """Runs the cells `order` of `documents` on an executor; `done` hears of each, and may name others that are done.

    A cell whose worker died is handed out again. What has not begun when a cell fails, or at Ctrl-C, is taken back.
    """
    from queue import SimpleQueue

    waiting: dict[Future[Crossing], int] = {}
    tries = dict.fromkeys(order, 0)
    # Futures put themselves here as they end: to ask them all each time would take longer than short cells do.
    ended: SimpleQueue[Future[Crossing]] = SimpleQueue()

    def hand_out(index: int) -> None:
        tries[index] += 1
        try:
            future = executor.submit(_core.run, documents[index])
        except RuntimeError as e:
            if waiting or any(n > 1 for n in tries.values()):
                raise
            raise refused("executor", shown(executor), f"an executor that takes work ({e})") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise refused("executor", shown(executor), f"one whose submit returns a future; it returned {future!r}")
        waiting[future] = index
        future.add_done_callback(ended.put)

    try:
        for index in order:
            hand_out(index)
        while waiting:
            future = ended.get()
            index = waiting.pop(future, -1)
            if index < 0:
                # Taken back: somebody else had done it.
                continue
            error = _error(future)
            if error is None:
                _skip(waiting, done(index, _crossed(future.result())))
            elif isinstance(error, _core.ConfigError | _core.SlabCorruption):
                done(index, error)
            elif not isinstance(error, Exception) or _pool_is_gone(error) or tries[index] >= TRIES:
                error.add_note(f"in the run {documents[index]}, handed out {tries[index]} time(s)")
                raise error
            else:
                hand_out(index)
    finally:
        for future in waiting:
            future.cancel()


def _crossed(given: object) -> Crossing:
    """What a future holds, if it can be a run: a document and its frames."""
    good = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and '"summary"' in given[0]
    if not good:
        raise refused("executor", shown(given), "futures that hold what the function given to submit returned")
    return given  # type: ignore[return-value]


def _error(future: Future[Crossing]) -> BaseException | None:
    """What ended a future badly, cancelled by its executor included."""
    from concurrent.futures import CancelledError

    try:
        return future.exception()
    except CancelledError as e:
        return e


def _pool_is_gone(error: BaseException) -> bool:
    """A pool of processes that lost one takes no more work: nothing can be handed out again."""
    from concurrent.futures import BrokenExecutor

    return isinstance(error, BrokenExecutor)


def _skip(waiting: dict[Future[Crossing], int], unwanted: Sequence[int] | None) -> None:
    """Takes back cells that somebody else has done meanwhile, where they have not begun."""
    gone = set(unwanted or ())
    if gone:
        for future in [f for f, index in waiting.items() if index in gone]:
            if future.cancel():
                del waiting[future]
