"""Rounds whose explorers are told more than a signal: adversary, focus, hardening; on a store filled by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coevolve import phases
from coevolve.commands import opened, start_run
from coevolve.workspace import LOOP, Workspace
from envs.text2sql.env import builtin
from store.rows import Exploration, Row, Signal, Task
from store.snapshot import freeze
from tests.cli import Ran, coevolve
from tests.store_rows import phase, step, trajectory

ENV = builtin()
HARD = "SELECT _ FROM _ JOIN _ ON _ = _ WHERE _ = ?"


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """Iteration 0 is trained: the policy mastered what has no join and failed what has one; one signal is open. It also
    failed one held-out item."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = start_run(place, ("policy=litellm:none",), 0)
    seeds = ENV.seed_tasks()
    rows: list[Row] = [*seeds, phase(0, run=run.id), phase(0, "signals", run=run.id)]
    for task in seeds:
        for k in range(2):
            score = 0.0 if "JOIN" in task.structure else 1.0
            played = trajectory(task.id, k, run=run.id, world=task.world, score=score)
            rows += [played, step(played, ["SELECT"], action="SELECT 1")]
    gold = ENV.suites()["gold"][0]
    failed = trajectory(gold.id, run=run.id, world=gold.world, purpose="eval", suite="gold", score=0.0)
    rows += [gold, failed, step(failed, ["SELECT"], action="SELECT 'of the held-out item'")]
    shown = next(row for row in rows if getattr(row, "purpose", "") == "train")
    about = {"task_id": seeds[0].id, "pattern": None, "evidence": [shown.id], "stats": {}}  # type: ignore[union-attr]
    rows.append(Signal(id="s0", run=run.id, t=0, kind="boundary", **about))
    place.store.append(rows)
    place.store.append(freeze(run.snapshots, run.id, 0, seeds))
    return place


def round_of(place: Workspace, *overrides: str) -> list[Exploration]:
    with opened(place, place.run(), overrides, LOOP) as loop:
        phases.explore(loop, 0)
    return place.store.rows(Exploration, order='"index"')


def explore(place: Workspace, *arguments: str) -> Ran:
    return coevolve("explore", *arguments, "--workspace", place.root)


def test_the_adversary_goes_where_the_policy_fails_most(place: Workspace) -> None:
    rows = round_of(place, "explore.source=adversarial", "explore.per_signal=3")
    assert len(rows) == 3
    for row in rows:
        assert row.signal_id is None
        assert (row.guide["mode"], "JOIN" in row.guide["about"]) == ("adversarial", True)
        assert row.context["failure"], "it reflected on the failures"
    counts = place.store.query(
        """select k.structure, count(*) from trajectory r join task k on k.id = r.task_id
           where score = 0 and purpose = 'train' group by 1 order by 2 desc, 1"""
    )
    assert [row.guide["about"] for row in rows] == [structure for structure, _ in counts[:3]]


def test_what_the_adversary_is_shown_is_of_training_alone(place: Workspace) -> None:
    from coevolve.guidance import adversarial, guidance

    with opened(place, place.run(), (), LOOP) as loop:
        jobs = adversarial(loop, 0, 50, guidance(loop, ENV.seed_tasks()))
    shown = [one for job in jobs for one in job.evidence]
    assert len(jobs) == 50
    assert {one["score"] for one in shown} == {0.0}
    assert not any("held-out" in act["action"] for one in shown for act in one["steps"])
    assert {job.world for job in jobs} <= {world.id for world in ENV.worlds("train")}


def test_the_adversarys_tasks_count_when_solved_in_20_to_50_percent(place: Workspace) -> None:
    run = place.run().id
    round_of(place, "explore.source=adversarial", "explore.per_signal=3")
    with opened(place, place.run(), (), LOOP) as loop:
        phases.validate(loop, 0)
    found = [task for (task,) in place.store.query("select task_id from v_adversary order by 1")]
    assert len(found) >= 3
    assert place.store.query("select distinct solved, counts from v_adversary") == [(None, None)]
    for task, solved in zip(found, (1, 4, 10), strict=False):  # of ten
        place.store.append(trajectory(task, k, run=run, t=1, score=float(k < solved)) for k in range(10))
    asked = "select task_id, counts from v_adversary where played_t = 1"
    assert dict(place.store.query(asked)) == dict(zip(found, (False, True, False), strict=False))


def test_focus_explores_one_structure_and_then_it_is_over(place: Workspace) -> None:
    options = ("--focus", HARD, "--set", "signals.per_round=3", "--json")
    first = explore(place, *options)
    assert (first.code, json.loads(first.out)) == (0, {"signals": 0, "done": 3})
    assert explore(place, *options).code == 0
    rows = place.store.rows(Exploration)
    assert len(rows) == 6, "the same again goes on with others"
    assert {(row.guide["mode"], row.guide["about"]) for row in rows} == {("focus", HARD)}
    assert json.loads(explore(place, "--json").out)["signals"] == 1
    with opened(place, place.run(), (), LOOP) as loop:
        phases.validate(loop, 0)
    adopted = place.store.query(
        """select k.structure = ?, count(*) from v_lineage join task k on k.id = task_id
           join exploration e on e.id = exploration_id where e.guide ->> '$.mode' = 'focus' group by 1""",
        [HARD],
    )
    assert dict(adopted).get(True, 0) > dict(adopted).get(False, 0)


def test_focus_on_what_no_task_has_is_an_error(place: Workspace) -> None:
    done = explore(place, "--focus", "SELECT 1")
    assert done.code == 2
    assert "--focus: no task of D_0 has the structure 'SELECT 1'; the commonest are 'SELECT" in done.err


def test_a_round_hardens_what_the_policy_has_mastered(place: Workspace) -> None:
    rows = [row for row in round_of(place, "explore.harden=6") if row.signal_id is None]
    assert {row.guide["operator"] for row in rows} == {"compose", "constrain", "strip"}
    seeds = {task.id: task for task in ENV.seed_tasks()}
    parents = [seeds[parent] for row in rows for parent in row.guide["parents"]]
    assert not any("JOIN" in parent.structure for parent in parents)
    assert all(len({seeds[parent].world for parent in row.guide["parents"]}) == 1 for row in rows)


def test_guidance_reaches_explorations_of_signals_and_is_kept(place: Workspace) -> None:
    wanted = 'explore.guidance=["difficulty", "diversity", "examples"]'
    rows = round_of(place, wanted, "explore.margin=2.0")
    mean = sum(task.difficulty for task in ENV.seed_tasks()) / len(ENV.seed_tasks())
    for row in rows:
        assert (row.signal_id, row.guide["mode"]) == ("s0", "signal")
        assert row.guide["difficulty"] == pytest.approx(mean + 2, abs=0.01)
        assert len(row.guide["lacking"]["structures"]) == 5
        assert all(example["reference"] for example in row.guide["examples"])
    assert rows[0].guide["examples"] != rows[1].guide["examples"], "they take turns"
    assert round_of(place, wanted, "explore.margin=2.0") == rows, "a round is done once"


def test_without_guidance_nothing_is_told(place: Workspace) -> None:
    assert [row.guide for row in round_of(place)] == [None, None]


def test_random_exploration_begins_with_the_worlds_that_d_has_least_of(place: Workspace) -> None:
    rows = round_of(place, "explore.source=random", 'explore.guidance=["diversity"]', "explore.per_signal=2")
    counts: dict[str, int] = {}
    for task in ENV.seed_tasks():
        counts[task.world] = counts.get(task.world, 0) + 1
    rarest = sorted((world.id for world in ENV.worlds("train")), key=lambda world: counts.get(world, 0))
    assert [row.world for row in rows] == rarest[:2]


def test_unguided_seeding_can_be_guided(tmp_path: Path) -> None:
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    options = ("policy=litellm:none", "seed_set.unguided=2", 'explore.guidance=["difficulty"]', "explore.margin=2.0")
    run = start_run(place, options, 0)
    with opened(place, run, (), LOOP) as loop:
        phases.seed(loop, 0)
    explored = place.store.rows(Task, "origin = 'explored'")
    mean = sum(task.difficulty for task in ENV.seed_tasks()) / len(ENV.seed_tasks())
    assert sum(task.difficulty for task in explored) / len(explored) > mean + 0.5
