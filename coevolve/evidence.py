"""A signal as the explorer is shown it: its flagged trajectories, never a reference."""

from __future__ import annotations

from graphs.state import Evidence, ExploreJob, StepView
from store.db import Store
from store.rows import Signal, Step, Task, Trajectory

SHOWN = 3
"""Flagged trajectories that one explorer is shown."""


def job(store: Store, signal: Signal, t: int, index: int, attempt: int) -> ExploreJob:
    """The index-th exploration of a signal, in iteration t. It goes to the world of the trajectory that it is shown
    first.

    A second exploration of the same signal begins with another of its trajectories, so the two look at it differently.
    Failures come first. The order is not by id, which depends on the run's name: two runs of one seed explore alike.
    """
    found = store.rows(Trajectory, "list_contains(?, id)", [signal.evidence], order="score, task_id, k")
    start = index % len(found)
    shown = [*found[start:], *found[:start]][:SHOWN]
    return ExploreJob(
        run=signal.run,
        t=t,
        signal=signal,
        index=index,
        attempt=attempt,
        world=shown[0].world,
        evidence=[of(store, row) for row in shown],
    )


def of(store: Store, row: Trajectory) -> Evidence:
    """One flagged trajectory."""
    tasks = store.rows(Task, "id = ?", [row.task_id]) if row.task_id else []
    steps = [
        StepView(action=step.action, observation=step.observation, failed=step.failed)
        for step in store.rows(Step, "trajectory_id = ?", [row.id])
    ]
    return Evidence(
        questions=tasks[0].user_turns if tasks else [],
        structure=tasks[0].structure if tasks else "",
        score=row.score,
        steps=steps,
    )
