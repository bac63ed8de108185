"""An evaluation that the machine failed is tried again by the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from envs.errors import InfraError
from evals.run import evaluate
from store.rows import Row, Trajectory
from tests.fakes import EchoEnv, ScriptedPolicy, echo


def test_what_the_machine_failed_twice_is_played_by_the_next_call() -> None:
    env = EchoEnv()
    tasks = env.seed_tasks()
    kept: list[Trajectory] = []

    def keep(rows: Iterable[Row]) -> None:
        kept.extend(row for row in rows if isinstance(row, Trajectory))

    def call() -> list[Trajectory]:
        return asyncio.run(
            evaluate(
                env,
                "s",
                tasks,
                ScriptedPolicy(echo),
                run="r",
                seed=0,
                k=1,
                max_tokens=9,
                deadline_s=9.0,
                done=list(kept),
                append=keep,
                report=lambda *_: None,
            )
        )

    env.faults = {task.id: ["lose", "lose"] for task in tasks}
    with pytest.raises(InfraError, match="the last that failed: "):
        call()
    assert [row.score for row in call()] == [1.0] * len(tasks)
    assert {row.attempt for row in kept} == {0, 1, 2}
    assert len({row.id for row in kept}) == len(kept)
