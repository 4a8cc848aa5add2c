"""Output paths of the shell: refused before a run, and nothing that was there is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slablab.cli import main

RUN = ["run", "--allocator", "null", "--workload", "tbench", "--machine", "opteron-2x4-2007", "--seconds", "0.002"]


def test_an_existing_empty_file_survives_a_refused_run(tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv"
    kept.touch(mode=0o600)
    assert main([*RUN[:2], "nul", *RUN[3:], "--csv", str(kept)]) == 2
    assert kept.exists()


def test_a_pipe_is_no_place_for_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main([*RUN, "--csv", str(pipe)]) == 2
    assert "a regular file" in capsys.readouterr().err
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["a.xyz", "a.csv", "a"])
def test_a_picture_of_no_known_format_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--allocator", "null", "--workload", "tbench", "--over", "workload.clients=1", "--png"]
    assert main([*words, str(tmp_path / name)]) == 2
    assert ".png" in capsys.readouterr().err


def test_two_outputs_need_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = str(tmp_path / "a.png")
    words = ["sweep", "--allocator", "null", "--workload", "tbench", "--over", "workload.clients=1"]
    assert main([*words, "--csv", same, "--png", same]) == 2
    assert "a file of its own" in capsys.readouterr().err


@pytest.mark.parametrize("over", ["workload.clients=1..1000000000000", "workload.clients=1..4000,1..4000"])
def test_a_sweep_that_would_never_end_is_refused_with_its_size(over: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--allocator", "null", "--workload", "tbench", "--over", over, "--over", "machine.cpus=1..100"]
    assert main(words) == 2
    assert "100000" in capsys.readouterr().err


def test_no_output_takes_the_place_of_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, link = tmp_path / "s.db", tmp_path / "link.csv"
    words = ["sweep", "--allocator", "null,slob", "--seconds", "0.002", "--set", "workload.warmup=0.001"]
    assert main([*words, "--store", str(store)]) == 0
    os.link(store, link)
    before = store.read_bytes()
    for command in (
        [*words, "--store", str(store), "--csv", str(store)],
        [*words, "--store", str(store), "--csv", str(link)],
        [*words, "--store", str(store), "--csv", f"{store}-wal"],
        ["compare", str(store), "--baseline", "null", "--csv", str(store)],
        ["compare", str(store), str(store), "--csv", str(store)],
        ["store", "export", str(link), str(link)],
    ):
        assert main(command) == 2
        assert "the store's" in capsys.readouterr().err
    assert store.read_bytes() == before
