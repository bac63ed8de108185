"""Seconds to detect the signals on a million steps: `python -m benchmarks.signals [--steps N]`.

Two shapes: ten iterations, of which the newest is asked for, as in a run; and the worst, all in one iteration. The
baseline in the same run is the rare query over lists of words, as one would write it first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from store.db import Store
from store.signals import SignalSettings, _boundary, _forgetting, _rare

STEPS_PER_ROLLOUT, K = 10, 8

ROLLOUTS = """
INSERT INTO trajectory BY NAME
SELECT printf('%016x', hash(i)) AS id, 'r' AS run, i // {per_iteration} AS t, 'train' AS purpose, 'text2sql' AS env,
       'shop' AS world, printf('%016x', hash(i % {per_iteration} // {k} + 7)) AS task_id, i % {k} AS k, 0 AS attempt,
       'hf:x' AS policy, 0 AS policy_version, i AS seed, 'scored' AS outcome, (hash(i + 1) % 2)::DOUBLE AS score,
       {steps} AS steps, 100 AS prompt_tokens, 30 AS completion_tokens, 0.1 AS seconds, 0 AS created_at
FROM range({rollouts}) rollouts(i)"""
STEPS = """
INSERT INTO step BY NAME
SELECT id AS trajectory_id, s AS "index", 'SELECT name FROM item WHERE price > ' || s AS "action",
       repeat('row ', 25) AS observation, string_split({shapes}[1 + pick], ' ') AS tokens, false AS failed,
       0.1 AS seconds
FROM (SELECT id, s, least(hash(id || s) % {n}, hash(s || id) % {n})::INT AS pick
      FROM trajectory, range({steps}) step(s))"""
SHAPES = [
    "SELECT",
    "SELECT WHERE",
    "SELECT JOIN WHERE",
    "SELECT GROUP ORDER",
    "SELECT ORDER LIMIT",
    "SELECT WHERE ORDER LIMIT",
    "SELECT JOIN GROUP",
    "SELECT JOIN JOIN WHERE",
    "SELECT WHERE SUBQUERY SELECT WHERE",
    "SELECT JOIN GROUP HAVING",
    "invalid",
    "SELECT JOIN WHERE GROUP HAVING ORDER LIMIT",
    "SELECT SET SELECT",
    "SELECT WHERE SET SELECT WHERE",
]
"""Action tokens of a step; the first are the most frequent. Three tokens on the average."""
CALLS = 'INSERT INTO tool_calls SELECT trajectory_id, unnest(range(len(tokens))), "index", unnest(tokens) FROM step'

NAIVE = """
WITH sequence AS (
    SELECT trajectory_id AS id, list(token ORDER BY step, "position") AS words
    FROM tool_calls SEMI JOIN (FROM v_rollout WHERE run = 'r' AND t = ?) r ON r.id = trajectory_id GROUP BY ALL),
occurrence AS (
    SELECT id, unnest(list_distinct(list_concat(
        list_transform(range(1, len(words) + 1), lambda i: words[i:i]),
        list_transform(range(1, len(words)), lambda i: words[i:i + 1]),
        list_transform(range(1, len(words) - 1), lambda i: words[i:i + 2])))) AS pattern FROM sequence)
SELECT pattern, count(*) AS n FROM occurrence GROUP BY pattern
HAVING 100.0 * n < 5 * (SELECT count(*) FROM v_rollout WHERE run = 'r' AND t = ?)"""


def fill(store: Store, steps: int, iterations: int) -> None:
    rollouts = steps // STEPS_PER_ROLLOUT
    sizes = {
        "rollouts": rollouts,
        "per_iteration": rollouts // iterations,
        "k": K,
        "steps": STEPS_PER_ROLLOUT,
        "shapes": SHAPES,
        "n": len(SHAPES),
    }
    with store.reading() as connection:
        for statement in (ROLLOUTS, STEPS, CALLS):
            connection.execute(statement.format(**sizes))


def timed(label: str, action: Callable[[], Sequence[object]]) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    found = action()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"  {label:<28}{wall:8.3f} s {cpu:8.3f} cpu-s {len(found):8d} rows")
    return wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps
    settings = SignalSettings()
    for iterations in (10, 1):
        with tempfile.TemporaryDirectory() as directory:
            store = Store(Path(directory))
            fill(store, steps, iterations)
            t = iterations - 1
            print(f"{steps} steps in {iterations} iteration(s), signals of the newest:")
            total = timed("forgetting", partial(_forgetting, store, "r", t, settings.window))
            total += timed("boundary", partial(_boundary, store, "r", t))
            rare = timed("rare", partial(_rare, store, "r", t, settings.theta, settings.ngram))
            print(f"  {'all three':<28}{total + rare:8.3f} s")
            naive = timed("rare, over lists of words", partial(store.query, NAIVE, [t, t]))
            print(f"  {'ratio to that':<28}{naive / rare:8.1f} x")


if __name__ == "__main__":
    main()
