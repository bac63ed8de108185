"""Rows with plain defaults for the store's tests: each test names only what matters to it."""

from __future__ import annotations

from typing import Any

from store.rows import Exploration, Phase, Step, Task, Trajectory, content_id, task_id, trajectory_id


def task(number: int = 0, **changes: Any) -> Task:
    content: dict[str, Any] = {
        "env": "text2sql",
        "env_version": "1",
        "world": "shop",
        "user_turns": [f"question {number}"],
        "tools": [],
        "reference": f"SELECT {number}",
        "expected": {"rows": [[number, 0.5, None]]},
    }
    content |= {name: value for name, value in changes.items() if name in content}
    other = {name: value for name, value in changes.items() if name not in content}
    labels: dict[str, Any] = {"split": "train", "structure": "SELECT ?", "difficulty": 1.0, "origin": "seed"}
    return Task(**{"id": task_id(**content), **content, **labels, **other})


def trajectory(task: str = "a", k: int = 0, **changes: Any) -> Trajectory:
    row: dict[str, Any] = {
        "run": "r",
        "t": 0,
        "purpose": "train",
        "env": "text2sql",
        "world": "shop",
        "task_id": task,
        "suite": None,
        "k": k,
        "attempt": 0,
        "policy": "hf:x",
        "policy_version": 0,
        "seed": 1,
        "outcome": "scored",
        "score": 1.0,
        "violation": None,
        "error": None,
        "steps": 1,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "seconds": 0.1,
        "created_at": 1.5,
    } | changes
    if row["outcome"] != "scored":
        row["score"] = None
    key = {name: row[name] for name in ("run", "purpose", "t", "k", "attempt")}
    return Trajectory(**{"id": trajectory_id(task=task, **key), **row})


def step(of: Trajectory | str, tokens: list[str], index: int = 0, **changes: Any) -> Step:
    row: dict[str, Any] = {
        "trajectory_id": of if isinstance(of, str) else of.id,
        "index": index,
        "action": "SELECT 1",
        "observation": "1",
        "tokens": tokens,
        "failed": False,
        "prompt_ids": None,
        "completion_ids": None,
        "logprobs": None,
        "seconds": 0.1,
    }
    return Step(**row | changes)


def exploration(signal_id: str | None, t: int = 0, **changes: Any) -> Exploration:
    row: dict[str, Any] = {
        "id": content_id("exploration", "r", t, signal_id or "unguided", changes.get("index", 0)),
        "run": "r",
        "t": t,
        "signal_id": signal_id,
        "index": 0,
        "world": "shop",
        "model": "procedural",
        "context": None,
        "trajectory_id": None,
        "outcome": "done",
        "error": None,
        "steps": 3,
        "tokens": 0,
        "cost": 0.0,
        "seconds": 0.1,
    }
    return Exploration(**row | changes)


def phase(t: int, name: str = "train", run: str = "r") -> Phase:
    return Phase(run=run, t=t, name=name, finished_at=1.0, seconds=1.0, counts={})
