"""What the tests of GRPO share: a world with mixed rewards, a trainer on given groups, jobs of a tiny model.

`python -m tests.grpo_jobs DIR T [STALENESS]` runs one iteration with a store in DIR, to be killed and run again;
FULL_AT is the optimiser step that finds the disk full, WEIGHTS what is trained.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from envs.protocols import Completion, Outcome, Report, Request, Session
from store.db import Store
from store.rows import Metric, Row, Step, Task, Trajectory
from tests.fakes import EchoEnv, EchoSession
from tests.training_child import a_job
from training.config import (
    CollectSettings,
    EngineSettings,
    GrpoSettings,
    ModelSettings,
    SftSettings,
    TrainedWeights,
    TrainSettings,
)
from training.engine import Engine, Engines
from training.groups import Group, Ledger
from training.grpo import GroupTrainer, Job, Server, make_trainer
from training.policy import HFPolicy
from training.train import TrainJob, train

Score = Callable[[str], float]
HERE = Path(__file__).parent.parent
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
SETTINGS = TrainSettings(
    warm_start=False,
    model=ModelSettings(dtype="float32", threads=1, batch=8),
    collect=CollectSettings(rollouts=4, max_tokens=6),
    sft=SftSettings(lora_r=4, lora_alpha=8),
    grpo=GrpoSettings(groups=2, lr=1e-2, beta=0.05),
)


FULL = SETTINGS.model_copy(
    update={"weights": "full", "grpo": GrpoSettings(groups=2, lr=1e-3, beta=0.05), "sft": SftSettings(lr=1e-3)}
)
"""The same with all weights trained."""


def ahead(staleness: int) -> TrainSettings:
    """The same with a server that samples ahead."""
    grpo = SETTINGS.grpo.model_copy(update={"staleness": staleness})
    return SETTINGS.model_copy(update={"engine": EngineSettings(backend="vllm"), "grpo": grpo})


def batched(staleness: int) -> TrainSettings:
    """The same with a sampler in this process, which samples several steps at once."""
    grpo = SETTINGS.grpo.model_copy(update={"staleness": staleness})
    return SETTINGS.model_copy(update={"grpo": grpo, "model": ModelSettings(dtype="float32", threads=1, batch=24)})


def even(said: str) -> float:
    """An even number of bytes wins: a random policy does so about every second time."""
    return float(len(said.encode()) % 2 == 0)


def coin(said: str) -> float:
    """Nothing to be learned: most groups stay mixed, so that there are many steps."""
    return float(crc32(said.encode()) % 2)


class ScoredEnv(EchoEnv):
    """An echo whose reward is a function of what was said last."""

    def __init__(self, score: Score = even, *, words: Sequence[str] = WORDS, turns: int = 2) -> None:
        super().__init__(words=words, turns=turns)
        self.score = score

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        session = super().open(world, task, tools=tools)
        assert isinstance(session, EchoSession)
        echoed = session.evaluate

        async def evaluate() -> Outcome:
            outcome = await echoed()
            said = session._said[-1] if session._said else ""
            return outcome if outcome.kind != "scored" else Outcome(kind="scored", score=self.score(said))

        session.evaluate = evaluate  # type: ignore[method-assign]
        return session


class Beside(HFPolicy):
    """In the place of a server: many ask at once, and each answer takes a while. Refuses weights under a request."""

    concurrent = True
    asked = 0

    async def sample(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        self.asked += 1
        try:
            await asyncio.sleep(0.002)
            return await super().sample(requests)
        finally:
            self.asked -= 1

    def load(self, weights: Iterable[tuple[str, Any]], *, version: int, step: int) -> float:
        assert not self.asked
        return super().load(weights, version=version, step=step)


class BesideEngines(Engines):
    """As if `backend = "vllm"` had started `Beside`."""

    def _build(self, folder: Path, layers: Sequence[Path], spec: str, *, version: int, step: int) -> Engine:
        settings = self._settings.model
        return Beside(folder, spec=spec, layers=layers, version=version, step=step, settings=settings)


@dataclass
class Ran:
    root: Path
    counts: dict[int, dict[str, Any]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    reports: list[tuple[str, int, int]] = field(default_factory=list)

    def __or__(self, other: Ran) -> Ran:
        return Ran(self.root, self.counts | other.counts, self.rows + other.rows, self.reports + other.reports)


def echo_job(root: Path, t: int, env: EchoEnv, settings: TrainSettings) -> TrainJob:
    return a_job(root, t, settings=settings, env=env, tasks=env.seed_tasks())


def metrics(t: int, step: int, figures: Mapping[str, float]) -> list[Metric]:
    return [Metric(run="r", t=t, step=step, name=name, value=value) for name, value in figures.items()]


def run(
    root: Path,
    t: int,
    *,
    score: Score = even,
    settings: TrainSettings = SETTINGS,
    engines: type[Engines] = Engines,
    env: ScoredEnv | None = None,
) -> Ran:
    """Iteration t in this process, its rows kept in memory."""
    ran = Ran(root)
    with closing(engines(settings, run="r", home=root)) as kept:
        ran.counts[t] = train(
            echo_job(root, t, env or ScoredEnv(score), settings),
            kept,
            Ledger(
                done=[],
                recall=lambda ids: {},
                append=ran.rows.extend,
                record=lambda step, figures: ran.rows.extend(metrics(t, step, figures)),
            ),
            report=lambda *report: ran.reports.append(report),
        )
    return ran


def run_stored(
    root: Path,
    t: int,
    *,
    score: Score = even,
    settings: TrainSettings = SETTINGS,
    engines: type[Engines] = Engines,
    report: Report = lambda *_: None,
) -> None:
    """Iteration t with its rows in a store, those that are there already reused."""
    store = Store(root / "store")
    store.ingest()

    def record(step: int, figures: Mapping[str, float]) -> None:
        store.append([Metric(run="r", t=t, step=step, name=name, value=value) for name, value in figures.items()])
        if str(step) == os.environ.get("FULL_AT"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))

    train(
        echo_job(root, t, ScoredEnv(score), settings),
        engines(settings, run="r", home=root),
        Ledger(
            done=store.rows(Trajectory, "run = ? and t = ? and purpose = 'train'", ["r", t]),
            recall=lambda ids: {i: store.rows(Step, "trajectory_id = ?", [i], order='"index"') for i in ids},
            append=store.append,
            record=record,
        ),
        report=report,
    )


def a_trainer(
    folder: Path,
    scratch: Path,
    groups: Sequence[Group],
    *,
    rollouts: int,
    epsilon: float,
    beta: float,
    weights: TrainedWeights = "lora",
) -> GroupTrainer:
    """A trainer that is handed these groups, one a micro-batch."""
    settings = SETTINGS.model_copy(
        update={
            "weights": weights,
            "collect": CollectSettings(rollouts=rollouts),
            "grpo": GrpoSettings(groups=1, epsilon=epsilon, beta=beta),
        }
    )
    job = Job(folder=folder, reference=[], start=None, scratch=scratch, version=0, seed=0, settings=settings)
    trainer = make_trainer(job, Server(rollouts=rollouts, pad=2, groups=list(groups)), steps=len(groups), callbacks=[])
    trainer.current_gradient_accumulation_steps = 1
    return trainer


if __name__ == "__main__":
    place, iteration, *more = sys.argv[1:]
    if os.environ.get("AT_ONCE"):
        run_stored(Path(place), int(iteration), score=coin, settings=batched(int(os.environ["AT_ONCE"])))
    elif more:
        run_stored(Path(place), int(iteration), score=coin, settings=ahead(int(more[0])), engines=BesideEngines)
    else:
        run_stored(Path(place), int(iteration), settings=FULL if os.environ.get("WEIGHTS") == "full" else SETTINGS)
