"""Seconds to make a D_0 of 200 validated tasks with the procedural explorer, through graphs, journal and snapshot.

    python -m benchmarks.d0 [--tasks 200]

The baseline is execution alone: each of the same tasks replayed twice and its no-ops tried, without any graph.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from envs import registry
from envs.protocols import Env
from store.rows import Task
from store.snapshot import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    wanted = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(
            f'policy = "litellm:none"\n[seed_set]\nseeds = 0\nunguided = {wanted}\n'  # D_0 needs no policy
        )
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "coevolve", "seed", "--workspace", folder], check=True)
        whole = time.perf_counter() - started
        _, tasks = load(Path(folder) / "runs/r001/snapshots", "latest")
    started = time.perf_counter()
    asyncio.run(execute(registry.get("text2sql"), tasks))
    bare = time.perf_counter() - started
    print(f"{len(tasks)} validated tasks in {whole:.1f} s (goal: under 60 s); their execution alone {bare:.1f} s:")
    print(f"the whole takes {whole / bare:.1f}x as long as execution alone")


async def execute(env: Env, tasks: list[Task]) -> None:
    for task in tasks:
        assert (await env.replay(task)).success
        assert (await env.replay(task)).success
        assert not (await env.noop(task)).success


if __name__ == "__main__":
    main()
