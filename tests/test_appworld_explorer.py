"""The procedural explorer of AppWorld: it knows what it was shown, and its tasks are tasks."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from envs.appworld.env import AppWorld
from envs.appworld.procedural import EXPLORER
from envs.appworld.procedural_scene import Doc
from envs.errors import InvalidTask
from envs.protocols import Draft
from tests.appworld_play import WORLD, run

SIGNAL = {
    "kind": "boundary",
    "pattern": None,
    "stats": {},
    "evidence": [
        {
            "questions": ["Make a note."],
            "structure": "simple_note.login simple_note.create_note",
            "score": 0.0,
            "steps": [{"action": "apis.simple_note.create_note()", "observation": "Execution failed.", "failed": True}],
        }
    ],
}


async def explored(env: AppWorld, signal: Any = None, steps: int = 12) -> dict[str, Any]:
    """The view after an exploration."""
    rng = random.Random(3)
    session = env.open(WORLD, tools=True)
    view: dict[str, Any] = {"world": env.describe(WORLD), "tools": session.tools, "signal": signal, "log": []}
    try:
        await session.start()
        for left in range(steps, 0, -1):
            call = EXPLORER.next_call({**view, "steps_left": left}, rng)
            if call is None:
                break
            seen = await session.act({"role": "assistant", "content": "", "tool_calls": [{"id": "1", **call}]})
            view["log"].append({**call, "observation": seen.messages[0]["content"], "failed": seen.failed})
    finally:
        await session.close()
    return {**view, "steps_left": 0}


@pytest.fixture(scope="module")
def view(appworld: AppWorld) -> dict[str, Any]:
    return run(explored(appworld, SIGNAL))


def test_it_goes_where_the_signal_points(view: dict[str, Any]) -> None:
    heads = [entry["args"]["code"].splitlines()[0] for entry in view["log"]]
    assert heads[0] == "# apis simple_note"
    assert "# act simple_note.create_note" in heads


def test_every_value_of_an_act_was_seen_before(view: dict[str, Any]) -> None:
    acts = 0
    for at, entry in enumerate(view["log"]):
        if found := re.search(r"^# with (\{.*\})$", entry["args"]["code"], re.MULTILINE):
            shown = view["world"] + json.dumps(SIGNAL) + " ".join(each["observation"] for each in view["log"][:at])
            acts += 1
            for name, value in json.loads(found[1]).items():
                assert json.dumps(name) in shown
                assert str(value).replace(" ", "_") in shown.replace(" ", "_")
    assert acts > 0


def test_what_it_proposes_are_tasks(appworld: AppWorld, view: dict[str, Any]) -> None:
    drafts = EXPLORER.abstract(view, random.Random(3))[:4]
    tasks = []
    for draft in drafts:
        try:
            tasks.append(appworld.materialize(Draft(world=WORLD, **draft), "explored"))
        except InvalidTask:
            continue
    assert tasks
    assert any("simple_note.create_note" in task.structure for task in tasks)
    assert all(run(appworld.replay(task)).success and not run(appworld.noop(task)).success for task in tasks)


@pytest.mark.parametrize(("app", "shows"), [("amazon", "search_products"), ("gmail", "search_users")])
def test_a_list_that_needs_no_token_is_read_too(app: str, shows: str) -> None:
    doc = Doc(app, shows, "Search.", {"query": ("string", False), "page_index": ("integer", False)})
    assert doc.lists
    assert doc.listed(page_index="page") == f"apis.{app}.{shows}(page_index=page)"


def test_it_acts_where_rows_are_found_by_searching(appworld: AppWorld) -> None:
    signal = {**SIGNAL, "kind": "rare", "pattern": ["amazon.x"], "evidence": []}
    view = run(explored(appworld, signal, steps=14))
    done = [entry["args"]["code"] for entry in view["log"] if not entry["failed"]]
    assert [code for code in done if code.startswith("# act amazon.")]
