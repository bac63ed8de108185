"""A session that hangs, in whatever way, costs its own episode, and nothing that it does later is heard."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from envs import waiting
from envs.protocols import Message, Observation, Session
from store.rows import Task
from tests.fakes import EchoEnv, EchoSession, ScriptedPolicy, echo
from tests.rollouts import both_modes, jobs, outcomes, run, start

BRIEF = 0.2
"""Seconds of an episode that is to run out of them; honest ones take a hundredth."""


@both_modes
@pytest.mark.parametrize("fault", ["sleep", "sleep_start", "sleep_grade", "stubborn", "thread"])
def test_a_hanging_session_costs_its_own_episode_only(fault: Any, concurrent: bool) -> None:
    env = EchoEnv()
    todo = jobs(env, "a", "b", "c")
    env.faults[todo[1].task.id] = [fault]
    played = run(env, todo, ScriptedPolicy(echo, concurrent=concurrent), deadline_s=BRIEF, max_attempts=1)
    assert outcomes(played) == [("scored", 1.0, 0), ("infra", None, 0), ("scored", 1.0, 0)]
    assert played[1][0].error == "InfraError: the episode took over 0.2 s"
    assert all(session.closed for session in env.sessions)


@both_modes
def test_sessions_act_side_by_side(concurrent: bool) -> None:
    env = MeetingEnv(people=3)
    played = run(env, jobs(env, "a", "b", "c"), ScriptedPolicy(echo, concurrent=concurrent))
    assert {row.outcome for row, _ in played} == {"scored"}


class MeetingEnv(EchoEnv):
    """No act is answered before all are at it."""

    def __init__(self, people: int) -> None:
        super().__init__()
        self.barrier = asyncio.Barrier(people)

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        barrier = self.barrier

        class Meeting(EchoSession):
            async def act(self, message: Message) -> Observation:
                await barrier.wait()
                return await super().act(message)

        return Meeting(task, tools=tools, turns=1, fault=None)


@both_modes
def test_what_a_session_answers_after_the_deadline_is_in_no_row(concurrent: bool) -> None:
    async def scenario() -> None:
        env = EchoEnv()
        todo = jobs(env, "a")
        env.faults[todo[0].task.id] = ["stubborn"]
        policy = ScriptedPolicy(echo, concurrent=concurrent)
        played = await start(env, todo, policy, deadline_s=BRIEF, max_attempts=1)
        before = deepcopy(played)
        assert env.sessions[0].acted, "it did answer, before it was closed"
        await asyncio.sleep(0.01)
        assert played == before
        assert outcomes(played) == [("infra", None, 0)]
        assert played[0][1] == []

    asyncio.run(scenario())


def test_a_session_is_not_closed_while_it_is_at_work() -> None:
    env = EchoEnv()
    todo = jobs(env, "a")
    env.faults[todo[0].task.id] = ["stubborn"]
    run(env, todo, ScriptedPolicy(echo), deadline_s=BRIEF, max_attempts=1)
    assert (env.sessions[0].closed, env.sessions[0].closed_early) == (True, False)


def test_but_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "CLOSE_S", 0.0)
    env = EchoEnv()
    todo = jobs(env, "a")
    env.faults[todo[0].task.id] = ["stubborn"]
    run(env, todo, ScriptedPolicy(echo), deadline_s=BRIEF, max_attempts=1)
    assert (env.sessions[0].closed, env.sessions[0].closed_early) == (True, True)


class BadlyClosed(EchoSession):
    async def close(self) -> None:
        await super().close()
        if self._word == "a":
            await asyncio.sleep(3600)
        raise RuntimeError("the door is stuck")


@both_modes
def test_a_close_that_hangs_or_fails_costs_nothing(concurrent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "CLOSE_S", 0.05)
    monkeypatch.setattr("tests.fakes.EchoSession", BadlyClosed)
    env = EchoEnv()
    played = run(env, jobs(env, "a", "b"), ScriptedPolicy(echo, concurrent=concurrent))
    assert outcomes(played) == [("scored", 1.0, 0)] * 2


@both_modes
@pytest.mark.parametrize(
    ("fault", "words"),
    [("cancelled", "InfraError: it stopped itself"), ("no_grade", "TypeError: evaluate gave None, not an Outcome")],
)
def test_what_is_no_answer_at_all_is_an_infrastructure_failure(fault: Any, words: str, concurrent: bool) -> None:
    env = EchoEnv()
    todo = jobs(env, "a", "b")
    env.faults[todo[0].task.id] = [fault]
    played = run(env, todo, ScriptedPolicy(echo, concurrent=concurrent), max_attempts=1)
    assert outcomes(played) == [("infra", None, 0), ("scored", 1.0, 0)]
    assert played[0][0].error == words
