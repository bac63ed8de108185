"""The policy works through tools: fine-tuned on the call format, then three steps of GRPO; the real small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.protocols import Message, Observation, Session
from store.rows import Row, Step, Task, Trajectory
from store.snapshot import freeze
from tests.fakes import EchoEnv, EchoSession
from tests.masks import assert_masks
from training.config import CollectSettings, GrpoSettings, ModelSettings, SftSettings, TrainSettings
from training.engine import Engines
from training.groups import Ledger
from training.smollm2 import resolve
from training.train import TrainJob, train

SETTINGS = TrainSettings(
    model=ModelSettings(threads=1, batch=16),
    collect=CollectSettings(rollouts=4, max_tokens=40, tools=True),
    sft=SftSettings(warm_epochs=3, batch=4, lr=1e-3),
    grpo=GrpoSettings(groups=1, lr=1e-4, beta=0),
)
WORDS = ("lantern", "kt7-x", "zwieback", "qoph", "0b1101", "mnemonic")


class AskingSession(EchoSession):
    """Ends with `say`, or after three messages; the word is told by `look` alone."""

    acts = 0

    async def start(self) -> list[Message]:
        return [{"role": "system", "content": "Say the word back."}, {"role": "user", "content": self._word}]

    async def act(self, message: Message) -> Observation:
        self.acts += 1
        answer = await super().act(message)
        if answer.done or self.acts == 3:
            return Observation(messages=[], done=True, failed=answer.failed)
        again: list[Message] = answer.messages or [{"role": "user", "content": "Call a tool."}]
        return Observation(messages=again, done=False, failed=answer.failed)


class AskingEnv(EchoEnv):
    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        return AskingSession(task, tools=tools, turns=3, fault=None)


def run(root: Path) -> tuple[dict[str, Any], list[Row]]:
    env, rows = AskingEnv(words=WORDS), list[Row]()
    frozen = freeze(root / "snapshots", "r", 0, env.seed_tasks())
    job = TrainJob(
        run="r",
        t=0,
        seed=3,
        env=env,
        policy="smollm2",
        snapshot=root / f"snapshots/0-{frozen.id}",
        checkpoints=root / "checkpoints",
        settings=SETTINGS,
    )
    ledger = Ledger(done=[], recall=lambda ids: {}, append=rows.extend, record=lambda step, figures: None)
    return train(job, Engines(SETTINGS, run="r", home=root), ledger, lambda *_: None), rows


@pytest.mark.slow
def test_calls_are_learned_and_trained_on_to_the_token(tmp_path: Path) -> None:
    assert resolve("smollm2").is_dir()
    counts, rows = run(tmp_path)
    played = [row for row in rows if isinstance(row, Trajectory)]
    steps: dict[str, list[Step]] = {}
    for row in rows:
        if isinstance(row, Step):
            steps.setdefault(row.trajectory_id, []).append(row)
    assert {row.outcome for row in played} == {"scored"}
    assert any("say" in step.action and step.action.startswith("[") for each in steps.values() for step in each)
    assert counts["steps"] >= 3
    assert any(len(each) > 1 for each in steps.values()), "some rollout has an observation within"
    for each in steps.values():
        assert_masks(each)
