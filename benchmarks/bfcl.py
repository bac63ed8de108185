"""BFCL: steps/s of a session in a worker against the prototype's worker; rollouts side by side; memory over episodes;
tasks of the procedural explorer.

    prototype  one process of the same backends, asked over its pipes: a JSON line with one call, select, a JSON line;
               or the prototype itself, a worker of that protocol on backends of its own (--prototype FILE)
    session    what a rollout pays: an event loop, the call log, the deadline, the answers as messages
    tasks      explored, validated and frozen as `coevolve seed` does it, until 1,000 are admitted

Needs `coevolve env install bfcl`. Run on one core, the tasks on two:

    taskset -c 0 python -m benchmarks.bfcl [--prototype FILE]
    python -m benchmarks.bfcl tasks
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import envs.worker_host
from envs.bfcl.catalog import ENVIRON, VENV, pool
from envs.bfcl.env import Bfcl
from envs.protocols import Message
from envs.worker import Limits
from store.db import Store
from store.rows import Task, Verdict

TASKS = 50
REPEATS = 5
EPISODES = 5000
REPLY: Message = {"role": "assistant", "content": "Done."}


class Prototype:
    """Its worker (bfcl_child.py, or the file given), asked as it was: a line out, a line in, each awaited by select
    within a deadline."""

    def __init__(self, file: Path | None) -> None:
        host = Path(envs.worker_host.__file__)
        child = [Path(__file__).with_name("bfcl_child.py"), host, host.parent / "bfcl" / "worker"]
        command = [VENV.python, "-s", *([file] if file else ["-P", *child])]
        self.own = file is not None
        self._child = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRON, text=True, bufsize=1
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in, self._out = self._child.stdin, self._child.stdout

    def ask(self, op: str, **arguments: Any) -> Any:
        self._in.write(json.dumps({"op": op, **arguments}) + "\n")
        self._in.flush()
        if not select.select([self._out], [], [], 30)[0]:
            raise TimeoutError(op)
        answer = json.loads(self._out.readline())
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def prototype_episode(prototype: Prototype, task: Task) -> int:
    known = {} if prototype.own else {"reference": task.reference}  # it reads the official answers by itself
    sid = prototype.ask("open", id=task.world, **known)["sid"]
    steps = 0
    for calls in task.reference:
        for call in calls:
            prototype.ask("step", sid=sid, calls=[{"name": call["name"], "arguments": call["args"]}])
            steps += 1
        prototype.ask("next", sid=sid)
    assert prototype.ask("evaluate", sid=sid)["valid"]
    prototype.ask("close", sid=sid)
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


def speed(env: Bfcl, tasks: list[Task], file: Path | None) -> None:
    prototype = Prototype(file)
    rates: dict[str, list[float]] = {"prototype": [], "session": []}
    steps: list[int] = []
    for _ in range(REPEATS):
        with timed(rates["prototype"], steps):
            steps += [prototype_episode(prototype, task) for task in tasks]
        with timed(rates["session"], steps):
            steps += [count for count, _ in asyncio.run(all_of(env, tasks))]
    prototype.close()
    one, other = (sorted(rates[name])[REPEATS // 2] for name in ("prototype", "session"))
    print(f"steps/s, medians of {REPEATS}: prototype {one:.0f}, session {other:.0f}, ratio {other / one:.2f}")


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


def tasks(wanted: int) -> None:
    """The whole of `coevolve seed`: processes, graphs, journal and snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text('policy = "vllm:none"\n')  # D_0 needs no policy
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "coevolve", "seed", "--workspace", folder, "--env", "bfcl:stratified"]
        subprocess.run([*command, "--set", f"seed_set.unguided={wanted}"], check=True, stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        reasons = Counter(row.reason for row in Store(Path(folder) / "store").rows(Verdict))
    decided, valid = sum(reasons.values()), reasons.pop("valid")
    print(f"{valid} tasks of {decided} candidates ({valid / decided:.0%}) in {seconds:.0f} s, {work:.0f} s of CPU")
    print(f"goal: 1000 in 120 s; rejected: {dict(reasons)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["sessions", "tasks"], default="sessions")
    parser.add_argument("--prototype", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.part == "tasks":
        return tasks(1000)
    env = Bfcl(pool(Limits(workers=1, sessions=10**9)))
    official = env.suites()["multi_turn_base"][:: 200 // TASKS]
    speed(env, official, asked.prototype)
    side_by_side(env, official[::5])
    memory(env, official)
    env.close()


if __name__ == "__main__":
    main()
