"""Playing EchoEnv: jobs, and `play` with plain settings, in both modes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from envs.protocols import Policy
from envs.rollout import Job, Played, play, sampling_seed
from tests.fakes import EchoEnv

both_modes = pytest.mark.parametrize("concurrent", [False, True], ids=["lockstep", "free"])


def jobs(env: EchoEnv, *words: str, k: int = 1) -> list[Job]:
    tasks = [env.task(word) for word in words]
    return [Job(task=task, k=i, seed=sampling_seed(0, 1, task.id, i)) for task in tasks for i in range(k)]


async def start(env: EchoEnv, todo: Sequence[Job], policy: Policy, **options: Any) -> list[Played]:
    settings: dict[str, Any] = {"temperature": 1.0, "max_tokens": 8, "deadline_s": 60.0} | options
    return await play(env, todo, policy, run="r", t=1, purpose="train", **settings)


def run(env: EchoEnv, todo: Sequence[Job], policy: Policy, **options: Any) -> list[Played]:
    return asyncio.run(start(env, todo, policy, **options))


def outcomes(played: list[Played]) -> list[tuple[str, float | None, int]]:
    return [(row.outcome, row.score, row.attempt) for row, _ in played]
