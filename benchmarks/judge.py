"""What the judge graph adds to a call: the same prompts through it, with its store, and through a bare loop.

    python -m benchmarks.judge [--tasks 500] [--judges 3] [--concurrency 16] [--repeats 3]

An endpoint in a process of its own answers at once. `judge` puts each candidate through the graph of graphs/judge.py
(check, a cheap judge, a committee), every vote durable in the journal before it counts; `bare` sends the recorded
prompts with ChatLiteLLM.ainvoke from as many workers. Wall and CPU time a call, best of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from benchmarks.refine import bare, endpoint, timed
from envs import registry
from envs.protocols import Env
from graphs.committee import Committee, Judges, Standing, named
from graphs.judge import graph
from graphs.known import Known
from graphs.model import Budget
from graphs.recording import Recorder
from graphs.settings import JudgeSettings, ModelSettings
from graphs.sitting import Voice
from store.db import Store
from store.rows import Task, Vote
from tests.judge_setup import GOOD
from tests.scripted import ScriptedChatModel, says

SPEC = "litellm:openai/m"


def court(env: Env, folder: Path, judges: Judges, calls: ModelSettings) -> Committee:
    return Committee(
        judges=judges,
        env=env,
        known=Known(env),
        standing=Standing.of(env.seed_tasks()),
        run="b",
        calls=calls,
        budget=Budget(),
        record=Recorder(Store(folder / "store").append),
    )


async def judged(committee: Committee, tasks: Sequence[Task]) -> None:
    """All tasks through the graph, as many at once as calls may be."""
    left = iter(enumerate(tasks))

    async def work() -> None:
        for at, task in left:
            given: Any = {"id": f"c{at}", "task": msgspec.to_builtins(task), "votes": []}
            ended = await graph.ainvoke(given, RunnableConfig(configurable={"committee": committee}))
            assert ended["verdict"]["adopt"], ended["verdict"]

    await asyncio.gather(*(work() for _ in range(committee.calls.concurrency)))


def recorded(env: Env, folder: Path, tasks: Sequence[Task], judges: int) -> list[list[BaseMessage]]:
    """The prompts that the judges are sent."""
    kept: list[list[BaseMessage]] = []

    def answer(messages: Sequence[BaseMessage], tools: Any) -> AIMessage:
        kept.append(list(messages))
        return says(json.dumps(GOOD))

    voice = Voice(spec=SPEC, model=ScriptedChatModel(policy=answer))
    asyncio.run(judged(court(env, folder, Judges(strong=[voice] * judges, cheap=voice), ModelSettings()), tasks))
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--judges", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    env = registry.get("text2sql")
    seeds = env.seed_tasks()
    tasks = [seeds[at % len(seeds)] for at in range(options.tasks)]
    with tempfile.TemporaryDirectory() as directory, endpoint(0.0, json.dumps(GOOD)) as url:
        folder = Path(directory)
        calls = ModelSettings(api_base=f"{url}/v1", concurrency=options.concurrency)
        prompts = recorded(env, folder / "noted", tasks, options.judges)
        voices = named([SPEC] * (options.judges + 1), calls, seed=0)
        judges = Judges(strong=voices[1:], cheap=voices[0], settings=JudgeSettings(models=[SPEC] * options.judges))
        ours, theirs = [], []
        for turn in range(options.repeats):
            theirs.append(timed(bare(voices[0].model, prompts, options.concurrency)))
            place = folder / f"judge{turn}"
            ours.append(timed(judged(court(env, place, judges, calls), tasks)))
        assert len(Store(place / "store").rows(Vote)) == len(prompts)
    (wall, cpu), (bare_wall, bare_cpu) = (tuple(map(min, zip(*each, strict=True))) for each in (ours, theirs))
    made = len(prompts)
    print(f"{made} calls, best of {options.repeats}: bare loop {1e3 * bare_wall / made:.2f} ms a call ", end="")
    print(f"({1e3 * bare_cpu / made:.2f} cpu-ms), judge graph {1e3 * wall / made:.2f} ms ", end="")
    print(f"({1e3 * cpu / made:.2f} cpu-ms): {1e3 * (wall - bare_wall) / made:+.2f} ms ", end="")
    print(f"({1e3 * (cpu - bare_cpu) / made:+.2f} cpu-ms; goal 3)")


if __name__ == "__main__":
    main()
