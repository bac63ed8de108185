"""Real vLLM servers on this CPU that are killed among rollouts, that want one port, and that serve two runs at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from envs.errors import InfraError
from envs.protocols import Completion, Request
from envs.rollout import Played
from store.errors import UsageError
from tests.fake_vllm import fake_vllm
from tests.grpo_jobs import ScoredEnv
from tests.rollouts import jobs
from tests.rollouts import start as play
from tests.test_vllm_engine import ENGINE, FLOAT, REQUESTS, changed, difference, guard, kill_the_engine, sample
from tests.tiny_model import write_random_model
from training import serve
from training.guard import await_that, members
from training.model import load_model
from training.serve import Server
from training.vllm import VLLMPolicy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]
PATIENT = ENGINE.model_copy(update={"request_s": 140.0})  # for a machine that is busy with other things
WORDS = ("one", "two", "three", "four")
ROLLOUTS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny", head_dim=32)


def a_policy(folder: Path, home: Path, run: str) -> VLLMPolicy:
    return VLLMPolicy(folder, spec=f"hf:{folder}", run=run, home=home, engine=PATIENT, settings=FLOAT)


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMPolicy]:
    policy = a_policy(folder, tmp_path_factory.mktemp("run"), "r001")
    yield policy
    policy.close()


class Interrupted:
    """The policy, but for `then`, which is called as the first request of a second turn is on its way."""

    def __init__(self, policy: VLLMPolicy, then: Callable[[], None]) -> None:
        self._policy, self._then, self._asked = policy, then, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        first, self._asked = self._asked, self._asked + len(requests)
        if first <= ROLLOUTS < self._asked:
            self._then()
        return await self._policy.sample(requests)


def rollouts(policy: VLLMPolicy, then: Callable[[], None] = lambda: None) -> list[Played]:
    """Two of each of four tasks, of two turns; `then` is called while they are under way."""
    env = ScoredEnv(words=WORDS)
    todo = jobs(env, *WORDS, k=2)
    assert len(todo) == ROLLOUTS
    interrupted: Any = Interrupted(policy, then)
    return asyncio.run(play(env, todo, interrupted, max_tokens=150, max_attempts=2, deadline_s=300))


def scored(played: list[Played]) -> dict[tuple[str | None, int], Any]:
    return {
        (row.task_id, row.k): (row.score, [step.completion_ids for step in steps])
        for row, steps in played
        if row.outcome == "scored"
    }


def kill_the_guard(group: int) -> None:
    """Return once it is dead: the request that follows finds it so."""
    os.kill(group, signal.SIGKILL)
    assert await_that(lambda: group not in members(group), 10)


def test_a_server_killed_among_rollouts_loses_none_and_changes_none(engine: VLLMPolicy) -> None:
    whole = rollouts(engine)
    assert len(scored(whole)) == 8
    for kill in (kill_the_engine, kill_the_guard):
        group = guard(engine)
        played = rollouts(engine, partial(kill, group))
        assert scored(played) == scored(whole)
        if kill is kill_the_engine:
            assert any(row.outcome == "infra" for row, _ in played), "those that had not ended yet were tried again"
        assert await_that(partial(lambda of: not members(of), group), 60), "nothing of the killed server is left"


def test_two_runs_have_a_server_each_though_one_port_was_meant_for_both(
    engine: VLLMPolicy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that was free when it was chosen is another run's when the server comes up: it gets another one."""
    taken = iter([int(engine._served.url.rpartition(":")[2])])
    real = serve.free_port
    monkeypatch.setattr(serve, "free_port", lambda wanted: next(taken, None) or real(wanted))
    second = a_policy(folder, tmp_path, "r002")
    try:
        assert second._served.url != engine._served.url
        model, other = changed(load_model(folder, "float32"), seed=3), load_model(folder, "float32")

        async def both() -> None:
            running = asyncio.create_task(engine.sample(REQUESTS * 4))
            await asyncio.to_thread(second.load, model.named_parameters(), version=1, step=1)
            await running

        asyncio.run(both())
        assert difference(model, REQUESTS, sample(second, REQUESTS)) < 1e-4
        assert difference(other, REQUESTS, sample(engine, REQUESTS)) < 1e-4
    finally:
        second.close()


def test_a_port_of_ones_own_that_is_taken_meanwhile_is_an_error_that_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_vllm("coevolve/other@x") as fake:
        port = int(fake.url.rpartition(":")[2])
        monkeypatch.setattr(serve, "free_port", lambda wanted: wanted)
        engine = ENGINE.model_copy(update={"port": port})
        server = Server(run="r", engine=engine, model=FLOAT, log=tmp_path / "vllm.log")
        with pytest.raises((UsageError, InfraError), match=f"{port}.*another|address already in use"):
            server.start(folder)
        assert not server.alive
