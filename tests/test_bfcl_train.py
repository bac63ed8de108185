"""BFCL tasks with a small real model on a CPU: fine-tuned on calls, then three steps of GRPO through sessions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.env import Bfcl
from envs.bfcl.procedural import EXPLORER
from envs.protocols import Draft
from store.rows import Metric, Row, Step, Task, Trajectory
from store.snapshot import freeze
from tests.bfcl_play import run
from tests.masks import assert_masks
from tests.test_bfcl_procedural import explored
from training.config import CollectSettings, GrpoSettings, ModelSettings, SftSettings, TrainSettings
from training.engine import Engines
from training.groups import Ledger
from training.smollm2 import resolve
from training.train import TrainJob, train

TASKS = 8
SETTINGS = TrainSettings(
    model=ModelSettings(threads=1, batch=16),
    collect=CollectSettings(rollouts=4, max_tokens=40, tools=True),
    sft=SftSettings(warm_epochs=3, batch=4, lr=1e-3),
    grpo=GrpoSettings(groups=1, lr=1e-4, beta=0),
)


def one_call_tasks(env: Bfcl) -> Iterator[Task]:
    """Of what the procedural explorer proposes: one call, with text and numbers that the user says, two functions."""
    for seed, world in enumerate(env.worlds("train")):
        view = run(explored(env, world.id, seed))
        for found in EXPLORER.abstract(view, random.Random(seed)):
            calls = [call for turn in found["reference"] for call in turn]
            if len(calls) != 1 or not calls[0]["args"]:
                continue
            name = calls[0]["name"]
            other = next(tool["function"]["name"] for tool in view["tools"] if tool["function"]["name"] != name)
            draft = Draft(world=world.id, **found, tools=[name, other])
            if not env.check(draft):
                yield env.materialize(draft, "explored")


def trained(env: Bfcl, tasks: list[Task], root: Path) -> tuple[dict[str, Any], list[Row]]:
    rows: list[Row] = []
    frozen = freeze(root / "snapshots", "r", 0, tasks)
    job = TrainJob(
        run="r",
        t=0,
        seed=5,
        env=env,
        policy="smollm2",
        snapshot=root / f"snapshots/0-{frozen.id}",
        checkpoints=root / "checkpoints",
        settings=SETTINGS,
    )

    def record(step: int, figures: Any) -> None:
        rows.extend(Metric(run="r", t=0, step=step, name=name, value=float(v)) for name, v in figures.items())

    ledger = Ledger(done=[], recall=lambda ids: {}, append=rows.extend, record=record)
    return train(job, Engines(SETTINGS, run="r", home=root), ledger, lambda *_: None), rows


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_small_model_learns_calls_and_is_trained_by_reward(bfcl: Bfcl, tmp_path: Path) -> None:
    assert resolve("smollm2").is_dir()
    tasks = [task for task, _ in zip(one_call_tasks(bfcl), range(TASKS), strict=False)]
    assert len(tasks) == TASKS
    counts, rows = trained(bfcl, tasks, tmp_path)
    played = [row for row in rows if isinstance(row, Trajectory)]
    steps: dict[str, list[Step]] = {}
    for row in rows:
        if isinstance(row, Step):
            steps.setdefault(row.trajectory_id, []).append(row)
    assert {row.outcome for row in played} == {"scored"}
    assert counts["steps"] >= 3
    by_task: dict[str, set[float | None]] = {}
    for row in played:
        by_task.setdefault(str(row.task_id), set()).add(row.score)
    assert {0.0, 1.0} in by_task.values(), "a group has something to learn from"
    assert any(len(each) > 1 and each[0].action.startswith("[") for each in steps.values()), "an answer lies within"
    for each in steps.values():
        assert_masks(each)
