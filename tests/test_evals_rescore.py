"""Stored actions, played again through fresh sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from envs.errors import InfraError
from envs.rollout import Job, Played, play
from evals.rescore import Again, rescore
from store.errors import CoevolveError
from store.rows import Step
from tests.fakes import EchoEnv, ScriptedPolicy, echo, last_user

JOBS = 3


def played(env: EchoEnv) -> list[Played]:
    """The last word is wrong at first and right then; the others are right at once."""
    policy = ScriptedPolicy(lambda request: echo(request) if last_user(request) != "ping" else "pong")
    jobs = [Job(task=task, k=0, seed=0) for task in env.seed_tasks()]
    return asyncio.run(
        play(env, jobs, policy, run="r", t=0, purpose="eval", temperature=0.0, max_tokens=9, deadline_s=9.0)
    )


def again(env: EchoEnv, rows: list[Played], steps: dict[str, list[Step]]) -> list[Again]:
    def recall(ids: Sequence[str]) -> dict[str, list[Step]]:
        return {each: steps[each] for each in ids}

    stored = [row for row, _ in rows]
    return asyncio.run(rescore(env, env.seed_tasks(), stored, recall, tools=False, report=lambda *_: None))


def test_the_same_actions_score_the_same_and_others_otherwise() -> None:
    env = EchoEnv(words=("ping", "two", "three"), turns=2)
    rows = played(env)
    assert [row.score for row, _ in rows] == [1.0] * JOBS
    steps = {row.id: made for row, made in rows}
    assert [each.outcome.score for each in again(env, rows, steps)] == [1.0] * JOBS
    steps[rows[1][0].id] = [replace(step, action="other") for step in steps[rows[1][0].id]]
    found = again(env, rows, steps)
    assert [each.changed for each in found] == [False, True, False]
    assert found[1].outcome.score == 0.0
    assert {session.closed for session in env.sessions} == {True}


def test_a_rollout_that_lost_a_step_is_not_graded_without_it() -> None:
    env = EchoEnv(words=("ping", "two", "three"), turns=2)
    rows = played(env)
    steps = {row.id: made for row, made in rows}
    row = rows[1][0]
    steps[row.id] = steps[row.id][1:]
    with pytest.raises(CoevolveError, match=f"{row.steps - 1} of the {row.steps} steps of rollout {row.id}"):
        again(env, rows, steps)


def test_a_lost_session_is_no_score() -> None:
    env = EchoEnv()
    rows = played(env)
    env.faults = {task.id: ["lose"] for task in env.seed_tasks()}
    with pytest.raises(InfraError):
        again(env, rows, {row.id: made for row, made in rows})
