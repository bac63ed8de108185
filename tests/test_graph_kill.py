"""SIGKILL anywhere in explorations and validations; run again, and the rows are those of an uninterrupted run."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from store.rows import Candidate, Exploration, Json, Span, Verdict
from tests.graph_child import read_rows, run

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.graph_child"])
TIMES = {"seconds", "created_at"}


def run_killed(folder: Path, kill_at: int, *work: Any) -> int | None:
    """Exit code of one process that runs the phases, or other `work` (tests/graph_child.py), and dies at the event."""
    folder.mkdir(exist_ok=True)
    process = CONTEXT.Process(target=run, args=(folder, kill_at, *work))
    process.start()
    process.join(60)
    return process.exitcode


def content(folder: Path) -> list[Json]:
    """The rows without what clocks say, in the order written; every key at most once. Spans tell of one process."""
    rows = [row for row in read_rows(folder / "rows.jsonl") if not isinstance(row, Span)]
    keys = [(type(row).__name__, *(getattr(row, key) for key in row.KEY)) for row in rows]
    assert len(set(keys)) == len(keys)
    plain = [msgspec.to_builtins(row) for row in rows]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in plain]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Json], int]:
    """(rows, number of events) of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_killed(folder, 0) == 0
    return content(folder), int((folder / "events").read_text())


def test_the_run_exercises_what_it_should(whole: tuple[list[Json], int]) -> None:
    rows, events = whole
    assert events > 60
    assert sum("exploration_id" in row for row in rows) == 6
    assert sorted(row["reason"] for row in rows if "adopt" in row) == ["duplicate"] * 3 + ["valid"] * 3


@pytest.mark.parametrize("share", [0.02, 0.2, 0.45, 0.7, 0.99])
def test_killed_once(whole: tuple[list[Json], int], tmp_path: Path, share: float) -> None:
    rows, events = whole
    assert run_killed(tmp_path, max(1, int(share * events))) == -9
    assert run_killed(tmp_path, 0) == 0
    assert content(tmp_path) == rows


@pytest.mark.slow
def test_killed_at_every_third_event(whole: tuple[list[Json], int], tmp_path: Path) -> None:
    rows, events = whole
    for at in range(1, events, 3):
        folder = tmp_path / str(at)
        assert run_killed(folder, at) == -9
        assert run_killed(folder, 0) == 0
        assert content(folder) == rows, f"killed at event {at} of {events}"


@pytest.mark.slow
def test_killed_again_and_again(whole: tuple[list[Json], int], tmp_path: Path) -> None:
    rows, _ = whole
    codes = [run_killed(tmp_path, 12) for _ in range(60)]  # 9 events only replay two sessions
    assert codes[0] == -9
    assert 0 in codes, "every run makes some headway"
    assert content(tmp_path) == rows


def test_no_row_type_is_forgotten(whole: tuple[list[Json], int]) -> None:
    rows, _ = whole
    for kind in (Exploration, Candidate, Verdict):
        names = set(kind.__slots__) - TIMES
        assert any(set(row) == names for row in rows)
