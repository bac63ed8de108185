"""Calls that are not answered on replay as they were when they were logged: whose fault, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from envs.appworld.env import AppWorld
from envs.appworld.session import AppWorldSession
from envs.errors import SessionLost
from envs.protocols import Outcome
from envs.worker import WorkerError
from tests.appworld_play import LOGIN, PAY, WORLD, message, official, play, run


def test_a_call_that_raises_on_replay_alone_is_no_score(appworld: AppWorld) -> None:
    """The engine's client takes no such address; who logged it had no trouble with it."""
    call = {"api": "venmo.show_transaction", "method": "get", "url": "/venmo/transactions/\x01", "data": {}}
    asked = {"verb": "grade", "world": WORLD, "official": False}
    for status in (200, 401):
        with pytest.raises(WorkerError, match="call 0, get /venmo/transactions/"):
            appworld.evaluators.ask({**asked, "calls": [{**call, "status": status}]})
    graded = appworld.evaluators.ask({**asked, "calls": [call]})
    assert (graded["difference"]["changes"], graded["differing"]) == ({}, [])


@pytest.mark.parametrize(
    "raising",
    [
        'apis.venmo.show_transaction(access_token="x", transaction_id=chr(1))',
        LOGIN + 'token = apis.venmo.login(username=me["email"], password=passwords["venmo"])["access_token"]\n'
        'from decimal import Decimal\napis.venmo.create_transaction(access_token=token, amount=Decimal("13"), '
        'receiver_email="ben.rivers@gmail.com")',
    ],
)
def test_what_the_engine_raises_for_the_agent_is_a_score(appworld: AppWorld, raising: str) -> None:
    """On replay too, though the log has texts for what is no JSON: nothing of it is done there."""
    seen, outcome = run(play(appworld, official(appworld, WORLD), raising, PAY))
    assert seen[0].failed
    assert (outcome.score, outcome.violation) == (1.0, None)


async def played(env: AppWorld, change: Callable[[dict[str, Any]], None], *blocks: str) -> tuple[Outcome, int]:
    """The outcome where the log of calls is not what it was, and how often sessions were opened for it."""
    task = official(env, WORLD)
    session = env.open(WORLD, task)
    assert isinstance(session, AppWorldSession)
    try:
        await session.start()
        for code in blocks:
            await session.act(message(code))
        for call in session._calls:
            change(call)
        before = sum(worker.opened for worker in env.agents._workers)
        outcome = await session.evaluate()
        return outcome, sum(worker.opened for worker in env.agents._workers) - before
    finally:
        await session.close()


def test_a_call_that_raised_and_does_not_on_replay_is_left_out_if_it_was_the_agents_doing(appworld: AppWorld) -> None:
    """It raises for this agent each time: what was done without it is what counts."""

    def look_raised(call: dict[str, Any]) -> None:
        if call["api"] == "venmo.search_friends":
            call.pop("status")

    outcome, opened = run(played(appworld, look_raised, PAY))
    assert (outcome.score, outcome.violation, opened) == (1.0, None, 1)


def test_a_call_that_raised_and_changed_the_world_is_no_score(appworld: AppWorld) -> None:
    def payment_raised(call: dict[str, Any]) -> None:
        if call["api"] == "venmo.create_transaction":
            call.pop("status")

    with pytest.raises(SessionLost, match="raised"):
        run(played(appworld, payment_raised, PAY))


def test_a_call_that_raises_once_and_never_again_is_no_score(
    appworld: AppWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's blocks are carried out once more, and answered otherwise."""

    def look_raised(call: dict[str, Any]) -> None:
        if call["api"] == "venmo.search_friends":
            call.pop("status")

    answers = count()
    monkeypatch.setattr("envs.worker.digest", lambda answer: str(next(answers)))
    with pytest.raises(SessionLost, match="answered differently"):
        run(played(appworld, look_raised, PAY))


@pytest.mark.parametrize(("told", "found"), [(401, 200), (200, 401)])
def test_a_call_that_a_clean_world_answers_otherwise_is_a_violation(appworld: AppWorld, told: int, found: int) -> None:
    def forged(call: dict[str, Any]) -> None:
        if call["api"] == "venmo.search_friends":
            call["status"] = told
            call["data"] = call["data"] if found == 200 else {}

    outcome, _ = run(played(appworld, forged, PAY))
    assert (outcome.score, outcome.violation) == (0.0, "forged")
    assert f"answered with {told}, in a clean world with {found}" in outcome.detail
