"""One iteration of training: warm start if there is no policy yet, collect rollouts on D_t, update, checkpoint.

The policy that samples in iteration t is version t; training on D_t writes version t + 1. Everything that is finished
(a checkpoint, a chunk of rollouts) is left alone, so running the same job again after a kill goes on where it stopped
and, in one thread, ends with the same weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from envs.errors import InfraError
from envs.protocols import Env, Report
from store.rows import Json, Snapshot, Task, Trajectory, content_id
from store.snapshot import load as load_snapshot
from training import checkpoint
from training.checkpoint import Checkpoint
from training.collect import Append, collect, summary
from training.config import TrainSettings
from training.policy import HFPolicy
from training.sft import fine_tune, solutions


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainJob:
    run: str
    t: int
    seed: int
    """Of the configuration; seeds of rollouts and updates are derived from it."""
    policy: str
    """Spec of the base model: `smollm2` or `hf:DIR`."""
    folder: Path
    """Where the base model is: `smollm2.resolve(policy)`."""
    snapshots: Path
    """Folder of the run's snapshots."""
    checkpoints: Path
    """Folder of the run's checkpoints."""
    settings: TrainSettings


def train(
    job: TrainJob, env: Env, *, done: Iterable[Trajectory], append: Append, report: Report, stop: Event
) -> dict[str, Json]:
    """Run the job; returns its counts. `done` are the training rows of (run, t) that the store already has.

    When `stop` is set it returns soon, with what is finished on disk and no new version.
    """
    if finished := checkpoint.load(job.checkpoints, job.t + 1):
        return finished.counts
    snapshot, tasks = load_snapshot(job.snapshots, job.t)
    update = partial(_update, job, env, snapshot, report=report, stop=stop)
    if job.t == 0 and not checkpoint.load(job.checkpoints, 0):
        _make_version_0(job, tasks, update)
    if stop.is_set():
        return {}
    started = time.monotonic()
    outcomes = asyncio.run(
        collect(
            env,
            tasks,
            _policy(job),
            job.settings.collect,
            run=job.run,
            t=job.t,
            seed=job.seed,
            done=done,
            append=append,
            report=report,
            stop=stop,
        )
    )
    counts = summary(outcomes, started)
    if stop.is_set():
        return counts
    defective = {row.task_id for row in outcomes.values() if row.outcome == "invalid"}
    sound = [task for task in tasks if task.id not in defective]
    return update(sound, parent=job.t, epochs=job.settings.sft.epochs, counts=counts)


def _make_version_0(job: TrainJob, tasks: Sequence[Task], update: Callable[..., object]) -> None:
    """Fine-tuned on the seed tasks (all of D_0 if it has none), or the base model."""
    if job.settings.warm_start:
        seeds = [task for task in tasks if task.origin == "seed"] or tasks
        update(seeds, parent=None, epochs=job.settings.sft.warm_epochs, counts={})
    else:
        base = Checkpoint(run=job.run, version=0, base=job.policy, parent=None, snapshot=None, adapter=False, counts={})
        checkpoint.publish(job.checkpoints, base)


def _policy(job: TrainJob) -> HFPolicy:
    """Version t of the run's policy."""
    adapter = checkpoint.adapter(job.checkpoints, job.t)
    return HFPolicy(job.folder, spec=job.policy, adapter=adapter, version=job.t, settings=job.settings.model)


def _update(
    job: TrainJob,
    env: Env,
    snapshot: Snapshot,
    tasks: Sequence[Task],
    *,
    parent: int | None,
    epochs: int,
    counts: dict[str, Json],
    report: Report,
    stop: Event,
) -> dict[str, Json]:
    """Fine-tune `parent` on the tasks' references and publish the next version; returns `counts` and its own."""
    version = 0 if parent is None else parent + 1
    started = time.monotonic()
    conversations = asyncio.run(solutions(env, tasks))
    if not conversations:
        raise InfraError(f"none of the {len(tasks)} tasks of snapshot {snapshot.id} has a reference that replays")
    tuned = fine_tune(
        job.folder,
        None if parent is None else checkpoint.adapter(job.checkpoints, parent),
        conversations,
        epochs=epochs,
        seed=int(content_id("sft", job.seed, version), 16),
        settings=job.settings.sft,
        model_settings=job.settings.model,
        report=report,
        stop=stop,
    )
    if tuned is None:
        return counts
    model, figures = tuned
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
