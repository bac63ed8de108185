"""`coevolve train`: the trainer's process, from a frozen snapshot to the next policy version."""

from __future__ import annotations

from typing import Any

from coevolve import wiring
from coevolve.loop import Loop, Stopped, once
from store.errors import UsageError
from store.rows import Phase, Trajectory
from store.snapshot import load


def train_snapshot(loop: Loop, ref: str, resume: bool) -> dict[str, Any]:
    """Train on the snapshot `ref` (latest, an id, or an iteration number). Returns the counts of the phase.

    UsageError if its iteration is trained already and `resume` is not given, or an earlier one is not trained yet.
    """
    snapshot, _ = load(loop.run.snapshots, ref)
    t, run = snapshot.t, loop.run.id
    if loop.finished(t, "train"):
        if not resume:
            raise UsageError(
                f"--snapshot: {snapshot.id} (iteration {t}) is trained already; `coevolve validate` freezes the "
                "next one, and --resume accepts this one as done"
            )
    elif t and not loop.finished(t - 1, "train"):
        raise UsageError(f"--snapshot: iteration {t} needs policy version {t}; train iteration {t - 1} first")
    once(loop, t, "train", _train)
    counts = loop.store.rows(Phase, "run = ? and t = ? and name = 'train'", [run, t])[0].counts
    return {"run": run, "t": t, "snapshot": snapshot.id, **counts}


def _train(loop: Loop, t: int) -> dict[str, Any]:
    folder = wiring.model_folder(loop.settings)
    from training.sft import TrainJob, train

    done = loop.store.rows(Trajectory, "run = ? and t = ? and purpose = 'train'", [loop.run.id, t])
    job = TrainJob(
        run=loop.run.id,
        t=t,
        seed=loop.settings.seed,
        policy=loop.settings.policy,
        folder=folder,
        snapshots=loop.run.snapshots,
        checkpoints=loop.run.checkpoints,
        settings=loop.settings.train,
    )
    counts = train(job, loop.env, done=done, append=loop.store.append, report=loop.report, stop=loop.stop)
    if loop.stop.is_set():
        raise Stopped(f"run {loop.run.id}: training stopped as asked; go on with --resume")
    return counts
