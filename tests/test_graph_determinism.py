"""Same seed, same tasks: whatever the run is called and however many graphs are at work at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from envs import registry
from graphs.runner import explore_all, validate_all
from graphs.settings import ModelSettings
from graphs.state import ExploreJob
from store.rows import Candidate, Row, Step, Task
from tests.graph_setup import of


def unguided(tmp: Path, run: str, *, seed: int = 0, concurrency: int = 4) -> tuple[list[str], list[str], list[str]]:
    """(ids of the tasks, structures, actions) of ten unguided explorations."""
    env = registry.get("text2sql")
    worlds = env.worlds("train")
    rows: list[Row] = []
    common: dict[str, Any] = {
        "env": env,
        "model": "procedural",
        "seed": seed,
        "append": rows.extend,
        "checkpoints": tmp / f"{run}.sqlite",
        "calls": ModelSettings(concurrency=concurrency),
    }
    jobs = [ExploreJob(run=run, t=0, index=i, world=worlds[i % len(worlds)].id) for i in range(10)]
    asyncio.run(explore_all(jobs, **common))
    asyncio.run(validate_all(of(Candidate, rows), t=0, known=env.seed_tasks(), held_out=[], **common))
    tasks = of(Task, rows)
    return [task.id for task in tasks], [task.structure for task in tasks], [step.action for step in of(Step, rows)]


def test_the_runs_name_and_the_concurrency_change_nothing(tmp_path: Path) -> None:
    first = unguided(tmp_path, "a", concurrency=1)
    assert len(first[0]) >= 10
    assert unguided(tmp_path, "b", concurrency=4) == first


def test_another_seed_gives_other_tasks(tmp_path: Path) -> None:
    assert unguided(tmp_path, "a", seed=0)[0] != unguided(tmp_path, "b", seed=1)[0]


def test_worlds_and_structures_are_spread(tmp_path: Path) -> None:
    ids, structures, _ = unguided(tmp_path, "a")
    assert len(set(ids)) == len(ids)
    assert len(set(structures)) > len(structures) / 2
