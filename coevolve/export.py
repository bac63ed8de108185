"""`coevolve export`: tasks, rollouts and signals as Parquet, in a folder that is a Hugging Face data set too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from coevolve import protected
from coevolve.workspace import Workspace
from store.db import Connection
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
    *, workspace: str | None, out: str, run_id: str | None, include_protected: bool, **_: Any
) -> tuple[Any, Any]:
    place = Workspace.find(workspace)
    run = place.run(run_id).id if run_id else None
    target = Path(out)
    if target.exists():
        raise UsageError(f"DIR: {target} exists already; name a new folder")
    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with place.store.browsing() as connection:
            names = protected.environments(place.store)
            counts = _write(connection, draft, run, [] if include_protected else names)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    words = [f"{target}: " + ", ".join(f"{count} {name}" for name, count in counts.items())]
    words += [protected.remark(protected.why(name), whole=include_protected) for name in names]
    return {"folder": str(target), **counts, "protected": names}, "\n".join(words)


def _write(connection: Connection, folder: Path, run: str | None, kept_back: list[str]) -> dict[str, int]:
    counts = {}
    for name, query in QUERIES.items():
        sql = f"with kept_back(env) as (select unnest($kept_back::varchar[])) {query}"
        result = connection.sql(sql, params={"run": run, "kept_back": kept_back})
        counts[name] = _parquet(result, folder / name / "train.parquet")
    configs = "\n".join(CONFIG.format(name=name) for name in QUERIES)
    runs = f"run {run}" if run else "all runs of a workspace"
    left_out = f"\nTexts of {', '.join(kept_back)} are left out: its licence forbids it.\n" if kept_back else ""
    (folder / "README.md").write_text(CARD.format(configs=configs, runs=runs) + left_out)
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
