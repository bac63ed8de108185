"""One iteration of GRPO from snapshot to checkpoint, real TRL, with a tiny random-weight model."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from envs.errors import InfraError
from store.errors import StoreError, UsageError
from store.rows import Metric, Row, Step, Trajectory
from tests.grpo_jobs import SETTINGS, Ran, run
from training import checkpoint
from training.config import GrpoSettings
from training.engine import Engines
from training.grpo import disk_refused
from training.model import load_model, merged, merged_weights, with_adapter
from training.policy import HFPolicy


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Iterations 0 and 1, done once."""
    root = tmp_path_factory.mktemp("grpo")
    return run(root, 0) | run(root, 1)


def of(kind: type[Any], rows: list[Row]) -> list[Any]:
    return [row for row in rows if isinstance(row, kind)]


def test_every_task_is_sampled_k_times_in_an_iteration(ran: Ran) -> None:
    played = of(Trajectory, ran.rows)
    for t in (0, 1):
        counts = {(row.task_id, row.k) for row in played if row.t == t}
        assert len(counts) == 12 * 4 == sum(row.t == t for row in played)


def test_a_rollout_tells_the_step_whose_weights_sampled_it(ran: Ran) -> None:
    played = of(Trajectory, ran.rows)
    assert {row.policy_version for row in played if row.t == 1} == {1}
    steps = [row.policy_step for row in played]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert max(steps) >= 3


def test_groups_without_variance_are_replaced_by_another_tasks(ran: Ran) -> None:
    counts = ran.counts[0]
    groups = counts["groups"]
    assert sum(groups.values()) == 12
    assert groups["informative"] >= 2 * (counts["steps"] - 1)
    assert set(groups) <= {"informative", "solved", "failed"}


def test_steps_count_on_across_iterations(ran: Ran) -> None:
    steps = [ran.counts[t]["steps"] for t in (0, 1)]
    assert 0 < steps[0] < steps[1]
    assert [checkpoint.required(ran.root / "checkpoints", v).steps for v in (1, 2)] == steps
    recorded = sorted({row.step for row in of(Metric, ran.rows)})
    assert recorded == list(range(1, steps[1] + 1))


def test_the_optimiser_goes_on_where_it_was(ran: Ran) -> None:
    states = [torch.load(ran.root / f"checkpoints/{v}/optimizer.pt", weights_only=True) for v in (1, 2)]
    steps = [int(next(iter(state["state"].values()))["step"]) for state in states]
    assert steps == [ran.counts[t]["steps"] for t in (0, 1)]


def test_each_step_leaves_its_figures(ran: Ran) -> None:
    first = {row.name: row.value for row in of(Metric, ran.rows) if row.step == 1}
    wanted = {"reward", "kl", "entropy", "clip_fraction", "is_ratio/mean", "length/mean", "zero_variance", "loss"}
    wanted |= {f"seconds/{name}" for name in ("sample", "environment", "train", "sync")}
    assert wanted <= set(first)
    assert first["kl"] == 0, "the first step starts at the reference"
    assert first["is_ratio/mean"] == pytest.approx(1, abs=1e-3)
    assert 0 < first["reward"] < 1


def test_the_reference_is_version_0_in_all_iterations(ran: Ran) -> None:
    root = ran.root / "checkpoints"
    assert [checkpoint.required(root, v).on for v in (1, 2)] == [0, 0]
    assert checkpoint.layers(root, 2) == [root / "2"]
    kl = {row.step: row.value for row in of(Metric, ran.rows) if row.name == "kl"}
    later = min(step for step in kl if step > ran.counts[0]["steps"])
    assert kl[later] > 0, "a reference that moved along would give 0 at the first step of an iteration"


def test_both_iterations_moved_the_weights(ran: Ran) -> None:
    adapters = [load_file(ran.root / f"checkpoints/{v}/adapter_model.safetensors") for v in (1, 2)]
    moved = max((adapters[1][name] - adapters[0][name]).abs().max().item() for name in adapters[0])
    assert moved > 1e-3


def test_what_samples_is_what_was_trained(ran: Ran) -> None:
    folder, root = ran.root / "model", ran.root / "checkpoints"
    plain = dict(merged(folder, checkpoint.layers(root, 2), "float32").named_parameters())
    trained = with_adapter(load_model(folder, "float32"), root / "2")
    for name, weight in merged_weights(trained):
        assert weight.equal(plain[name])


def test_counts_are_json_and_long_work_reports(ran: Ran) -> None:
    json.dumps(ran.counts)
    rollouts = [report for report in ran.reports if report[0] == "rollouts"]
    assert rollouts[-1] == ("rollouts", 48, 48)
    assert all(a[1] < b[1] or b[1] <= 8 for a, b in pairwise(rollouts))


def test_where_nothing_can_be_learned_the_version_is_the_old_one(tmp_path: Path) -> None:
    hopeless = run(tmp_path, 0, score=lambda said: 0.0)
    assert hopeless.counts[0]["groups"] == {"failed": 12}
    made = checkpoint.required(tmp_path / "checkpoints", 1)
    assert (made.adapter, made.on, made.steps) == (False, 0, 0)
    assert run(tmp_path, 1).counts[1]["steps"] > 0, "and the next iteration can begin"


def test_without_kl_there_is_no_kl(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"grpo": GrpoSettings(groups=4, lr=1e-2, beta=0)})
    ran = run(tmp_path, 0, settings=settings)
    assert "kl" not in {row.name for row in of(Metric, ran.rows)}
    assert len(of(Step, ran.rows)) >= 48


def test_the_learning_rate_decays_from_version_to_version(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"grpo": GrpoSettings(groups=4, lr=1e-2, decay=1e-9, beta=0)})
    ran = run(tmp_path, 0, settings=settings) | run(tmp_path, 1, settings=settings)
    rates = {(row.t, row.value) for row in of(Metric, ran.rows) if row.name == "lr"}
    assert sorted(rates) == [(0, 1e-2), (1, pytest.approx(1e-11))]
    one, two = (load_file(tmp_path / f"checkpoints/{version}/adapter_model.safetensors") for version in (1, 2))
    assert 0 < max((one[name] - two[name]).abs().max() for name in one) < 1e-8, "in the first step too"


def test_a_disk_that_takes_no_checkpoint_ends_it_with_the_way_on(tmp_path: Path) -> None:
    run(tmp_path, 0, score=lambda said: 0.0)
    (tmp_path / "checkpoints/.steps-1").write_text("no folder can be here")
    with pytest.raises(StoreError, match=r"steps-1.*free space and run again with --resume"):
        run(tmp_path, 1)
    (tmp_path / "checkpoints/.steps-1").unlink()
    assert run(tmp_path, 1).counts[1]["steps"] > 0


def test_what_torch_says_of_a_full_disk_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.save(torch.zeros(100_000), "/dev/full")
    assert disk_refused(caught.value)
    assert not disk_refused(RuntimeError("CUDA out of memory"))


def test_an_update_that_diverges_publishes_nothing(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"grpo": GrpoSettings(groups=4, lr=1e38)})
    with pytest.raises(InfraError, match=r"diverged; lower train.grpo.lr"):
        run(tmp_path, 0, settings=settings)
    assert checkpoint.newest(tmp_path / "checkpoints") == 0


@pytest.mark.parametrize(("first", "second"), [("grpo", "sft"), ("sft", "grpo")])
def test_the_method_stays_within_a_run(tmp_path: Path, first: str, second: str) -> None:
    run(tmp_path, 0, settings=SETTINGS.model_copy(update={"method": first}))
    with pytest.raises(UsageError, match=f"train.method = '{second}'.*start a new run"):
        run(tmp_path, 1, settings=SETTINGS.model_copy(update={"method": second}))


def test_blank_groups_count_in_no_figure(tmp_path: Path) -> None:
    """Five groups a step and twelve tasks: a last step of fewer groups has figures like the others'."""
    settings = SETTINGS.model_copy(update={"grpo": GrpoSettings(groups=5, lr=1e-6, beta=0)})
    rows = of(Metric, run(tmp_path, 0, settings=settings).rows)
    last = max(row.step for row in rows)
    for name in ("entropy", "is_ratio/mean", "length/mean"):
        figures = {row.step: row.value for row in rows if row.name == name}
        assert figures[last] == pytest.approx(figures[1], rel=0.5), name


def test_an_engine_that_is_kept_takes_over_the_next_versions_weights(ran: Ran) -> None:
    folder, root = ran.root / "model", ran.root / "checkpoints"
    engines = Engines(SETTINGS, run="r", home=ran.root)
    first = engines.get(folder, [], spec="x", version=0, step=0)
    again = engines.get(folder, checkpoint.layers(root, 2), spec="x", version=2, step=9)
    assert again is first
    assert (again.version, again.step) == (2, 9)
    wanted = merged(folder, checkpoint.layers(root, 2), "float32").state_dict()
    assert isinstance(again, HFPolicy)
    for name, weight in again.model.state_dict().items():
        assert weight.equal(wanted[name]), name
