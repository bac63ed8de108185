"""One iteration of training: warm start if there is no policy yet, collect rollouts on D_t, update, checkpoint.

The policy that samples in iteration t is version t; training on D_t writes version t + 1. Everything that is finished
(a checkpoint, a chunk of rollouts) is left alone, so running the same job again after a kill goes on where it stopped
and, in one thread, ends with the same weights.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.errors import InfraError
from envs.protocols import Env, Report
from store.errors import UsageError
from store.rows import Json, Snapshot, Task, content_id
from store.snapshot import load as load_snapshot
from training import checkpoint, ranks
from training.checkpoint import Checkpoint
from training.collect import collect, summary
from training.config import TrainSettings
from training.demonstrate import demonstrations
from training.engine import Engines
from training.groups import Feed, Ledger, task_order
from training.sft import fine_tune, first_of_each, solutions
from training.smollm2 import resolve
from training.steps import copy_step

OTHER_METHOD = (
    "train.method = {!r}: the run was trained by {!r} until here, and the one does not go on from the other; go on "
    "with that, or start a new run"
)


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
    version: int | None = None
    """The version that samples, and is trained further unless `settings.start` says otherwise; None = t. Another one
    where a guard has taken the run back to it."""

    @property
    def standing(self) -> int:
        return self.t if self.version is None else self.version

    @property
    def parent(self) -> int:
        """The version that is trained further."""
        return 0 if self.settings.start == "base" else self.standing

    def drawn(self, tasks: Sequence[Task], mix: Json) -> list[Task]:
        """The tasks that this iteration samples, in its order."""
        return task_order(tasks, self.seed, self.t, limit=self.settings.collect.tasks, mix=mix)


def train(job: TrainJob, engines: Engines, ledger: Ledger, report: Report) -> dict[str, Json]:
    """Run the job; returns its counts. `engines` samples, and stays up.

    An exception that `report` raises ends it early, with what is finished on disk and no new version.
    """
    if finished := checkpoint.load(job.checkpoints, job.t + 1):
        return finished.counts
    snapshot, tasks = load_snapshot(job.snapshot)
    if snapshot.t != job.t:
        raise UsageError(f"snapshot: {job.snapshot} is of iteration {snapshot.t}; iteration {job.t} is to be trained")
    if job.t == 0 and not checkpoint.load(job.checkpoints, 0):
        with ranks.alone():
            _make_version_0(job, snapshot, tasks, report)
    made = checkpoint.required(job.checkpoints, job.standing)
    if made.weights is None and made.on is not None:
        made = checkpoint.required(job.checkpoints, made.on)
    checkpoint.refuse_other(job.settings.weights, made.weights, job.checkpoints / str(made.version))
    if job.settings.method == "grpo":
        return _grpo(job, engines, snapshot, tasks, ledger, report)
    return _sft(job, engines, snapshot, tasks, ledger, report)


def _grpo(
    job: TrainJob, engines: Engines, snapshot: Snapshot, tasks: Sequence[Task], ledger: Ledger, report: Report
) -> dict[str, Json]:
    """Sample and update in turn, one pass over the tasks."""
    from training.grpo import Job, train_iteration  # TRL's GRPO imports vLLM where it is installed: seconds

    started = time.monotonic()
    # What samples is what is trained: from the base on, that is version 0, the reference.
    version = job.parent
    parent, folder = checkpoint.required(job.checkpoints, version), resolve(job.policy)
    if version and parent.on is None:
        raise UsageError(OTHER_METHOD.format("grpo", "sft"))
    reference, tools = checkpoint.layers(job.checkpoints, 0), job.settings.collect.tools
    engine = engines.any(folder, spec=job.policy)  # `train_iteration` loads the trainer's weights first of all
    own = job.checkpoints / str(version) if parent.on is not None and parent.weights else None
    update = Job(
        folder=folder,
        reference=reference,
        start=own,
        scratch=job.checkpoints / f".steps-{job.t}",
        version=version,
        seed=int(content_id("grpo", job.seed), 16),
        settings=job.settings,
    )
    feed = Feed(
        env=job.env,
        tasks=job.drawn(tasks, snapshot.mix),
        policy=engine,
        settings=job.settings.collect,
        run=job.run,
        t=job.t,
        seed=job.seed,
        ledger=ledger,
        report=report,
        demonstrate=demonstrations(job.env, folder, tools=tools) if job.settings.grpo.demonstrate else None,
    )
    last, figures = train_iteration(update, feed, engine)
    counts = summary(feed.outcomes) | figures
    counts |= {"version": job.t + 1, "parent": version, "update_seconds": time.monotonic() - started}
    last = last or own
    made = Checkpoint(
        run=job.run,
        version=job.t + 1,
        base=job.policy,
        parent=version,
        snapshot=snapshot.id,
        adapter=bool(last) and job.settings.weights == "lora",
        full=bool(last) and job.settings.weights == "full",
        on=0,
        steps=int(figures["steps"]),
        counts=counts,
    )
    checkpoint.publish(job.checkpoints, made, (lambda work: copy_step(last, work)) if last else None)
    shutil.rmtree(update.scratch, ignore_errors=True)
    return counts


def _sft(
    job: TrainJob, engines: Engines, snapshot: Snapshot, tasks: Sequence[Task], ledger: Ledger, report: Report
) -> dict[str, Json]:
    """Sample all rollouts, then fine-tune on the references."""
    chosen = {task.id for task in job.drawn(tasks, snapshot.mix)}
    tasks = [task for task in tasks if task.id in chosen]
    started, version = time.monotonic(), job.standing
    parent = checkpoint.required(job.checkpoints, version)
    if parent.on is not None:
        raise UsageError(OTHER_METHOD.format("sft", "grpo"))
    layers = checkpoint.layers(job.checkpoints, version)
    engine = engines.get(resolve(job.policy), layers, spec=job.policy, version=version, step=parent.steps)
    outcomes = asyncio.run(
        collect(
            job.env,
            tasks,
            engine,
            job.settings.collect,
            run=job.run,
            t=job.t,
            seed=job.seed,
            done=ledger.done,
            append=ledger.append,
            report=report,
        )
    )
    defective = {row.task_id for row in outcomes.values() if row.outcome == "invalid"}
    sound = [task for task in tasks if task.id not in defective]
    counts = summary(outcomes) | {"collect_seconds": time.monotonic() - started}
    return _update(
        job, snapshot, sound, parent=job.parent, epochs=job.settings.sft.epochs, counts=counts, report=report
    )


def _make_version_0(job: TrainJob, snapshot: Snapshot, tasks: Sequence[Task], report: Report) -> None:
    """Fine-tuned on the seed tasks of D_0 (on all of it where it has none), or the base model."""
    if job.settings.warm_start:
        seeds = [task for task in tasks if task.origin == "seed"] or list(tasks)
        seeds = first_of_each(seeds)[: job.settings.sft.warm_tasks] if job.settings.sft.warm_tasks else seeds
        _update(job, snapshot, seeds, parent=None, epochs=job.settings.sft.warm_epochs, counts={}, report=report)
    else:
        base = Checkpoint(run=job.run, version=0, base=job.policy, parent=None, snapshot=None, adapter=False, counts={})
        checkpoint.publish(job.checkpoints, base)


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
    version = 0 if parent is None else job.t + 1
    started = time.monotonic()
    conversations = asyncio.run(solutions(job.env, tasks, tools=job.settings.collect.tools))
    if not conversations:
        raise InfraError(f"none of the {len(tasks)} tasks of snapshot {snapshot.id} has a reference that replays")
    model, figures = fine_tune(
        resolve(job.policy),
        next(iter(checkpoint.layers(job.checkpoints, parent)), None) if parent is not None else None,
        conversations,
        epochs=epochs,
        seed=int(content_id("sft", job.seed, version), 16),
        settings=job.settings.sft,
        model_settings=job.settings.model,
        weights=job.settings.weights,
        report=report,
    )
    counts = counts | figures | {"version": version, "update_seconds": time.monotonic() - started}
    counts |= {} if parent is None else {"parent": parent}
    made = Checkpoint(
        run=job.run,
        version=version,
        base=job.policy,
        parent=parent,
        snapshot=snapshot.id,
        adapter=job.settings.weights == "lora",
        full=job.settings.weights == "full",
        steps=0 if parent is None else checkpoint.required(job.checkpoints, parent).steps + int(figures["steps"]),
        counts=counts,
    )
    checkpoint.publish(job.checkpoints, made, model.save_pretrained)
    return counts
