"""`coevolve train` on two processes: the command line is the same, and so are exit codes, signals and kills."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from coevolve.config import load_settings
from coevolve.launch import launch
from store.errors import UsageError
from tests.cli import coevolve
from tests.loops import command, make_workspace, start
from tests.random_sql_model import write_random_sql_model
from training import checkpoint

TWO = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: 2
machine_rank: 0
main_process_port: 0
mixed_precision: 'no'
"""
"""On a machine without GPUs accelerate falls back to gloo. (Its MULTI_CPU is for machines joined by MPI.)"""

PROCESSES = 3
"""The launcher and its two ranks."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A run with D_0, to be trained on two processes."""
    root = make_workspace(tmp_path / "w", write_random_sql_model(tmp_path / "model"))
    config = root / "config.toml"
    config.write_text(config.read_text().replace("[train.model]", '[train]\naccelerate = "two.yaml"\n[train.model]'))
    (root / "two.yaml").write_text(TWO)
    done = command(root, "seed")
    assert done.returncode == 0, done.stderr
    return root


def processes(workspace: Path, word: str) -> list[int]:
    """PIDs of `coevolve` processes in the workspace whose command line has the word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if word in line and str(workspace) in line:
            found.append(int(path.parent.name))
    return found


def await_that(what: str, condition: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.slow
def test_train_runs_on_both_and_speaks_once(workspace: Path) -> None:
    done = command(workspace, "train", "--json", "--set", "train.collect.rollouts=3", "--set", "train.grpo.groups=3")
    assert done.returncode == 2
    assert "error: train.grpo.groups = 3: 2 processes share" in done.stderr
    done = command(workspace, "train", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 1
    assert checkpoint.newest(workspace / "runs/r001/checkpoints") == 1
    assert processes(workspace, "train") == []


@pytest.mark.slow
def test_stopped_as_asked_it_ends_on_all_processes_and_can_be_resumed(workspace: Path) -> None:
    process = start(workspace, "train", "--follow")
    await_that("version 1", (workspace / "runs/r001/checkpoints/1").exists)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped as asked" in errors
    assert processes(workspace, "train") == []


@pytest.mark.slow
def test_nothing_outlives_a_loop_that_was_killed(workspace: Path) -> None:
    process = start(workspace, "evolve", "--rounds", "2", "--run", "r001", "--resume")
    await_that("three processes", lambda: len(processes(workspace, "train")) == PROCESSES)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    await_that("an orphan", lambda: processes(workspace, "train") == [])
    process.communicate()


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_training(workspace: Path) -> None:
    process = start(workspace, "train")
    await_that("three processes", lambda: len(processes(workspace, "train")) == PROCESSES)
    helper = max(pid for pid in processes(workspace, "train") if pid != process.pid)
    os.kill(helper, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert processes(workspace, "train") == []
    assert command(workspace, "train", "--resume").returncode == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train.accelerate: there is no file .*nowhere.yaml"):
        launch(tmp_path / "nowhere.yaml")


def test_the_file_is_named_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[train]\naccelerate = "configs/two.yaml"')
    assert load_settings(tmp_path / "config.toml").train.accelerate == str(tmp_path / "configs/two.yaml")


def test_fine_tuning_is_work_of_one_process(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", tmp_path)
    done = coevolve("seed", "--workspace", root, "--set", "train.method=sft", "--set", "train.accelerate=two.yaml")
    assert done.code == 2
    assert "trains in one process" in done.err
