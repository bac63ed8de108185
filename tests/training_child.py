"""`python -m tests.training_child DIR`: one training job of a tiny random-weight model, to be killed and run again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from store.db import Store
from store.rows import Json, Step, Task, Trajectory
from store.snapshot import freeze
from tests.fakes import EchoEnv
from tests.tiny_model import write_random_model
from training.config import CollectSettings, ModelSettings, SftSettings, TrainSettings
from training.engine import Engines
from training.groups import Ledger
from training.train import TrainJob, train

SETTINGS = TrainSettings(
    method="sft",
    model=ModelSettings(dtype="float32", threads=1, batch=8),
    collect=CollectSettings(rollouts=2, chunk=2, max_tokens=6),
    sft=SftSettings(warm_epochs=2, epochs=1, lr=1e-2, batch=2, lora_r=4, lora_alpha=8),
)
ENV = EchoEnv(words=("one", "two", "three", "four", "five"), turns=2)
EXPLORED = [ENV.task(word, origin="explored") for word in ("six", "seven")]


def a_job(
    root: Path,
    t: int = 0,
    *,
    settings: TrainSettings = SETTINGS,
    env: EchoEnv = ENV,
    tasks: Sequence[Task] = (*ENV.seed_tasks()[:4], *EXPLORED),
) -> TrainJob:
    """A job on D_t, by default four of five seed tasks and two explored ones, in a fresh or a begun folder."""
    if not (root / "model" / "config.json").exists():
        write_random_model(root / "model")
    frozen = freeze(root / "snapshots", "r", t, tasks)
    return TrainJob(
        run="r",
        t=t,
        seed=11,
        env=env,
        policy=f"hf:{root / 'model'}",
        snapshot=root / "snapshots" / f"{t}-{frozen.id}",
        checkpoints=root / "checkpoints",
        settings=settings,
    )


def run(root: Path) -> dict[str, Json]:
    store = Store(root / "store")
    store.ingest()
    done = store.rows(Trajectory, "run = ? and t = ? and purpose = 'train'", ["r", 0])
    return train(
        a_job(root),
        Engines(SETTINGS, run="r", home=root),
        Ledger(
            done=done,
            recall=lambda ids: {i: store.rows(Step, "trajectory_id = ?", [i], order='"index"') for i in ids},
            append=store.append,
            record=lambda *_: None,
        ),
        report=lambda *_: None,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]))
