"""Playing the AppWorld environment in tests: code as a message, a whole episode, a task of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from envs.appworld.env import AppWorld
from envs.protocols import Draft, Message, Observation, Outcome
from store.rows import Task

T = TypeVar("T")
WORLD = "mini002_1"
"""Ada's: her friend Ben is to get money."""
LOGIN = """passwords = {row["account_name"]: row["password"] for row in apis.supervisor.show_account_passwords()}
me = apis.supervisor.show_profile()
"""
PAY = (
    LOGIN
    + """token = apis.venmo.login(username=me["email"], password=passwords["venmo"])["access_token"]
friend = [row for row in apis.venmo.search_friends(access_token=token, query="Ben") if row["first_name"] == "Ben"][0]
apis.venmo.create_transaction(access_token=token, receiver_email=friend["email"], amount=13, description="lunch")
apis.supervisor.complete_task()
"""
)
COUNT = (
    LOGIN
    + """token = apis.spotify.login(username=me["email"], password=passwords["spotify"])["access_token"]
songs = apis.spotify.show_song_library(access_token=token, page_limit=20)
print(len(songs))
apis.supervisor.complete_task(answer=len(songs))
"""
)
NOTE = (
    LOGIN
    + """token = apis.simple_note.login(username=me["email"], password=passwords["simple_note"])["access_token"]
apis.simple_note.create_note(access_token=token, title="List", content="bread")
apis.supervisor.complete_task()
"""
)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def message(code: str) -> Message:
    return {"role": "assistant", "content": f"```python\n{code}\n```"}


def official(env: AppWorld, world: str) -> Task:
    return next(task for tasks in env.suites().values() for task in tasks if task.world == world)


def synthetic(env: AppWorld, question: str, code: str, world: str = WORLD) -> Task:
    return env.materialize(Draft(world=world, user_turns=[question], reference=code), "explored")


async def play(env: AppWorld, task: Task, *blocks: str) -> tuple[list[Observation], Outcome]:
    session = env.open(task.world, task)
    try:
        await session.start()
        seen: list[Observation] = []
        for code in blocks:
            seen.append(await session.act(message(code)))
            if seen[-1].done:
                break
        return seen, await session.evaluate()
    finally:
        await session.close()
