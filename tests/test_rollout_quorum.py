"""Once enough rollouts of a task have ended, the others are late: cut off, unscored, not tried again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envs.protocols import Completion, Message, Observation, Request, Session
from envs.rollout import Played, is_late
from envs.waiting import Group
from store.rows import Task
from tests.fakes import EchoEnv, EchoSession, Fault, ScriptedPolicy, echo
from tests.rollouts import both_modes, jobs, outcomes, run

SCORED, LATE = ("scored", 1.0, 0), ("infra", None, 0)


def play_group(faults: Sequence[Fault | None], *, concurrent: bool, **options: Any) -> tuple[EchoEnv, list[Played]]:
    """One task, a rollout a fault; nobody can wait for the deadline, which is minutes away."""
    env = EchoEnv()
    todo = jobs(env, "a", k=len(faults))
    env.faults[todo[0].task.id] = list(faults)
    return env, run(env, todo, ScriptedPolicy(echo, concurrent=concurrent), **{"deadline_s": 600.0} | options)


class SlowEnv(EchoEnv):
    """A session may wait until so many others have been closed: `after`, in the order of opening."""

    def __init__(self, *after: int) -> None:
        super().__init__()
        self.after = list(after)

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        sessions, after = self.sessions, self.after.pop(0)

        class Slow(EchoSession):
            async def act(self, message: Message) -> Observation:
                while sum(session.closed for session in sessions) < after:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                return await super().act(message)

        sessions.append(Slow(task, tools=tools, turns=1, fault=None))
        return sessions[-1]


@both_modes
@pytest.mark.parametrize("slow", ["sleep", "sleep_grade", "stubborn", "thread"])
@pytest.mark.parametrize("grace_s", [0.0, 0.05])
def test_whoever_has_not_ended_by_then_is_late(slow: Fault, grace_s: float, concurrent: bool) -> None:
    env, played = play_group([slow, None, None, slow], concurrent=concurrent, quorum=0.5, grace_s=grace_s)
    assert outcomes(played) == [LATE, SCORED, SCORED, LATE]
    assert played[0][0].error == f"late: 2 of the task's 4 rollouts had ended {grace_s:g} s before"
    assert [is_late(row) for row, _ in played] == [True, False, False, True]
    assert all(session.closed for session in env.sessions)


def test_a_session_that_does_not_even_start_is_late() -> None:
    """With `free` only: in lockstep nobody can end before all have begun, so its deadline ends it."""
    _, played = play_group(["sleep_start", None], concurrent=True, quorum=0.5)
    assert outcomes(played) == [LATE, SCORED]


@both_modes
def test_what_a_late_one_still_gives_is_dropped(concurrent: bool) -> None:
    env, played = play_group(["stubborn", None], concurrent=concurrent, quorum=0.5)
    assert env.sessions[0].acted
    assert (outcomes(played), played[0][1]) == ([LATE, SCORED], [])


def test_one_that_the_policy_does_not_answer_is_late() -> None:
    class Silent(ScriptedPolicy):
        async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
            self.batches.append(list(requests))
            await asyncio.sleep(3600 * (len(self.batches) == 1))
            return await super().sample(requests)

    env = EchoEnv()
    played = run(env, jobs(env, "a", k=2), Silent(echo, concurrent=True), quorum=0.5)
    assert outcomes(played) == [LATE, SCORED]
    assert is_late(played[0][0])


@both_modes
def test_steps_from_before_the_cut_stay(concurrent: bool) -> None:
    _, played = play_group(["sleep_grade", None], concurrent=concurrent, quorum=0.5)
    assert [len(steps) for _, steps in played] == [1, 1]
    assert outcomes(played) == [LATE, SCORED]


@both_modes
def test_each_task_has_a_quorum_of_its_own(concurrent: bool) -> None:
    env = SlowEnv(0, 0, 0, 99, 0, 4, 4)
    todo = [*jobs(env, "a", k=4), *jobs(env, "b", k=3)]
    played = run(env, todo, ScriptedPolicy(echo, concurrent=concurrent), quorum=0.75)
    assert outcomes(played) == [SCORED, SCORED, SCORED, LATE, SCORED, SCORED, SCORED]


@both_modes
def test_whoever_ends_within_the_grace_is_in_time(concurrent: bool) -> None:
    env = SlowEnv(2, 0, 0)
    policy = ScriptedPolicy(echo, concurrent=concurrent)
    assert outcomes(run(env, jobs(env, "a", k=3), policy, quorum=0.3, grace_s=60.0)) == [SCORED] * 3


@both_modes
def test_without_a_quorum_all_are_waited_for(concurrent: bool) -> None:
    env = SlowEnv(3, 0, 0, 2)
    assert outcomes(run(env, jobs(env, "a", k=4), ScriptedPolicy(echo, concurrent=concurrent))) == [SCORED] * 4


def test_a_lost_attempt_has_not_ended_for_good() -> None:
    _, played = play_group(["lose", "sleep"], concurrent=True, quorum=0.5)
    assert outcomes(played) == [("infra", None, 0), ("scored", 1.0, 1), LATE]


@both_modes
def test_a_rollout_that_is_lost_for_good_has_ended(concurrent: bool) -> None:
    _, played = play_group(["lose", "sleep"], concurrent=concurrent, quorum=0.5, max_attempts=1)
    assert [is_late(row) for row, _ in played] == [False, True]


def test_a_retry_that_comes_too_late_is_a_late_row_and_opens_nothing() -> None:
    env, played = play_group([None, "lose", "sleep"], concurrent=False, quorum=0.3)
    assert outcomes(played) == [SCORED, ("infra", None, 0), ("infra", None, 1), LATE]
    assert [is_late(row) for row, _ in played] == [False, False, True, True]
    assert len(env.sessions) == 3


@both_modes
def test_a_late_one_that_has_not_begun_opens_nothing(concurrent: bool) -> None:
    env = EchoEnv()
    policy = ScriptedPolicy(echo, batch=2, concurrent=concurrent)
    played = run(env, jobs(env, "a", k=4), policy, quorum=0.5)
    assert outcomes(played)[:2] == [SCORED] * 2
    assert outcomes(played)[2:] == [LATE] * 2
    assert len(policy.batches) == (2 if concurrent else 1), "late ones are not sampled"


@given(st.lists(st.sampled_from(list[Fault | None]([None, "lose", "lose_start", "sleep", "invalid"])), max_size=5))
def test_whatever_fails_late_rows_are_last_and_scoreless(faults: list[Fault | None]) -> None:
    faults = [None, *faults]
    slow = faults.count("sleep")
    _, played = play_group(faults, concurrent=True, quorum=1 - slow / len(faults))
    rows = [row for row, _ in played]
    newest = {row.k: row for row in rows}
    late = [row for row in rows if is_late(row)]
    assert set(newest) == set(range(len(faults)))
    assert all(row is newest[row.k] and row.score is None for row in late)
    assert len(late) <= slow


@example(55, 100)
@given(st.integers(1, 100), st.integers(1, 400))
def test_enough_is_the_least_whole_number_that_is_the_share(hundredths: int, size: int) -> None:
    async def enough() -> int:
        return Group(size, hundredths / 100, 0.0).enough

    assert asyncio.run(enough()) == math.ceil(Fraction(hundredths, 100) * size)
