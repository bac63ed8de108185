"""The loop of CoEvolve (arXiv 2604.15840), one round after another.

Every phase is done once: a finished phase is a row in the store, so a run that was killed goes on where it
stopped. Training and evaluation are processes of their own; they meet the rest only in the store.
"""

from __future__ import annotations

from coevolve import phases
from coevolve.loop import Loop, once, process


def evolve(loop: Loop, rounds: int) -> None:
    """Bring the run to `rounds` finished rounds. CoevolveError if a phase fails; what it committed stays."""
    once(loop, 0, "seed", phases.seed)  # D_0: seed tasks + validated tasks of unguided exploration
    for t in range(rounds):
        process(loop, t, "train")  # K rollouts of every task of D_t with policy t, then the update to policy t+1
        if t == 0:
            process(loop, 0, "eval")  # the warm start, for comparison
            loop.announce(0)
        once(loop, t, "signals", phases.signals)  # forgetting, boundary and rare, from the same rollouts
        once(loop, t, "explore", phases.explore)  # back into the environment where the policy is weak
        once(loop, t, "validate", phases.validate)  # triplets -> tasks; only execution admits
        once(loop, t, "snapshot", phases.snapshot)  # D_{t+1} = D_t + the valid ones
        process(loop, t + 1, "eval")  # held-out score of policy t+1
        loop.announce(t + 1)
    phases.final_report(loop)
