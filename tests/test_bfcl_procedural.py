"""The procedural explorer of BFCL: what it calls, what it makes of it, and that it knows nothing but what is shown."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from envs import registry
from envs.bfcl.env import Bfcl
from envs.bfcl.procedural import EXPLORER
from envs.bfcl.procedural_scene import read
from envs.protocols import Draft
from store.rows import Json
from tests.bfcl_play import message, run

STEPS = 12
EXPLORATIONS = 24


async def explored(env: Bfcl, world: str, seed: int, signal: Json = None) -> Json:
    """The view after a whole exploration."""
    rng = random.Random(seed)
    session = env.open(world)
    await session.start()
    view = {"world": env.describe(world), "tools": session.tools, "signal": signal, "context": None, "log": []}
    for left in range(STEPS, 0, -1):
        call = EXPLORER.next_call({**view, "steps_left": left}, rng)
        if call is None:
            break
        assert_shown(call, view)
        answer = await session.act(message((call["name"], call["args"])))
        view["log"].append({**call, "observation": answer.messages[0]["content"], "failed": answer.failed})
    await session.close()
    return {**view, "steps_left": 0}


def assert_shown(call: Json, view: Json) -> None:
    """Each value of the call stands in the prompt: in the world, a tool's document, or an observation."""
    observations = "\n".join(entry["observation"] for entry in view["log"])
    text = "\n".join([view["world"], json.dumps(view["tools"], ensure_ascii=False), observations])
    for value in leaves(call["args"]):
        if isinstance(value, str):
            forms = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
            assert value == ".." or any(form in text for form in forms), (call, value)
        else:
            numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
            assert float(value) in set(map(float, numbers)), (call, value)


def leaves(value: Any) -> Iterator[str | float]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    elif not isinstance(value, bool):
        yield value


@pytest.fixture(scope="module")
def stratified() -> Iterator[Bfcl]:
    env = registry.get("bfcl:stratified")
    assert isinstance(env, Bfcl)
    yield env
    env.close()


@pytest.fixture(scope="module")
def views(bfcl: Bfcl, stratified: Bfcl) -> list[Json]:
    worlds = [world.id for world in stratified.worlds("train")]
    return [run(explored(stratified, worlds[at * len(worlds) // EXPLORATIONS], at)) for at in range(EXPLORATIONS)]


def drafts(env: Bfcl, views: list[Json]) -> Iterator[tuple[Json, Draft]]:
    worlds = {env.describe(world.id): world.id for world in env.worlds("train")}
    for at, view in enumerate(views):
        for found in EXPLORER.abstract(view, random.Random(at)):
            turns, reference = found["user_turns"], found["reference"]
            yield view, Draft(world=worlds[view["world"]], user_turns=turns, reference=reference)


def test_most_of_what_it_proposes_are_tasks_of_all_sizes(stratified: Bfcl, views: list[Json]) -> None:
    made = [draft for _, draft in drafts(stratified, views)]
    sound = [draft for draft in made if not stratified.check(draft)]
    assert len(made) > 2 * EXPLORATIONS
    assert len(sound) > 0.8 * len(made)
    assert {len(draft.user_turns) for draft in sound} >= {1, 2, 3}
    assert {sum(map(len, draft.reference)) for draft in sound} >= {1, 3, 5}
    for draft in sound[::8]:
        task = stratified.materialize(draft, "explored")
        assert run(stratified.replay(task)).success
        assert not run(stratified.noop(task)).success


def test_the_user_asks_for_every_call_and_says_numbers_in_digits(stratified: Bfcl, views: list[Json]) -> None:
    for view, draft in drafts(stratified, views):
        scene = read(view)
        for turn, calls in zip(draft.user_turns, draft.reference, strict=True):
            for call in calls:
                assert scene.functions[call["name"]].does[1:] in turn


def test_it_reaches_most_functions(stratified: Bfcl, views: list[Json]) -> None:
    called = {entry["name"] for view in views for entry in view["log"] if not entry["failed"]}
    assert len(called) > 70
    worked = [not entry["failed"] for view in views for entry in view["log"]]
    assert sum(worked) > 0.6 * len(worked)


SIGNAL: Json = {
    "kind": "boundary",
    "pattern": None,
    "stats": {},
    "evidence": [
        {
            "questions": ["Make a folder.", "Look."],
            "structure": "mkdir | ls cd",
            "score": 0.0,
            "steps": [
                {"action": '[{"name": "mkdir", "args": {}}]', "observation": "None", "failed": False},
                {"action": "Done.", "observation": "Look.", "failed": False},
                {"action": '[{"name": "cd", "args": {}}]', "observation": "No such directory", "failed": True},
            ],
        }
    ],
}


def test_a_signal_is_read_for_function_turn_and_error(bfcl: Bfcl) -> None:
    view = run(explored(bfcl, "multi_turn_base_1", 0, SIGNAL))
    context = EXPLORER.reflect({**view, "log": []}, random.Random(0))
    assert context["where"] == "mkdir, ls, cd"
    assert "turn 2, cd: No such directory" in context["failure"]


def test_a_guided_exploration_does_the_failed_tasks_calls_with_other_values(bfcl: Bfcl) -> None:
    found = []
    for seed in range(4):
        view = run(explored(bfcl, "multi_turn_base_1", seed, SIGNAL))
        assert [entry["name"] for entry in view["log"]][:3] == ["mkdir", "ls", "cd"]
        first, second = EXPLORER.abstract(view, random.Random(seed))[:2]
        assert bfcl.structure(first["reference"]) == "mkdir | ls cd"
        assert len(second["reference"]) == 3, "one step harder"
        found.append(json.dumps(first["reference"]))
    assert len(set(found)) > 1


def test_a_rare_pattern_is_called(bfcl: Bfcl) -> None:
    signal = {**SIGNAL, "kind": "rare", "pattern": ["touch", "reply", "wc"]}
    view = run(explored(bfcl, "multi_turn_base_1", 1, signal))
    assert [entry["name"] for entry in view["log"]][:2] == ["touch", "wc"]
    spoken = EXPLORER.reflect({**view, "signal": {**signal, "pattern": ["reply", "reply"]}}, random.Random(0))
    assert spoken["where"] == "mkdir, ls, cd", "what the task is about, where the pattern has no function"


def test_an_idle_call_is_left_out(bfcl: Bfcl) -> None:
    view = run(explored(bfcl, "multi_turn_base_1", 0))
    calls: list[Json] = [{"name": "ls", "args": {}}, {"name": "pwd", "args": {}}]
    draft = {"user_turns": ["List.", "List. Where?"], "reference": [calls[:1], calls]}
    mended = EXPLORER.repair(view, draft, "idle_call: turn 1 passes without its call 0", random.Random(0))
    assert mended is not None
    assert mended["reference"] == [calls[:1], calls[1:]]
    assert EXPLORER.repair(view, draft, "failed_call: no", random.Random(0)) is None


def test_a_draft_is_tried_call_by_call(bfcl: Bfcl) -> None:
    draft: Json = {"user_turns": ["a", "b"], "reference": [[{"name": "ls", "args": {}}], [{"name": "pwd", "args": {}}]]}
    view = {"world": "", "tools": [], "draft": draft, "log": [], "steps_left": 3}
    assert EXPLORER.next_call(view, random.Random(0)) == draft["reference"][0][0]
    assert EXPLORER.next_call({**view, "log": [{}]}, random.Random(0)) == draft["reference"][1][0]
    assert EXPLORER.next_call({**view, "log": [{}, {}]}, random.Random(0)) is None
