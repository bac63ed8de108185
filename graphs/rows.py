"""The rows that a finished, or failed, graph leaves behind."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from envs.protocols import Env
from envs.rollout import action_text
from graphs.acting import spent_so_far
from graphs.state import ActState, DraftJson, Entry, ExploreJob, ExploreState, Guide, ValidateState
from store.rows import (
    Candidate,
    Exploration,
    Json,
    OutcomeKind,
    Purpose,
    Row,
    Step,
    Task,
    Trajectory,
    Verdict,
    content_id,
    trajectory_id,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Who made the rows: the environment, the explorer's model and the base seed."""

    env: Env
    model: str
    seed: int


def explored(source: Source, job: ExploreJob, state: ExploreState, error: str | None) -> tuple[Exploration, list[Row]]:
    """(exploration, all rows): the exploration, its trajectory, steps and candidates.

    With an `error` it is an infra row: what was done until then, and no candidates.
    """
    trajectory, steps = _episode(
        source,
        state,
        purpose="explore",
        run=job.run,
        t=job.t,
        about=job.id,
        k=job.index,
        attempt=job.attempt,
        world=job.world,
        seed=job.seed(source.seed),
        error=error,
    )
    spent = spent_so_far(state)
    exploration = Exploration(
        id=job.id,
        run=job.run,
        t=job.t,
        signal_id=job.signal.id if job.signal else None,
        index=job.index,
        world=job.world,
        model=source.model,
        context=state.get("context"),
        trajectory_id=trajectory.id,
        outcome="infra" if error else "done",
        error=error,
        steps=len(steps),
        tokens=spent["prompt_tokens"] + spent["completion_tokens"],
        cost=spent["cost"],
        seconds=spent["seconds"],
        guide=job.guide,
    )
    rows: list[Row] = [exploration, trajectory, *steps]
    return exploration, rows if error else [*rows, *_candidates(job, state)]


def _candidates(job: ExploreJob, state: ExploreState) -> list[Candidate]:
    return [
        Candidate(
            id=content_id("candidate", job.id, job.world, draft["user_turns"], [], draft["reference"]),
            exploration_id=job.id,
            run=job.run,
            t=job.t,
            world=job.world,
            user_turns=draft["user_turns"],
            tools=[],
            reference=draft["reference"],
            index=index,
            rewords=_reworded(job, draft),
        )
        for index, draft in enumerate(state.get("drafts", []))
    ]


def _reworded(job: ExploreJob, draft: DraftJson) -> str | None:
    """The task that `strip` made the draft of, which keeps its reference."""
    if (job.guide or Guide()).get("operator") != "strip":
        return None
    return next((task.id for task in job.tasks if task.reference == draft["reference"]), None)


def validated(
    source: Source, candidate: Candidate, t: int, seed: int, state: ValidateState, error: str | None
) -> tuple[Verdict, list[Row]]:
    """(verdict, all rows): the task if adopted, the verdict, and the trajectory of the try if there was one."""
    decision: Json = {"adopt": False, "reason": "infra", "detail": error} if error else state.get("verdict")
    adopted = msgspec.convert(state.get("task"), Task) if decision["adopt"] else None
    verdict = Verdict(
        id=content_id("verdict", candidate.id),
        candidate_id=candidate.id,
        run=candidate.run,
        t=t,
        adopt=adopted is not None,
        reason=decision["reason"],
        detail=decision["detail"],
        task_id=adopted.id if adopted else None,
        repairs=state.get("repairs", 0),
        seconds=spent_so_far(state)["seconds"],
        edit={**edit, "editor": source.model} if (edit := state.get("edit")) else None,
    )
    rows: list[Row] = [adopted, verdict] if adopted else [verdict]
    if state.get("log"):
        trajectory, steps = _episode(
            source,
            state,
            purpose="validate",
            run=candidate.run,
            t=t,
            about=candidate.id,
            k=0,
            attempt=0,
            world=candidate.world,
            seed=seed,
            error=error,
        )
        rows += [trajectory, *steps]
    return verdict, rows


def _episode(
    source: Source,
    state: ActState,
    *,
    purpose: Purpose,
    run: str,
    t: int,
    about: str,
    k: int,
    attempt: int,
    world: str,
    seed: int,
    error: str | None,
) -> tuple[Trajectory, list[Step]]:
    """What the model did in the session. It has no score: nobody set it a task."""
    outcome: OutcomeKind = "infra" if error else "scored"
    spent, log = spent_so_far(state), state.get("log", [])
    trajectory = Trajectory(
        id=trajectory_id(run=run, purpose=purpose, t=t, task=about, k=k, attempt=attempt),
        run=run,
        t=t,
        purpose=purpose,
        env=source.env.name,
        world=world,
        task_id=None,
        suite=None,
        k=k,
        attempt=attempt,
        policy=source.model,
        policy_version=t,
        seed=seed,
        outcome=outcome,
        score=None,
        violation=None,
        error=error,
        steps=len(log),
        prompt_tokens=spent["prompt_tokens"],
        completion_tokens=spent["completion_tokens"],
        seconds=spent["seconds"],
        created_at=time.time(),
    )
    return trajectory, [_step(source.env, trajectory.id, index, entry) for index, entry in enumerate(log)]


def _step(env: Env, trajectory: str, index: int, entry: Entry) -> Step:
    action = action_text({"tool_calls": [{"name": entry["name"], "args": entry["args"]}]})
    return Step(
        trajectory_id=trajectory,
        index=index,
        action=action,
        observation=entry["observation"],
        tokens=env.action_tokens(action),
        failed=entry["failed"],
        prompt_ids=None,
        completion_ids=None,
        logprobs=None,
        seconds=0.0,
    )
