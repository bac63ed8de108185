"""Scores from stored rollouts: each one's actions are played again, through a fresh session, and graded anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from envs.errors import InfraError
from envs.protocols import Env, Outcome, Report
from envs.rollout import said
from store.errors import CoevolveError
from store.rows import Step, Task, Trajectory

Recall = Callable[[Sequence[str]], Mapping[str, Sequence[Step]]]
"""The steps of trajectories, in order, by their ids."""
CHUNK = 64
"""Rollouts whose steps are in memory at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """A stored rollout and what it scores now."""

    row: Trajectory
    outcome: Outcome

    @property
    def changed(self) -> bool:
        return (self.outcome.kind, self.outcome.score) != (self.row.outcome, self.row.score)


async def rescore(
    env: Env, tasks: Iterable[Task], rows: Sequence[Trajectory], recall: Recall, *, tools: bool, report: Report
) -> list[Again]:
    """Play each row of these tasks again. InfraError where the machine fails: nothing is known of that rollout then.
    CoevolveError for a rollout of which the store has lost a step: without it, it would be another one."""
    known = {task.id: task for task in tasks}
    found: list[Again] = []
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        steps = recall([row.id for row in chunk])
        for row in chunk:
            made = steps.get(row.id, ())
            if len(made) != row.steps:
                raise CoevolveError(
                    f"--rescore: the store has {len(made)} of the {row.steps} steps of rollout {row.id}; `coevolve db "
                    "check` tells what is lost"
                )
            outcome = await _play(env, known[row.task_id or ""], made, tools)
            found.append(Again(row=row, outcome=outcome))
        report("rescore", start + len(chunk), len(rows))
    return found


async def _play(env: Env, task: Task, steps: Sequence[Step], tools: bool) -> Outcome:
    session = env.open(task.world, task, tools=tools)
    try:
        await session.start()
        for step in steps:
            if (await session.act(said(step.action))).done:
                break
        outcome = await session.evaluate()
    finally:
        await session.close()
    if outcome.kind == "infra":
        raise InfraError(outcome.detail)
    return outcome


def by_metric(again: Iterable[Again]) -> dict[str, list[Trajectory]]:
    """The rows with what they score now, under `accuracy`, and under each other mark that the environment gives."""
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for each in again:
        if each.outcome.kind == "scored":
            for metric, score in {"accuracy": each.outcome.score, **each.outcome.marks}.items():
                found[metric].append(replace(each.row, outcome="scored", score=score))
    return found
