"""The loop of CoEvolve (arXiv 2604.15840), one round after another.

Every phase is done once: a finished phase is a row in the store, so a run that was killed goes on where it
stopped. Training and evaluation are processes of their own; they meet the rest only in the store.
"""

from __future__ import annotations

from coevolve import guard, phases, stop
from coevolve.loop import Loop, Trainer, once, process, trainer
from store.rows import Decision


def evolve(loop: Loop, rounds: int, *, overlap: bool = False) -> Decision | None:
    """Bring the run to `rounds` finished rounds, or to a stop, which is returned. CoevolveError if a phase fails,
    Paused if the guard asks; what was committed stays."""
    once(loop, 0, "seed", phases.seed)  # D_0: seed tasks + validated tasks of unguided exploration
    ended = None
    with trainer(loop, rounds) as training:  # a process that takes up each new snapshot
        for t in range(rounds):
            if ended := (_overlapped if overlap else _in_turn)(loop, training, t, rounds):
                break
    if overlap and not ended:
        _look_back(loop, rounds - 1)
    phases.final_report(loop)
    return ended


def _in_turn(loop: Loop, training: Trainer, t: int, rounds: int) -> Decision | None:
    training.wait(t)  # K rollouts of every task of D_t, and the update from version t to t+1
    _evaluate(loop, t)
    if ended := _judge(loop, t, rounds):
        return ended
    if not loop.finished(t, "snapshot"):
        once(loop, t, "signals", phases.signals)  # forgetting, boundary and rare, from the same rollouts
        _look_back(loop, t)
        once(loop, t, "snapshot", phases.snapshot)  # D_{t+1} = D_t + the valid ones
    loop.announce(t + 1)
    return None


def _overlapped(loop: Loop, training: Trainer, t: int, rounds: int) -> Decision | None:
    """While D_t is trained on, the signals of t-1 are explored. They reach D_{t+1}, whatever was faster."""
    training.begin(t)
    if t:
        _look_back(loop, t - 1)
    training.wait(t)
    _evaluate(loop, t)  # before the snapshot, with which the trainer has its next work: the guard may take it back
    if ended := _judge(loop, t, rounds):
        return ended
    if not loop.finished(t, "snapshot"):
        once(loop, t, "signals", phases.signals)
        once(loop, t, "snapshot", phases.snapshot)
    loop.announce(t + 1)
    return None


def _judge(loop: Loop, t: int, rounds: int) -> Decision | None:
    """The guard, which may undo iteration t, and the stop rules, which may end the run after it."""
    if loop.finished(t, "snapshot"):
        return None
    if guard.fell(loop, t):
        once(loop, t, "snapshot", phases.restore)  # D_{t+1} = that of the best version, less what was defective
        return None
    return stop.due(loop, t, rounds) if t + 1 < rounds else None


def _look_back(loop: Loop, t: int) -> None:
    once(loop, t, "explore", phases.explore)  # back into the environment where the policy was weak
    once(loop, t, "validate", phases.validate)  # triplets -> tasks; only execution admits


def _evaluate(loop: Loop, t: int) -> None:
    """Held-out scores of the version that iteration t has made, and of the warm start before it."""
    if t == 0:
        process(loop, 0, "eval")
        loop.announce(0)
    process(loop, t + 1, "eval")
