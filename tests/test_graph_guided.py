"""Exploration that is conditioned on a signal brings tasks about that signal, more often than chance does.

Fifty signals on seed tasks; each is explored once with the signal and once without, in the same world with the same
budget, through both graphs with the procedural explorer. A task is about the signal if it shares the structure of the
flagged task, or for `rare` contains the pattern. One-sided Fisher exact test.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs import registry
from envs.protocols import Env
from graphs.runner import explore_all, validate_all
from graphs.state import Evidence, ExploreJob, StepView
from store.rows import Candidate, Exploration, Row, Signal, Task, Verdict, content_id

SIGNALS = 50
KINDS: Any = ("forgetting", "boundary", "rare")


def fisher(hits: int, misses: int, other_hits: int, other_misses: int) -> float:
    """One-sided p-value that the first group's share of hits is this high or higher by chance."""
    size, total_hits = hits + misses, hits + other_hits
    everyone = size + other_hits + other_misses
    ways = [
        math.comb(total_hits, k) * math.comb(everyone - total_hits, size - k)
        for k in range(hits, min(size, total_hits) + 1)
    ]
    return sum(ways) / math.comb(everyone, size)


def test_fisher_on_a_known_table() -> None:
    assert fisher(3, 1, 1, 3) == pytest.approx(17 / 70)
    assert fisher(0, 5, 5, 0) == pytest.approx(1.0)


def make_signal(env: Env, index: int, task: Task) -> Signal:
    kind = KINDS[index % 3]
    tokens = env.action_tokens(str(task.reference))
    return Signal(
        id=content_id("signal", kind, index),
        run="r",
        t=0,
        kind=kind,
        task_id=None if kind == "rare" else task.id,
        pattern=tokens[-2:] if kind == "rare" else None,
        evidence=[content_id(index)],
        stats={},
    )


def flagged(env: Env, task: Task) -> Evidence:
    """An attempt that went wrong: the policy asked for nothing but a constant."""
    failed = StepView(action="SELECT 1", observation="", failed=False)
    return Evidence(questions=task.user_turns, structure=env.structure(task.reference), score=0.0, steps=[failed])


def about(env: Env, signal: Signal, flagged_task: Task, task: Task) -> bool:
    if signal.pattern is None:
        return task.structure == flagged_task.structure
    tokens, size = env.action_tokens(str(task.reference)), len(signal.pattern)
    return any(tokens[at : at + size] == signal.pattern for at in range(len(tokens)))


def admitted(env: Env, jobs: Sequence[ExploreJob], path: Path) -> list[tuple[int, Task]]:
    """(index of the job, task) of every admitted task."""
    rows: list[Row] = []
    common: dict[str, Any] = {"env": env, "model": "procedural", "seed": 0, "append": rows.extend, "checkpoints": path}
    asyncio.run(explore_all(jobs, **common))
    candidates = [row for row in rows if isinstance(row, Candidate)]
    asyncio.run(validate_all(candidates, t=0, known=env.seed_tasks(), held_out=[], **common))
    position = {job.id: index for index, job in enumerate(jobs)}
    tasks = {row.id: row for row in rows if isinstance(row, Task)}
    origin = {row.id: position[row.exploration_id] for row in candidates}
    assert all(row.outcome == "done" for row in rows if isinstance(row, Exploration))
    return [(origin[row.candidate_id], tasks[row.task_id]) for row in rows if isinstance(row, Verdict) and row.task_id]


@pytest.mark.slow
def test_guided_tasks_are_about_their_signal(tmp_path: Path) -> None:
    env = registry.get("text2sql")
    seeds = env.seed_tasks()
    chosen = [seeds[index * len(seeds) // SIGNALS] for index in range(SIGNALS)]
    signals = [make_signal(env, index, task) for index, task in enumerate(chosen)]
    guided = [
        ExploreJob(run="r", t=0, index=0, world=task.world, signal=signal, evidence=[flagged(env, task)])
        for signal, task in zip(signals, chosen, strict=True)
    ]
    unguided = [ExploreJob(run="r", t=0, index=index, world=task.world) for index, task in enumerate(chosen)]

    counts = {}
    for name, jobs in (("guided", guided), ("unguided", unguided)):
        found = admitted(env, jobs, tmp_path / f"{name}.sqlite")
        counts[name] = Counter(about(env, signals[index], chosen[index], task) for index, task in found)
    with_signal, without = counts["guided"], counts["unguided"]

    p = fisher(with_signal[True], with_signal[False], without[True], without[False])
    assert p < 0.01, f"{counts}, p = {p:.3g}"
    assert with_signal.total() >= SIGNALS, "guided exploration must still yield tasks"
