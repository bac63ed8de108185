"""Both graphs with SmolLM2-135M-Instruct as explorer and validator: the protocol holds whatever the model writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from envs import registry
from graphs.runner import explore_all, validate_all
from graphs.settings import ExploreSettings, ModelSettings
from graphs.state import Evidence, ExploreJob, StepView
from store.rows import Candidate, Exploration, Row, Signal, Span, Step, Task, Trajectory, Verdict
from tests.small_explorer import small_explorers
from training.smollm2 import smollm2

REASONS = {"valid", "unclear", "bad_question"}
REASONS |= {"parse_error", "execution_error", "empty_result", "same_result", "order_dependent"}


@pytest.mark.slow
def test_the_protocol_holds(tmp_path: Path) -> None:
    env = registry.get("text2sql")
    task = env.seed_tasks()[0]
    steps = [StepView(action="SELECT nothing FROM nowhere", observation="error: no such table: nowhere", failed=True)]
    signal = Signal(
        id="s", run="r", t=0, kind="boundary", task_id=task.id, pattern=None, evidence=["e"], stats={"failures": 4}
    )
    evidence = [Evidence(questions=task.user_turns, structure=task.structure, score=0.0, steps=steps)]
    jobs = [
        ExploreJob(run="r", t=0, index=0, world=task.world, signal=signal, evidence=evidence),
        ExploreJob(run="r", t=0, index=0, world=task.world),
    ]
    rows: list[Row] = []
    explored = asyncio.run(
        explore_all(
            jobs,
            env=env,
            model="small",
            factory=small_explorers(smollm2()),
            seed=0,
            append=rows.extend,
            checkpoints=tmp_path / "graphs.sqlite",
            settings=ExploreSettings(steps=3),
            calls=ModelSettings(timeout_s=300, deadline_s=300, concurrency=1),
        )
    )
    assert [(row.outcome, row.error) for row in explored] == [("done", None)] * 2
    assert all(row.steps == 3 and row.tokens > 500 for row in explored)
    assert explored[0].context is not None
    assert explored[0].context["where"]
    written = [row for row in rows if isinstance(row, Step)]
    assert [step.action.count("list_tables") for step in written] == [1, 0, 0, 1, 0, 0]
    candidates = [row for row in rows if isinstance(row, Candidate)]
    assert candidates
    assert all(str(candidate.reference).startswith("SELECT ") for candidate in candidates)

    decided: list[Row] = []
    verdicts = asyncio.run(
        validate_all(
            candidates,
            env=env,
            model="small",
            factory=small_explorers(smollm2()),
            seed=0,
            t=0,
            known=[],
            held_out=[],
            append=decided.extend,
            checkpoints=tmp_path / "graphs.sqlite",
            calls=ModelSettings(timeout_s=300, deadline_s=300, concurrency=1),
        )
    )
    assert [verdict.candidate_id for verdict in verdicts] == [candidate.id for candidate in candidates]
    assert {verdict.reason for verdict in verdicts} <= REASONS
    admitted = [row for row in decided if isinstance(row, Task)]
    assert len(admitted) == sum(verdict.adopt for verdict in verdicts)
    for task in admitted:
        assert asyncio.run(env.replay(task)).success
    assert {type(row) for row in [*rows, *decided]} <= {Exploration, Trajectory, Step, Candidate, Verdict, Task, Span}
