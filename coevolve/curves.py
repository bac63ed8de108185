"""The figures of a round that no score holds: what D is like, what became of candidates, what it took.

docs/flywheel.md says what each is. They are rows (`figure`); the view `v_curve` puts them beside the scores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from store.db import Store
from store.dedupe import Embed, question
from store.rows import VETOES, Figure, Task

CLUSTER = 0.6
"""Cosine to the first question of a cluster from which on a question belongs to it."""
STAGES = {
    "try": ("objection", "unclear"),
    "replay": ("replay_fails", "replay_differs", "noop_passes"),
    "judges": VETOES,
    "twins": ("duplicate", "held_out"),
}
"""Reasons of rejections by the stage that gives them, in the order of the stages after the hard checks."""


def of_round(store: Store, run: str, round_: int, tasks: Sequence[Task], embed: Embed | None) -> list[Figure]:
    """Of round 0 = D_0, or of iteration round_ - 1 and the snapshot that it made."""
    t = round_ - 1
    found = of_tasks(tasks, embed)
    if round_:
        found |= accepted(store, run, t) | spent(store, run, t) | zero_variance(store, run, t)
    return [Figure(run=run, t=round_, name=name, value=float(value)) for name, value in found.items()]


def of_tasks(tasks: Sequence[Task], embed: Embed | None) -> dict[str, float]:
    texts = [question(task) for task in tasks]
    grams = Counter(pair for text in texts for pair in pairwise(re.findall(r"\w+", text.casefold())))
    found = {
        "tasks": float(len(tasks)),
        "difficulty": fmean(task.difficulty for task in tasks),
        "diversity/structures": float(len({task.structure for task in tasks})),
        "diversity/ngrams": len(grams) / grams.total() if grams else 0.0,
    }
    if embed is not None:
        vectors = embed(texts)
        found["diversity/spread"] = spread(vectors)
        found["diversity/clusters"] = float(clusters(vectors))
    return found


def spread(vectors: Any) -> float:
    """Mean cosine distance of two of the vectors, in [0, 2]. [N, D], rows of length 1."""
    n = len(vectors)
    total = vectors.sum(axis=0, dtype="float64")
    return float((n * n - total @ total) / (n * (n - 1))) if n > 1 else 0.0


def clusters(vectors: Any) -> int:
    """How many questions are far from each that leads a cluster before them (leader clustering, in order)."""
    leaders: list[int] = []
    for at in range(len(vectors)):
        if not leaders or (vectors[leaders] @ vectors[at]).max() < CLUSTER:
            leaders.append(at)
    return len(leaders)


def accepted(store: Store, run: str, t: int) -> dict[str, float]:
    """Share of the candidates that pass each stage, of those that reach it; `accepted` of all that were decided."""
    rows = store.query("select reason, count(*) from verdict where run = ? and t = ? group by reason", [run, t])
    counts = {reason: int(n) for reason, n in rows}
    left, known = sum(counts.values()), [reason for reasons in STAGES.values() for reason in reasons]
    if not left:
        return {}
    found = {"accepted": counts.get("valid", 0) / left}
    refused = {stage: sum(counts.get(reason, 0) for reason in reasons) for stage, reasons in STAGES.items()}
    checks = sum(n for reason, n in counts.items() if reason not in (*known, "valid"))
    for stage, n in {"checks": checks, **refused}.items():
        if left and (n or stage != "judges"):  # most runs have no judges
            found[f"accepted/{stage}"] = (left - n) / left
        left -= n
    return found


def spent(store: Store, run: str, t: int) -> dict[str, float]:
    rows = store.query("select seconds, tokens, dollars from v_spent where run = ? and t = ?", [run, t])
    names = ("cost/seconds", "cost/tokens", "cost/dollars")
    return dict(zip(names, map(float, rows[0]), strict=True)) if rows else {}


def zero_variance(store: Store, run: str, t: int) -> dict[str, float]:
    """Share of the groups of at least two scored rollouts that all scored the same: they teach nothing by reward."""
    [(share,)] = store.query(
        "select avg((most - least < 1e-9)::int) from (select max(score) as most, min(score) as least from v_rollout "
        "where run = ? and t = ? group by task_id having count(*) > 1)",
        [run, t],
    )
    return {} if share is None else {"zero_variance": float(share)}
