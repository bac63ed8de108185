"""The real small model on five official entries, from the command line; its stored rollouts score the same again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.bfcl.env import Bfcl
from store.db import Store
from store.rows import Step, Trajectory
from tests.cli import Ran, coevolve


def evaluate(work: Path, *more: str) -> Ran:
    short = ["--set", "train.collect.max_tokens=16", "--set", "train.collect.deadline_s=1500", "--json"]
    arguments = ["--env", "bfcl", "--split", "multi_turn_base", "--policy", "smollm2", "--limit", "5"]
    return coevolve("eval", "--workspace", str(work), *arguments, *short, *more)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_entries_are_played_and_graded_twice_alike(bfcl: Bfcl, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    done = evaluate(tmp_path)
    assert done.code == 0, done.err
    (whole,) = [row for row in json.loads(done.out) if row["slice"] == "all"]
    store = Store(tmp_path / "store")
    played = store.rows(Trajectory)
    assert whole["n"] == len(played) == 5
    assert all(row.completion_tokens for row in played)
    assert store.rows(Step)
    found = json.loads(evaluate(tmp_path, "--rescore").out)
    assert [
        {key: value for key, value in row.items() if key != "metric"} for row in found if row["metric"] == "accuracy"
    ] == json.loads(done.out)
