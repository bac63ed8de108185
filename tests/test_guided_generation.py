"""Guided generation on text2sql with the procedural explorer, through the graphs: difficulty, what lacks, hardening.

No model and no training: the guides are made by hand, or from a store that is filled by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from coevolve.guidance import lacking
from envs import registry
from envs.protocols import Draft
from graphs.runner import explore_all, validate_all
from graphs.state import ExploreJob, Guide
from store.rows import Candidate, Exploration, Row, Task, Verdict

ENV = registry.get("text2sql")


def jobs(count: int, guide: Guide | None = None, **changes: Any) -> list[ExploreJob]:
    worlds = ENV.worlds("train")
    return [
        ExploreJob(run="r", t=0, index=at, world=worlds[at % len(worlds)].id, guide=guide, **changes)
        for at in range(count)
    ]


def played(todo: Sequence[ExploreJob], folder: Path, known: Sequence[Task] = ()) -> list[Row]:
    """All rows of exploring and validating."""
    rows: list[Row] = []
    common: dict[str, Any] = {"env": ENV, "model": "procedural", "seed": 0, "append": rows.extend}
    asyncio.run(explore_all(todo, checkpoints=folder / "e.sqlite", **common))
    candidates = [row for row in rows if isinstance(row, Candidate)]
    asyncio.run(validate_all(candidates, t=0, known=known, held_out=[], checkpoints=folder / "v.sqlite", **common))
    return rows


def tasks(rows: Sequence[Row]) -> list[Task]:
    return [row for row in rows if isinstance(row, Task)]


def test_a_difficulty_that_is_asked_for_is_reached(tmp_path: Path) -> None:
    count = 8
    plain = tasks(played(jobs(count), tmp_path / "a"))
    guide = Guide(mode="unguided", difficulty=4.0, set_mean=2.0)
    rows = played(jobs(count, guide), tmp_path / "b")
    hard = tasks(rows)
    assert len(hard) >= count, "most of what is asked for can be found"
    assert fmean(task.difficulty for task in hard) > fmean(task.difficulty for task in plain) + 1
    assert abs(fmean(task.difficulty for task in hard) - 4.0) < 1
    assert all(row.guide == guide for row in rows if isinstance(row, Exploration))


def test_what_is_lacking_is_found_more_often(tmp_path: Path) -> None:
    count, wanted = 8, ["SELECT _ FROM _ EXCEPT SELECT _ FROM _", "SELECT _, COUNT(*) FROM _ GROUP BY _"]
    guide = Guide(mode="unguided", lacking={"structures": wanted, "tokens": ["HAVING"]})

    def hits(found: Sequence[Task]) -> int:
        return sum(task.structure in wanted or "HAVING" in ENV.action_tokens(str(task.reference)) for task in found)

    plain, guided = tasks(played(jobs(count), tmp_path / "a")), tasks(played(jobs(count, guide), tmp_path / "b"))
    assert hits(guided) >= 2 * max(hits(plain), 3)


def made(world: str, question: str, sql: str) -> Task:
    return ENV.materialize(Draft(world=world, user_turns=[question], reference=sql), "explored")


@pytest.mark.parametrize(("operator", "pairs"), [("compose", 100), ("constrain", 4)])
def test_hardened_tasks_are_harder_and_hold_in_execution(tmp_path: Path, operator: str, pairs: int) -> None:
    todo = []
    for at, world in enumerate(ENV.worlds("train")):
        parents = [task for task in ENV.seed_tasks() if task.world == world.id and task.structure.count("SELECT") == 1]
        for pair in list(pairwise(parents))[:pairs]:
            guide = Guide(mode="harden", operator=operator, parents=[task.id for task in pair])
            todo.append(
                ExploreJob(run="r", t=0, index=100 * at + len(todo), world=world.id, guide=guide, tasks=list(pair))
            )
    rows = played(todo, tmp_path, ENV.seed_tasks())
    parents_of = {row.id: row.guide["parents"] for row in rows if isinstance(row, Exploration)}
    assert all(row.steps == 0 for row in rows if isinstance(row, Exploration)), "it needs no look at the world"
    seeds = {task.id: task for task in ENV.seed_tasks()}
    made_of = {row.id: parents_of[row.exploration_id] for row in rows if isinstance(row, Candidate)}
    known = {row.id: row for row in tasks(rows)}
    adopted = [row for row in rows if isinstance(row, Verdict) and row.adopt]
    assert len(adopted) >= 3, Counter(row.reason for row in rows if isinstance(row, Verdict))
    for verdict in adopted:
        easiest = min(seeds[parent].difficulty for parent in made_of[verdict.candidate_id])
        assert known[str(verdict.task_id)].difficulty > easiest


def test_a_stripped_task_keeps_its_reference_and_is_no_duplicate(tmp_path: Path) -> None:
    seed = ENV.seed_tasks()[0]
    helped = made(seed.world, f"hint: use the right table\n{seed.user_turns[0]} (look at every row)", seed.reference)
    guide = Guide(mode="harden", operator="strip", parents=[helped.id])
    todo = [ExploreJob(run="r", t=0, index=0, world=seed.world, guide=guide, tasks=[helped])]
    rows = played(todo, tmp_path, [helped])
    (task,), (candidate,) = tasks(rows), [row for row in rows if isinstance(row, Candidate)]
    assert (task.user_turns, task.reference) == (seed.user_turns, helped.reference)
    assert candidate.rewords == helped.id
    (verdict,) = [row for row in rows if isinstance(row, Verdict)]
    assert verdict.reason == "valid"
    others = [made(seed.world, "Something else?", seed.reference)]
    again = played(todo, tmp_path / "again", [*others, helped])
    assert [row.reason for row in again if isinstance(row, Verdict)] == ["duplicate"], "of another task it is a twin"


def test_what_has_no_hint_is_not_stripped(tmp_path: Path) -> None:
    seed = ENV.seed_tasks()[0]
    guide = Guide(mode="harden", operator="strip", parents=[seed.id])
    todo = [ExploreJob(run="r", t=0, index=0, world=seed.world, guide=guide, tasks=[seed])]
    assert [row for row in played(todo, tmp_path) if isinstance(row, Candidate)] == []


def test_lacking_names_what_the_set_has_least_of() -> None:
    seeds = ENV.seed_tasks()
    common = Counter(task.structure for task in seeds).most_common(1)[0][0]
    few = [task for task in seeds if task.structure == common]
    found = lacking(ENV, few)
    assert common not in found["structures"]
    assert len(found["structures"]) == 5
    have = {token for task in few for token in ENV.action_tokens(str(task.reference))}
    assert not have & set(found["tokens"][:2])
    assert lacking(ENV, few) == found
