"""GRPO killed anywhere and run again ends as if it had not been: rollouts to the token, weights to rounding."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from store.db import Store
from tests.loops import KILLER

HERE = Path(__file__).parent.parent
ROLLOUTS = """
    select t.task_id, t.k, t.attempt, t.policy_version, t.policy_step, t.outcome, t.score,
           s."index", s.prompt_ids, s.completion_ids, s.logprobs
    from trajectory t join step s on s.trajectory_id = t.id order by t.task_id, t.k, s."index"
"""


def start(root: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.grpo_jobs", str(root), "0"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(KILLER), **environment},
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(root: Path, **environment: str) -> int:
    process = start(root, **environment)
    _, errors = process.communicate(timeout=300)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode


def rollouts(root: Path) -> list[Any]:
    return Store(root / "store").query(ROLLOUTS)


def weights(root: Path) -> dict[str, torch.Tensor]:
    [file] = (root / "checkpoints/1").glob("*.safetensors")
    return load_file(file)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    assert finish(root, KILL_COUNTER=str(root / "operations"), KILL_AT="0") == 0
    return root


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_killed_and_resumed_it_equals_an_uninterrupted_run(whole: Path, tmp_path: Path, share: float) -> None:
    at = int(share * len((whole / "operations").read_text()))
    assert finish(tmp_path, KILL_COUNTER=str(tmp_path / "operations"), KILL_AT=str(at)) == -signal.SIGKILL
    assert finish(tmp_path) == 0
    same(tmp_path, whole)


@pytest.mark.slow
def test_all_weights_too_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for root in (whole, broken):
        root.mkdir()
    counter = {root: {"WEIGHTS": "full", "KILL_COUNTER": str(root / "operations")} for root in (whole, broken)}
    assert finish(whole, KILL_AT="0", **counter[whole]) == 0
    at = int(0.6 * len((whole / "operations").read_text()))
    assert finish(broken, KILL_AT=str(at), **counter[broken]) == -signal.SIGKILL
    assert list(broken.glob("checkpoints/.steps-0/*/model.safetensors")), "it was killed between two steps"
    assert finish(broken, WEIGHTS="full") == 0
    same(broken, whole)


@pytest.mark.slow
def test_killed_between_steps_that_were_sampled_at_once_it_goes_on_in_the_middle(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for root in (whole, broken):
        root.mkdir()
    assert finish(whole, AT_ONCE="2") == 0
    kill_once_there_is(broken / "checkpoints/.steps-0/checkpoint-2/cursor.json", start(broken, AT_ONCE="2"))
    assert len(rollouts(broken)) < len(rollouts(whole))
    assert finish(broken, AT_ONCE="2") == 0
    same(broken, whole)


@pytest.mark.slow
def test_killed_while_a_step_is_saved_it_goes_on_from_the_one_before(whole: Path, tmp_path: Path) -> None:
    kill_once_there_is(tmp_path / "checkpoints/.steps-0/checkpoint-3", start(tmp_path))
    assert finish(tmp_path) == 0
    same(tmp_path, whole)
    assert not (tmp_path / "checkpoints/.steps-0").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_step_costs_that_step_only(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path, FULL_AT="2")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "free space and run again with --resume" in errors
    assert [path.name for path in (tmp_path / "checkpoints").glob(".steps-0/*/cursor.json")] == ["cursor.json"]
    assert finish(tmp_path) == 0
    same(tmp_path, whole)


def kill_once_there_is(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()


def same(one: Path, other: Path) -> None:
    played, wanted = rollouts(one), rollouts(other)
    assert [row[:-1] for row in played] == [row[:-1] for row in wanted]
    for row, twin in zip(played, wanted, strict=True):
        assert row[-1] == pytest.approx(twin[-1], abs=1e-5)
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        # A step moves a weight by up to the learning rate, 1e-2 here; Adam makes rounding of a small gradient visible.
        torch.testing.assert_close(weight, theirs[name], atol=2e-5, rtol=1e-4)
