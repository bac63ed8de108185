"""`coevolve eval`: one policy version on held-out suites, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from coevolve import wiring
from coevolve.loop import Loop, stoppable
from envs.protocols import Policy
from evals.run import evaluate, scores
from evals.suites import label, suite
from store.errors import UsageError
from store.rows import Phase, Score, Task, Trajectory


async def evaluate_version(loop: Loop, names: Sequence[str], version: int | None, limit: int | None) -> list[Score]:
    """The scores of the suites, played where they are not in the store yet. UsageError for unknown suites or versions.

    A suite that was played is not played again: the score of a version does not change.
    """
    limit = loop.settings.eval.limit if limit is None else limit
    chosen = {name: suite(loop.env, name, limit) for name in names or loop.settings.eval.suites}
    version = newest_version(loop) if version is None else version
    labels = {name: label(name, limit, loop.settings.eval.k) for name in chosen}
    policy: Policy | None = None
    for name, tasks in chosen.items():
        if not loop.finished(version, f"eval {labels[name]}"):
            policy = policy or wiring.policy(loop.settings, loop.run, version)
            await _play(loop, name, labels[name], tasks, policy)
    where = "run = ? and t = ? and list_contains(?, suite)"
    return loop.store.rows(Score, where, [loop.run.id, version, list(labels.values())])


async def _play(loop: Loop, name: str, kept_as: str, tasks: Sequence[Task], policy: Policy) -> None:
    started, t = time.monotonic(), policy.version
    ours = "run = ? and t = ? and purpose = 'eval' and suite = ?"
    rows = await evaluate(
        loop.env,
        name,
        tasks,
        policy,
        run=loop.run.id,
        seed=loop.settings.seed,
        k=loop.settings.eval.k,
        max_tokens=loop.settings.train.collect.max_tokens,
        tools=loop.settings.train.collect.tools,
        deadline_s=loop.settings.train.collect.deadline_s,
        done=loop.store.rows(Trajectory, ours, [loop.run.id, t, name]),
        append=loop.store.append,
        report=stoppable(loop),
    )
    seen = {task.structure for task in loop.env.seed_tasks()}
    found = scores(loop.run.id, t, kept_as, tasks, rows, seen)
    seconds = time.monotonic() - started
    phase = Phase(
        run=loop.run.id,
        t=t,
        name=f"eval {kept_as}",
        finished_at=time.time(),
        seconds=seconds,
        counts={"tasks": len(rows)},
    )
    loop.store.append(found, phase)
    loop.store.ingest()


def newest_version(loop: Loop) -> int:
    """The newest trained policy version of the run; 0 (the base model) where the policy is not trained here."""
    if loop.settings.policy.startswith("litellm:"):
        return 0
    from training.checkpoint import newest

    version = newest(loop.run.checkpoints)
    if version is None and loop.settings.policy.startswith("vllm:"):
        return 0
    if version is None:
        raise UsageError(f"run {loop.run.id}: no policy version yet; run `coevolve train` first")
    return version
