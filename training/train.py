"""One iteration of training: warm start if there is no policy yet, collect rollouts on D_t, update, checkpoint.

The policy that samples in iteration t is version t; training on D_t writes version t + 1. Everything that is finished
(a checkpoint, a chunk of rollouts) is left alone, so running the same job again after a kill goes on where it stopped
and, in one thread, ends with the same weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.errors import InfraError
from envs.protocols import Env, Report
from store.errors import UsageError
from store.rows import Json, Snapshot, Task, Trajectory, content_id
from store.snapshot import load as load_snapshot
from training import checkpoint
from training.checkpoint import Checkpoint
from training.collect import Append, collect, summary
from training.config import TrainSettings
from training.policy import HFPolicy
from training.sft import fine_tune, solutions
from training.smollm2 import resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainJob:
    run: str
    t: int
    seed: int
    """Of the configuration; seeds of rollouts and updates are derived from it."""
    env: Env
    policy: str
    """Spec of the base model: `smollm2` or `hf:DIR`."""
    snapshot: Path
    """The folder of D_t."""
    checkpoints: Path
    """The folder of all checkpoints of the run."""
    settings: TrainSettings


def train(job: TrainJob, *, done: Iterable[Trajectory], append: Append, report: Report) -> dict[str, Json]:
    """Run the job; returns its counts. `done` are the training rows of (run, t) that the store already has.

    An exception that `report` raises ends it early, with what is finished on disk and no new version.
    """
    if finished := checkpoint.load(job.checkpoints, job.t + 1):
        return finished.counts
    snapshot, tasks = load_snapshot(job.snapshot)
    if snapshot.t != job.t:
        raise UsageError(f"snapshot: {job.snapshot} is of iteration {snapshot.t}; iteration {job.t} is to be trained")
    if job.t == 0 and not checkpoint.load(job.checkpoints, 0):
        _make_version_0(job, snapshot, tasks, report)
    started = time.monotonic()
    outcomes = asyncio.run(
        collect(
            job.env,
            tasks,
            _policy(job),
            job.settings.collect,
            run=job.run,
            t=job.t,
            seed=job.seed,
            done=done,
            append=append,
            report=report,
        )
    )
    defective = {row.task_id for row in outcomes.values() if row.outcome == "invalid"}
    sound = [task for task in tasks if task.id not in defective]
    counts = summary(outcomes) | {"collect_seconds": time.monotonic() - started}
    return _update(job, snapshot, sound, parent=job.t, epochs=job.settings.sft.epochs, counts=counts, report=report)


def _make_version_0(job: TrainJob, snapshot: Snapshot, tasks: Sequence[Task], report: Report) -> None:
    """Fine-tuned on the seed tasks of D_0 (on all of it where it has none), or the base model."""
    if job.settings.warm_start:
        seeds = [task for task in tasks if task.origin == "seed"] or tasks
        _update(job, snapshot, seeds, parent=None, epochs=job.settings.sft.warm_epochs, counts={}, report=report)
    else:
        base = Checkpoint(run=job.run, version=0, base=job.policy, parent=None, snapshot=None, adapter=False, counts={})
        checkpoint.publish(job.checkpoints, base)


def _policy(job: TrainJob) -> HFPolicy:
    """Version t of the run's policy."""
    adapter = checkpoint.adapter(job.checkpoints, job.t)
    return HFPolicy(resolve(job.policy), spec=job.policy, adapter=adapter, version=job.t, settings=job.settings.model)


def _update(
    job: TrainJob,
    snapshot: Snapshot,
    tasks: Sequence[Task],
    *,
    parent: int | None,
    epochs: int,
    counts: dict[str, Json],
    report: Report,
) -> dict[str, Json]:
    """Fine-tune `parent` on the tasks' references and publish the next version; returns `counts` and its own."""
    version = 0 if parent is None else parent + 1
    started = time.monotonic()
    conversations = asyncio.run(solutions(job.env, tasks))
    if not conversations:
        raise InfraError(f"none of the {len(tasks)} tasks of snapshot {snapshot.id} has a reference that replays")
    model, figures = fine_tune(
        resolve(job.policy),
        None if parent is None else checkpoint.adapter(job.checkpoints, parent),
        conversations,
        epochs=epochs,
        seed=int(content_id("sft", job.seed, version), 16),
        settings=job.settings.sft,
        model_settings=job.settings.model,
        report=report,
    )
    counts = counts | figures | {"version": version, "update_seconds": time.monotonic() - started}
    made = Checkpoint(
        run=job.run,
        version=version,
        base=job.policy,
        parent=parent,
        snapshot=snapshot.id,
        adapter=True,
        counts=counts,
    )
    checkpoint.publish(job.checkpoints, made, model.save_pretrained)
    return counts
