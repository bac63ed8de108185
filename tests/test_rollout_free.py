"""Rollouts with a policy that batches by itself: each episode at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from envs.protocols import Completion, Request
from store.errors import UsageError
from tests.fakes import EchoEnv, ScriptedPolicy, echo
from tests.rollouts import both_modes, jobs, outcomes, run, start


class Server(ScriptedPolicy):
    """Remembers how many requests it had at once; `waits` holds back the requests of one word."""

    def __init__(self, batch: int = 8, waits: dict[str, asyncio.Event] | None = None) -> None:
        super().__init__(lambda r: echo(r) if r.seed % 3 else "no", batch=batch, concurrent=True)
        self.now = self.most = 0
        self.asked = asyncio.Event()
        self.waits = waits or {}

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self.now += len(requests)
        self.asked.set()
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        if wait := self.waits.get(echo(requests[0])):
            await wait.wait()
        self.now -= len(requests)
        return await super().sample(requests)


def test_each_asks_alone_and_no_more_at_once_than_the_policy_likes() -> None:
    env, policy = EchoEnv(turns=2), Server(batch=3)
    run(env, jobs(env, "a", "b", k=8), policy)
    assert {len(batch) for batch in policy.batches} == {1}
    assert policy.most == 3


def test_a_slow_one_holds_nobody_up() -> None:
    async def scenario() -> None:
        others = asyncio.Event()
        env, policy = EchoEnv(turns=3), Server(batch=2, waits={"slow": others})
        policy.answer = lambda r: (others.set() if len(policy.batches) == 18 else None) or "no"
        played = await start(env, jobs(env, "slow", "b", k=1) + jobs(env, *"cdefg"), policy)
        assert {row.outcome for row, _ in played} == {"scored"}
        assert [echo(batch[0]) for batch in policy.batches[18:]] == ["slow"] * 3

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_both_modes_make_the_same_rows() -> None:
    def rows(policy: ScriptedPolicy) -> list[object]:
        env = EchoEnv(turns=2)
        todo = jobs(env, "a", "b", "c", k=4)
        env.faults = {job.task.id: ["lose", None, "lose"] for job in todo[:8]}
        return [
            (row.id, row.seed, row.outcome, row.score, row.error, row.prompt_tokens, [s.action for s in steps])
            for row, steps in run(env, todo, policy)
        ]

    lockstep = ScriptedPolicy(Server().answer, batch=64)
    assert rows(Server(batch=64)) == rows(lockstep)


def test_a_retry_does_not_wait_for_the_others() -> None:
    async def scenario() -> None:
        others = asyncio.Event()
        env, policy = EchoEnv(), Server(waits={"slow": others})
        todo = jobs(env, "slow", "b")
        env.faults[todo[1].task.id] = ["lose"]
        policy.answer = lambda r: (others.set() if len(policy.batches) == 2 else None) or echo(r)
        assert outcomes(await start(env, todo, policy)) == [("scored", 1.0, 0), ("infra", None, 0), ("scored", 1.0, 1)]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@both_modes
def test_wrong_settings_stop_all_and_close_what_is_open(concurrent: bool) -> None:
    class Wrong(Server):
        async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
            if "b" in map(echo, requests):
                raise UsageError("no such model")
            return await super().sample(requests)

    env, policy = EchoEnv(), Wrong(waits={"a": asyncio.Event()})
    policy.concurrent = concurrent
    with pytest.raises(UsageError, match="no such model"):
        run(env, jobs(env, "a", "b"), policy)
    assert env.sessions
    assert all(session.closed for session in env.sessions)


@both_modes
def test_whoever_is_stopped_closes_what_is_open(concurrent: bool) -> None:
    async def scenario() -> None:
        env, policy = EchoEnv(), Server(waits={"a": asyncio.Event()})
        policy.concurrent = concurrent
        playing = asyncio.create_task(start(env, jobs(env, "a", "b"), policy))
        await policy.asked.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert len(env.sessions) == 2
        assert all(session.closed for session in env.sessions)

    asyncio.run(asyncio.wait_for(scenario(), 60))
