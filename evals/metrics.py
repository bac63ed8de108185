"""Means with 95 % intervals.

`interval` uses Wilson's score interval where every value is 0 or 1 (E. B. Wilson, JASA 1927) and a seeded
percentile bootstrap over items otherwise (avg@k values lie between).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    n: int
    value: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Estimate:
    """Mean of per-item values in [0, 1] with its 95 % interval. ValueError for no values: they have no mean."""
    n = len(values)
    if n == 0:
        raise ValueError("no values")
    mean = math.fsum(values) / n
    low, high = _wilson(mean, n) if all(v in (0.0, 1.0) for v in values) else _bootstrap(values)
    return Estimate(n=n, value=mean, low=low, high=high)


def _wilson(p: float, n: int) -> tuple[float, float]:
    z2 = Z95 * Z95
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return 0.0 if p == 0 else centre - half, 1.0 if p == 1 else centre + half  # exact where rounding is not


def _bootstrap(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    rng = random.Random(0)
    n = len(values)
    means = sorted(math.fsum(rng.choices(values, k=n)) / n for _ in range(RESAMPLES))
    tail = (1 - level) / 2
    return means[round(tail * RESAMPLES)], means[round((1 - tail) * RESAMPLES) - 1]


def paired_gain(before: Sequence[float], after: Sequence[float], *, level: float = 0.95) -> Estimate:
    """Mean difference `after - before` of the same items, in [-1, 1], with the interval of a seeded percentile
    bootstrap over items; each bound of `level` = 0.9 is a one-sided 95 % bound. ValueError unless both have the same
    number of items, at least one."""
    differences = [b - a for a, b in zip(before, after, strict=True)]
    if not differences:
        raise ValueError("no values")
    low, high = _bootstrap(differences, level)
    return Estimate(n=len(differences), value=math.fsum(differences) / len(differences), low=low, high=high)
