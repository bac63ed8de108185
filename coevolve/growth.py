"""Which valid tasks enter D_{t+1}: at most a set share of |D_t|, taken evenly from the kinds that led to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from store.db import Store
from store.rows import Task

KINDS = ("forgetting", "boundary", "rare", "unguided")


def pending(store: Store, run: str, members: Iterable[str]) -> list[tuple[str, Task]]:
    """(kind, task) of the run's valid tasks that are in no snapshot yet, oldest first; withdrawn ones are left out."""
    rows = store.query(
        """
        select coalesce(s.kind, 'unguided'), v.task_id
        from verdict v
        join candidate c on c.id = v.candidate_id
        join exploration e on e.id = c.exploration_id
        left join signal s on s.id = e.signal_id
        where v.run = ? and v.adopt and v.task_id not in (select task_id from withdrawal where run = v.run)
        order by v.t, v.candidate_id
        """,
        [run],
    )
    known = set(members)
    tasks = {task.id: task for task in store.rows(Task)}
    result = []
    for kind, task_id in rows:
        if task_id not in known:
            known.add(task_id)
            result.append((kind, tasks[task_id]))
    return result


def admit(waiting: Sequence[tuple[str, Task]], room: int) -> list[Task]:
    """The first `room` tasks, one of each kind in turn, in the order of KINDS."""
    queues: dict[str, list[Task]] = defaultdict(list)
    for kind, task in waiting:
        queues[kind].append(task)
    turns = zip_longest(*(queues[kind] for kind in KINDS))
    return [task for task in chain.from_iterable(turns) if task is not None][:room]


def room(size: int, growth: float) -> int:
    """How many tasks a round may admit: `growth` of |D_t|, at least one."""
    return max(1, int(growth * size))
