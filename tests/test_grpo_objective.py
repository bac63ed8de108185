"""The loss that TRL is made to minimise is the objective of CoEvolve (arXiv 2604.15840), value and gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.grpo_jobs import a_trainer
from tests.tiny_model import write_random_model
from training.config import TrainedWeights
from training.flatten import Row
from training.groups import Group, Member
from training.model import load_model

EPSILON, BETA = 0.2, 0.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model") / "tiny")


def logps(model: Any, row: Row) -> torch.Tensor:
    """[C] log-probabilities of one row, read alone and without padding."""
    ids = torch.tensor([row.prompt_ids + row.completion_ids])
    scores = model(input_ids=ids).logits.log_softmax(-1)[0, len(row.prompt_ids) - 1 : -1]
    return scores.gather(-1, torch.tensor(row.completion_ids)[:, None]).squeeze(-1)


@contextmanager
def reference_of(model: Any, folder: Path) -> Iterator[Any]:
    """Version 0: the model without its adapter, or, where it has none, the model as it was loaded."""
    if isinstance(model, PeftModel):
        with model.disable_adapter():
            yield model
    else:
        yield load_model(folder, "float32", attention="eager")


def objective(model: Any, folder: Path, group: Group) -> torch.Tensor:
    """J of one group: the equation, row by row, token by token."""
    scored = [(member.row, member.score) for member in group.members if member.row and member.score is not None]
    rewards = torch.tensor([score for _, score in scored])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    total, tokens = torch.zeros(()), 0
    for (row, _), advantage in zip(scored, advantages, strict=True):
        new = logps(model, row)
        with torch.no_grad(), reference_of(model, folder) as below:
            reference = logps(below, row)
        for at, sampled in enumerate(row.env_mask):
            if not sampled:
                continue
            ratio = (new[at] - row.logprobs[at]).exp()
            clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
            difference = reference[at] - new[at]
            # Schulman's k3 estimator of KL(pi || pi_ref), weighted by the ratio since pi_old sampled the token.
            divergence = ratio * (difference.exp() - difference - 1)
            total = total + torch.min(ratio * advantage, clipped * advantage) - BETA * divergence
            tokens += 1
    return total / tokens


def a_group(generator: torch.Generator, *, prompts: int = 1) -> Group:
    """Eight rollouts of random tokens: turns of the environment between, one not scored, one that sampled nothing."""

    def ids(count: int) -> list[int]:
        return torch.randint(3, 250, (count,), generator=generator).tolist()

    shared = [ids(7) for _ in range(prompts)]
    members = []
    for k in range(8):
        length = 3 + k
        mask = [1] * length
        if k % 2:
            mask[2 : 2 + k // 2] = [0] * (k // 2)
        noise = (torch.rand(length, generator=generator) * 4 - 8).tolist()
        row = Row(prompt_ids=shared[k % prompts], completion_ids=ids(length), env_mask=mask, logprobs=noise)
        members.append(Member(row=row, score=None if k == 5 else float(k % 3 == 0)))
    members[6] = Member(row=None, score=None)
    return Group(task="x", members=members)


@pytest.mark.parametrize("weights", ["lora", "full"])
@pytest.mark.parametrize("prompts", [1, 2], ids=["one prompt", "two prompts"])
def test_loss_and_gradient_are_those_of_the_equation(
    folder: Path, tmp_path: Path, prompts: int, weights: TrainedWeights
) -> None:
    generator = torch.Generator().manual_seed(prompts)
    group = a_group(generator, prompts=prompts)
    trainer = a_trainer(folder, tmp_path, [group], rollouts=8, epsilon=EPSILON, beta=BETA, weights=weights)
    model = trainer.model.train()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name or weights == "full":
                weight += 0.02 * torch.randn(weight.shape, generator=generator)
    on_policy(model, group, generator)
    trainer.rollout_func.groups = [group]
    inputs = trainer._prepare_inputs([{"prompt": ""} for _ in range(8)])
    loss = trainer.compute_loss(model, inputs)
    loss.backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    assert len(trained) == (len(list(model.parameters())) if weights == "full" else 28)
    found = [weight.grad.clone() for weight in trained]
    model.zero_grad()
    wanted = -objective(model, folder, group)
    wanted.backward()
    torch.testing.assert_close(loss.detach(), wanted.detach(), atol=1e-5, rtol=1e-4)
    assert sum(float(gradient.norm()) for gradient in found) > 0.1
    for gradient, weight in zip(found, trained, strict=True):
        assert (gradient - weight.grad).norm() <= 1e-4 * weight.grad.norm() + 1e-6


def on_policy(model: Any, group: Group, generator: torch.Generator) -> None:
    """Sampler's probabilities near the model's, some outside the clipping range."""
    for member in group.members:
        if member.row:
            with torch.no_grad():
                near = logps(model, member.row) + 0.25 * torch.randn(len(member.row.logprobs), generator=generator)
            member.row.logprobs[:] = [p * m for p, m in zip(near.tolist(), member.row.env_mask, strict=True)]
