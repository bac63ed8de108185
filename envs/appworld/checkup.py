"""What `coevolve doctor` looks at: engine, data, a whole episode, and which layers keep agents in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from envs.appworld.env import AppWorld, at
from envs.appworld.place import TRUTH
from envs.errors import InvalidTask
from store.rows import Task

ENGINE = "0.1.3.post1"
DATABASES = 12
DOCUMENTS = 450
KNOWN = {"official": (90, 57, 168, 417), "official, older": (105, 60, 168, 417), "small world": (9, 3, 3, 3)}
"""Tasks of train, dev, test_normal, test_challenge."""
CLOCK_S = 300

Finding = tuple[str, str, bool]
"""(what, what was found, whether that is well)"""


def checkup() -> Iterator[Finding]:
    env = at()
    yield from _contents(env)
    yield from _episode(env)
    there = list((env.place.root / "agent").rglob(TRUTH))
    yield "agents' data", f"{there[0]} is there" if there else "without ground truth", not there


def _contents(env: AppWorld) -> Iterator[Finding]:
    found = env.evaluators.ask({"verb": "contents"})
    yield "engine", found["engine"], found["engine"] == ENGINE
    yield "base databases", str(found["databases"]), found["databases"] == DATABASES
    yield "API documents", str(found["documents"]), found["documents"] >= DOCUMENTS
    counts = tuple(map(len, env.catalog["splits"].values()))
    which = next((name for name, known in KNOWN.items() if known == counts), "unknown")
    yield "splits", f"{' / '.join(map(str, counts))}: {which}", which != "unknown"


def _episode(env: AppWorld) -> Iterator[Finding]:
    task = env.suites()["train"][0]
    began = time.monotonic()
    run = env.agents.ask({"verb": "play", "world": task.world, "blocks": ["print(6 * 7)"]})
    yield "a world", f"opened and acted in, {time.monotonic() - began:.1f} s", run["steps"][0]["output"].strip() == "42"
    layers = ["code filter", *run["layers"], "grades by replay in another process"]
    yield "layers", ", ".join(layers), "audit hook" in layers
    yield "doing nothing", "fails", not asyncio.run(env.noop(task)).success
    yield _solution(env, task)
    drift = abs(env.evaluators.ask({"verb": "contents"})["clock"] - time.time())
    yield "clock", "goes on after an episode" if drift < CLOCK_S else "is frozen", drift < CLOCK_S


def _solution(env: AppWorld, task: Task) -> Finding:
    try:
        solved = asyncio.run(env.replay(task))
    except InvalidTask as missing:
        return "a solution", f"{missing}; have the data downloaded again into another folder", False
    return "a solution", f"passes: {solved.detail}" if solved.success else f"fails: {solved.detail}", solved.success
