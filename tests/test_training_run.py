"""One training job from snapshot to checkpoint, with a tiny random-weight model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from envs.errors import InfraError
from store.db import Store
from store.errors import StoreError, UsageError
from store.rows import Row, Step, Trajectory
from tests.training_child import ENV, SETTINGS, a_job
from training import checkpoint
from training.config import TrainSettings
from training.engine import Engines
from training.groups import Ledger
from training.train import TrainJob, train

HERE = Path(__file__).parent


def run(job: TrainJob, done: Iterable[Trajectory] = (), report: Any = lambda *_: None) -> tuple[Any, list[Row]]:
    rows: list[Row] = []
    ledger = Ledger(done=list(done), recall=lambda ids: {}, append=rows.extend, record=lambda *_: None)
    counts = train(job, Engines(job.settings, run="r", home=job.checkpoints.parent), ledger, report)
    return counts, rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[Row], list[Any]]:
    """Iteration 0, done once: its folder, counts, rows and reports."""
    root, reports = tmp_path_factory.mktemp("run"), []
    counts, rows = run(a_job(root), report=lambda *report: reports.append(report))
    return root, counts, rows, reports


def trajectories(rows: list[Row]) -> list[Trajectory]:
    return [row for row in rows if isinstance(row, Trajectory)]


def test_an_iteration_writes_rollouts_of_version_t_and_version_t_plus_1(trained: Any) -> None:
    root, counts, rows, _ = trained
    assert checkpoint.newest(root / "checkpoints") == 1
    played = trajectories(rows)
    assert len(played) == 12
    assert {(row.policy_version, row.purpose, row.t, row.outcome) for row in played} == {(0, "train", 0, "scored")}
    steps = [row for row in rows if isinstance(row, Step)]
    assert all(len(step.completion_ids or []) == len(step.logprobs or []) > 0 for step in steps)
    assert (counts["rollouts"], counts["examples"], counts["steps"], counts["version"]) == (12, 6, 3, 1)
    assert counts["loss"] > 0
    json.dumps(counts)


def test_the_warm_start_learns_from_the_seed_tasks_of_d_0_alone(trained: Any) -> None:
    warm = checkpoint.load(trained[0] / "checkpoints", 0)
    assert warm is not None
    assert (warm.parent, warm.counts["examples"], warm.counts["steps"]) == (None, 4, 4)


def test_the_update_goes_on_from_the_newest_adapter(trained: Any) -> None:
    root = trained[0]
    made = checkpoint.load(root / "checkpoints", 1)
    assert made is not None
    assert made.parent == 0
    before, after = (load_file(root / "checkpoints" / v / "adapter_model.safetensors") for v in "01")
    moved = max((after[name] - before[name]).abs().max().item() for name in before)
    assert 0 < moved < 0.1, "a few steps from version 0, not a fresh adapter"


def test_long_work_reports_where_it_is(trained: Any) -> None:
    reports = trained[3]
    assert [report for report in reports if report[0] == "rollouts"][-1] == ("rollouts", 12, 12)
    assert [report for report in reports if report[0] == "update"][-1] == ("update", 3, 3)


def test_nothing_is_printed(trained: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(a_job(tmp_path))
    assert capfd.readouterr().out == ""


def test_a_finished_job_is_not_done_again(trained: Any) -> None:
    root, counts, _, _ = trained
    again, rows = run(a_job(root))
    assert again == counts
    assert rows == []


def test_the_same_job_gives_the_same_weights_and_rows(trained: Any, tmp_path: Path) -> None:
    root, _, rows, _ = trained
    _, again = run(a_job(tmp_path))
    assert [(row.id, row.score, row.completion_tokens) for row in trajectories(again)] == [
        (row.id, row.score, row.completion_tokens) for row in trajectories(rows)
    ]
    for version in "01":
        name = "adapter_model.safetensors"
        one, other = (folder / "checkpoints" / version / name for folder in (root, tmp_path))
        assert one.read_bytes() == other.read_bytes()


def test_without_warm_start_version_0_is_the_base_model(tmp_path: Path) -> None:
    counts, _ = run(a_job(tmp_path, settings=SETTINGS.model_copy(update={"warm_start": False})))
    assert checkpoint.layers(tmp_path / "checkpoints", 0) == []
    assert counts["version"] == 1
    assert checkpoint.layers(tmp_path / "checkpoints", 1) == [tmp_path / "checkpoints" / "1"]


def test_a_warm_start_can_be_shown_a_part_of_the_seed_tasks(tmp_path: Path) -> None:
    sft = SETTINGS.sft.model_copy(update={"warm_tasks": 2})
    run(a_job(tmp_path, settings=SETTINGS.model_copy(update={"sft": sft})))
    warm = checkpoint.load(tmp_path / "checkpoints", 0)
    assert warm is not None
    assert (warm.counts["examples"], warm.counts["steps"]) == (2, 2)


def test_an_iteration_needs_the_one_before(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="train iteration 0 first"):
        run(a_job(tmp_path, t=1))


def test_a_snapshot_of_another_iteration_is_refused(trained: Any, tmp_path: Path) -> None:
    job = a_job(tmp_path)
    other = a_job(tmp_path, t=1)
    wrong = TrainJob(**{name: getattr(other, name) for name in TrainJob.__slots__} | {"snapshot": job.snapshot})
    with pytest.raises(UsageError, match="is of iteration 0; iteration 1 is to be trained"):
        run(wrong)


def test_defective_tasks_teach_nothing(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    task = ENV.seed_tasks()[1]
    # The warm start replays it once, the rollouts open it twice.
    ENV.faults[task.id] = [None, "invalid", "invalid"]
    counts, _ = run(job)
    assert (counts["invalid"], counts["examples"]) == (2, 5)


def test_a_loss_that_is_no_number_is_an_error_and_no_checkpoint(tmp_path: Path) -> None:
    settings = TrainSettings.model_validate(SETTINGS.model_dump() | {"sft": SETTINGS.sft.model_dump() | {"lr": 1e30}})
    with pytest.raises(InfraError, match=r"diverged.*lower train\.sft\.lr"):
        run(a_job(tmp_path, settings=settings))
    assert checkpoint.newest(tmp_path / "checkpoints") is None


def test_a_report_that_raises_leaves_no_half_version(tmp_path: Path) -> None:
    def report(label: str, done: int, total: int) -> None:
        if label == "update" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(a_job(tmp_path), report=report)
    assert list((tmp_path / "checkpoints").glob("*")) == []


def child(root: Path, *, kill_at: int) -> int:
    """Run the job in a process that is killed at its n-th durable operation; 0 = let it end. Returns its exit code."""
    environment = os.environ | {
        "PYTHONPATH": f"{HERE / 'killer'}:{HERE.parent}",
        "KILL_COUNTER": str(root / "counter"),
        "KILL_AT": str(kill_at),
        "OMP_NUM_THREADS": "1",
    }
    (root / "counter").write_text("")
    command = [sys.executable, "-m", "tests.training_child", str(root)]
    return subprocess.run(command, cwd=HERE.parent, env=environment, check=False).returncode


@pytest.mark.slow
def test_killed_anywhere_and_run_again_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for root in (whole, broken):
        root.mkdir()
        a_job(root)
    assert child(whole, kill_at=0) == 0
    operations = len((whole / "counter").read_text())
    assert operations > 8
    # Each life gets as far as a few more operations than nothing, then dies; the work must still get done.
    deaths = [child(broken, kill_at=at) for at in range(2, operations, max(2, operations // 5))]
    assert deaths.count(-9) >= 3
    assert child(broken, kill_at=0) == 0
    for version in "01":
        name = "adapter_model.safetensors"
        one, other = (root / "checkpoints" / version / name for root in (whole, broken))
        assert one.read_bytes() == other.read_bytes()
    assert stored(broken) == stored(whole)


def stored(root: Path) -> list[Any]:
    store = Store(root / "store")
    store.ingest()
    return store.query("select id, outcome, score, completion_tokens, seed from trajectory order by id")
