"""The SQL agrees with the definitions written down once more, slowly, in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from store.db import Store
from store.rows import Step, Trajectory
from store.signals import SignalSettings, detect
from tests.store_rows import step, trajectory

Found = set[tuple[str, object, tuple[str, ...]]]


def counted(rows: list[Trajectory], run: str) -> list[Trajectory]:
    first: dict[object, Trajectory] = {}
    for row in sorted(rows, key=lambda row: row.attempt):
        if row.run == run and row.purpose == "train" and row.outcome == "scored":
            first.setdefault((row.t, row.task_id, row.k), row)
    return list(first.values())


def score(row: Trajectory) -> float:
    assert row.score is not None
    return row.score


def slow(rows: list[Trajectory], steps: list[Step], t: int, settings: SignalSettings) -> Found:
    groups: dict[tuple[str | None, int], list[Trajectory]] = defaultdict(list)
    for row in counted(rows, "r"):
        groups[row.task_id, row.t].append(row)
    found: Found = set()
    for (task, at), group in groups.items():
        if at != t:
            continue
        seen = sorted(i for other, i in groups if other == task and i <= t)[-settings.window :]
        means = {i: sum(map(score, groups[task, i])) / len(groups[task, i]) for i in seen}
        failures = [row.id for row in group if score(row) < 0.5]
        if means[t] < 0.5 and any(means[i] >= 0.5 for i in seen[:-1]):
            found.add(("forgetting", task, tuple(sorted(failures))))
        if 0 < len(failures) < len(group):
            found.add(("boundary", task, tuple(sorted(row.id for row in group))))
    return found | slow_rare([row.id for row in counted(rows, "r") if row.t == t], steps, settings)


def slow_rare(rollouts: list[str], steps: list[Step], settings: SignalSettings) -> Found:
    holders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for rollout in rollouts:
        of_rollout = sorted((each for each in steps if each.trajectory_id == rollout), key=lambda each: each.index)
        tokens = [token for each in of_rollout for token in each.tokens]
        for n in range(1, settings.ngram + 1):
            for at in range(len(tokens) - n + 1):
                holders[tuple(tokens[at : at + n])].add(rollout)
    return {
        ("rare", pattern, tuple(sorted(having)))
        for pattern, having in holders.items()
        if len(having) / len(rollouts) < settings.theta / 100
    }


def world(rng: random.Random) -> tuple[list[Trajectory], list[Step]]:
    """Rollouts of a few tasks over a few iterations, with lost ones, retries, held-out ones and another run's."""
    rows, steps = [], []
    for t in range(rng.randint(1, 8)):
        for name in rng.sample("abcdef", rng.randint(1, 6)):
            for k in range(rng.randint(1, 4)):
                for attempt in range(rng.choice([1, 1, 1, 2])):
                    row = trajectory(
                        name,
                        k,
                        t=t,
                        attempt=attempt,
                        run=rng.choice("rrrrrs"),
                        purpose=rng.choice(["train"] * 6 + ["eval"]),
                        outcome=rng.choice(["scored"] * 6 + ["infra", "invalid"]),
                        score=rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]),
                    )
                    rows.append(row)
                    for index in range(rng.randint(0, 3)):
                        tokens = rng.choices(["SELECT", "WHERE", "SET"], [9, 4, 1], k=rng.randint(0, 3))
                        steps.append(step(row, tokens, index))
    return rows, steps


@pytest.mark.parametrize("seed", range(12))
def test_sql_and_definition_agree(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rows, steps = world(rng)
    store = Store(tmp_path)
    store.append(rng.sample(rows, len(rows)), rng.sample(steps, len(steps)))
    settings = SignalSettings(window=rng.randint(2, 5), theta=rng.choice([5, 20, 50, 100]), ngram=rng.randint(1, 3))
    for t in {0, max(row.t for row in rows)}:
        fast = {
            (found.kind, found.task_id or tuple(found.pattern or ()), tuple(found.evidence))
            for found in detect(store, "r", t, settings)
        }
        assert fast == slow(rows, steps, t, settings)
