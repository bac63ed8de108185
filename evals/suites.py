"""Which held-out tasks are played, and the slices in which their accuracy is reported."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from envs.protocols import Env
from store.errors import UsageError
from store.rows import Task

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, less their whole parts, spread most evenly over [0, 1)."""


def suite(env: Env, name: str, limit: int = 0) -> list[Task]:
    """`limit` tasks of a held-out suite, all of them for 0. UsageError if there is none of that name.

    The part is always the same one, taken evenly over worlds and, within them, over seen and unseen structures.
    """
    suites = env.suites()
    if name not in suites:
        raise UsageError(f"suite: {name!r} is not a suite of {env.name}; choose one of {', '.join(sorted(suites))}")
    tasks = suites[name]
    if not 0 < limit < len(tasks):
        return tasks
    seen = {task.structure for task in env.seed_tasks()}
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].world, tasks[i].structure not in seen, i))
    return [tasks[i] for i in sorted(order[at] for at in _strides(len(tasks), limit))]


def _strides(n: int, limit: int) -> Iterator[int]:
    """One place in each of `limit` equal pieces of range(n), moving from piece to piece, so that no pattern of the
    pieces' own length can hide what always lies at their ends."""
    for i in range(limit):
        start, end = i * n // limit, (i + 1) * n // limit
        yield start + int(i * GOLDEN % 1 * (end - start))


def slices(env: Env, tasks: Collection[Task]) -> dict[str, set[str]]:
    """Task ids by slice: `all`, `seen` and `unseen` by whether a seed task has the same structure (where there are seed
    tasks), and the parts that the environment tells apart."""
    everything = {task.id for task in tasks}
    found = {"all": everything}
    if structures := {task.structure for task in env.seed_tasks()}:
        known = {task.id for task in tasks if task.structure in structures}
        found |= {"seen": known, "unseen": everything - known}
    for task in tasks:
        for part in env.parts(task):
            found.setdefault(part, set()).add(task.id)
    return found


def scenarios(env: Env, tasks: Collection[Task]) -> dict[str, str]:
    """{task id: scenario} of the tasks that are cases of one."""
    return {task.id: case for task in tasks if (case := env.scenario(task)) is not None}


def label(name: str, limit: int, k: int) -> str:
    """The name under which a score is kept: a part of a suite, or avg@k, is another measure than the whole, greedy."""
    return name + (f"[{limit}]" if limit else "") + (f"@{k}" if k > 1 else "")
