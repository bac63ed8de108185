"""The BFCL environment as the loop uses it: worlds, suites, drafts and their reasons, twins, rollouts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from envs import registry
from envs.bfcl.catalog import pool, training_side
from envs.bfcl.checks import check_report
from envs.bfcl.env import Bfcl
from envs.errors import InvalidTask
from envs.protocols import Completion, Draft, Request
from envs.rollout import Job, play
from envs.worker import Limits
from store.errors import UsageError
from store.rows import Task, Trajectory
from tests.bfcl_play import FILES, doubled, draft, official, run

NEW = ("Make a folder called new.", [("mkdir", {"dir_name": "new"})])
LOOK = ("What is in it? Then go to the folder document.", [("ls", {}), ("cd", {"folder": "document"})])


def test_a_world_is_a_base_configuration_of_the_training_side(bfcl: Bfcl) -> None:
    assert [world.id for world in bfcl.worlds("train")] == [f"multi_turn_base_{at}" for at in range(100)]
    assert len(bfcl.worlds("test")) == 100
    assert bfcl.worlds("gold") == []


@pytest.mark.parametrize("split", ["index", "stratified"])
def test_a_split_keeps_what_is_alike_on_one_side(bfcl: Bfcl, split: str) -> None:
    side = training_side(split)
    sides: dict[str, set[bool]] = {}
    for entry in bfcl.catalog.entries.values():
        sides.setdefault(json.dumps(entry.state, sort_keys=True), set()).add(entry.number in side)
    assert len(side) == 100
    assert all(len(found) == 1 for found in sides.values())


def test_the_stratified_split_halves_each_combination_of_classes(bfcl: Bfcl) -> None:
    side = training_side("stratified")
    counts: dict[tuple[str, ...], int] = {}
    for entry in bfcl.catalog.entries.values():
        if entry.category == "base":
            key = tuple(sorted(entry.classes))
            counts[key] = counts.get(key, 0) + (1 if entry.number in side else -1)
    assert len(counts) == 20
    assert max(map(abs, counts.values())) <= 1


def test_suites_have_all_entries_and_both_sides(bfcl: Bfcl) -> None:
    suites = bfcl.suites()
    assert {name: len(tasks) for name, tasks in suites.items() if "strict" not in name} == {
        f"multi_turn_{category}{part}": count
        for category in ("base", "miss_func", "miss_param", "long_context")
        for part, count in (("", 200), ("_train", 100), ("_test", 100))
    }
    assert len(suites["multi_turn_miss_func_strict"]) == 199
    assert not any(task.split == "train" for tasks in suites.values() for task in tasks)
    ids = [task.id for name, tasks in suites.items() if "_train" not in name and "_test" not in name for task in tasks]
    assert len(ids) == len(set(ids))
    assert bfcl.seed_tasks() == []


def test_the_explorer_is_told_the_state_but_no_question_and_no_answer(bfcl: Bfcl) -> None:
    told = bfcl.describe("multi_turn_base_60")
    entry = bfcl.catalog.entry("multi_turn_base_60")
    assert all(name in told for name in entry.classes)
    assert "random_seed" in json.dumps(entry.state) or "random_seed" not in told
    assert "random_seed" not in told
    assert not any(turn in told for turn in entry.turns)
    assert len(told) < 6000
    with pytest.raises(UsageError, match="nowhere"):
        bfcl.describe("nowhere")


def test_a_draft_becomes_a_task_that_replays(bfcl: Bfcl) -> None:
    task = bfcl.materialize(draft(NEW, LOOK), "explored")
    assert (task.split, task.structure, task.difficulty) == ("train", "mkdir | ls cd", 4.0)
    assert task == bfcl.materialize(draft(NEW, LOOK), "explored")
    first, second = run(bfcl.replay(task)), run(bfcl.replay(task))
    assert first == second
    assert first.success
    assert run(bfcl.noop(task)).score == 0.0


@pytest.mark.parametrize(
    ("proposed", "word"),
    [
        (draft(NEW, world="nowhere"), "unknown_world"),
        (draft(NEW, tools=("fly",)), "unknown_tool"),
        (draft(("...", NEW[1])), "bad_question"),
        (draft(("long " * 201, NEW[1])), "bad_question"),
        (draft(("Do nothing.", [])), "bad_reference"),
        (draft(("Fly.", [("fly", {})])), "bad_reference"),
        (draft((NEW[0], [("mkdir", "new")])), "bad_reference"),
        (draft(("What?", [("pwd", {})] * 21)), "bad_reference"),
        (Draft(world=FILES, user_turns=["Make new."], reference="mkdir('new')"), "bad_reference"),
        (Draft(world=FILES, user_turns=["a", "b"], reference=[[{"name": "ls", "args": {}}]]), "bad_reference"),
        (draft(NEW, tools=("ls",)), "bad_reference"),
        (draft(("Go to nowhere.", [("cd", {"folder": "nowhere"})])), "failed_call"),
        (draft(("List it.", [("ls", {"b": True})])), "failed_call"),
        (draft(("Make it.", [("mkdir", {"dir_name": "secret"})])), "hidden_value"),
        (draft(("List it, then list it.", [("ls", {}), ("ls", {"a": False})]), ("pwd", [("pwd", {})])), None),
        (draft(("Go to document and back.", [("cd", {"folder": "document"}), ("cd", {"folder": ".."})])), None),
        (draft(("List it.", [("ls", {})]), ("List it. Where is it?", [("pwd", {}), ("ls", {})])), "idle_call"),
        (draft(("Go into document.", [("cd", {"folder": "document"})]), ("Go up.", [("cd", {"folder": ".."})])), None),
        (draft(("Say no to emptiness.", [("echo", {"content": ""})])), None),
    ],
)
def test_reasons_against_a_draft(bfcl: Bfcl, proposed: Draft, word: str | None) -> None:
    reasons = bfcl.check(proposed)
    if word is None:
        assert reasons == []
        return
    assert reasons[0].startswith(f"{word}: "), reasons
    with pytest.raises(InvalidTask) as error:
        bfcl.materialize(proposed, "explored")
    assert error.value.reason == word


def test_a_reference_without_effect_is_no_task() -> None:
    run = {"passes": True, "digests": []}
    report = {"runs": [run, run], "same": True, "observations": [[["None", False]]], "idle": [], "changed": False}
    assert check_report(report)[0].startswith("no_effect: ")
    assert check_report(report | {"changed": True}) == []


def test_today_is_no_part_of_a_task(bfcl: Bfcl) -> None:
    world = next(w.id for w in bfcl.worlds("test") if "TravelAPI" in bfcl.catalog.entry(w.id).classes)
    args = {"first_name": "A", "last_name": "B", "date_of_birth": "2000-01-01", "passport_number": "US1"}
    proposed = draft(("Check A B, 2000-01-01, US1.", [("verify_traveler_information", args)]), world=world)
    assert bfcl.check(proposed)[0].startswith("unstable: ")


def test_a_reference_that_takes_too_long_is_no_task(bfcl: Bfcl) -> None:
    env = Bfcl(pool(Limits(request_s=1.0, memory_mb=600)))
    doubling = doubled(30)
    turns = [("Copy document to d0 d1 and so on.", doubling[at : at + 20]) for at in range(0, 60, 20)]
    try:
        assert env.check(draft(*turns, ("Find.", [("find", {"path": "."})])))[0].startswith("execution_error: ")
    finally:
        env.close()


def test_an_official_item_in_other_words_is_given_away(bfcl: Bfcl) -> None:
    item = official(bfcl, "multi_turn_base", "multi_turn_base_1")
    changed = Draft(
        world=item.world, user_turns=[f"{turn} Please." for turn in item.user_turns], reference=item.reference
    )
    task = bfcl.materialize(changed, "explored")
    assert set(bfcl.answers(task)) == set(bfcl.answers(item))
    assert not set(bfcl.twins(task)) <= set(bfcl.twins(item))
    other = bfcl.materialize(draft(NEW, world="multi_turn_base_1"), "explored")
    assert not set(bfcl.answers(other) + bfcl.twins(other)) & set(bfcl.answers(item) + bfcl.twins(item))


def test_action_tokens_are_names_of_functions(bfcl: Bfcl) -> None:
    action = json.dumps([{"name": "ls", "args": {}}, {"name": "fly", "args": {}}, {"args": {}}, 3])
    assert bfcl.action_tokens(action) == ["ls", "unknown", "invalid", "invalid"]
    assert bfcl.action_tokens("Done.") == bfcl.action_tokens("[no json") == ["reply"]


def test_the_registry_makes_it(bfcl: Bfcl) -> None:
    assert registry.get("bfcl") is bfcl
    stratified = registry.get("bfcl:stratified")
    assert isinstance(stratified, Bfcl)
    assert len(stratified.worlds("train")) == 100
    assert stratified.worlds("train") != bfcl.worlds("train")
    stratified.close()
    with pytest.raises(UsageError, match="choose from index, stratified"):
        registry.get("bfcl:random")


class Scripted:
    """Plays each task's reference; `kill` is called once, before the message of that number."""

    spec, version, batch, concurrent, step = "scripted", 0, 4, True, None

    def __init__(self, env: Bfcl, task: Task, kill_at: int = -1) -> None:
        self.messages = [m for m in env.solution(task) if m["role"] == "assistant"]
        self.env, self.kill_at = env, kill_at

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        (request,) = requests
        at = sum(message["role"] == "assistant" for message in request.messages)
        if at == self.kill_at:
            self.kill_at = -1
            for pid in self.env.pool.pids:
                os.kill(pid, signal.SIGKILL)
        return [Completion(message=self.messages[at])]


async def rolled(env: Bfcl, task: Task, policy: Scripted) -> list[Trajectory]:
    jobs = [Job(task=task, k=k, seed=k) for k in range(4)]
    played = await play(
        env, jobs, policy, run="r", t=0, purpose="train", temperature=1.0, max_tokens=10, deadline_s=60.0
    )
    return [trajectory for trajectory, _ in played]


def test_rollouts_outlive_their_worker(bfcl: Bfcl) -> None:
    task = bfcl.materialize(draft(NEW, LOOK), "explored")
    rows = asyncio.run(rolled(bfcl, task, Scripted(bfcl, task, kill_at=2)))
    scored = [row for row in rows if row.outcome == "scored"]
    assert [row.score for row in scored] == [1.0] * 4
    assert all(row.outcome == "infra" for row in rows if row not in scored)


def test_a_process_that_cannot_start_is_infra(bfcl: Bfcl, monkeypatch: pytest.MonkeyPatch) -> None:
    task = bfcl.materialize(draft(NEW), "explored")
    env = Bfcl(pool(Limits(start_s=0.001)))
    monkeypatch.setattr(env, "catalog", bfcl.catalog)
    rows = asyncio.run(rolled(env, task, Scripted(bfcl, task)))
    assert {row.outcome for row in rows} == {"infra"}
    assert "could not be started" in str(rows[0].error)


def test_without_its_venv_the_message_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("COEVOLVE_ENVS", str(tmp_path))
    with pytest.raises(UsageError, match="run `coevolve env install bfcl`"):
        pool()
