"""Executors: the same results from threads, processes and a cluster, also when workers die."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SHORT

import slablab as sl
from slablab import _core
from slablab.executors import elsewhere

GRID = {"allocator": ["null", "slob"], "workload": sl.Tbench(**SHORT), "over": {"workload.clients": [1, 2, 3]}}


def results(grid: sl.Sweep) -> list[object]:
    return [json.loads(r.to_json())["result"] for r in grid]


@pytest.fixture(scope="module")
def here() -> list[object]:
    return results(sl.sweep(**GRID))


def test_threads_give_the_same(here: list[object]):
    with ThreadPoolExecutor(2) as pool:
        assert results(sl.sweep(**GRID, executor=pool)) == here


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_processes_give_the_same_however_they_start(method: str, here: list[object], tmp_path: Path):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert results(sl.sweep(**GRID, executor=pool, store=tmp_path / "runs.db")) == here


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_already_shut_down_is_refused(kind: type[Executor]):
    pool = kind(1)  # type: ignore[call-arg]
    pool.shutdown()
    with pytest.raises(sl.ConfigError, match="an executor that takes work"):
        sl.sweep(**GRID, executor=pool)


def test_a_failing_cell_ends_the_sweep_and_takes_the_rest_back():
    class Broken(Executor):
        """Runs the first three cells, then says that the core failed; the rest never begins."""

        def __init__(self) -> None:
            self.futures: list[Future[object]] = []

        def submit(self, fn, /, *args, **kwargs):
            future: Future[object] = Future()
            at = len(self.futures)
            self.futures.append(future)
            if at < 3:
                future.set_result(fn(*args))
            elif at == 3:
                future.set_exception(sl.SlabCorruption("freelist of dentry"))
            return future

    pool = Broken()
    with pytest.raises(sl.SlabCorruption, match="dentry") as raised:
        sl.sweep(**GRID, executor=pool)
    assert any("in the run" in note for note in raised.value.__notes__)
    assert len(raised.value.finished) <= 3  # type: ignore[attr-defined]
    assert [f.cancelled() for f in pool.futures] == [False] * 4 + [True] * 2


def test_a_cell_is_handed_out_again_when_its_worker_died_and_not_for_ever(here: list[object]):
    class Dying(ThreadPoolExecutor):
        deaths = 0

        def submit(self, fn, /, *args, **kwargs):
            future: Future[object] = Future()
            if self.left > 0:
                self.left -= 1
                self.deaths += 1
                future.set_exception(OSError("the worker is gone"))
                return future
            return super().submit(fn, *args, **kwargs)

    with Dying(1) as pool:
        pool.left = 3
        assert results(sl.sweep(**GRID, executor=pool)) == here
        assert pool.deaths == 3
        pool.left = 1000
        with pytest.raises(OSError, match="gone") as raised:
            sl.sweep(**GRID, executor=pool)
        assert pool.deaths < 3 + 6 * 4 + 1
    assert "handed out 4 time(s)" in raised.value.__notes__[0]


def test_thousands_of_cells_are_handed_out_in_no_time():
    class At(Executor):
        """Runs at once, in the caller."""

        def __init__(self, crossing: object) -> None:
            self.crossing = crossing

        def submit(self, fn, /, *args, **kwargs):
            future: Future[object] = Future()
            future.set_result(self.crossing)
            return future

    crossing = _core.run(
        json.dumps({"machine": "opteron-2x4-2007", "allocator": "null", "workload": {"name": "script", "ops": []}})
    )

    count = 10_000
    began = time.perf_counter()
    elsewhere(At(crossing), ["{}"] * count, range(count), lambda *_: None)
    assert (time.perf_counter() - began) / count < 1e-3


def test_a_future_that_its_executor_cancelled_is_handed_out_again(here: list[object]):
    class Cancelling(ThreadPoolExecutor):
        left = 2

        def submit(self, fn, /, *args, **kwargs):
            if self.left:
                self.left -= 1
                future: Future[object] = Future()
                future.cancel()
                return future
            return super().submit(fn, *args, **kwargs)

    with Cancelling(1) as pool:
        assert results(sl.sweep(**GRID, executor=pool)) == here


def test_a_killed_process_breaks_the_pool_and_a_new_one_finishes(here: list[object], tmp_path: Path):
    store = tmp_path / "runs.db"
    grid = GRID | {"over": {"workload.clients": [1, 2, 3]}, "repeats": 20}
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(os.getpid).result()

        def kill() -> None:
            while not store.exists() or len(sl.Store(store)) < 3:
                time.sleep(0.02)
            os.kill(next(iter(pool._processes)), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(BrokenExecutor):
            sl.sweep(**grid, executor=pool, store=store)
        killer.join()
    with sl.Store(store) as kept:
        before = set(kept.runs()["key"])
    assert 3 <= len(before) < 120
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        again = sl.sweep(**grid, executor=pool, store=store)
    assert len(again) == 120
    with sl.Store(store) as kept:
        after = kept.runs()["key"]
    assert before <= set(after)
    assert after.is_unique
    assert results(again)[::20] == here


def test_a_dask_cluster_whose_workers_are_killed_loses_and_repeats_nothing(here: list[object], tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    grid = GRID | {"repeats": 25}
    store = tmp_path / "runs.db"
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed = []

        def kill() -> None:
            for count in (5, 40):
                while not store.exists() or len(sl.Store(store)) < count:
                    time.sleep(0.02)
                pids = {w: n.pid for w, n in cluster.workers.items() if n.pid}
                worker = sorted(pids, key=str)[0]
                os.kill(pids[worker], signal.SIGKILL)
                killed.append(pids[worker])

        killer = threading.Thread(target=kill)
        killer.start()
        swept = sl.sweep(**grid, executor=client.get_executor(), store=store)
        killer.join()
    assert len(set(killed)) == 2
    assert len(swept) == 150
    assert results(swept)[::25] == here
    with sl.Store(store) as kept:
        assert len(kept) == 150
        assert kept.runs()["key"].is_unique


@pytest.mark.parametrize("held", [None, ("{}", {}), 3])
def test_an_executor_that_returns_something_else_is_refused(held: object):
    class Odd:
        def submit(self, *_):
            future = Future()
            future.set_result(held)
            return future

    class Bare:
        def submit(self, *_):
            return held

    for executor in (Odd(), Bare()):
        with pytest.raises(sl.ConfigError, match="executor"):
            sl.sweep(**GRID, executor=executor)
