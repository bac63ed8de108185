"""Rollouts in the real environment: references win everywhere, hostile texts lose, and neither is ever `infra`."""

from __future__ import annotations

import asyncio
import json

from envs.protocols import Request
from envs.rollout import Job, Played, play
from envs.text2sql.env import builtin
from store.rows import Task
from tests.fakes import ScriptedPolicy, echo
from tests.test_text2sql_hostile import CORPUS


def run(tasks: list[Task], policy: ScriptedPolicy) -> list[Played]:
    jobs = [Job(task=task, k=0, seed=index) for index, task in enumerate(tasks)]
    return asyncio.run(
        play(builtin(), jobs, policy, run="r", t=0, purpose="train", temperature=1.0, max_tokens=99, deadline_s=60.0)
    )


def test_every_reference_wins_and_is_never_in_the_prompt() -> None:
    tasks = builtin().seed_tasks()
    references = {(task.user_turns[0], task.world): task.reference for task in tasks}
    assert len(references) == len(tasks)
    policy = ScriptedPolicy(lambda request: references[echo(request), world_of(request)], batch=64)
    played = run(tasks, policy)
    assert {(row.outcome, row.score, row.steps) for row, _ in played} == {("scored", 1.0, 1)}
    asked = [request for batch in policy.batches for request in batch]
    for task, request in zip(tasks, asked, strict=True):
        prompt = json.dumps(request.messages)
        assert not any(secret in prompt for secret in (task.reference, *task.expected))


def world_of(request: Request) -> str:
    schema = request.messages[0]["content"].split("\n", 1)[1]
    env = builtin()
    return next(w.id for w in env.worlds("train") if schema.split("(")[0] == env.describe(w.id).split()[2])


def test_hostile_texts_are_scored_zero() -> None:
    texts = [text for name, text in CORPUS.items() if "bomb" not in name]
    task = builtin().seed_tasks()[0]
    policy = ScriptedPolicy(lambda request: texts[request.seed % len(texts)])
    played = run([task] * len(texts), policy)
    assert {(row.outcome, row.score) for row, _ in played} == {("scored", 0.0)}
    assert all(len(step.observation) < 1000 for _, steps in played for step in steps)
