"""`coevolve train`: the trainer's process, from a frozen snapshot to the next policy version."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coevolve import guard, wiring
from coevolve.loop import Loop, once, stoppable
from store.errors import UsageError
from store.rows import Metric, Phase, Snapshot, Trajectory
from store.snapshot import frozen, load

if TYPE_CHECKING:
    from training.engine import Engines
    from training.trackers import Trackers


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What stays up from one iteration to the next."""

    engines: Engines
    """What samples the rollouts."""
    trackers: Trackers


@contextmanager
def keeping(loop: Loop) -> Iterator[Kept]:
    """What this process trains with, closed with the block; other ranks are dismissed with its success.

    They end by themselves where an iteration failed, and the launcher ends them where this process does not."""
    wiring.model_folder(loop.settings)  # its errors come before the heavy imports
    from training.trackers import Trackers, chosen

    names = chosen(loop.settings.train.report_to)
    from training import ranks
    from training.engine import Engines

    engines = Engines(loop.settings.train, run=loop.run.id, home=loop.run.path)
    started = datetime.fromtimestamp(loop.run.manifest["created_at"], UTC)  # other workspaces have an r001 too
    [(last,)] = loop.store.query("select coalesce(max(step), 0) from metric where run = ?", [loop.run.id])
    trackers = Trackers(names, run=f"{loop.run.id}-{started:%Y%m%d-%H%M%S}", home=loop.run.path, after=last)
    try:
        with redirect_stdout(sys.stderr), closing(trackers):  # stdout is for the result, and trackers print
            yield Kept(engines=engines, trackers=trackers)
        ranks.dismiss()
    finally:
        engines.close()
        ranks.leave()


def train_snapshot(loop: Loop, ref: str, kept: Kept, *, resume: bool) -> dict[str, Any]:
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
    if loop.finished(t, "train") and not loop.trained(t):
        _train(loop, snapshot, kept)  # its checkpoint was deleted: made again from the rollouts that are in the store
    once(loop, t, "train", lambda loop, t: _train(loop, snapshot, kept))
    counts = loop.store.rows(Phase, "run = ? and t = ? and name = 'train'", [run, t])[0].counts
    return {"run": run, "t": t, "snapshot": snapshot.id, **counts}


def follow(loop: Loop, rounds: int | None) -> dict[str, Any]:
    """Train on one snapshot after another as they are frozen, until iteration `rounds` - 1 is trained (None: until
    SIGTERM). Returns the counts of the last."""
    counts: dict[str, Any] = {}
    t = 0
    with keeping(loop) as kept:
        while rounds is None or t < rounds:
            if not loop.trained(t):
                _await_snapshot(loop, t)
            counts = train_snapshot(loop, str(t), kept, resume=True)
            t += 1
    return counts


def _await_snapshot(loop: Loop, t: int) -> None:
    """Return once D_t is frozen; Stopped where the loop is stopped before."""
    watch = stoppable(loop)
    while not frozen(loop.run.snapshots, t):
        loop.stop.wait(0.2)
        watch(f"waiting for D_{t}", 0, 1)


def steps_ahead(loop: Loop, t: int, parent: int) -> int:
    """How many optimiser steps the run has made before t beyond those of the version that is trained further: after a
    rollback, and from the base on, a version has seen fewer. Figures of a step go on after the run's last."""
    from training.checkpoint import required

    before = "select coalesce(max(step), 0) from metric where run = ? and t < ?"
    [(last,)] = loop.store.query(before, [loop.run.id, t])
    return max(0, last - required(loop.run.checkpoints, parent).steps) if last else 0


def _train(loop: Loop, snapshot: Snapshot, kept: Kept) -> dict[str, Any]:
    from training.groups import Ledger
    from training.train import TrainJob, train

    run, t = loop.run.id, snapshot.t
    job = TrainJob(
        run=run,
        t=t,
        seed=loop.settings.seed,
        env=loop.env,
        policy=loop.settings.policy,
        snapshot=loop.run.snapshots / f"{t}-{snapshot.id}",
        checkpoints=loop.run.checkpoints,
        settings=loop.settings.train,
        version=guard.standing(loop.store, run, t),
    )
    ahead = steps_ahead(loop, t, job.parent)

    def record(step: int, figures: Mapping[str, float]) -> None:
        step += ahead
        rows = [Metric(run=run, t=t, step=step, name=name, value=float(value)) for name, value in figures.items()]
        loop.store.append(rows)
        kept.trackers.record(step, figures)

    ledger = Ledger(
        done=loop.store.rows(Trajectory, "run = ? and t = ? and purpose = 'train'", [run, t]),
        recall=loop.steps,
        append=loop.store.append,
        record=record,
    )
    return dict(train(job, kept.engines, ledger, stoppable(loop)))
