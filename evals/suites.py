"""Which held-out tasks are played, and the slices in which their accuracy is reported."""

from __future__ import annotations

from collections.abc import Collection

from envs.protocols import Env
from store.errors import UsageError
from store.rows import Task


def suite(env: Env, name: str, limit: int = 0) -> list[Task]:
    """The first `limit` tasks of a held-out suite, all of them for 0. UsageError if there is none of that name."""
    suites = env.suites()
    if name not in suites:
        raise UsageError(f"suite: {name!r} is not a suite of {env.name}; choose one of {', '.join(sorted(suites))}")
    tasks = suites[name]
    return tasks[:limit] if limit else tasks


def slices(tasks: Collection[Task], seen: Collection[str]) -> dict[str, set[str]]:
    """Task ids by slice: `all`, and `seen` / `unseen` by whether a seed task has the same structure."""
    known = {task.id for task in tasks if task.structure in seen}
    everything = {task.id for task in tasks}
    return {"all": everything, "seen": known, "unseen": everything - known}


def label(name: str, limit: int, k: int) -> str:
    """The name under which a score is kept: a part of a suite, or avg@k, is another measure than the whole, greedy."""
    return name + (f"[:{limit}]" if limit else "") + (f"@{k}" if k > 1 else "")
