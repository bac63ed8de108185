"""`coevolve export`: tasks, rollouts and signals as Parquet, in a folder that is a Hugging Face data set too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from coevolve.workspace import Workspace
from store.db import Store
from store.errors import UsageError

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

_PLAYED = "{'action': s.action, 'observation': s.observation, 'tokens': s.tokens, 'failed': s.failed}"
QUERIES = {
    "tasks": "select k.* from task k where k.id in (from mine) order by k.id",
    "rollouts": f"""
        select r.*, (select list({_PLAYED} order by s."index") from step s where s.trajectory_id = r.id) as played
        from trajectory r where ($run is null or r.run = $run)
          and (r.task_id in (from mine) or r.env not in (from closed))
        order by r.id""",
    "signals": """
        select s.* from signal s
        where ($run is null or s.run = $run)
          and (s.task_id is null or s.task_id not in (from kept_back)) order by s.id""",
}
"""Of an environment that has tasks which may not be passed on, rollouts of no known task (explorations, held-out items)
are kept back too: they show its data."""


def export_command(*, workspace: str | None, out: str, run_id: str | None, **_: Any) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    run = place.run(run_id).id if run_id else None
    target = Path(out)
    if target.exists():
        raise UsageError(f"DIR: {target} exists already; name a new folder")
    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        counts = _write(place.store, draft, run)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "kept_back")
    back = f"; {counts['kept_back']} tasks may not be passed on and are left out" if counts["kept_back"] else ""
    return {"folder": str(target), **counts}, f"{target}: {words}{back}"


def _write(store: Store, folder: Path, run: str | None) -> dict[str, int]:
    with store.browsing() as connection:
        kept_back = _kept_back(store)
        ((back,),) = store.query(f"select count(*) from ({kept_back})")
        mine = f"""
            select id from task where id not in ({kept_back}) and ($run is null or id in (
                select task_id from v_membership where run = $run union select task_id from verdict where run = $run
                union select task_id from trajectory where run = $run))"""
        counts = {}
        for name, query in QUERIES.items():
            closed = "select env from task where id in (from kept_back)"
            sql = f"with kept_back(id) as ({kept_back}), closed as ({closed}), mine as ({mine}) {query}"
            counts[name] = _parquet(connection.sql(sql, params={"run": run}), folder / name / "train.parquet")
    configs = "\n".join(CONFIG.format(name=name) for name in QUERIES)
    runs = f"run {run}" if run else "all runs of a workspace"
    (folder / "README.md").write_text(CARD.format(configs=configs, runs=runs))
    return {**counts, "kept_back": back}


def _kept_back(store: Store) -> str:
    """SELECT of the tasks that may not be passed on, where tasks say so."""
    known = store.query("select 1 from duckdb_columns() where table_name = 'task' and column_name = 'redistributable'")
    return f"select id from task where {'not redistributable' if known else 'false'}"


def _parquet(result: Any, path: Path) -> int:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True)
    batches = result.to_arrow_reader(ROWS)
    count = 0
    with pq.ParquetWriter(path, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count
