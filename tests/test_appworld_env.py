"""The AppWorld environment over the real engine and the small world."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envs.appworld.checkup import _solution
from envs.appworld.env import SPLITS, AppWorld
from envs.appworld.place import Place
from envs.errors import InvalidTask
from tests.appworld_play import COUNT, NOTE, PAY, WORLD, message, official, play, run, synthetic

ALL = [f"mini00{scenario}_{number}" for scenario in range(1, 7) for number in range(1, 4)]


def test_the_small_world_has_the_official_splits_apart(appworld: AppWorld) -> None:
    splits = appworld.catalog["splits"]
    assert set(splits) == set(SPLITS.values())
    scenarios = [{world.partition("_")[0] for world in ids} for ids in splits.values()]
    assert sum(map(len, splits.values())) >= 12
    assert len(set.union(*scenarios)) == sum(map(len, scenarios)) >= 4
    assert len({facts["supervisor"]["email"] for facts in appworld.catalog["tasks"].values()}) >= 8
    assert len(appworld.catalog["apps"]) == 11


@pytest.mark.parametrize("world", ALL)
def test_an_official_solution_passes_and_doing_nothing_does_not(appworld: AppWorld, world: str) -> None:
    task = official(appworld, world)
    assert run(appworld.replay(task)).score == 1.0
    assert not run(appworld.noop(task)).success


@pytest.mark.parametrize("world", ALL)
def test_a_replayed_log_reaches_what_the_first_run_did(appworld: AppWorld, world: str) -> None:
    """By get, post and patch."""
    solved = appworld.evaluators.ask({"verb": "solve", "world": world})
    asked = {"verb": "grade", "world": world, "calls": solved["calls"], "official": True}
    graded = appworld.evaluators.ask(asked)
    assert graded["digest"] == solved["digest"]
    assert graded["difference"] == solved["difference"]
    assert graded["tests"] == solved["tests"] != []


def test_a_task_without_a_solution_is_invalid_and_doctor_says_so(appworld: AppWorld, tmp_path: Path) -> None:
    task = official(appworld, appworld.catalog["splits"]["train"][0])
    root = tmp_path / "root"
    shutil.copytree(appworld.place.root, root, ignore=shutil.ignore_patterns("runs"))
    (root / "data" / "tasks" / task.world / "ground_truth" / "compiled_solution.py").unlink()
    own = AppWorld(Place(root))
    try:
        with pytest.raises(InvalidTask, match="no_solution"):
            run(own.replay(task))
        what, found, good = _solution(own, task)
    finally:
        own.close()
    assert (what, good) == ("a solution", False)
    assert task.world in found


def test_a_policy_that_does_what_is_asked_is_scored_1(appworld: AppWorld) -> None:
    seen, outcome = run(play(appworld, official(appworld, WORLD), PAY))
    assert (outcome.score, outcome.violation) == (1.0, None)
    assert seen[-1].done
    assert seen[-1].tokens is not None
    assert "venmo.create_transaction" in seen[-1].tokens


def test_the_wrong_amount_is_scored_0(appworld: AppWorld) -> None:
    _, outcome = run(play(appworld, official(appworld, WORLD), PAY.replace("13", "14")))
    assert (outcome.score, outcome.violation) == (0.0, None)


def test_a_task_of_ours_replays_twice_alike_and_a_no_op_fails(appworld: AppWorld) -> None:
    task = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    first, second = run(appworld.replay(task)), run(appworld.replay(task))
    assert first == second
    assert first.score == 1.0
    assert not run(appworld.noop(task)).success
    assert task.expected["models"] == ["simple_note.Note"]


def test_the_same_doings_by_other_code_are_as_good(appworld: AppWorld) -> None:
    task = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    blocks = NOTE.replace("token =", "key =").replace("=token", "=key").splitlines()
    _, outcome = run(play(appworld, task, "apis.supervisor.show_addresses()", *blocks))
    assert outcome.score == 1.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"bread"', '"butter"'), "other changes"),
        (("apis.supervisor.complete_task()", "pass"), "not marked as done"),
        (("apis.supervisor.complete_task()", 'apis.supervisor.complete_task(status="fail")'), "not marked as done"),
        (("apis.supervisor.complete_task()", 'apis.supervisor.complete_task(answer="x")'), "another answer"),
        (("apis.simple_note.create_note", "apis.simple_note.search_notes"), "changed nothing"),
    ],
)
def test_what_differs_from_the_reference_is_scored_0(appworld: AppWorld, change: tuple[str, str], why: str) -> None:
    task = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    _, outcome = run(play(appworld, task, NOTE.replace(*change)))
    assert outcome.score == 0.0
    assert outcome.violation is None
    assert why in outcome.detail


def test_a_question_is_graded_by_its_answer(appworld: AppWorld) -> None:
    task = synthetic(appworld, "How many songs are in my Spotify library?", COUNT)
    assert task.expected["qa"] is False
    assert run(play(appworld, task, COUNT))[1].score == 1.0
    assert run(play(appworld, task, COUNT.replace("answer=len(songs)", "answer=len(songs) + 1")))[1].score == 0.0


def test_who_does_nothing_has_given_no_answer(appworld: AppWorld) -> None:
    graded = appworld.evaluators.ask({"verb": "grade", "world": WORLD, "calls": [], "official": False})
    assert graded["difference"] == {"changes": {}, "status": None, "answer": None}


def test_the_agent_is_told_its_own_task(appworld: AppWorld) -> None:
    task = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    seen, _ = run(play(appworld, task, 'print(apis.supervisor.show_active_task()["instruction"])'))
    assert seen[0].messages[0]["content"] == task.user_turns[0]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import os", "bad_reference"),
        ("(", "bad_reference"),
        ("1 / 0", "failed_code"),
        ("print(1)", "incomplete"),
        ("apis.supervisor.complete_task()", "no_effect"),
        ("apis.supervisor.complete_task(answer=7)\nprint(7)", "literal_answer"),
        (COUNT.replace("print(len(songs))\n", ""), "unseen_answer"),
    ],
)
def test_what_is_no_task_is_turned_away(appworld: AppWorld, code: str, word: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        synthetic(appworld, "Do it.", code)
    assert caught.value.reason == word


def test_only_training_worlds_are_open_to_drafts(appworld: AppWorld) -> None:
    with pytest.raises(InvalidTask, match="unknown_world"):
        synthetic(appworld, "Do it.", NOTE, world=appworld.worlds("test")[0].id)


def test_tasks_that_reach_the_same_state_are_twins(appworld: AppWorld) -> None:
    one = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    two = synthetic(
        appworld, "Note that I need bread, as List.", NOTE.replace("me = ", "who = ").replace("me[", "who[")
    )
    assert set(appworld.twins(one)) & set(appworld.twins(two))


def test_no_task_may_be_passed_on(appworld: AppWorld) -> None:
    """Official ones are AppWorld's text, ours are made of it."""
    official_ones = [task for tasks in appworld.suites().values() for task in tasks]
    ours = synthetic(appworld, 'Make a note "List" that says "bread".', NOTE)
    assert not any(task.redistributable for task in [*official_ones, ours])


def test_a_block_is_carried_out_as_an_explorer_does_it(appworld: AppWorld) -> None:
    async def explore() -> tuple[str, bool]:
        session = appworld.open(WORLD, tools=True)
        try:
            await session.start()
            call = {"id": "1", "name": "run_python", "args": {"code": "print(apis.supervisor.show_profile())"}}
            seen = await session.act({"role": "assistant", "content": "", "tool_calls": [call]})
            return seen.messages[0]["content"], seen.done
        finally:
            await session.close()

    shown, done = run(explore())
    assert "ada.stone@gmail.com" in shown
    assert not done


def test_a_message_without_code_is_answered(appworld: AppWorld) -> None:
    async def talk() -> str:
        session = appworld.open(WORLD, official(appworld, WORLD))
        try:
            await session.start()
            seen = await session.act({"role": "assistant", "content": "Let me think."})
            await session.act(message("print(1)"))
            return str(seen.messages[0]["content"])
        finally:
            await session.close()

    assert "```python" in run(talk())
