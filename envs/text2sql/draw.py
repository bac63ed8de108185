"""Seeded draws and the shared vocabulary that fill the text2sql populations.

Everything is built on `Random.random()` alone: it is the one method whose sequence Python promises to keep for
a given seed, so a population, and with it every recorded result hash, is the same on every Python version.
Values of text columns come from one vocabulary for all populations of a schema: a filter that finds rows in
one population nearly always finds some in the others, while counts, sums and extremes differ.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Rows = dict[str, list[tuple[Any, ...]]]
"""Rows by table, parents before children, values in the order of the table's columns."""


def words(text: str) -> list[str]:
    """A vocabulary written as a line of text."""
    return text.split()


def pairs(first: list[str], second: list[str], step: int) -> list[str]:
    """Every "first second", in an order that mixes both well; `step` has no factor in common with their number."""
    every = [f"{a} {b}" for a in first for b in second]
    return [every[i * step % len(every)] for i in range(len(every))]


FIRST = words("Ada Ben Cleo Dan Eva Finn Gina Hugo Iris Jon Kira Leo Mia Nils Olga Paul Rosa Sam Tara Uwe Vera Will")
LAST = words("Adler Berg Costa Dahl Evans Falk Grant Holm Ito Jansen Kim Lund Moss Novak Ortiz Park Quinn Reyes")
PEOPLE = pairs(FIRST, LAST, 61)

CITIES = ["Lisbon", "Oslo", "Lyon", "Ghent", "Turin"]
OTHER_CITIES = ["Porto", "Bergen", "Malmo"]
COUNTRIES = ["Japan", "Kenya", "Brazil", "France", "Norway"]
OTHER_COUNTRIES = ["Peru", "Egypt", "Canada"]
YEARS = range(2019, 2025)

_MOODS = words("Silent Golden Broken Hidden Distant Frozen Scarlet Gentle Hollow Restless")
_THINGS = words(
    "River Garden Mirror Harbor Winter Letter Forest Shadow Bridge Island Lantern Orchard Window Summer Tower Desert "
    "Mountain Promise Journey Secret"
)
TITLES = pairs(_MOODS, _THINGS, 67)
"""200 titles of books, songs and albums."""


class Draw:
    """The random choices of one population of one schema."""

    def __init__(self, schema: str, population: int) -> None:
        self._random = random.Random(f"text2sql/{schema}/{population}")
        self._population = population

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + int(self._random.random() * (high - low + 1))

    def size(self, low: int, high: int) -> int:
        """A number of rows in [low, high], never the same in populations 0, 1 and 2 (needs high - low >= 2)."""
        third = (high - low + 1) // 3
        return low + third * (self._population % 3) + self.between(0, third - 1)

    def ids(self, low: int, high: int) -> range:
        """The primary keys 1..n of a table of `size(low, high)` rows."""
        return range(1, self.size(low, high) + 1)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, values: Sequence[T]) -> T:
        return values[self.between(0, len(values) - 1)]

    def some(self, values: Sequence[T], n: int) -> list[T]:
        """`n` different ones, in random order."""
        left = list(values)
        for i in range(n):
            j = self.between(i, len(left) - 1)
            left[i], left[j] = left[j], left[i]
        return left[:n]

    def kinds(self, core: Sequence[str], extras: Sequence[str]) -> list[str]:
        """All of `core` and one of `extras`, another in each population: a list of the values tells them apart."""
        return [*core, extras[self._population % len(extras)]]

    def spread(self, n: int, values: Sequence[T]) -> list[T]:
        """`n` values in random order, each at least twice, so that a filter on one finds rows in every population."""
        twice = [*values, *values]
        return self.some([*twice, *(self.one(values) for _ in range(n - len(twice)))], n)

    def distinct(self, n: int, low: int, high: int, step: int = 1) -> list[int]:
        """`n` different multiples: columns filled so have no ties, and "the highest" means one row."""
        return self.some(range(low, high + 1, step), n)

    def people(self, n: int, pool: int) -> list[str]:
        """`n` of the first `pool` people: a name of one population is in another with probability n / pool."""
        return self.some(PEOPLE[:pool], n)

    def skewed(self, values: Sequence[T]) -> T:
        """Early values far more often than late ones, so that counts per parent differ clearly."""
        at = self._random.random()
        return values[int(at * at * len(values))]

    def parents(self, n: int, ids: Sequence[int], *, cover: bool) -> list[int]:
        """`n` foreign keys, skewed. With `cover` every parent has a child; without, some parents have none."""
        order = self.some(ids, len(ids))
        if not cover:
            order = order[: -max(2, len(order) // 10)]
        first = order if cover else []
        return self.some([*first, *(self.skewed(order) for _ in range(n - len(first)))], n)
