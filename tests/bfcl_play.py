"""Playing the BFCL environment in tests: a message of calls, a task of ours, an official one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from envs.bfcl.env import Bfcl
from envs.bfcl.session import BfclSession
from envs.protocols import Draft, Message
from store.rows import Task

T = TypeVar("T")
FILES = "multi_turn_base_0"
"""A world of files and tweets: its working directory holds `document` and `archive`."""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def message(*calls: tuple[str, Any]) -> Message:
    made = [{"id": f"call_{at}", "name": name, "args": args} for at, (name, args) in enumerate(calls)]
    return {"role": "assistant", "content": "", "tool_calls": made}


REPLY: Message = {"role": "assistant", "content": "Done."}


def session(env: Bfcl, world: str = FILES, task: Task | None = None) -> BfclSession:
    opened = env.open(world, task)
    assert isinstance(opened, BfclSession)
    return opened


async def shown(session: BfclSession, *calls: tuple[str, Any]) -> list[str]:
    """The observations of one message."""
    return [answer["content"] for answer in (await session.act(message(*calls))).messages]


def draft(*turns: tuple[str, list[tuple[str, Any]]], world: str = FILES, tools: tuple[str, ...] = ()) -> Draft:
    reference = [[{"name": name, "args": args} for name, args in calls] for _, calls in turns]
    return Draft(world=world, user_turns=[words for words, _ in turns], reference=reference, tools=list(tools))


def doubled(times: int) -> list[tuple[str, Any]]:
    """Calls after which a walk through the files takes 2**times steps."""
    made = []
    for at in range(times):
        copied = f"d{at}"
        made += [
            ("cp", {"source": "document", "destination": copied}),
            ("mv", {"source": copied, "destination": "document"}),
        ]
    return made


def official(env: Bfcl, suite: str, world: str) -> Task:
    return next(task for task in env.suites()[suite] if task.world == world)
