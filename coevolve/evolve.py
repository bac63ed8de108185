"""The loop of CoEvolve (arXiv 2604.15840), one round after another.

Every phase is done once: a finished phase is a row in the store, so a run that was killed goes on where it
stopped. Training and evaluation are processes of their own; they meet the rest only in the store.
"""

from __future__ import annotations

from coevolve import phases
from coevolve.loop import Loop, Trainer, once, process, trainer


def evolve(loop: Loop, rounds: int, *, overlap: bool = False) -> None:
    """Bring the run to `rounds` finished rounds. CoevolveError if a phase fails; what it committed stays."""
    once(loop, 0, "seed", phases.seed)  # D_0: seed tasks + validated tasks of unguided exploration
    with trainer(loop, rounds) as training:  # a process that takes up each new snapshot
        for t in range(rounds):
            (_overlapped if overlap else _in_turn)(loop, training, t)
    if overlap:
        _look_back(loop, rounds - 1)
    phases.final_report(loop)


def _in_turn(loop: Loop, training: Trainer, t: int) -> None:
    training.wait(t)  # K rollouts of every task of D_t, and the update from version t to t+1
    _evaluate(loop, t)
    once(loop, t, "signals", phases.signals)  # forgetting, boundary and rare, from the same rollouts
    _look_back(loop, t)
    once(loop, t, "snapshot", phases.snapshot)  # D_{t+1} = D_t + the valid ones
    loop.announce(t + 1)


def _overlapped(loop: Loop, training: Trainer, t: int) -> None:
    """While D_t is trained on, the signals of t-1 are explored. They reach D_{t+1}, whatever was faster."""
    training.begin(t)
    if t:
        _look_back(loop, t - 1)
    training.wait(t)
    once(loop, t, "signals", phases.signals)
    once(loop, t, "snapshot", phases.snapshot)  # from here on the trainer has its next work
    _evaluate(loop, t)
    loop.announce(t + 1)


def _look_back(loop: Loop, t: int) -> None:
    once(loop, t, "explore", phases.explore)  # back into the environment where the policy was weak
    once(loop, t, "validate", phases.validate)  # triplets -> tasks; only execution admits


def _evaluate(loop: Loop, t: int) -> None:
    """Held-out scores of the version that iteration t has made, and of the warm start before it."""
    if t == 0:
        process(loop, 0, "eval")
        loop.announce(0)
    process(loop, t + 1, "eval")
