"""status and the last lines of sub-commands: what happened, in 80 columns, and what to do next."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coevolve import growth, guide, rounds
from coevolve.commands import by_hand
from coevolve.config import Settings
from coevolve.loop import Loop, once
from coevolve.workspace import Workspace
from envs import registry
from store.rows import Candidate, Phase, Run, Score, Signal, Task, Verdict
from store.snapshot import freeze
from tests.cli import coevolve
from tests.store_rows import exploration, task, trajectory

TASKS = [task(number) for number in range(4)]


def phase(name: str, t: int = 0, seconds: float = 1.0, **counts: Any) -> Phase:
    return Phase(run="r001", t=t, name=name, finished_at=time.time(), seconds=seconds, counts=counts)


def score(suite: str, t: int, value: float) -> Score:
    bounds = {"n": 10, "value": value, "low": 0.05, "high": 0.25}
    return Score(run="r001", t=t, suite=suite, slice="all", metric="accuracy", **bounds)


def verdict(number: int, reason: str, made: Task | None = None) -> Verdict:
    return Verdict(
        id=f"v{number}",
        candidate_id=f"c{number}",
        run="r001",
        t=0,
        adopt=made is not None,
        reason=reason,
        detail="",
        task_id=made.id if made else None,
        repairs=0,
        seconds=0.0,
    )


def candidate(number: int) -> Candidate:
    content: Any = {"world": "shop", "user_turns": [], "tools": [], "reference": "", "index": number}
    return Candidate(id=f"c{number}", exploration_id="e", run="r001", t=0, **content)


def signal(kind: Any, number: int) -> Signal:
    about = {"task_id": f"t{number}", "pattern": None, "evidence": [], "stats": {}}
    return Signal(id=f"s{number}", run="r001", t=0, kind=kind, **about)


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    """A run after `seed`: D_0 has two tasks, a third is valid and waits."""
    assert coevolve("init", tmp_path / "work").code == 0
    place = Workspace.find(str(tmp_path / "work"))
    run = place.create_run({})
    run.update(created_at=1.0, rounds=2)
    row = Run(id=run.id, created_at=1.0, seed=0, env="text2sql", policy="smollm2", config={}, versions={})
    place.store.append(row, TASKS, freeze(run.snapshots, run.id, 0, TASKS[:2]), phase("seed", pending=1))
    report: Any = lambda label, done, total: None  # noqa: E731
    return Loop(
        workspace=place, run=run, settings=Settings(), overrides=(), env=registry.get("text2sql"), report=report
    )


def train(loop: Loop) -> None:
    rollouts = [trajectory(TASKS[0].id, k, run="r001", score=k / 4) for k in range(2)]
    loop.store.append(phase("train", seconds=68.3), phase("eval gold", seconds=35.6), score("gold", 0, 0.1), rollouts)


def close_round(loop: Loop) -> None:
    loop.store.append(
        [signal("boundary", 1), signal("boundary", 2), signal("rare", 3)],
        [verdict(1, "valid", TASKS[2]), verdict(2, "duplicate"), verdict(3, "empty_result")],
        [phase("signals"), phase("explore", seconds=13.9), phase("validate", seconds=3.6)],
        [freeze(loop.run.snapshots, "r001", 1, TASKS[:3]), phase("snapshot", tasks=3, admitted=1, pending=0)],
        [phase("eval gold", 1, 20.0), phase("eval shifted", 1, 2.4), score("gold", 1, 0.153), score("shifted", 1, 0.1)],
    )


def status(loop: Loop, *arguments: str) -> list[str]:
    done = coevolve("status", "--workspace", loop.workspace.root, *arguments)
    assert done.code == 0
    return [line.rstrip() for line in done.out.splitlines()]


def test_status_of_a_round_in_80_columns(loop: Loop) -> None:
    train(loop)
    close_round(loop)
    lines = status(loop)
    assert max(map(len, lines)) <= 80
    assert lines[0] == "run r001: last done: eval shifted of iteration 1"
    assert lines[1].endswith(", 3 tasks; 0 pending; open signals 0/2/1")
    assert [line.split() for line in lines[3:6]] == [
        ["round", "gold", "shifted", "|D|"],
        ["0", "(warm", "start)", "10.0", "[5-25]", "2"],
        ["1", "15.3", "[5-25]", "10.0", "[5-25]", "2"],
    ]
    assert lines[7].split() == ["round", "signals", "explored", "admitted", "pending", "rejected", "seconds"]
    assert lines[9].split() == ["1", "0/2/1", "0", "1", "0", "2", "68/14/4/22"]
    assert lines[10] == "signals: forgetting/boundary/rare; seconds: train/explore/validate/eval"


def test_the_long_table_has_the_reasons(loop: Loop) -> None:
    train(loop)
    close_round(loop)
    assert "duplicate 1, empty_result 1" in "\n".join(status(loop, "--long"))
    assert "duplicate" not in "\n".join(status(loop))


def test_what_has_not_run_is_blank(loop: Loop) -> None:
    train(loop)
    found = rounds.rounds(loop.store, "r001")
    _, _, counts, _ = rounds.overview(found)
    assert not isinstance(counts, str)
    assert counts.rows == [(0, "", "", "", 1, "", "-/-/-/36"), (1, "", "", "", "", "", "68/-/-/-")]
    assert [found[0]["pending"], found[1]["pending"], found[1]["signals"]["rare"]] == [1, 0, 0]
    loop.store.append(phase("signals"))
    _, _, counts, _ = rounds.overview(rounds.rounds(loop.store, "r001"))
    assert not isinstance(counts, str)
    assert counts.rows[1][1] == "0/0/0"


# ---- by hand


def test_what_is_done_by_hand_is_added_up_and_evolve_still_does_its_own(loop: Loop) -> None:
    train(loop)
    for counts in ({"signals": 2, "done": 4}, {"signals": 2}, {"signals": 1, "done": 2}):
        by_hand(loop, 0, "explore", lambda counts=counts: counts)  # type: ignore[misc]
    assert not loop.finished(0, "explore")
    once(loop, 0, "explore", lambda loop, t: {"signals": 0})
    rows = loop.store.rows(Phase, "starts_with(name, 'explore')", order="finished_at")
    assert [(row.name, row.counts) for row in rows] == [
        ("explore 1", {"signals": 2, "done": 4}),
        ("explore 2", {"signals": 1, "done": 2}),
        ("explore", {"signals": 0}),
    ]
    total = sum(row.seconds for row in rows)
    assert rounds.rounds(loop.store, "r001")[1]["explore_s"] == round(total, 1)


# ---- what to do next


def test_the_next_step_follows_the_phases(loop: Loop) -> None:
    found = [guide.next_step(loop.workspace, loop.run)]
    for row in (phase("train"), phase("signals"), phase("explore 1"), phase("snapshot")):
        loop.store.append(row)
        found.append(guide.next_step(loop.workspace, loop.run))
    assert found == [f"coevolve {name}" for name in ("train", "signals", "explore", "validate", "train")]


def test_an_older_run_is_named_in_the_next_step(loop: Loop) -> None:
    loop.workspace.create_run({}).update(created_at=2.0, rounds=0)
    assert guide.next_step(loop.workspace, loop.run) == "coevolve train --run r001"


def test_seed_tells_of_tasks_that_wait(loop: Loop) -> None:
    counts = {"seeds": 6, "unguided": 4, "pending": 12}
    assert guide.seeded(loop.workspace, loop.run, counts) == (
        "run r001: D_0 has 6 seed tasks and 4 explored ones; 12 more valid tasks wait for a round\nnext: coevolve train"
    )


def test_train_tells_score_and_checkpoint(loop: Loop) -> None:
    train(loop)
    told = guide.trained(loop.workspace, loop.run, {"t": 0, "version": 1, "snapshot": "abc"})
    assert "version 1 trained on snapshot abc, whose rollouts scored 0.12 on average\n" in told
    assert f"checkpoint: {loop.run.checkpoints / '1'}; next: coevolve signals, or coevolve eval" in told


def test_validate_tells_what_waits_and_why(loop: Loop) -> None:
    loop.store.append(phase("train"), verdict(1, "valid", TASKS[2]), verdict(2, "valid", TASKS[3]))
    loop.store.append(freeze(loop.run.snapshots, "r001", 1, TASKS[:3]), phase("snapshot"))
    loop.store.append(exploration(None, id="e", run="r001"), candidate(1), candidate(2))
    counts = {"decided": {"valid": 2}, "tasks": 3, "admitted": 1}
    lines = guide.validated(loop, 0, counts, frozen_before=False).splitlines()
    assert lines[0] == "run r001: 2 candidates decided (valid 2); D_1 has 3 tasks, 1 of them new"
    assert lines[1:] == [
        "1 valid tasks wait: validate.growth = 0.2 limits what a round adds",
        "next: coevolve train",
    ]
    assert "nothing new" in guide.validated(loop, 0, {**counts, "decided": {}}, frozen_before=True)


def test_evolve_tells_the_best_version(loop: Loop) -> None:
    train(loop)
    close_round(loop)
    loop.store.append(score("test", 1, 0.113), phase("eval test", 1))
    assert guide.evolved(loop, rounds.rounds(loop.store, "r001")).splitlines() == [
        "best on gold: version 1, 15.3 % [5-25]; test gave 11.3 % [5-25]",
        f"checkpoint: {loop.run.checkpoints / '1'}",
        "more rounds: coevolve evolve --resume --rounds 5",
    ]


def test_an_unfinished_run_is_told(loop: Loop) -> None:
    train(loop)
    close_round(loop)
    assert guide.unfinished(loop.workspace) == (
        "run r001 is unfinished (1 of 2 rounds); to go on with it instead: coevolve evolve --resume --run r001"
    )
    loop.store.append(phase("snapshot", 1))
    assert guide.unfinished(loop.workspace) == ""


def test_phases_are_announced_with_run_and_round(loop: Loop, capsys: pytest.CaptureFixture[str]) -> None:
    telling = replace(loop, begin=lambda t, name: guide.begin(loop.run, t, name))
    once(telling, 1, "explore", lambda loop, t: {})
    for name, t in (("seed", 0), ("eval", 0), ("eval", 2)):
        guide.begin(loop.run, t, name)
    assert capsys.readouterr().err.splitlines() == [
        "r001 round 2: explore ...",
        "r001: seed ...",
        "r001 warm start: eval ...",
        "r001 round 2: eval ...",
    ]


def test_status_json_has_the_phases(loop: Loop) -> None:
    train(loop)
    data = json.loads("".join(status(loop, "--json")))
    assert [row["phases"] for row in data["rounds"]] == [["eval", "seed"], ["train"]]
    assert (data["pending"], data["tasks"]) == (0, 2)


# ---- queues of a run


def test_the_queues_of_a_run_have_its_own_rows_only(loop: Loop) -> None:
    for run in ("r001", "r002"):
        own = {"run": run, "exploration_id": f"e-{run}"}
        rows = [replace(candidate(number), id=f"c{number}-{run}", **own) for number in range(3)]
        adopted = [
            replace(verdict(number, "valid", TASKS[number + 1]), id=f"v{number}-{run}", candidate_id=row.id, run=run)
            for number, row in enumerate(rows[:2])
        ]
        loop.store.append(exploration(None, id=f"e-{run}", run=run), rows, adopted)
    assert [row.id for row in growth.undecided(loop.store, "r001")] == ["c2-r001"]
    assert growth.pending(loop.store, "r001", [TASKS[1].id]) == [("unguided", TASKS[2])]
    assert guide.waiting(loop.workspace, loop.run) == 1  # D_0 has one of the two
