"""AppWorld: steps/s of a session in a worker against the bare engine; first open, two workers, memory, evaluation.

    bare     one process that opens a world and calls the engine's `execute`, as its documentation has it
    session  what a rollout pays: a caged child of a warm process, the call log, a deadline, answers as messages

Needs `coevolve env install appworld`; with the small world it takes about five minutes on two cores.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from envs.appworld.env import AppWorld, at
from envs.appworld.place import LIMITS, VENV, environment
from envs.protocols import Message
from store.rows import Task

STEPS = 200
OPENS = 20
EPISODES = 300
CODE = "print(apis.supervisor.show_profile()['first_name'])"
ACT: Message = {"role": "assistant", "content": f"```python\n{CODE}\n```"}
BARE = """
import os, time
from appworld import AppWorld, update_root
update_root(os.environ["APPWORLD_ROOT"])
world = AppWorld("{world}", experiment_name="bare", load_ground_truth=False)
clock = lambda: time.clock_gettime(time.CLOCK_MONOTONIC)
began = clock()
for _ in range({steps}):
    world.execute({code!r})
print({steps} / (clock() - began))
"""


def bare(env: AppWorld, task: Task) -> float:
    """Steps a second."""
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "data").symlink_to(env.place.root / "data")
        script = BARE.format(world=task.world, steps=STEPS, code=CODE)
        done = subprocess.run(
            [VENV.python, "-c", script], env=environment(Path(root)), capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


async def opened(env: AppWorld, task: Task) -> float:
    """Seconds from nothing to the first message."""
    session = env.open(task.world, task)
    began = time.perf_counter()
    await session.start()
    seconds = time.perf_counter() - began
    await session.close()
    return seconds


async def steps(env: AppWorld, task: Task, times: int) -> None:
    session = env.open(task.world)  # without a task nothing ends it
    await session.start()
    call = {"id": "1", "name": "run_python", "args": {"code": CODE}}
    for _ in range(times):
        await session.act({"role": "assistant", "content": "", "tool_calls": [call]})
    await session.close()


async def rate(env: AppWorld, task: Task, sessions: int) -> float:
    """Steps a second of so many sessions side by side, their opening included."""
    began = time.perf_counter()
    await asyncio.gather(*(steps(env, task, STEPS) for _ in range(sessions)))
    return sessions * STEPS / (time.perf_counter() - began)


async def both(env: AppWorld, task: Task) -> None:
    await asyncio.gather(steps(env, task, 1), steps(env, task, 1))


async def graded(env: AppWorld, task: Task) -> float:
    """Seconds of `evaluate`."""
    session = env.open(task.world, task)
    await session.start()
    await session.act(ACT)
    began = time.perf_counter()
    await session.evaluate()
    seconds = time.perf_counter() - began
    await session.close()
    return seconds


def resident(pids: list[int]) -> float:
    """Megabytes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * 4096 / 1e6


def main() -> None:
    env = at()
    task = env.suites()["train"][0]
    asyncio.run(opened(env, task))
    first = [asyncio.run(opened(env, task)) for _ in range(OPENS)]
    print(f"open, warm             {statistics.median(first):.2f} s median, {max(first):.2f} s worst of {OPENS}")
    plain, ours = bare(env, task), asyncio.run(rate(env, task, 1))
    print(f"steps/s                bare {plain:.1f}, session {ours:.1f}: ratio {ours / plain:.2f}")
    env.agents = env.place.agents(replace(LIMITS, crowd=1))
    asyncio.run(both(env, task))  # two processes are started
    pair = asyncio.run(rate(env, task, 2))
    print(f"two processes          {pair:.1f} steps/s: {pair / ours:.2f} times one")
    marks = [asyncio.run(graded(env, task)) for _ in range(OPENS)]
    print(f"evaluate               {statistics.median(marks):.2f} s median, {max(marks):.2f} s worst of {OPENS}")
    before = resident(env.agents.pids)
    for _ in range(EPISODES):
        asyncio.run(steps(env, task, 1))
    after = resident(env.agents.pids)
    print(f"memory                 {before:.0f} MB, after {EPISODES} episodes {after:.0f} MB")
    env.close()


if __name__ == "__main__":
    main()
