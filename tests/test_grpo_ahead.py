"""Rollouts from weights that are a little older: never older than allowed, never lost, and recorded as that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from store.db import Store
from store.journal import START, read, segments
from store.rows import Metric, Step, Task, Trajectory
from tests.grpo_jobs import HERE, SETTINGS, BesideEngines, Ran, ScoredEnv, ahead, coin, run, run_stored
from tests.loops import KILLER
from training.config import CollectSettings
from training.groups import Group, Member, task_order


class Enough(Exception):
    """As when somebody stops a run."""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two iterations with staleness = 1."""
    root = tmp_path_factory.mktemp("behind")
    return run(root, 0, score=coin, settings=ahead(1), engines=BesideEngines) | run(
        root, 1, score=coin, settings=ahead(1), engines=BesideEngines
    )


def figures(rows: list[Any], name: str) -> dict[int, float]:
    return {row.step: row.value for row in rows if isinstance(row, Metric) and row.name == name}


def lags(rows: list[Any], t: int, first: int, *, groups: int = SETTINGS.grpo.groups) -> dict[int, set[int]]:
    """{step: how far the weights of its rollouts were behind}, found from the rows and the order of tasks alone.

    `first` is the number of optimiser steps before iteration t.
    """
    newest: dict[tuple[str, int], Trajectory] = {}
    for row in sorted((row for row in rows if isinstance(row, Trajectory)), key=lambda row: row.attempt):
        if row.t == t:
            newest[row.task_id or "", row.k] = row
    taught = [played for task in in_order(t) if informative(played := [newest[task.id, k] for k in range(4)])]
    return {
        first + 1 + at: {
            first + at - (row.policy_step or 0) for played in taught[start : start + groups] for row in played
        }
        for at, start in enumerate(range(0, len(taught), groups))
    }


def in_order(t: int) -> list[Task]:
    return task_order(ScoredEnv().seed_tasks(), 11, t)


def informative(played: list[Trajectory]) -> bool:
    members = [Member(row=None, score=row.score) for row in played]
    return Group(task="x", members=members).kind(CollectSettings().min_valid) == "informative"


def test_no_rollout_is_older_than_allowed_and_some_are_ahead(behind: Ran) -> None:
    for t, first in ((0, 0), (1, behind.counts[0]["steps"])):
        found = lags(behind.rows, t, first)
        assert len(found) == behind.counts[t]["steps"] - first >= 3
        assert found[first + 1] == {0}, "a first step's groups are of the newest weights: there are no older ones"
        assert set.union(*found.values()) == {0, 1}


def test_the_figures_tell_how_old_and_how_long_was_waited(behind: Ran) -> None:
    found = lags(behind.rows, 0, 0) | lags(behind.rows, 1, behind.counts[0]["steps"])
    most, mean = figures(behind.rows, "staleness/max"), figures(behind.rows, "staleness/mean")
    assert most == {step: max(lag) for step, lag in found.items()}
    assert all(min(found[step]) <= value <= most[step] for step, value in mean.items())
    waited, played = figures(behind.rows, "seconds/wait"), figures(behind.rows, "seconds/sample")
    assert waited.keys() == most.keys() == played.keys()
    assert behind.counts[1]["wait_seconds"] > 0


def test_the_ratio_is_one_only_where_the_weights_are_the_same(behind: Ran) -> None:
    most, ratio = figures(behind.rows, "staleness/max"), figures(behind.rows, "is_ratio/max")
    for step, lag in most.items():
        assert (abs(ratio[step] - 1) < 1e-3) == (lag == 0), "each rollout keeps its own sampler's probabilities"


def test_every_task_is_sampled_k_times_all_the_same(behind: Ran) -> None:
    for t in (0, 1):
        played = Counter((row.task_id, row.k) for row in behind.rows if isinstance(row, Trajectory) and row.t == t)
        assert set(played.values()) == {1}
        assert len(played) == 12 * 4


def test_on_policy_is_recorded_as_that(tmp_path: Path) -> None:
    rows = run(tmp_path, 0).rows
    assert set(figures(rows, "staleness/max").values()) == set(figures(rows, "staleness/mean").values()) == {0}
    waited, sampled = figures(rows, "seconds/wait"), figures(rows, "seconds/sample")
    assert all(waited[step] >= sampled[step] > 0 for step in sampled)


def test_two_steps_behind_is_the_most_with_two(tmp_path: Path) -> None:
    ran = run(tmp_path, 0, score=coin, settings=ahead(2), engines=BesideEngines)
    assert set.union(*lags(ran.rows, 0, 0).values()) <= {0, 1, 2}


def test_what_is_too_old_for_a_smaller_bound_is_sampled_again(tmp_path: Path) -> None:
    """Stopped with staleness = 1, gone on with 0: the rows stay, and what is trained from there is on-policy."""

    def stop(label: str, done: int, total: int) -> None:
        if done > total / 2:
            raise Enough

    with pytest.raises(Enough):
        run_stored(tmp_path, 0, score=coin, settings=ahead(1), engines=BesideEngines, report=stop)
    before = journal(tmp_path)
    reached = max(row.step for row in before if isinstance(row, Metric))
    run_stored(tmp_path, 0, score=coin, settings=ahead(0), engines=BesideEngines)
    rows = journal(tmp_path)
    assert_each_once(rows)
    assert rows[: len(before)] == before
    again = [row for row in rows if isinstance(row, Trajectory) and row.attempt]
    assert again
    assert {row.attempt for row in again} == {1}
    assert {max(lag) for step, lag in lags(rows, 0, 0).items() if step > reached} == {0}
    assert {value for step, value in figures(rows, "staleness/max").items() if step > reached} == {0}
    assert Store(tmp_path / "store").query("select count(*) from v_rollout") == [(12 * 4,)], "each counts once"


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Durable operations of an iteration with staleness = 1."""
    root = tmp_path_factory.mktemp("whole")
    assert killed(root, 0) == 0
    return len((root / "operations").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.55, 0.7, 0.85])
def test_killed_and_resumed_nothing_is_lost_and_the_bound_holds(tmp_path: Path, operations: int, share: float) -> None:
    assert killed(tmp_path, int(share * operations)) == -signal.SIGKILL
    before = {row.id for row in journal(tmp_path) if isinstance(row, Trajectory)}
    assert before
    run_stored(tmp_path, 0, score=coin, settings=ahead(1), engines=BesideEngines)
    rows = journal(tmp_path)
    assert_each_once(rows)
    played = {row.id for row in rows if isinstance(row, Trajectory)}
    assert before <= played
    assert len(played) == 12 * 4, "none was played that was there already"
    found = lags(rows, 0, 0)
    assert set.union(*found.values()) <= {0, 1}
    assert set(found) == set(figures(rows, "staleness/max"))


def killed(root: Path, at: int) -> int:
    """The exit code of an iteration that is killed at its `at`-th durable operation; 0 = it was not."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.grpo_jobs", str(root), "0", "1"],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(KILLER),
            "KILL_COUNTER": str(root / "operations"),
            "KILL_AT": str(at),
        },
        cwd=HERE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode


def journal(root: Path) -> list[Any]:
    """Every row that was ever written, duplicates too."""
    return [row for segment in segments(root / "store/journal") for batch in read(segment, START) for row in batch.rows]


def assert_each_once(rows: list[Any]) -> None:
    """No rollout is in the journal twice, and none is missing."""
    trajectories = Counter(row.id for row in rows if isinstance(row, Trajectory))
    steps = Counter((row.trajectory_id, row.index) for row in rows if isinstance(row, Step))
    assert set(trajectories.values()) == set(steps.values()) == {1}
    played = {(row.task_id, row.k) for row in rows if isinstance(row, Trajectory)}
    assert len(played) == 12 * 4
