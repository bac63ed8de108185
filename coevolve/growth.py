"""Candidates that wait for a verdict, valid tasks that wait for a snapshot, and which of these enter D_{t+1}.

Both queues are ordered by what was explored, never by an id that depends on the run's name: two runs with one seed
decide and admit alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from store import signals as weaknesses
from store.db import Store
from store.rows import Candidate, Task

KINDS = (*weaknesses.KINDS, "unguided")


LINEAGE = """
    from candidate c
    join exploration e on e.id = c.exploration_id
    left join signal s on s.id = e.signal_id
"""
ORDER = """
    order by c.t, s.kind nulls first, coalesce(s.task_id, array_to_string(s.pattern, ' ')), e."index", c."index"
"""


def undecided(store: Store, run: str) -> list[Candidate]:
    """The run's candidates without a verdict."""
    open_ = "c.run = ? and c.id not in (select candidate_id from verdict where run = c.run)"
    ids = [row[0] for row in store.query(f"select c.id {LINEAGE} where {open_} {ORDER}", [run])]
    found = {candidate.id: candidate for candidate in store.rows(Candidate, "list_contains(?, id)", [ids])}
    return [found[i] for i in ids]


def pending(store: Store, run: str, members: Iterable[str]) -> list[tuple[str, Task]]:
    """(kind, task) of the run's valid tasks that are not among `members`; withdrawn ones are left out."""
    rows = store.query(
        f"""
        select v.task_id, coalesce(s.kind, 'unguided') {LINEAGE} join verdict v on v.candidate_id = c.id
        where c.run = ? and v.adopt and not list_contains(?, v.task_id)
          and v.task_id not in (select task_id from withdrawal where run = c.run) {ORDER}
        """,
        [run, list(members)],
    )
    kinds: dict[str, str] = {}
    for task_id, kind in rows:
        kinds.setdefault(task_id, kind)
    tasks = {task.id: task for task in store.rows(Task, "list_contains(?, id)", [list(kinds)])}
    return [(kind, tasks[task_id]) for task_id, kind in kinds.items()]


def admit(waiting: Sequence[tuple[str, Task]], room: int) -> list[Task]:
    """The first `room` tasks, one of each kind in turn, in the order of KINDS."""
    queues: dict[str, list[Task]] = defaultdict(list)
    for kind, task in waiting:
        queues[kind].append(task)
    turns = zip_longest(*(queues[kind] for kind in KINDS))
    return [task for task in chain.from_iterable(turns) if task is not None][:room]


def novel_first(waiting: Sequence[tuple[str, Task]], members: Iterable[Task]) -> list[tuple[str, Task]]:
    """Tasks of structures that D has none of before the others, else in the order that they had."""
    known = {task.structure for task in members}
    return sorted(waiting, key=lambda entry: entry[1].structure in known)


def room(size: int, growth: float) -> int:
    """How many tasks a round may admit: `growth` of |D_t|, at least one."""
    return max(1, int(round(growth * size, 9)))  # 0.29 * 100 is a little below 29
