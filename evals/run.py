"""Play a held-out suite with a policy: rows for every rollout, then the scores.

Rollouts are committed chunk by chunk and found again by id, so an evaluation that was killed goes on where it
stopped; scores are computed from the committed rows alone, so scoring again gives the same numbers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from envs.errors import InfraError
from envs.protocols import Env, Policy, Report
from envs.rollout import Job, play, sampling_seed
from evals.metrics import interval
from store.rows import SUCCESS, Row, Score, Step, Task, Trajectory

MAX_ATTEMPTS = 2
"""Of a rollout that the machine fails, in one call; the next call tries again, for the machine may be well by then."""


class EvalSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    suites: list[str] = ["gold", "shifted", "robust"]
    """Held-out suites that `evolve` plays after every iteration; of the default those that the environment has."""
    final: str = "test"
    """Suite of the final report, played once with the best version on the first of `suites`; "" = none."""
    limit: int = Field(default=0, ge=0)
    """Tasks per suite, taken evenly over it; 0 = all."""
    k: int = Field(default=1, ge=1)
    """Rollouts per task (avg@k); with k = 1 the policy is greedy, else it samples at temperature 1."""


async def evaluate(
    env: Env,
    name: str,
    tasks: Sequence[Task],
    policy: Policy,
    *,
    run: str,
    seed: int,
    k: int,
    max_tokens: int,
    tools: bool = False,
    deadline_s: float,
    done: Collection[Trajectory],
    append: Callable[[Iterable[Row]], None],
    report: Report,
) -> list[Trajectory]:
    """All scored or invalid trajectories of the suite `name` at the policy's version; `done` = its committed rows.

    `report` is called between two batches; an exception of its own ends the evaluation there. With k = 1
    the policy is greedy and the rollout has index 0; sampled rollouts have 1 .. k, so the two never mix.
    Raises InfraError when more than half of the rollouts failed by infrastructure: such a score means nothing.
    """
    t = policy.version
    rollouts = indices(k)
    final = selected(tasks, k, done)
    tried = Counter((row.task_id, row.k) for row in done)
    errors = [row.error for row in done if row.outcome == "infra"]
    jobs = [
        Job(task=task, k=i, seed=sampling_seed(seed, t, task.id, i), attempt=tried[task.id, i])
        for task in tasks
        for i in rollouts
        if (task.id, i) not in final
    ]
    for start in range(0, len(jobs), policy.batch):
        report(f"eval {name}", start, len(jobs))
        batch = jobs[start : start + policy.batch]
        played = await play(
            env,
            batch,
            policy,
            run=run,
            t=t,
            purpose="eval",
            suite=name,
            temperature=0.0 if k == 1 else 1.0,
            max_tokens=max_tokens,
            tools=tools,
            deadline_s=deadline_s,
            max_attempts=MAX_ATTEMPTS + max(job.attempt for job in batch),
        )
        append([row for trajectory, steps in played for row in _rows(trajectory, steps)])
        errors += [row.error for row, _ in played if row.outcome == "infra"]
        final |= {(row.task_id, row.k): row for row, _ in played if row.outcome != "infra"}
    report(f"eval {name}", len(jobs), len(jobs))
    if 2 * len(final) < len(tasks) * k:
        raise InfraError(
            f"suite {name}: only {len(final)} of {len(tasks) * k} rollouts could be scored; the last that failed: "
            f"{errors[-1] if errors else 'unknown'} (`select error from trajectory where outcome = 'infra'`)"
        )
    return list(final.values())


def indices(k: int) -> range:
    """Of the rollouts of one task."""
    return range(1) if k == 1 else range(1, k + 1)


def selected(tasks: Iterable[Task], k: int, rows: Iterable[Trajectory]) -> dict[tuple[str | None, int], Trajectory]:
    """The rows of these tasks' rollouts that have an outcome of their own, by (task id, index)."""
    wanted = {(task.id, i) for task in tasks for i in indices(k)}
    return {at: row for row in rows if row.outcome != "infra" and (at := (row.task_id, row.k)) in wanted}


def _rows(trajectory: Trajectory, steps: list[Step]) -> list[Row]:
    return [trajectory, *steps]


def scores(
    run: str,
    t: int,
    name: str,
    parts: Mapping[str, Collection[str]],
    rows: Iterable[Trajectory],
    metric: str = "accuracy",
) -> list[Score]:
    """Mean score of each part (task ids) that has scored tasks: over tasks, of the mean over their scored rollouts."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.outcome == "scored" and row.task_id is not None and row.score is not None:
            by_task[row.task_id].append(row.score)
    result = []
    for part, ids in parts.items():
        values = [math.fsum(by_task[i]) / len(by_task[i]) for i in sorted(ids) if by_task.get(i)]
        if not values:
            continue
        found = interval(values)
        result.append(
            Score(
                run=run,
                t=t,
                suite=name,
                slice=part,
                metric=metric,
                n=found.n,
                value=found.value,
                low=found.low,
                high=found.high,
            )
        )
    return result


def scenario_scores(
    run: str, t: int, name: str, scenarios: Mapping[str, str], rows: Iterable[Trajectory]
) -> list[Score]:
    """Scenario goal completion (AppWorld, arXiv 2407.18901): the share of scenarios ({task id: scenario}) all of whose
    tasks succeed, per rollout index, then the mean over indices. A scenario with a task that has no score has none."""
    succeeded = {
        (row.task_id, row.k): row.score is not None and row.score >= SUCCESS for row in rows if row.outcome == "scored"
    }
    cases: dict[str, list[str]] = defaultdict(list)
    for task, scenario in scenarios.items():
        cases[scenario].append(task)
    values = []
    for tasks in cases.values():
        complete = [k for k in sorted({k for _, k in succeeded}) if all((task, k) in succeeded for task in tasks)]
        if complete:
            values.append(sum(all(succeeded[task, k] for task in tasks) for k in complete) / len(complete))
    if not values:
        return []
    found = interval(values)
    return [
        Score(
            run=run,
            t=t,
            suite=name,
            slice="all",
            metric="sgc",
            n=found.n,
            value=found.value,
            low=found.low,
            high=found.high,
        )
    ]
