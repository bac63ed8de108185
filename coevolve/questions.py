"""Commands that ask and change nothing but the index: light, for people ask all day. As in commands.py, each returns
(data for --json, what is shown).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coevolve import damage, guide, repair, rounds
from coevolve.standing import standing
from coevolve.standing import told as standing_told
from coevolve.workspace import RunFolder, Workspace
from envs import registry
from store.db import Table
from store.errors import CoevolveError, UsageError
from store.rows import Phase, Snapshot

Result = tuple[Any, Any]
STUDIO = "studio"
"""No environment, but installed like one."""
NAMED = 3
"""Suites of an environment that are named in a terminal."""


def round_report(place: Workspace, run: RunFolder) -> Result:
    found = rounds.rounds(place.store, run.id)
    data = {"run": run.id, "rounds": found, "admitted_by_kind": rounds.admitted_by_kind(place.store, run.id)}
    return data, rounds.overview(found)


def status_command(*, workspace: str | None, run_id: str | None, long: bool, **_: Any) -> Result:
    place = Workspace.find(workspace)
    if not place.run_ids():
        return {"run": None}, f"{place.root}: no run yet; start one with `coevolve evolve`"
    run = place.run(run_id)
    data, shown = round_report(place, run)
    finished = place.store.rows(Phase, "run = ?", [run.id], order="finished_at")
    snapshots = place.store.rows(Snapshot, "run = ?", [run.id], order="t")
    open_signals = place.store.query(
        "select kind, count(*) from v_signal where run = ? and status = 'open' group by all", [run.id]
    )
    data |= {
        "last_phase": f"{finished[-1].name} of iteration {finished[-1].t}" if finished else None,
        "snapshot": snapshots[-1].id if snapshots else None,
        "tasks": len(snapshots[-1].task_ids) if snapshots else 0,
        "pending": guide.waiting(place, run),
        "open_signals": dict(open_signals),
        "now": standing(place, run),
        "damaged": damage.damaged(place.store),
        "as_of": place.store.as_of,
    }
    table = [rounds.as_table(data["rounds"])] if long else shown
    lost = damage.remark(data["damaged"])
    return data, [guide.stands(data), *table, standing_told(data["now"]), *filter(None, [lost])]


def sql_command(*, workspace: str | None, query: str | None, path: str | None, **_: Any) -> Table:
    given = [query] if query is not None else []
    asked = [*given, *([_question(path)] if path is not None else [])]
    if len(asked) != 1:
        raise UsageError('sql: give one question, as `coevolve sql "SELECT ..."` or with --file FILE')
    return Workspace.find(workspace).store.sql(asked[0])


def _question(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file {path}: {error}") from error


def why_command(*, workspace: str | None, run_id: str | None, task: str, **_: Any) -> Result:
    from coevolve.why import history, told

    place = Workspace.find(workspace)
    run = place.run(run_id)
    data = history(place.store, run.id, task) | {"damaged": damage.damaged(place.store)}
    return data, [told(data), *filter(None, [damage.remark(data["damaged"])])]


def check_command(*, workspace: str | None, **_: Any) -> Result:
    found = repair.problems(Workspace.find(workspace))
    problems = [{"problem": str(problem), "harmless": problem.harmless} for problem in found]
    lines = [f"{'note: ' if problem.harmless else ''}{problem}" for problem in found]
    if all(problem.harmless for problem in found):
        lines.append("index and journal agree; every row of the journal and every snapshot is sound")
    return problems, "\n".join(lines)


def rebuild_command(*, workspace: str | None, **_: Any) -> tuple[Any, Any, list[CoevolveError]]:
    """Data, what is shown, and why some snapshots could not be made again."""
    place = Workspace.find(workspace)
    made = place.store.rebuild()
    restored, errors = repair.restore_snapshots(place)
    data = {**asdict(made), "snapshots": restored, "refused": list(map(str, errors))}
    lines = [f"the index is made again from {made.rows} rows of the journal"]
    if made.unreadable:
        lines.append(f"the old index could not be read, so it gave no row that the journal lacks: {made.unreadable}")
    if made.salvaged:
        lines.append(f"{made.salvaged} of them were salvaged: the journal had lost them, and has them again")
    if made.set_aside:
        lines.append(
            f"{made.set_aside} damaged segments are set aside in {place.store.journal.directory / 'damaged'}; their "
            "whole rows are in new ones"
        )
    if restored:
        lines.append(f"frozen again from the store: {', '.join(restored)}")
    return data, "\n".join(lines), errors


def env_list_command() -> Result:
    """Of the suites, a terminal is told how many there are and some names."""
    table = Table(columns=["name", "version", "worlds", "seed_tasks", "suites"], rows=[])
    for name in registry.names():
        if not registry.installed(name):
            table.rows.append((name, f"not installed: coevolve env install {name}", None, None, None))
            continue
        env = registry.get(name)
        suites = {suite: len(tasks) for suite, tasks in env.suites().items()}
        table.rows.append((name, env.version, len(env.worlds("train")), len(env.seed_tasks()), suites))
    shown = Table(columns=table.columns, rows=[(*row, suites and _brief(suites)) for *row, suites in table.rows])
    needed = ", ".join([*(venv.name for venv in registry.venvs()), STUDIO])
    return table, [shown, f"`coevolve env install NAME` installs what these need: {needed}"]


def _brief(suites: Mapping[str, int]) -> str:
    """How many suites there are, and the first names with their tasks."""
    named = [f"{name} {tasks}" for name, tasks in list(suites.items())[:NAMED]]
    return f"{len(suites)}: {', '.join(named)}{', ... (all: --json)' if len(suites) > NAMED else ''}"


def env_install_command(name: str, root: str | None, data: str | None) -> str:
    if name not in (*registry.names(), STUDIO):
        known = ", ".join([*registry.names(), STUDIO])
        raise UsageError(f"env install {name!r}: there is nothing of that name; choose from {known}")
    if name == STUDIO:
        from coevolve.studio.place import VENV

        if root is not None or data is not None:
            raise UsageError("--root, --data: studio has no data of its own; leave them out")
        return f"studio is installed in {VENV.install()}; next: coevolve studio"
    return registry.install(name, root, data)
