"""Seconds to take 10,000 candidates through de-duplication, beside the environment's own keys of the same tasks.

    python -m benchmarks.dedupe [--candidates 10000]

Candidates are made from the built-in questions by changing their constants and a word: some are twins, most are not.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coevolve.config import Settings
from coevolve.embedding import embedder
from envs import registry
from store.dedupe import DedupeSettings, Embed, Index
from store.rows import Task

WORDS = ("please", "now", "today", "exactly", "indeed", "really", "again", "here", "briefly", "first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=10_000)
    wanted = parser.parse_args().candidates
    env = registry.get("text2sql")
    held_out = [task for tasks in env.suites().values() for task in tasks]
    candidates = made(env.seed_tasks(), wanted)

    def through(embed: Embed | None) -> Counter[str]:
        index = Index(DedupeSettings(), embed)
        index.add(held_out, held_out=True)
        index.prepare(candidates)
        found: Counter[str] = Counter()
        for task in candidates:
            twin = index.twin(task)
            found[twin.stage if twin else "new"] += 1
            if twin is None:
                index.add([task])
        return found

    timed(f"exact and structural, {wanted} candidates (goal: under 5 s)", lambda: through(None))
    embed = embedder(Settings())
    if embed is None:
        print("the semantic stage needs `pip install '.[embed]'`")
    else:
        timed(f"all three stages, {wanted} candidates (goal: under 60 s)", lambda: through(embed))
    few = candidates[: max(1, wanted // 10)]
    timed(f"baseline: Env.twins, which parses SQL, of {len(few)} candidates", lambda: [env.twins(task) for task in few])


def timed(name: str, work: Callable[[], Any]) -> None:
    started = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - started
    print(f"{name}: {seconds:.2f} s{f'; {dict(found)}' if isinstance(found, Counter) else ''}")


def made(tasks: list[Task], wanted: int) -> list[Task]:
    rng = random.Random(0)
    found = []
    for number in range(wanted):
        task = tasks[number % len(tasks)]
        sql = re.sub(r"\d+", lambda match: str(rng.randrange(1000)), str(task.reference))
        if rng.random() < 0.5:
            sql += f" LIMIT {rng.randrange(1, 50)} OFFSET {rng.randrange(5)}" if "LIMIT" not in sql else ""
            sql = sql.replace("SELECT", f"SELECT {number} AS n,", 1) if rng.random() < 0.5 else sql
            sql += f" -- {rng.choice(WORDS)}{number}"
        words = f"{task.user_turns[0]} {' '.join(rng.sample(WORDS, 3))} {number}"
        expected = task.expected if rng.random() < 0.1 else [str(number)]
        found.append(replace(task, id=f"candidate{number}", user_turns=[words], reference=sql, expected=expected))
    return found


if __name__ == "__main__":
    main()
