"""What `coevolve db check` finds and `db rebuild` mends beside the store: snapshots, which its rows make again.

Here and not in `Store`, which knows no runs: where the snapshots of a run lie is the workspace's matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

from coevolve.workspace import LOOP, RunFolder, Workspace
from store.db import Store
from store.errors import CoevolveError
from store.journal import Problem
from store.rows import Snapshot, Task
from store.snapshot import fault, point, pointer_fault, restore


def problems(place: Workspace) -> list[Problem]:
    """Everything wrong with journal, index and snapshots. [] = all is well."""
    lost = [
        Problem(kind="damaged", where=f"run {run.id}", detail=words)
        for run, rows in _frozen(place)
        for words in _faults(run, rows)
    ]
    return place.store.check() + lost


def restore_snapshots(place: Workspace) -> tuple[list[str], list[CoevolveError]]:
    """Make again whatever `problems` tells of snapshots. The names of what was made, and why the rest was not."""
    restored: list[str] = []
    errors: list[CoevolveError] = []
    for run, rows in _frozen(place):
        if any(_faults(run, rows)):
            with _collected(errors), run.locked(LOOP):  # else the loop might freeze the same at the same moment
                restored += [f"{run.id}/{name}" for name in _mended(place.store, run, rows, errors)]
    return restored, errors


def _frozen(place: Workspace) -> Iterator[tuple[RunFolder, list[Snapshot]]]:
    """The snapshots of each run, oldest first. A run whose whole folder is gone was deleted on purpose."""
    for name, rows in groupby(place.store.rows(Snapshot, order="run, t"), key=lambda row: row.run):
        run = RunFolder(place.root / "runs" / name)
        if run.path.is_dir():
            yield run, list(rows)


def _faults(run: RunFolder, rows: list[Snapshot]) -> Iterator[str]:
    found = [*(fault(run.snapshots, row) for row in rows), pointer_fault(run.snapshots, rows[-1])]
    yield from filter(None, found)


def _mended(store: Store, run: RunFolder, rows: list[Snapshot], errors: list[CoevolveError]) -> Iterator[str]:
    for row in rows:
        if fault(run.snapshots, row):
            with _collected(errors):
                restore(run.snapshots, row, _tasks(store, row))
                yield f"{row.t}-{row.id}"
    newest = rows[-1]
    if pointer_fault(run.snapshots, newest) and not fault(run.snapshots, newest):
        point(run.snapshots, newest)
        yield "LATEST"


def _tasks(store: Store, row: Snapshot) -> list[Task]:
    """The tasks of the snapshot that the store has, in training order."""
    known = {task.id: task for task in store.rows(Task, "list_contains(?, id)", [row.task_ids])}
    return [known[each] for each in row.task_ids if each in known]


@contextmanager
def _collected(errors: list[CoevolveError]) -> Iterator[None]:
    """One failure is no reason to leave the rest undone."""
    try:
        yield
    except CoevolveError as error:
        errors.append(error)
