"""A reference in the place of a failed rollout: real TRL, a tiny random-weight model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from store.rows import Metric, Step, Task, Trajectory
from tests.grpo_jobs import SETTINGS, Ran, ScoredEnv, a_trainer, run
from tests.test_grpo_groups import a_feed, fill, mixed, only, word
from tests.test_grpo_objective import BETA, EPSILON, a_group, logps, objective
from tests.tiny_model import write_random_model
from training import checkpoint
from training.demonstrate import Demonstrations, demonstrations
from training.flatten import Row
from training.groups import Group, Member, Tally
from training.model import load_model, with_adapter

SHOWN = Row(prompt_ids=[1], completion_ids=[9, 9], env_mask=[1, 1], logprobs=[math.nan, math.nan])
HOPELESS = SETTINGS.model_copy(update={"grpo": SETTINGS.grpo.model_copy(update={"demonstrate": True})})


def show(task: Task) -> Row:
    return SHOWN


def test_a_group_that_fails_as_a_whole_is_shown_the_reference() -> None:
    feed = a_feed(only("word1"), [])
    feed.demonstrate = show
    groups = fill(feed, 2)
    assert [group.scores for group in groups] == [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]]
    assert [member.row == SHOWN for member in groups[1].members] == [False, False, False, True]
    assert groups[1].members[1].row, "what failed beside a success is read"
    assert [member.row for member in groups[0].members] == [None, None, None, SHOWN], "the failures are not read"
    assert feed.tally.kinds == {"shown": 1, "informative": 1}
    assert feed.tally.since(Tally())["zero_variance"] == 0.5, "the policy's own rollouts had none"


def test_a_solved_group_is_shown_nothing() -> None:
    feed = a_feed(lambda request: "yes" if word(request) == "word0" else mixed(request), [])
    feed.demonstrate = show
    fill(feed, 1)
    assert feed.tally.kinds == {"solved": 1, "informative": 1}


def test_a_reference_that_cannot_be_shown_leaves_the_group_failed() -> None:
    feed = a_feed(only("word1"), [])
    feed.demonstrate = lambda task: None
    fill(feed, 1)
    assert feed.tally.kinds == {"failed": 1, "informative": 1}


def test_it_takes_no_rollouts_place_that_was_lost() -> None:
    lost, failed = Member(row=None, score=None), Member(row=SHOWN, score=0.0)
    group = Group(task="x", members=[failed, failed, lost]).shown(SHOWN)
    assert group.members == [Member(row=None, score=0.0), Member(row=SHOWN, score=1.0), lost]


def test_a_failure_that_is_alone_stays() -> None:
    right, wrong = Member(row=SHOWN, score=1.0), Member(row=None, score=0.0)
    group = Group(task="x", members=[right, wrong, right])
    assert group.shown(SHOWN) == group


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny")


def test_its_ratio_is_1_in_loss_and_gradient(folder: Path, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    group = a_group(generator)
    trainer = a_trainer(folder, tmp_path, [group], rollouts=8, epsilon=EPSILON, beta=BETA)
    model: Any = trainer.model
    model.train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight += 0.02 * torch.randn(weight.shape, generator=generator)
        known = [logps(model, member.row).tolist() if member.row else [] for member in group.members]
    for at, member in enumerate(group.members):
        if member.row:
            own = [math.nan] * len(known[at]) if at == 3 else known[at]
            member.row.logprobs[:] = [p if m else 0.0 for p, m in zip(own, member.row.env_mask, strict=True)]
    loss = trainer.compute_loss(model, trainer._prepare_inputs([{"prompt": ""} for _ in range(8)]))
    loss.backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    found = [weight.grad.clone() for weight in trained]
    model.zero_grad()
    shown = group.members[3].row
    assert shown is not None
    shown.logprobs[:] = [p if m else 0.0 for p, m in zip(known[3], shown.env_mask, strict=True)]
    wanted = -objective(model, folder, group)
    wanted.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss.detach(), wanted.detach(), atol=1e-5, rtol=1e-4)
    for gradient, weight in zip(found, trained, strict=True):
        assert (gradient - weight.grad).norm() <= 1e-4 * weight.grad.norm() + 1e-6


def all_fail(root: Path, t: int) -> Ran:
    """An iteration in which no rollout is right."""
    return run(root, t, score=lambda said: 0.0, settings=HOPELESS)


def test_what_no_rollout_finds_is_learnt(tmp_path: Path) -> None:
    ran = all_fail(tmp_path, 0)
    assert ran.counts[0]["groups"] == {"shown": 12}
    assert ran.counts[0]["steps"] == 6
    played = [row for row in ran.rows if isinstance(row, Trajectory)]
    assert {row.score for row in played} == {0.0}, "what was shown is no rollout"
    figures = {row.name: row.value for row in ran.rows if isinstance(row, Metric) and row.step == 1}
    assert figures["groups/shown"] == 2
    assert figures["zero_variance"] == 1
    assert figures["is_ratio/max"] == pytest.approx(1, abs=1e-3)
    shown = demonstrations(env := ScoredEnv(), tmp_path / "model", tools=False)
    rows = [row for task in env.seed_tasks() if (row := shown(task))]
    assert len(rows) == 12
    before = load_model(tmp_path / "model", "float32")
    after = with_adapter(load_model(tmp_path / "model", "float32"), checkpoint.layers(tmp_path / "checkpoints", 1)[0])
    assert total(after, rows) > total(before, rows) + 12, "nats over twelve references"


def total(model: Any, rows: list[Row]) -> float:
    """Log-probability of all that the references write."""
    with torch.no_grad():
        return sum(float(logps(model, row) @ torch.tensor(row.env_mask, dtype=torch.float32)) for row in rows)


def test_a_reference_begins_with_what_the_rollouts_are_asked(tmp_path: Path) -> None:
    ran = all_fail(tmp_path, 0)
    shown = demonstrations(env := ScoredEnv(), tmp_path / "model", tools=False)
    asked = {row.trajectory_id: row.prompt_ids for row in ran.rows if isinstance(row, Step) and row.index == 0}
    first = {row.task_id: asked[row.id] for row in ran.rows if isinstance(row, Trajectory)}
    for task in env.seed_tasks():
        row = shown(task)
        assert row is not None
        assert row.prompt_ids == first[task.id]


def test_a_reference_longer_than_the_model_reads_is_not_shown(tmp_path: Path) -> None:
    env, folder = ScoredEnv(), write_random_model(tmp_path / "tiny")
    shown = demonstrations(env, folder, tools=False)
    short = Demonstrations(env=env, tokenizer=shown.tokenizer, tools=False, limit=3)
    assert short(env.seed_tasks()[0]) is None
