"""Why a task is in the training set, from the store alone: every link of its lineage."""

from __future__ import annotations

import json
from typing import Any

from coevolve.show import inert
from store.db import Store
from store.errors import UsageError
from store.rows import Candidate, Exploration, Signal, Snapshot, Step, Task, Trajectory, Verdict, Vote

EVIDENCE = 3
"""Rollouts of a signal's evidence that are told in full."""


def history(store: Store, run: str, ref: str) -> dict[str, Any]:
    """The lineage in this run of the task whose id starts with `ref`. UsageError if there is not one, or not there."""
    task = _task(store, ref)
    require_in_run(store, run, task.id)
    verdicts = store.rows(Verdict, "run = ? and adopt and task_id = ?", [run, task.id], order="t, id")
    return {
        "run": run,
        "task": {
            "id": task.id,
            "world": task.world,
            "user_turns": task.user_turns,
            "reference": task.reference,
            "structure": task.structure,
            "difficulty": task.difficulty,
            "origin": task.origin,
        },
        "lineage": [_link(store, verdict) for verdict in verdicts],
        "snapshots": [
            {"t": row.t, "id": row.id}
            for row in store.rows(Snapshot, "run = ? and list_contains(task_ids, ?)", [run, task.id], order="t")
        ],
        "scores": _scores(store, run, task.id),
    }


def _task(store: Store, ref: str) -> Task:
    found = store.rows(Task, "starts_with(id, ?)", [ref])
    if not ref or not found:
        raise UsageError(f"TASK: no task {ref!r}; list them with `coevolve sql 'select id, user_turns from task'`")
    if len(found) > 1:
        some = ", ".join(task.id for task in found[:5])
        raise UsageError(f"TASK: {ref!r} begins the ids of {len(found)} tasks ({some}); write more of it")
    return found[0]


def require_in_run(store: Store, run: str, task: str) -> None:
    """A run has the tasks of its snapshots and those that it adopted."""
    rows = store.query(
        """
        select run from snapshot where list_contains(task_ids, $task)
        union select run from verdict where adopt and task_id = $task order by run
        """,
        {"task": task},
    )
    runs = [found for (found,) in rows]
    if run not in runs:
        where = f"it is in {', '.join(runs)}: add --run {runs[-1]}" if runs else "it is in no run"
        raise UsageError(f"TASK: {task} is not in run {run}; {where}")


def _link(store: Store, verdict: Verdict) -> dict[str, Any]:
    candidate = store.rows(Candidate, "id = ?", [verdict.candidate_id])[0]
    exploration = store.rows(Exploration, "id = ?", [candidate.exploration_id])[0]
    signals = store.rows(Signal, "id = ?", [exploration.signal_id]) if exploration.signal_id else []
    return {
        "signal": _signal(store, signals[0]) if signals else None,
        "exploration": {
            "id": exploration.id,
            "t": exploration.t,
            "world": exploration.world,
            "model": exploration.model,
            "context": exploration.context,
            "guide": exploration.guide,
            "steps": _steps(store, exploration.trajectory_id),
        },
        "candidate": {"id": candidate.id, "user_turns": candidate.user_turns, "reference": candidate.reference},
        "edit": verdict.edit and {**verdict.edit, "votes": _votes(store, candidate.id, "stage = 'polish'")},
        "votes": _votes(store, candidate.id, "stage <> 'polish'"),
        "verdict": {"id": verdict.id, "t": verdict.t, "reason": verdict.reason, "detail": verdict.detail},
    }


def _signal(store: Store, signal: Signal) -> dict[str, Any]:
    shown = store.rows(Trajectory, "list_contains(?, id)", [signal.evidence[:EVIDENCE]])
    return {
        "id": signal.id,
        "kind": signal.kind,
        "t": signal.t,
        "task": signal.task_id,
        "pattern": signal.pattern,
        "stats": signal.stats,
        "evidence": [
            {"id": row.id, "task": row.task_id, "score": row.score, "steps": _steps(store, row.id)} for row in shown
        ],
        "evidence_count": len(signal.evidence),
    }


def _votes(store: Store, candidate: str, which: str) -> list[dict[str, Any]]:
    rows = store.rows(Vote, f"candidate_id = ? and {which}", [candidate])
    return [{"model": row.model, "stage": row.stage, "passes": row.passes, "scores": row.scores} for row in rows]


def _steps(store: Store, trajectory: str | None) -> list[dict[str, Any]]:
    rows = store.rows(Step, "trajectory_id = ?", [trajectory]) if trajectory else []
    return [{"action": row.action, "observation": row.observation, "failed": row.failed} for row in rows]


def _scores(store: Store, run: str, task: str) -> list[dict[str, Any]]:
    rows = store.query(
        """
        select t, avg(score), count(*) from trajectory
        where run = ? and task_id = ? and purpose = 'train' and outcome = 'scored' group by t order by t
        """,
        [run, task],
    )
    return [{"t": t, "mean": mean, "rollouts": count} for t, mean, count in rows]


def told(data: dict[str, Any]) -> str:
    """The history for a person to read."""
    task = data["task"]
    lines = [
        f"task {task['id']} in run {data['run']}  "
        f"({task['origin']}, world {task['world']}, difficulty {task['difficulty']:g})",
        f"  asks       {' / '.join(task['user_turns'])}",
        f"  reference  {_short(task['reference'])}",
    ]
    if not data["lineage"]:
        lines.append("  comes from the environment's seed tasks")
    for link in data["lineage"]:
        lines += _told_link(link)
    where = ", ".join(f"D_{row['t']} ({row['id']})" for row in data["snapshots"])
    lines.append(f"snapshots    {where or 'none yet: it is pending'}")
    scores = ", ".join(f"iteration {row['t']}: {row['mean']:.2f} over {row['rollouts']}" for row in data["scores"])
    lines.append(f"mean score   {scores or 'not trained on yet'}")
    return "\n".join(map(inert, lines))


def _told_link(link: dict[str, Any]) -> list[str]:
    lines = []
    if signal := link["signal"]:
        about = f"task {signal['task']}" if signal["task"] else f"pattern {' > '.join(signal['pattern'])}"
        lines.append(f"signal       {signal['kind']} of {about} in iteration {signal['t']}  {_short(signal['stats'])}")
        for row in signal["evidence"]:
            actions = " | ".join(_short(step["action"]) for step in row["steps"])
            lines.append(f"  evidence   {row['id']} scored {row['score']:g}: {actions}")
        if more := signal["evidence_count"] - len(signal["evidence"]):
            lines.append(f"             and {more} more")
    else:
        lines.append("signal       none: unguided exploration for D_0")
    exploration = link["exploration"]
    lines.append(f"exploration  {exploration['id']} by {exploration['model']} in world {exploration['world']}")
    if exploration["guide"]:
        lines.append(f"  guide      {_short(exploration['guide'], 300)}")
    if exploration["context"]:
        lines.append(f"  context    {_short(exploration['context'], 300)}")
    lines += [
        f"  step       {_short(step['action'])} -> {_short(step['observation'])}" for step in exploration["steps"]
    ]
    if link["edit"]:
        lines += _told_edit(link["edit"])
    lines += [_told_vote(vote) for vote in link["votes"]]
    verdict = link["verdict"]
    detail = f": {verdict['detail']}" if verdict["detail"] else ""
    lines.append(f"verdict      {verdict['reason']} in iteration {verdict['t']}{detail}")
    return lines


def _told_edit(edit: dict[str, Any]) -> list[str]:
    taken = edit["outcome"] == "accepted"
    why = "" if taken else f", refused: {edit['outcome']}{', ' if edit['detail'] else ''}{_short(edit['detail'])}"
    return [
        f"edit         by {edit['editor']}{why}",
        f"  before     {' / '.join(edit['before'])}",
        f"  after      {' / '.join(edit['after']) or 'nothing that could be read'}",
        *map(_told_vote, edit["votes"]),
    ]


def _told_vote(vote: dict[str, Any]) -> str:
    return f"  vote       {vote['model']} {'for' if vote['passes'] else 'against'}  {_short(vote['scores'])}"


def _short(value: Any, limit: int = 110) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
