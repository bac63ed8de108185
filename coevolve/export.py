"""`coevolve export`: tasks, rollouts and signals as Parquet, in a folder that is a Hugging Face data set too.

With `--native` tasks alone, as their benchmark's own tools open them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coevolve import damage, protected
from coevolve.progress import progress
from coevolve.workspace import Workspace
from envs import registry
from store import snapshot
from store.db import Connection
from store.errors import CoevolveError, UsageError
from store.rows import Run

ROWS = 2000
"""Of one row group: a rollout with its steps may be large."""

CARD = """---
configs:
{configs}
---

# Tasks, rollouts and signals of coevolve

Exported by `coevolve export` from {runs}. `tasks`: executable tasks with their reference solutions. `rollouts`: what
policies and explorers did, step by step, with scores. `signals`: weaknesses found in training rollouts.
"""
CONFIG = """- config_name: {name}
  data_files:
  - split: train
    path: {name}/train.parquet"""

QUERIES = {
    "tasks": """
        select k.* replace (
            if(closed, null, k.user_turns) as user_turns, if(closed, null, k.reference) as reference,
            if(closed, null, k.expected) as expected)
        from (select *, env in (from kept_back) as closed from task) k
        where $run is null or k.id in (
            select task_id from v_membership where run = $run union select task_id from verdict where run = $run
            union select task_id from trajectory where run = $run)
        order by k.id""",
    "rollouts": """
        select r.* replace (if(closed, null, r.error) as error, if(closed, null, r.violation) as violation), (
            select list({
                'action': if(closed, null, s.action), 'observation': if(closed, null, s.observation),
                'tokens': s.tokens, 'failed': s.failed
            } order by s."index") from step s where s.trajectory_id = r.id) as played
        from (select *, env in (from kept_back) as closed from trajectory) r
        where $run is null or r.run = $run order by r.id""",
    "signals": "select * from signal where $run is null or run = $run order by id",
}
"""Of an environment whose texts may not be passed on (`closed`) there are ids, tokens and scores."""


def export_command(
    *, workspace: str | None, out: str, run_id: str | None, include_protected: bool, native: bool, **_: Any
) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    target = Path(out)
    if native:
        return _export_native(place, place.run(run_id).id, target, include_protected)
    run = place.run(run_id).id if run_id else None
    with _draft(target) as draft, place.store.browsing() as connection:
        names = protected.environments(place.store)
        lost = damage.damaged(place.store)
        counts = _write(connection, draft, run, [] if include_protected else names, damage.remark(lost))
    words = [f"{target}: " + ", ".join(f"{count} {name}" for name, count in counts.items())]
    words += [protected.remark(protected.why(name), whole=include_protected) for name in names]
    words += filter(None, [damage.remark(lost)])
    return {"folder": str(target), **counts, "protected": names, "damaged": lost}, "\n".join(words)


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` once all of it is written. UsageError if there is one already."""
    if target.exists():
        raise UsageError(f"DIR: {target} exists already; name a new folder")
    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        yield draft
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _export_native(place: Workspace, run: str, target: Path, include_protected: bool) -> tuple[Any, Any]:
    """The run's tasks of its newest snapshot, as the benchmark's own tools open them: they are texts, all of them."""
    spec = place.store.rows(Run, "id = ?", [run])[0].env
    write = registry.native(spec)
    licence = protected.why(spec.partition(":")[0])
    if not include_protected:
        raise UsageError(
            f"--native: it writes texts that may not be passed on in plain; {licence}: --include-protected"
        )
    _, tasks = snapshot.load(place.run(run).snapshots)
    with _draft(target) as draft, progress() as report:
        found = write(tasks, draft, report)
        if not any(why is None for why in found.values()):
            raise CoevolveError(f"none of the {len(tasks)} tasks of {run} can be written: {next(iter(found.values()))}")
    left_out = {task: why for task, why in found.items() if why is not None}
    words = [f"{target}: {len(found) - len(left_out)} tasks; to open them, APPWORLD_ROOT={target.absolute()}"]
    words += [f"{task} is left out: {why}" for task, why in left_out.items()]
    words.append(protected.remark(licence, whole=True))
    return {"folder": str(target), "tasks": len(found) - len(left_out), "left_out": left_out}, "\n".join(words)


def _write(connection: Connection, folder: Path, run: str | None, kept_back: list[str], lost: str) -> dict[str, int]:
    counts = {}
    for name, query in QUERIES.items():
        sql = f"with kept_back(env) as (select unnest($kept_back::varchar[])) {query}"
        result = connection.sql(sql, params={"run": run, "kept_back": kept_back})
        counts[name] = _parquet(result, folder / name / "train.parquet")
    configs = "\n".join(CONFIG.format(name=name) for name in QUERIES)
    runs = f"run {run}" if run else "all runs of a workspace"
    left_out = f"\nTexts of {', '.join(kept_back)} are left out: its licence forbids it.\n" if kept_back else ""
    missing = f"\n{lost}.\n" if lost else ""
    (folder / "README.md").write_text(CARD.format(configs=configs, runs=runs) + left_out + missing)
    return counts


def _parquet(result: Any, path: Path) -> int:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True)
    wanted = [name for name in result.columns if name != "closed"]
    batches = result.project(", ".join(f'"{name}"' for name in wanted)).to_arrow_reader(ROWS)
    count = 0
    with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count
