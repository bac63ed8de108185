"""How the tasks of a snapshot are sampled: a floor for the seeds, weights by signal and by pass rate.

A task whose rollouts mostly all succeed, or all fail, has nothing to teach by rewards. The posterior of its pass rate,
Beta(1 + successes, 1 + failures) over the rollouts of the iteration that sampled it last, says how likely the rate is
within the band; that probability is its weight. Nothing is rolled out for it, and nothing leaves D for it: a task that
is too easy or too hard stays, with that reason, and is sampled rarely. What a signal gave birth to counts in full until
it has had its turns.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import mean

from pydantic import BaseModel, ConfigDict, Field, model_validator

from store.db import Store
from store.rows import Json, SignalKind, Task

CREDIBLE = 0.8
"""A rate is out of the band where so much of its posterior is on one side of it."""
LEAST = 0.1
"""Weight of a task far out of the band: it is looked at now and then, for what is forgotten shows no otherwise."""


class MixSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seed_floor: float = Field(default=0.3, ge=0, le=1)
    """Least share of the sampling probability that seed tasks have; where D has none, D_0 plays their part."""
    hard: float = Field(default=0.2, ge=0, le=1)
    easy: float = Field(default=0.8, ge=0, le=1)
    """The band: pass rates between these two."""
    exempt: int = Field(default=2, ge=0)
    """Iterations for which a task that was born of a signal is out of the band's reach."""
    signals: dict[SignalKind, float] = {"forgetting": 2.0, "boundary": 1.0, "rare": 1.0}
    """Weights by the signal that a task was born of; forgetting is worth twice the others in CoEvolve's ablation."""

    @model_validator(mode="after")
    def _in_order(self) -> MixSettings:
        if self.hard >= self.easy:
            raise ValueError(f"hard = {self.hard:g} is not below easy = {self.easy:g}: the band would be empty")
        if wrong := [kind for kind, weight in self.signals.items() if weight <= 0]:
            raise ValueError(f"signals.{wrong[0]} is no weight above 0; a task that is never sampled teaches nothing")
        return self


def mix(
    store: Store,
    run: str,
    t: int,
    tasks: Sequence[Task],
    settings: MixSettings,
    *,
    growth: float,
    revisit: bool = False,
) -> Json:
    """What the manifest of D_t states: shares, and the lists `part`, `band` and `p` with an entry a task.

    `revisit`: tasks out of the band weigh as much as those within, so that they are measured again.
    """
    born, kinds = _born(store, run, t), _kinds(store, run)
    parts = _parts(tasks, born, kinds, t)
    rated = rates(store, run, t)
    alike: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for task in tasks:
        if task.id in rated:
            alike[task.structure].append(rated[task.id])
    bands, weights = list[str](), list[float]()
    for task, part in zip(tasks, parts, strict=True):
        fresh = task.id in kinds and t - born.get(task.id, t) < settings.exempt
        name, weight = ("exempt", 1.0) if fresh else band(rated.get(task.id), alike[task.structure], settings)
        bands.append(name)
        weights.append(settings.signals.get(part, 1.0) * (1.0 if revisit else weight))  # type: ignore[call-overload]
    p = floored(weights, [part == "seed" for part in parts], settings.seed_floor)
    seeds = math.fsum(each for each, part in zip(p, parts, strict=True) if part == "seed")
    return {
        "seed_floor": settings.seed_floor,
        "seed_share": round(seeds, 6),
        "growth": growth,
        "grown": sum(born.get(task.id, t) == t for task in tasks) if t else 0,
        "range": [settings.hard, settings.easy],
        "revisit": revisit,
        "parts": dict(sorted(Counter(parts).items())),
        "bands": dict(sorted(Counter(bands).items())),
        "part": parts,
        "band": bands,
        "p": p,
    }


def band(rate: tuple[int, int] | None, alike: Sequence[tuple[int, int]], settings: MixSettings) -> tuple[str, float]:
    """(name, weight) for `rate` = (successes, rollouts): `in`, `easy`, `hard`, or `new` where it was not sampled yet.
    A new task is judged by those of its structure, and without any it is taken to be within reach."""
    if rate is None:
        if not alike:
            return "new", 1.0
        rollouts = max(1, round(mean(n for _, n in alike)))
        return "new", _weight(round(rollouts * mean(s / n for s, n in alike)), rollouts, settings)[1]
    return _weight(*rate, settings)


def _weight(successes: int, rollouts: int, settings: MixSettings) -> tuple[str, float]:
    below = beta_cdf(settings.hard, successes, rollouts - successes)
    above = 1 - beta_cdf(settings.easy, successes, rollouts - successes)
    name = "hard" if below >= CREDIBLE else "easy" if above >= CREDIBLE else "in"
    return name, max(LEAST, 1 - below - above)


def beta_cdf(x: float, successes: int, failures: int) -> float:
    """P(rate <= x) under Beta(1 + successes, 1 + failures): the tail of a binomial, its parameters being whole."""
    n = successes + failures + 1
    return math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(successes + 1, n + 1))


def floored(weights: Sequence[float], seeds: Sequence[bool], floor: float) -> list[float]:
    """The weights as probabilities, those of the seeds raised together until their share is at least `floor`."""
    own = math.fsum(weight for weight, seed in zip(weights, seeds, strict=True) if seed)
    total = math.fsum(weights)
    if not own or own >= floor * total:
        return [weight / total for weight in weights]
    rest = total - own
    if not rest or floor == 1:
        return [weight / own if seed else 0.0 for weight, seed in zip(weights, seeds, strict=True)]
    return [
        floor * weight / own if seed else (1 - floor) * weight / rest
        for weight, seed in zip(weights, seeds, strict=True)
    ]


def rates(store: Store, run: str, t: int) -> dict[str, tuple[int, int]]:
    """{task id: (successes, scored rollouts)} of the last iteration before t that sampled it."""
    rows = store.query(
        "SELECT task_id, arg_max(successes, t), arg_max(rollouts, t) FROM v_task_score WHERE run = ? AND t < ? "
        "GROUP BY task_id",
        [run, t],
    )
    return {task: (successes, rollouts) for task, successes, rollouts in rows}


def _born(store: Store, run: str, t: int) -> dict[str, int]:
    """{task id: the first snapshot before D_t that has it}."""
    rows = store.query("SELECT task_id, min(t) FROM v_membership WHERE run = ? AND t < ? GROUP BY task_id", [run, t])
    return {task: int(first) for task, first in rows}


def _kinds(store: Store, run: str) -> dict[str, str]:
    """{task id: kind of the signal that it was born of}."""
    rows = store.query(
        "SELECT task_id, arg_min(signal_kind, verdict_t) FROM v_lineage WHERE run = ? AND signal_kind IS NOT NULL "
        "GROUP BY task_id",
        [run],
    )
    return dict(rows)


def _parts(tasks: Sequence[Task], born: dict[str, int], kinds: dict[str, str], t: int) -> list[str]:
    any_seed = any(task.origin == "seed" for task in tasks)

    def part(task: Task) -> str:
        if task.origin == "seed" or (not any_seed and born.get(task.id, t) == 0):
            return "seed"
        return "outside" if task.origin == "outside" else kinds.get(task.id, "unguided")

    return [part(task) for task in tasks]
