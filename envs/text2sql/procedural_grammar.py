"""The grammar of skeletons: what shape the next query has.

    skeleton      unguided: one of BASES, grown by zero to two steps
    harder        a skeleton with one step more
    holding       skeletons whose action tokens hold a pattern (signal `rare`)

A skeleton is a Query whose names are `_` and whose literals are holes. Bases and steps are written as SQL with `?`, so
the grammar reads like what it makes. Weights favour short one-table and one-join statements: a small policy learns
from those, and the long ones follow by growth.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_query import HOLE, UNKNOWN, Agg, Col, Cond, Join, Order, Query, render
from envs.text2sql.sqltext import action_tokens

GROWTHS = 3
ANY = Col(UNKNOWN, UNKNOWN)
TEXTS: tuple[tuple[int, str], ...] = (
    (5, "SELECT _ FROM _ WHERE _ = ?"),
    (4, "SELECT _ FROM _ WHERE _ > ?"),
    (3, "SELECT _ FROM _ WHERE _ < ?"),
    (3, "SELECT _, _ FROM _ WHERE _ = ?"),
    (2, "SELECT _, _ FROM _ WHERE _ >= ?"),
    (2, "SELECT _ FROM _ WHERE _ BETWEEN ? AND ?"),
    (2, "SELECT _ FROM _ WHERE _ IN (?, ?)"),
    (2, "SELECT _ FROM _ WHERE _ = ? OR _ = ?"),
    (2, "SELECT _ FROM _ WHERE _ LIKE ?"),
    (1, "SELECT _ FROM _ WHERE _ IS NULL"),
    (2, "SELECT _ FROM _ WHERE _ != ?"),
    (1, "SELECT DISTINCT _ FROM _ WHERE _ = ?"),
    (3, "SELECT DISTINCT _ FROM _ WHERE _ > ?"),
    (4, "SELECT COUNT(*) FROM _ WHERE _ = ?"),
    (3, "SELECT COUNT(*) FROM _ WHERE _ > ?"),
    (1, "SELECT COUNT(*) FROM _"),
    (2, "SELECT COUNT(DISTINCT _) FROM _ WHERE _ > ?"),
    (2, "SELECT AVG(_) FROM _"),
    (3, "SELECT AVG(_) FROM _ WHERE _ = ?"),
    (2, "SELECT MAX(_) FROM _ WHERE _ = ?"),
    (2, "SELECT MIN(_) FROM _ WHERE _ = ?"),
    (2, "SELECT SUM(_) FROM _ WHERE _ = ?"),
    (1, "SELECT MIN(_), MAX(_) FROM _ WHERE _ = ?"),
    (2, "SELECT _ FROM _ ORDER BY _ DESC LIMIT ?"),
    (2, "SELECT _ FROM _ ORDER BY _ LIMIT ?"),
    (2, "SELECT _ FROM _ WHERE _ = ? ORDER BY _ DESC LIMIT ?"),
    (2, "SELECT _ FROM _ WHERE _ = ? ORDER BY _"),
    (3, "SELECT _, COUNT(*) FROM _ GROUP BY _"),
    (3, "SELECT _, AVG(_) FROM _ GROUP BY _"),
    (2, "SELECT _, MAX(_) FROM _ GROUP BY _"),
    (2, "SELECT _, SUM(_) FROM _ GROUP BY _"),
    (2, "SELECT _ FROM _ GROUP BY _ HAVING COUNT(*) > ?"),
    (1, "SELECT _ FROM _ GROUP BY _ HAVING AVG(_) > ?"),
    (2, "SELECT _ FROM _ GROUP BY _ ORDER BY COUNT(*) DESC, _ LIMIT ?"),
    (5, "SELECT _ FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (3, "SELECT _ FROM _ JOIN _ ON _ = _ WHERE _ > ?"),
    (3, "SELECT _, _ FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (4, "SELECT COUNT(*) FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (2, "SELECT AVG(_) FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (2, "SELECT SUM(_) FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (3, "SELECT _, COUNT(*) FROM _ JOIN _ ON _ = _ GROUP BY _"),
    (2, "SELECT _, AVG(_) FROM _ JOIN _ ON _ = _ GROUP BY _"),
    (2, "SELECT DISTINCT _ FROM _ JOIN _ ON _ = _ WHERE _ = ?"),
    (2, "SELECT _ FROM _ JOIN _ ON _ = _ ORDER BY _ DESC LIMIT ?"),
    (2, "SELECT _ FROM _ JOIN _ ON _ = _ JOIN _ ON _ = _ WHERE _ = ?"),
    (3, "SELECT _ FROM _ WHERE _ > (SELECT AVG(_) FROM _)"),
    (2, "SELECT _ FROM _ WHERE _ = (SELECT MAX(_) FROM _)"),
    (1, "SELECT _ FROM _ WHERE _ < (SELECT AVG(_) FROM _)"),
    (1, "SELECT COUNT(*) FROM _ WHERE _ > (SELECT AVG(_) FROM _)"),
    (2, "SELECT _ FROM _ WHERE _ IN (SELECT _ FROM _ WHERE _ = ?)"),
    (2, "SELECT _ FROM _ WHERE _ IN (SELECT _ FROM _ WHERE _ > ?)"),
    (2, "SELECT _ FROM _ WHERE _ NOT IN (SELECT _ FROM _)"),
    (1, "SELECT _ FROM _ WHERE _ NOT IN (SELECT _ FROM _ WHERE _ = ?)"),
    (1, "SELECT _ FROM _ WHERE _ > ? INTERSECT SELECT _ FROM _ WHERE _ < ?"),
    (1, "SELECT _ FROM _ INTERSECT SELECT _ FROM _"),
    (1, "SELECT _ FROM _ EXCEPT SELECT _ FROM _ WHERE _ > ?"),
    (1, "SELECT _ FROM _ EXCEPT SELECT _ FROM _"),
    (1, "SELECT _ FROM _ WHERE _ = ? UNION SELECT _ FROM _ WHERE _ > ?"),
)


def _parsed(text: str) -> Query:
    query = parse(text)
    if query is None:
        raise AssertionError(text)
    return query


@lru_cache(maxsize=1)
def bases() -> tuple[tuple[Query, ...], tuple[int, ...]]:
    """The bases and their weights."""
    return tuple(_parsed(text) for _, text in TEXTS), tuple(weight for weight, _ in TEXTS)


# ---------------------------------------------------------------- steps of growth


def _filter(query: Query, rng: random.Random) -> Query | None:
    if len(query.where) > 1 or query.either or query.combined:
        return None
    return replace(query, where=(*query.where, Cond(ANY, rng.choice(("=", ">", "<")), (HOLE,))))


def _order(query: Query, rng: random.Random) -> Query | None:
    if query.order or query.combined or query.distinct or (aggregates(query) and not query.group):
        return None
    counted = [item for item in query.select if isinstance(item, Agg)]
    keys = (Order(counted[0], desc=True), Order(ANY)) if counted else (Order(ANY, desc=rng.random() < 0.5),)
    return replace(query, order=keys)


def _top(query: Query, rng: random.Random) -> Query | None:
    if query.limit is not None:
        return None
    ordered = query if query.order else _order(query, rng)
    return replace(ordered, limit=0) if ordered else None


def _join(query: Query, rng: random.Random) -> Query | None:
    if len(query.joins) > 1 or query.combined or any(isinstance(x, Query) for c in query.where for x in c.right):
        return None
    return replace(query, joins=(*query.joins, Join(UNKNOWN, ANY, ANY)))


def _group(query: Query, rng: random.Random) -> Query | None:
    if query.group or query.combined or query.order or len(query.select) > 1 or not aggregates(query):
        return None
    return replace(query, select=(ANY, *query.select), group=(ANY,))


def _having(query: Query, rng: random.Random) -> Query | None:
    if not query.group or query.having:
        return None
    counted = [item for item in query.select if isinstance(item, Agg)] or [Agg("COUNT")]
    return replace(query, having=Cond(counted[0], rng.choice((">", ">=")), (HOLE,)))


def _average(query: Query, rng: random.Random) -> Query | None:
    """A comparison with a literal becomes one with an average."""
    if query.joins or query.combined or query.either:
        return None
    for at, cond in enumerate(query.where):
        if cond.op in (">", "<") and cond.right == (HOLE,):
            inner = Query(table=UNKNOWN, select=(Agg("AVG", ANY),))
            return replace(query, where=(*query.where[:at], replace(cond, right=(inner,)), *query.where[at + 1 :]))
    return None


def _within(query: Query, rng: random.Random) -> Query | None:
    """One more filter, by membership in a linked table."""
    if len(query.joins) > 1 or query.combined or query.either or len(query.where) > 1 or query.group:
        return None
    inner = Query(table=UNKNOWN, select=(ANY,), where=(Cond(ANY, rng.choice(("=", ">")), (HOLE,)),))
    return replace(query, where=(*query.where, Cond(ANY, "IN", (inner,))))


STEPS: tuple[Callable[[Query, random.Random], Query | None], ...] = (
    _filter,
    _order,
    _top,
    _join,
    _group,
    _having,
    _average,
    _within,
)


def aggregates(query: Query) -> bool:
    """It selects an aggregate."""
    return any(isinstance(item, Agg) for item in query.select)


def harder(query: Query, rng: random.Random) -> Query:
    """The skeleton with one clause, table or level more; itself where nothing can be added."""
    grown = [more for step in rng.sample(STEPS, len(STEPS)) if (more := step(query, rng))]
    return grown[0] if grown else query


def skeleton(rng: random.Random, easy: float = 0.6) -> Query:
    """A random skeleton: a base, left as it is with probability `easy`, else grown by one step, seldom by two."""
    queries, weights = bases()
    query = rng.choices(queries, weights)[0]
    while rng.random() > easy:
        query, easy = harder(query, rng), easy + 0.3
    return query


# ---------------------------------------------------------------- patterns of action tokens


@lru_cache(maxsize=4096)
def tokens(query: Query) -> tuple[str, ...]:
    """The environment's action tokens of a skeleton."""
    return tuple(action_tokens(render(query)))


def holds(words: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    return any(words[at : at + len(pattern)] == pattern for at in range(len(words) - len(pattern) + 1))


def holding(pattern: tuple[str, ...], rng: random.Random, pool: int = 200) -> list[Query]:
    """Skeletons with the pattern, short ones first; [] where no SELECT can have any part of it.

    Where none has the whole pattern, those that have most of it are grown towards it; if that fails, they stand for
    it: a pattern may run over two statements of one rollout.
    """
    found = list(dict.fromkeys([*bases()[0], *(skeleton(rng, easy=0.4) for _ in range(pool))]))
    for _ in range(GROWTHS):
        near = _nearest(found, pattern)
        if not near or holds(tokens(near[0]), pattern):
            break
        found = list(dict.fromkeys([*near, *(harder(query, rng) for query in near[:40] for _ in range(5))]))
    return sorted(_nearest(found, pattern), key=lambda query: len(tokens(query)))


def _nearest(found: list[Query], pattern: tuple[str, ...]) -> list[Query]:
    """The skeletons with the longest part of the pattern; of several parts that long, the one found least."""
    for size in range(len(pattern), 0, -1):
        parts = [pattern[at : at + size] for at in range(len(pattern) - size + 1)]
        fitting = [fits for part in parts if (fits := [query for query in found if holds(tokens(query), part)])]
        if fitting:
            return min(fitting, key=len)
    return []
