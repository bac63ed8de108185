"""What the tests of GRPO share: a world with mixed rewards, a trainer on given groups, jobs of a tiny model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.protocols import Outcome, Session
from store.rows import Task
from tests.fakes import EchoEnv, EchoSession
from training.collect import CollectSettings
from training.config import GrpoSettings, ModelSettings, SftSettings, TrainSettings
from training.groups import Group
from training.grpo import GroupTrainer, Job, Server, make_trainer


class ParitySession(EchoSession):
    """Whoever says an even number of characters wins: a random policy does, about every second time."""

    async def evaluate(self) -> Outcome:
        outcome = await super().evaluate()
        if outcome.kind != "scored":
            return outcome
        return Outcome(kind="scored", score=float(len(self._said[-1]) % 2 == 0 if self._said else 0))


class ParityEnv(EchoEnv):
    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        session = super().open(world, task, tools=tools)
        assert isinstance(session, EchoSession)
        session.__class__ = ParitySession
        return session


SETTINGS = TrainSettings(
    warm_start=False,
    model=ModelSettings(dtype="float32", threads=1, batch=8),
    collect=CollectSettings(rollouts=4, max_tokens=6),
    sft=SftSettings(lora_r=4, lora_alpha=8),
    grpo=GrpoSettings(groups=2, lr=1e-2, beta=0.05),
)


def a_trainer(
    folder: Path, scratch: Path, groups: Sequence[Group], *, rollouts: int, epsilon: float, beta: float
) -> GroupTrainer:
    """A trainer that is handed these groups, one a micro-batch."""
    settings = SETTINGS.model_copy(
        update={
            "collect": CollectSettings(rollouts=rollouts),
            "grpo": GrpoSettings(groups=1, epsilon=epsilon, beta=beta),
        }
    )
    job: Any = Job(folder=folder, reference=[], start=None, scratch=scratch, version=0, seed=0, settings=settings)
    trainer = make_trainer(job, Server(rollouts=rollouts, pad=2, groups=list(groups)), steps=len(groups), callbacks=[])
    trainer.current_gradient_accumulation_steps = 1
    return trainer
