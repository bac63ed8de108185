"""What looking costs: `python -m benchmarks.report [--steps N]`: report, live refresh, status, and tracing's own share.

A live refresh is the page after one more rollout. Tracing's share is the time within the tracer's callbacks and in
writing its rows, over the CPU time of the same graph runs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coevolve import report
from coevolve.workspace import Workspace
from envs import registry
from graphs.runner import explore_all
from graphs.state import ExploreJob
from graphs.tracing import Tracer
from store.journal import encode
from store.rows import Row, Run, Snapshot, Span, Step, Task, Trajectory, snapshot_id, task_id, trajectory_id
from store.signals import SignalSettings, detect

STEPS = 4
"""Of one rollout."""
K = 8
ITERATIONS = 20
RUN = "r001"


def tasks(count: int) -> list[Task]:
    made = []
    for number in range(count):
        content: dict[str, Any] = {"env": "text2sql", "env_version": "1", "world": "shop", "tools": []}
        content |= {"user_turns": [f"question {number}"], "reference": f"SELECT {number}", "expected": number}
        kind: dict[str, Any] = {"split": "train", "structure": f"s{number % 97}", "origin": "seed"}
        made.append(Task(id=task_id(**content), difficulty=float(number % 9), **content, **kind))
    return made


def rollouts(made: list[Task], t: int, chance: random.Random) -> Iterator[list[Row]]:
    for at, task in enumerate(made):
        batch: list[Row] = []
        for k in range(K):
            batch += rollout(task.id, t, k, float(chance.random() < (at % 10) / 9))
        yield batch


def rollout(task: str, t: int, k: int, score: float) -> list[Row]:
    name = trajectory_id(run=RUN, purpose="train", t=t, task=task, k=k)
    about: dict[str, Any] = {"env": "text2sql", "world": "shop", "suite": None, "policy": "hf:x", "outcome": "scored"}
    spent: dict[str, Any] = {"steps": STEPS, "prompt_tokens": 900, "completion_tokens": 60, "seconds": 1.0}
    whole = Trajectory(
        id=name,
        run=RUN,
        t=t,
        purpose="train",
        task_id=task,
        k=k,
        attempt=0,
        policy_version=t,
        seed=k,
        score=score,
        violation=None,
        error=None,
        created_at=1.0 + t,
        **about,
        **spent,
    )
    return [whole, *(one_step(name, index) for index in range(STEPS))]


def one_step(name: str, index: int) -> Step:
    return Step(
        trajectory_id=name,
        index=index,
        action="SELECT name FROM item WHERE price > 3 ORDER BY price",
        observation="name\nsalt\npepper\n" * 10,
        tokens=["SELECT", "WHERE", "ORDER"],
        failed=False,
        prompt_ids=None,
        completion_ids=None,
        logprobs=None,
        seconds=0.1,
    )


def fill(place: Workspace, steps: int) -> None:
    made = tasks(steps // (STEPS * K * ITERATIONS))
    ids = [task.id for task in made]
    chance = random.Random(0)
    place.create_run({}).update(created_at=1.0, rounds=ITERATIONS)
    place.store.append(Run(id=RUN, created_at=1.0, seed=0, env="text2sql", policy="hf:x", config={}, versions={}), made)
    for t in range(ITERATIONS):
        place.store.append(Snapshot(id=snapshot_id(ids), run=RUN, t=t, task_ids=ids, created_at=1.0))
        for batch in rollouts(made, t, chance):
            place.store.append(batch)
    place.store.ingest()
    place.store.append(detect(place.store, RUN, ITERATIONS - 1, SignalSettings()))
    place.store.ingest()


def timed(label: str, action: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    print(f"{label:<44}{time.perf_counter() - wall:9.3f} s {time.process_time() - cpu:9.3f} cpu-s", flush=True)
    return result


def looking(steps: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "work"
        root.mkdir()
        (root / "config.toml").write_text("")
        place = Workspace(root)
        timed(f"(making {steps} steps)", lambda: fill(place, steps))
        run = place.run()
        page = timed("report", lambda: report.page(place, run))
        print(f"{'its size':<44}{len(page.encode()) / 1e6:9.3f} MB")
        place.store.append(rollout("0" * 16, ITERATIONS, 0, 1.0))
        timed("live refresh after one more rollout", lambda: report.page(place, run, live=True))
        line = [sys.executable, "-m", "coevolve", "status", "--workspace", str(root)]
        timed("status, as a process", lambda: subprocess.run(line, check=True, capture_output=True))


def tracing(count: int) -> None:
    env = registry.get("text2sql")
    worlds = env.worlds("train")
    within = 0.0

    def measured(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal within
            started = time.perf_counter()
            result = method(*arguments, **named)
            within += time.perf_counter() - started
            return result

        return call

    names = ("on_chain_start", "on_chain_end", "on_chat_model_start", "on_llm_end", "spans")
    for name in names:
        setattr(Tracer, name, measured(getattr(Tracer, name)))
    jobs = [ExploreJob(run=RUN, t=0, index=index, world=worlds[index % len(worlds)].id) for index in range(count)]
    kept: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        before = time.process_time()
        asyncio.run(
            explore_all(
                jobs, env=env, model="procedural", seed=1, append=kept.extend, checkpoints=Path(directory) / "g.sqlite"
            )
        )
        whole = time.process_time() - before
    started = time.perf_counter()
    size = len(encode([row for row in kept if isinstance(row, Span)]))
    writing = time.perf_counter() - started
    print(f"{f'tracing, of {count} procedural explorations':<44}{100 * (within + writing) / whole:9.2f} %")
    print(f"{'bytes of spans, an exploration':<44}{size / count:9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_000_000)
    count = parser.parse_args().steps
    tracing(40)
    looking(count)


if __name__ == "__main__":
    main()
