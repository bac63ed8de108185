"""The sampler in this process: the groups of several optimiser steps are one batch of the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.rows import Metric, Trajectory
from tests.grpo_jobs import Ran, batched, coin, run, run_stored
from tests.test_grpo_ahead import Enough, figures, journal, lags
from training import checkpoint


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two iterations with staleness = 2."""
    root = tmp_path_factory.mktemp("at-once")
    settings = batched(2)
    return run(root, 0, score=coin, settings=settings) | run(root, 1, score=coin, settings=settings)


def test_three_steps_are_of_the_weights_that_the_first_of_them_began_with(ran: Ran) -> None:
    for t, first in ((0, 0), (1, ran.counts[0]["steps"])):
        found = lags(ran.rows, t, first)
        assert len(found) == ran.counts[t]["steps"] - first > 3
        assert found == {step: {(step - first - 1) % 3} for step in found}


def test_every_step_tells_how_far_behind_it_was(ran: Ran) -> None:
    first = ran.counts[0]["steps"]
    steps = [*range(1, first + 1), *range(first + 1, ran.counts[1]["steps"] + 1)]
    wanted = {step: (step - 1 - (first if step > first else 0)) % 3 for step in steps}
    assert figures(ran.rows, "staleness/max") == figures(ran.rows, "staleness/mean") == wanted


def test_what_sampling_took_is_told_once_a_batch(ran: Ran) -> None:
    steps = {row.step for row in ran.rows if isinstance(row, Metric) and row.name == "zero_variance"}
    assert steps == {step for step, lag in figures(ran.rows, "staleness/max").items() if lag == 0}
    seconds = figures(ran.rows, "seconds/sample")
    assert all((seconds[step] > 0) == (step in steps) for step in seconds)
    synced = [step for step, value in figures(ran.rows, "seconds/sync").items() if value > 0]
    assert len(synced) == len(steps), "after the last step before it, and at the end of an iteration"


def test_each_group_is_used_once(ran: Ran) -> None:
    for t in (0, 1):
        groups = ran.counts[t]["groups"]
        assert sum(groups.values()) == 12
        steps = ran.counts[t]["steps"] - (ran.counts[0]["steps"] if t else 0)
        assert -(-groups["informative"] // 2) == steps


def test_what_is_too_old_for_a_smaller_bound_is_sampled_again(tmp_path: Path) -> None:
    """Stopped before the last of three steps that were sampled at once, gone on with staleness = 0."""

    def stop(*_: object) -> None:
        if (tmp_path / "checkpoints/.steps-0/checkpoint-2/cursor.json").exists():
            raise Enough

    with pytest.raises(Enough):
        run_stored(tmp_path, 0, score=coin, settings=batched(2), report=stop)
    run_stored(tmp_path, 0, score=coin, settings=batched(0))
    rows = journal(tmp_path)
    again = [row for row in rows if isinstance(row, Trajectory) and row.attempt]
    assert {row.attempt for row in again} == {1}
    assert 0 < len({row.task_id for row in again}) < 12 - 2 * 2, "what two steps were trained on is not sampled again"
    later = {step: lag for step, lag in figures(rows, "staleness/max").items() if step > 2}
    assert set(later) == set(range(3, checkpoint.required(tmp_path / "checkpoints", 1).steps + 1))
    assert set(later.values()) == {0}
