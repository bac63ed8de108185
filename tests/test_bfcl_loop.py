"""BFCL in the loop: seeding through the graphs with the procedural explorer, in a workspace that sets nothing."""

from __future__ import annotations

import json
from pathlib import Path

from envs.bfcl.env import Bfcl
from store.db import Store
from store.rows import Exploration, Task, Verdict
from store.snapshot import load
from tests.cli import coevolve


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
