"""What the policy is shown in direct mode is at most 150 tokens long with SmolLM2's tokenizer."""

from __future__ import annotations

import asyncio

import pytest

from envs import registry
from envs.protocols import Env
from store.rows import Task
from training.chat import encode
from training.model import load_tokenizer
from training.smollm2 import smollm2

LONGEST = 150


async def first_messages(env: Env, task: Task) -> list[dict[str, object]]:
    session = env.open(task.world, task)
    messages = await session.start()
    await session.close()
    return messages


@pytest.mark.slow
def test_every_prompt_is_short() -> None:
    env, tokenizer = registry.get("text2sql"), load_tokenizer(smollm2())
    tasks = [*env.seed_tasks(), *(task for suite in env.suites().values() for task in suite)]
    lengths = [len(encode(tokenizer, asyncio.run(first_messages(env, task)))) for task in tasks]
    assert len(lengths) > 450
    assert 60 < max(lengths) <= LONGEST
