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

SIGNAL: dict[str, Any] = {
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


async def explored(env: AppWorld, signal: Any = None, steps: int = 12, seed: int = 3) -> dict[str, Any]:
    """The view after an exploration."""
    rng = random.Random(seed)
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


def pointing_at(pattern: str) -> dict[str, Any]:
    return {**SIGNAL, "kind": "rare", "pattern": [pattern], "evidence": []}


def acts(view: dict[str, Any], beginning: str) -> list[str]:
    """Blocks of acts that were done."""
    done = [entry["args"]["code"] for entry in view["log"] if not entry["failed"]]
    return [code for code in done if code.startswith(f"# act {beginning}")]


def changes(env: AppWorld, draft: Draft) -> bool:
    return not env.check(draft) and bool(env.materialize(draft, "explored").expected["models"])


APPS = ("amazon", "file_system", "gmail", "phone", "simple_note", "splitwise", "spotify", "todoist", "venmo")


@pytest.mark.slow
@pytest.mark.parametrize("app", APPS)
def test_it_acts_in_every_app_and_makes_tasks_of_that(appworld: AppWorld, app: str) -> None:
    """Not with each seed: what it tries may be refused."""
    for seed in range(4):
        view = run(explored(appworld, pointing_at(f"{app}.x"), seed=seed))
        drafts = EXPLORER.abstract(view, random.Random(seed)) if acts(view, f"{app}.") else []
        own = [Draft(world=WORLD, **draft) for draft in drafts if app in draft["reference"]]
        if any(
            not appworld.check(draft) and appworld.materialize(draft, "explored").expected["models"] for draft in own
        ):
            return
    pytest.fail(f"no task that changes something in {app}")


@pytest.mark.slow
def test_it_replies_to_a_mail_that_it_found_in_a_thread(appworld: AppWorld) -> None:
    """The id of the mail is in no list, but in one that belongs to a thread."""
    views = (run(explored(appworld, pointing_at("gmail.reply_to_email"), seed=seed)) for seed in range(4))
    view = next(view for view in views if acts(view, "gmail.reply_to_email"))
    drafts = EXPLORER.abstract(view, random.Random(3))
    (reply, *_) = [draft for draft in drafts if "reply_to_email" in draft["reference"]]
    assert "the email with the subject" in reply["user_turns"][0]
    assert "of the email thread with the subject" in reply["user_turns"][0]
    task = appworld.materialize(Draft(world=WORLD, **reply), "explored")
    assert "gmail.Email" in task.expected["models"]
    assert run(appworld.replay(task)).success


def log(code: str, printed: Any) -> dict[str, Any]:
    return {"name": "run_python", "args": {"code": code}, "observation": json.dumps(printed), "failed": False}


def told(api: str, *needs: str) -> dict[str, Any]:
    parameters = [[name, "integer", True] for name in needs]
    return {"api": api, "description": "Show it.", "parameters": parameters, "shows": []}


def test_lists_in_a_record_are_rows() -> None:
    items = [(7, "Red Mug", 20.0), (8, "Blue Kettle", 10.0)]
    cart = {"cart_items": [dict(zip(("product_id", "product_name", "price"), item, strict=True)) for item in items]}
    docs = [told("show_cart"), told("delete_product_from_cart", "product_id")]
    entries = [log("# docs amazon\n", docs), log("# list amazon.show_cart\n", cart)]
    done = '# act amazon.delete_product_from_cart\n# with {"product_id": 7}\n'
    view = {"world": "amazon: a shop", "signal": None, "log": [*entries, log(done, {})]}
    drafts = {draft["user_turns"][0]: draft["reference"] for draft in EXPLORER.abstract(view, random.Random(0))}
    (words,) = [words for words in drafts if "Red Mug" in words]
    rows = 'apis.amazon.show_cart()["cart_items"]'
    assert f'product_id_row = [row for row in {rows} if row["product_name"] == "Red Mug"][0]' in drafts[words]
    assert any("cart items entry with the largest price" in words for words in drafts)


@pytest.mark.parametrize("printed", [{"volume": 5}, {"song_id": 3, "title": "Iron Sky"}, [], {"cart_items": []}])
def test_what_shows_no_list_is_not_read_again(printed: Any) -> None:
    docs = [told("show_volume")]
    entries = [log("# apis spotify\n", [["show_volume", ""]]), log("# docs spotify\n", docs)]
    view = {"world": "spotify: music", "log": [*entries, log("# list spotify.show_volume\n", printed)]}
    assert EXPLORER.next_call(view, random.Random(0)) is None


def test_it_acts_where_rows_are_found_by_searching(appworld: AppWorld) -> None:
    view = run(explored(appworld, pointing_at("amazon.x"), steps=14))
    assert acts(view, "amazon.")
