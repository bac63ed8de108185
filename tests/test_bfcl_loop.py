"""BFCL in the loop: seeding through the graphs with the procedural explorer, in a workspace that sets nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.bfcl.env import Bfcl
from store.db import Store
from store.rows import Exploration, Phase, Signal, Task, Trajectory, Verdict
from store.snapshot import load
from tests.cli import coevolve
from tests.loops import command
from tests.random_sql_model import write_random_call_model


def test_d0_is_validated_tasks_of_unguided_exploration(bfcl: Bfcl, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    done = coevolve(
        *["seed", "--workspace", str(tmp_path), "--env", "bfcl", "--set", "policy=vllm:http://127.0.0.1:1"],
        *["--set", "seed_set.unguided=12", "--json"],
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["unguided"] == 12
    store = Store(tmp_path / "store")
    explorations, verdicts = store.rows(Exploration), store.rows(Verdict)
    assert {row.outcome for row in explorations} == {"done"}
    assert sum(row.adopt for row in verdicts) > 0.7 * len(verdicts)
    _, tasks = load(tmp_path / "runs/r001/snapshots", "latest")
    assert {task.world for task in tasks} <= {world.id for world in bfcl.worlds("train")}
    assert {task.split for task in store.rows(Task)} == {"train"}


CONFIG = """
policy = "hf:{model}"
[seed_set]
unguided = 8
[train]
warm_start = false
[train.model]
threads = 1
dtype = "float32"
batch = 8
[train.collect]
rollouts = 8
[train.grpo]
groups = 1
[signals]
per_round = 4
[validate]
max_difficulty = 1.0
"""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_round_of_the_whole_loop(bfcl: Bfcl, tmp_path: Path) -> None:
    tools = [tool for each in bfcl.catalog.classes.values() for tool in each["tools"]]
    bare = [tool["function"]["name"] for tool in tools if not tool["function"]["parameters"].get("required")]
    write_random_call_model(tmp_path / "model", bare)
    (tmp_path / "config.toml").write_text(CONFIG.format(model=tmp_path / "model"))
    lengths = ["--set", "train.collect.max_tokens=4", "--set", "eval.suites=[]", "--set", "eval.final="]
    done = command(tmp_path, "evolve", "--env", "bfcl:small", "--rounds", "1", "--json", *lengths)
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path / "store")
    assert {row.name for row in store.rows(Phase)} == {"seed", "train", "signals", "explore", "validate", "snapshot"}
    scores = {row.score for row in store.rows(Trajectory, "purpose = 'train'")}
    assert scores == {0.0, 1.0}, "chance reaches some of the tasks"
    assert store.rows(Signal)
    guided = store.rows(Exploration, "signal_id is not null")
    assert {row.outcome for row in guided} == {"done"}
    assert all(row.context["where"] for row in guided if row.context)
    assert all(task.difficulty == 1.0 and len(task.tools) == 3 for task in store.rows(Task))
