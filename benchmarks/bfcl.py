"""BFCL: steps/s of a session in a worker against a bare loop over pipes; rollouts side by side; memory over episodes.

    bare     the least that any worker needs: one process of the same backends, one line out, one line in, blocking
    session  what a rollout pays: an event loop, the call log, a deadline, the answers as messages

Needs `coevolve env install bfcl`. Run on one core: `taskset -c 0 python -m benchmarks.bfcl`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import envs.worker_host
from envs.bfcl.catalog import ENVIRON, VENV, pool
from envs.bfcl.env import Bfcl
from envs.protocols import Message
from envs.worker import Limits
from store.rows import Task

TASKS = 50
REPEATS = 5
EPISODES = 5000
REPLY: Message = {"role": "assistant", "content": "Done."}


class Bare:
    """One worker, asked over its pipes without anything around it."""

    def __init__(self, package: Path) -> None:
        limits = json.dumps({"memory_mb": 2048, "alarm_s": 120})
        host = envs.worker_host.__file__
        command = [VENV.python, "-P", "-s", host, "envs.bfcl.worker", package, limits]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRON)
        assert self._child.stdout is not None
        self._child.stdout.readline()

    def ask(self, request: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request).encode() + b"\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline())["ok"]

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def bare_episode(bare: Bare, task: Task) -> int:
    sid = bare.ask({"verb": "open", "world": task.world, "reference": task.reference, "grading": "official"})["sid"]
    steps = 0
    for calls in task.reference:
        for call in calls:
            bare.ask({"verb": "act", "sid": sid, "calls": [call]})
            steps += 1
        bare.ask({"verb": "turn", "sid": sid})
    assert bare.ask({"verb": "evaluate", "sid": sid})["official"]
    bare.ask({"verb": "close", "sid": sid})
    return steps


async def episode(env: Bfcl, task: Task) -> tuple[int, list[str]]:
    """(steps, all observations)."""
    session = env.open(task.world, task)
    await session.start()
    seen: list[str] = []
    for calls in task.reference:
        for at, call in enumerate(calls):
            act: Message = {"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{at}", **call}]}
            seen += [message["content"] for message in (await session.act(act)).messages]
        await session.act(REPLY)
    outcome = await session.evaluate()
    assert outcome.success
    await session.close()
    return len(seen), [*seen, outcome.detail]


@contextmanager
def timed(rates: list[float], steps: list[int]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    rates.append(sum(steps) / (time.perf_counter() - started))
    steps.clear()


def speed(env: Bfcl, tasks: list[Task]) -> None:
    bare = Bare(Path(envs.worker_host.__file__).parent / "bfcl" / "worker")
    rates: dict[str, list[float]] = {"bare": [], "session": []}
    steps: list[int] = []
    for _ in range(REPEATS):
        with timed(rates["bare"], steps):
            steps += [bare_episode(bare, task) for task in tasks]
        with timed(rates["session"], steps):
            steps += [count for count, _ in asyncio.run(all_of(env, tasks))]
    bare.close()
    one, other = (sorted(rates[name])[REPEATS // 2] for name in ("bare", "session"))
    print(f"steps/s, medians of {REPEATS}: bare {one:.0f}, session {other:.0f}, ratio {other / one:.2f}")


async def all_of(env: Bfcl, tasks: list[Task]) -> list[tuple[int, list[str]]]:
    return [await episode(env, task) for task in tasks]


async def together(env: Bfcl, task: Task, k: int) -> list[list[str]]:
    return [seen for _, seen in await asyncio.gather(*(episode(env, task) for _ in range(k)))]


def side_by_side(env: Bfcl, tasks: list[Task]) -> None:
    equal = 0
    for task in tasks:
        _, alone = asyncio.run(episode(env, task))
        equal += asyncio.run(together(env, task, 8)) == [alone] * 8
    print(f"8 rollouts at once equal the serial one: {equal} of {len(tasks)} tasks")


def memory(env: Bfcl, tasks: list[Task]) -> None:
    """Of one worker, in MB: after the first tenth of the episodes, and at the end."""
    seen = []
    for done in range(10):
        asyncio.run(all_of(env, [tasks[at % len(tasks)] for at in range(EPISODES // 10)]))
        seen.append(resident(env))
        sys.stderr.write(f"memory: {(done + 1) * EPISODES // 10} of {EPISODES} episodes\n")
    later = f"{min(seen[1:]):.1f} to {max(seen[1:]):.1f} MB"
    print(f"worker's memory over {EPISODES} episodes: {seen[0]:.1f} MB, then {later}")


def resident(env: Bfcl) -> float:
    (pid,) = env.pool.pids
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    env = Bfcl(pool(Limits(workers=1, sessions=10**9)))
    tasks = env.suites()["multi_turn_base"][:: 200 // TASKS]
    speed(env, tasks)
    side_by_side(env, tasks[::5])
    memory(env, tasks)
    env.close()


if __name__ == "__main__":
    main()
