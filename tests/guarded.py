"""A loop in the echo world whose scores, snapshots and checkpoints a test writes down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from coevolve.config import Settings
from coevolve.loop import Loop
from coevolve.workspace import Workspace
from evals.run import scores
from evals.suites import slices
from store.rows import Phase, Run, Task
from store.snapshot import freeze
from tests.fakes import EchoEnv
from tests.store_rows import trajectory
from training.checkpoint import Checkpoint, publish

ITEMS = 40


class Suites(EchoEnv):
    """Three suites of 40 items."""

    def __init__(self) -> None:
        super().__init__(words=[f"seed{i}" for i in range(6)])
        self.held_out = {
            name: [self.task(f"{name}{i}", world="cellar") for i in range(ITEMS)]
            for name in ("gold", "shifted", "robust")
        }

    def suites(self) -> dict[str, list[Task]]:
        return self.held_out


def make_loop(root: Path, *overrides: str) -> Loop:
    root.mkdir(parents=True)
    (root / "config.toml").write_text("")
    place = Workspace(root)
    run = place.create_run({})
    run.update(created_at=1.0, rounds=9)
    place.store.append(Run(id=run.id, created_at=1.0, seed=0, env="echo", policy="x", config={}, versions={}))
    report: Any = lambda label, done, total: None  # noqa: E731
    settings = Settings().overridden(["dedupe.embedder=none", *overrides])
    return Loop(workspace=place, run=run, settings=settings, overrides=(), env=Suites(), report=report)


def with_overrides(loop: Loop, *overrides: str) -> Loop:
    return replace(loop, settings=loop.settings.overridden(list(overrides)))


def played(loop: Loop, version: int, **right: int) -> None:
    """The version has so many of the 40 items of each suite right, always the first ones."""
    for name, tasks in loop.env.suites().items():
        rows = [
            trajectory(
                item.id, run=loop.run.id, t=version, purpose="eval", suite=name, score=float(at < right.get(name, 20))
            )
            for at, item in enumerate(tasks)
        ]
        loop.store.append(rows, scores(loop.run.id, version, name, slices(loop.env, tasks), rows))


def trained(loop: Loop, version: int, *, steps: int = 0) -> None:
    def write(folder: Path) -> None:
        (folder / "adapter_model.safetensors").write_bytes(bytes([version]))

    made = Checkpoint(
        run=loop.run.id,
        version=version,
        base="x",
        parent=version - 1,
        snapshot=None,
        adapter=True,
        steps=steps,
        counts={},
    )
    publish(loop.run.checkpoints, made, write)


def frozen(loop: Loop, t: int, tasks: list[Task]) -> None:
    loop.store.append(tasks, freeze(loop.run.snapshots, loop.run.id, t, tasks))


def done(loop: Loop, t: int, name: str = "snapshot", seconds: float = 1.0) -> None:
    loop.store.append(Phase(run=loop.run.id, t=t, name=name, finished_at=1.0, seconds=seconds, counts={}))
