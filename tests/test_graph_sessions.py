"""Sessions beside the state: kept while the process lives, replayed after it died, never silently different."""

from __future__ import annotations

import asyncio

import pytest

from envs.errors import SessionLost
from graphs.sessions import Sessions
from graphs.state import Call, Entry
from tests.fakes import EchoSession
from tests.graph_setup import Echo

LOOK = Call(name="look", args={}, text="", error=None)
UNREAD = Call(name="look", args={}, text="", error="error: cut off")


async def played(sessions: Sessions, env: Echo, *wanted: Call) -> list[Entry]:
    live = await sessions.get("x", env, "room")
    return [await live.play(call, index) for index, call in enumerate(wanted)]


def test_a_live_session_is_used_again() -> None:
    async def run() -> int:
        sessions, env = Sessions(), Echo()
        log = await played(sessions, env, LOOK)
        await sessions.get("x", env, "room", log)
        return len(env.sessions)

    assert asyncio.run(run()) == 1


def test_after_a_restart_the_log_is_replayed_and_unread_calls_are_not_sent() -> None:
    async def run() -> tuple[int, int]:
        env = Echo()
        log = await played(Sessions(), env, LOOK, UNREAD, LOOK)
        live = await Sessions().get("x", env, "room", log)
        return len(env.sessions), live.played

    assert asyncio.run(run()) == (2, 3)


def test_a_session_that_is_ahead_of_the_log_is_opened_again() -> None:
    async def run() -> list[bool]:
        sessions, env = Sessions(), Echo()
        log = await played(sessions, env, LOOK, LOOK)
        await sessions.get("x", env, "room", log[:1])
        return [session.closed for session in env.sessions]

    assert asyncio.run(run()) == [True, False]


def test_another_answer_on_replay_loses_the_session() -> None:
    async def run() -> None:
        sessions, env = Sessions(), Echo()
        log = await played(sessions, env, LOOK)
        changed = Entry(**{**log[0], "observation": "something else"})
        await Sessions().get("x", env, "room", [changed])

    with pytest.raises(SessionLost, match=r"call 0 \(look\) was answered differently"):
        asyncio.run(run())


def test_dropping_closes_the_session_and_its_tries() -> None:
    async def run() -> tuple[list[EchoSession], int]:
        sessions, env = Sessions(), Echo()
        for key in ("x", "x/0", "x/1", "xy"):
            await sessions.get(key, env, "room")
        await sessions.drop("x")
        return env.sessions, len(sessions)

    opened, left = asyncio.run(run())
    assert ([session.closed for session in opened], left) == ([True, True, True, False], 1)
