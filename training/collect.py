"""Collect the training rollouts of one iteration: K of every task, in fixed chunks, written chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from envs.errors import InfraError
from envs.protocols import Env, Policy, Report
from envs.rollout import Job, Played, is_late, play, sampling_seed
from store.rows import Json, Row, Task, Trajectory, Withdrawal
from training.config import CollectSettings

Append = Callable[[Iterable[Row]], object]
"""Makes rows durable before it returns."""
Outcomes = dict[tuple[str, int], Trajectory]
"""{(task id, k): the rollout's newest attempt}."""


async def collect(
    env: Env,
    tasks: Sequence[Task],
    policy: Policy,
    settings: CollectSettings,
    *,
    run: str,
    t: int,
    seed: int,
    done: Iterable[Trajectory],
    append: Append,
    report: Report,
) -> Outcomes:
    """Play what is not in `done` yet; returns every rollout of the iteration.

    `done` are the training rows of (run, t) that the store has. A chunk that was written in part is played again as a
    whole, so that its batches, and with them its completions, are those of an uninterrupted run. InfraError as soon as
    the share of scored rollouts is certain to stay under `min_valid`.
    """
    ids = {task.id for task in tasks}
    outcomes = newest_attempts(row for row in done if row.task_id in ids)
    total = len(tasks) * settings.rollouts
    for start in range(0, len(tasks), settings.chunk):
        chunk = tasks[start : start + settings.chunk]
        if jobs := pending(chunk, outcomes, settings, t=t, seed=seed):
            await play_jobs(env, jobs, policy, settings, run=run, t=t, outcomes=outcomes, append=append)
        report("rollouts", min(start + settings.chunk, len(tasks)) * settings.rollouts, total)
        check_share(outcomes, total, settings)
    return outcomes


async def play_jobs(
    env: Env,
    jobs: Sequence[Job],
    policy: Policy,
    settings: CollectSettings,
    *,
    run: str,
    t: int,
    outcomes: Outcomes,
    append: Append,
) -> list[Played]:
    """Play training rollouts, make them durable as one batch, and enter them in `outcomes`."""
    played = await play(
        env,
        jobs,
        policy,
        run=run,
        t=t,
        purpose="train",
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        deadline_s=settings.deadline_s,
        tools=settings.tools,
        max_attempts=settings.max_attempts,
        quorum=settings.quorum,
        grace_s=settings.grace_s,
    )
    append(rows_of(played))
    outcomes |= newest_attempts(trajectory for trajectory, _ in played)
    return played


def rows_of(played: Sequence[Played]) -> list[Row]:
    """What a chunk leaves in the journal: each trajectory after its steps, then the tasks found defective."""
    rows: list[Row] = []
    for trajectory, steps in played:
        rows += [*steps, trajectory]
    return [*rows, *withdrawals(trajectory for trajectory, _ in played)]


def newest_attempts(trajectories: Iterable[Trajectory]) -> Outcomes:
    newest: Outcomes = {}
    for trajectory in sorted(trajectories, key=lambda trajectory: trajectory.attempt):
        newest[(trajectory.task_id or "", trajectory.k)] = trajectory
    return newest


def pending(
    chunk: Sequence[Task], outcomes: Outcomes, settings: CollectSettings, *, t: int, seed: int, whole: bool = True
) -> list[Job]:
    """The rollouts of a chunk that are still to be played.

    All of them where one has no final row; without `whole` those of its task alone. None where all have, except after a
    breakdown (too few were scored): then those lost to it are tried again, their attempts counted on, so that a run can
    be resumed once the fault is mended.
    """

    def job(task: Task, k: int, attempt: int = 0) -> Job:
        return a_job(task, k, t=t, seed=seed, attempt=attempt)

    group = [(task, k) for task in chunk for k in range(settings.rollouts)]
    known = [outcomes.get((task.id, k)) for task, k in group]
    final = [row is not None and is_final(row, settings) for row in known]
    if not all(final):
        again = {task.id for (task, _), done in zip(group, final, strict=True) if whole or not done}
        return [job(task, k) for task, k in group if task.id in again]
    lost = [
        (task, k, row.attempt) for (task, k), row in zip(group, known, strict=True) if row and row.outcome == "infra"
    ]
    if len(lost) <= (1 - settings.min_valid) * len(group):
        return []
    return [job(task, k, attempt + 1) for task, k, attempt in lost]


def a_job(task: Task, k: int, *, t: int, seed: int, attempt: int = 0) -> Job:
    return Job(task=task, k=k, seed=sampling_seed(seed, t, task.id, k), attempt=attempt)


def is_final(trajectory: Trajectory, settings: CollectSettings) -> bool:
    lost = trajectory.outcome == "infra" and not is_late(trajectory)
    return not lost or trajectory.attempt + 1 >= settings.max_attempts


def withdrawals(trajectories: Iterable[Trajectory]) -> list[Withdrawal]:
    """Tasks found defective by a rollout (docs/concepts.md, "whose fault"), one row each."""
    defects = {row.task_id: row for row in trajectories if row.outcome == "invalid" and row.task_id}
    return [
        Withdrawal(run=row.run, task_id=task_id, t=row.t, reason=row.error or "invalid")
        for task_id, row in defects.items()
    ]


def check_share(outcomes: Outcomes, total: int, settings: CollectSettings) -> None:
    unscored = [row for row in outcomes.values() if row.outcome != "scored"]
    if len(unscored) > (1 - settings.min_valid) * total:
        raise InfraError(
            f"{len(unscored)} of {total} rollouts were not scored, more than min_valid = {settings.min_valid} allows; "
            f"the last one: {unscored[-1].error}. Mend it, then run again with --resume"
        )


def summary(outcomes: Outcomes) -> dict[str, Json]:
    """What happened, in figures."""
    rows = outcomes.values()
    scores = [row.score for row in rows if row.score is not None]
    return {
        "rollouts": len(rows),
        "scored": len(scores),
        "infra": sum(row.outcome == "infra" for row in rows),
        "invalid": sum(row.outcome == "invalid" for row in rows),
        "mean_score": sum(scores) / len(scores) if scores else None,
        "completion_tokens": sum(row.completion_tokens for row in rows),
    }
