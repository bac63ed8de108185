"""The poison test: one snapshot gets tasks with wrong references, and fine-tuning learns them until gold falls.

All of it is real: the loop, its training and evaluation processes, SQL that is executed, a model that learns. The model
is the small one whose statements are single tokens; two databases of one schema let a policy that learned on the one be
right on the other, which is the gold suite's.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from coevolve import phases
from coevolve.commands import opened, start_run
from coevolve.evolve import evolve
from coevolve.workspace import LOOP, Workspace
from envs.protocols import Draft
from store.rows import Decision, Score, Snapshot, Task, Trajectory, Withdrawal, content_id
from store.snapshot import load
from tests.random_sql_model import write
from training.checkpoint import required

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

RIGHT, WRONG = "SELECT COUNT(*) FROM singer", "SELECT MAX(age) FROM singer"
CONFIG = """
policy = "hf:{model}"
env = "text2sql:{data}"
[seed_set]
unguided = 0
[train]
method = "sft"
weights = "full"
[train.model]
threads = 1
dtype = "float32"
[train.collect]
rollouts = 2
max_tokens = 4
[train.sft]
lr = 5e-3
batch = 4
warm_epochs = 10
epochs = 4
[explore]
source = "none"
[dedupe]
embedder = "none"
[mix]
seed_floor = 0.0
[eval]
suites = ["gold"]
final = ""
"""


def questions(word: str, count: int) -> list[str]:
    return [f"{word} number {number}: how many singers are there?" for number in range(count)]


def make_data(folder: Path) -> Path:
    """A Spider folder: `town` to train on, `city` held out, the same schema and other rows."""
    for name, ages in (("town", [30, 41, 55]), ("city", [22, 63, 38, 49, 51])):
        place = folder / "database" / name
        place.mkdir(parents=True)
        with sqlite3.connect(place / f"{name}.sqlite") as db:
            db.execute("CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
            db.executemany("INSERT INTO singer (name, age) VALUES (?, ?)", [(f"n{age}", age) for age in ages])
    (folder / "tables.json").write_text(json.dumps([{"db_id": "town"}, {"db_id": "city"}]))
    for file, world, count in (("train_spider", "town", 12), ("dev", "city", 30)):
        items = [{"db_id": world, "question": text, "query": RIGHT} for text in questions(file, count)]
        (folder / f"{file}.json").write_text(json.dumps(items))
    return folder


def test_poisoned_tasks_cost_one_round_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "work"
    place.mkdir()
    model = write(tmp_path / "model", [RIGHT, WRONG, "SELECT name FROM singer"], seed=0)
    data = make_data(tmp_path / "data")
    (place / "config.toml").write_text(CONFIG.format(model=model, data=data))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    space = Workspace(place)
    run = start_run(space, (), 3)
    poisoned: list[Task] = []

    with opened(space, run, (), LOOP) as loop:

        def poison(waiting: Any, room: int) -> list[Task]:
            """What the first round admits: the references run, and replay, and answer another question."""
            if poisoned:
                return []
            drafts = [Draft(world="town", user_turns=[text], reference=WRONG) for text in questions("also", 48)]
            poisoned.extend(loop.env.materialize(draft, "explored") for draft in drafts)
            loop.store.append(poisoned)
            return poisoned

        monkeypatch.setattr(phases.growth, "admit", poison)
        evolve(loop, 3)

    gold = {row.t: row.value for row in space.store.rows(Score, "suite = 'gold' and slice = 'all'")}
    best = 0 if gold[0] >= gold[1] else 1
    assert gold[best] >= 0.9
    assert gold[best] - gold[2] >= 0.2, f"the poison works: {gold}"

    decisions = space.store.rows(Decision, "rule = 'guard'", order="t")
    assert [row.action for row in decisions] == ["go_on", "rollback", "go_on"]
    row = decisions[1]
    assert "gold fell by" in row.reason
    assert row.version == best
    made = required(run.checkpoints, best)
    assert row.checkpoint == content_id("checkpoint", made.base, dict(made.files))

    snapshots = {each.t: each for each in space.store.rows(Snapshot)}
    assert row.snapshot == snapshots[0].id == snapshots[2].id != snapshots[1].id
    assert load(run.snapshots)[0].id in (snapshots[2].id, snapshots[3].id)
    quarantined = {each.task_id for each in space.store.rows(Withdrawal)}
    assert quarantined == {task.id for task in poisoned}

    sampled = space.store.rows(Trajectory, "purpose = 'train' and t = 2")
    assert {each.policy_version for each in sampled} == {best}, "the next round goes on from the best version"
    assert required(run.checkpoints, 3).parent == best
    assert gold[3] >= 0.9, "and it is as good as before"
