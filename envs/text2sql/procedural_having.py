"""HAVING needs a look at the groups first: its threshold comes from the middle of what was counted there.

profile      the skeleton without HAVING, showing the aggregate that it compares: the query to run first
thresholds   the HAVING skeleton over a grouping that the log has the answer of
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from envs.text2sql.procedural_fill import LIMITS
from envs.text2sql.procedural_query import Agg, Col, Expr, Order, Query
from envs.text2sql.procedural_scene import Scene, Seen, understood


def profile(skeleton: Query) -> Query:
    """What to look at before the skeleton's HAVING can be written; the skeleton itself if it has none."""
    having = skeleton.having
    if having is None or not isinstance(having.left, Agg):
        return skeleton
    shown = tuple(item for item in skeleton.select if isinstance(item, Col)) or skeleton.group
    return replace(skeleton, select=(*shown, having.left), having=None, order=(), limit=None)


def thresholds(skeleton: Query, seen: Sequence[Seen], scene: Scene, rng: random.Random) -> Query | None:
    """The HAVING skeleton over a grouping of the log; None without HAVING, or without such a grouping."""
    options = [
        (query, value)
        for answer in seen
        if answer.useful and skeleton.having
        for query in [understood(answer.sql, scene.tables)]
        if query and _profiles(query, skeleton)
        for value in _middle(query, answer, scene)
    ]
    if not options:
        return None
    query, value = rng.choice(options)
    return _completed(skeleton, query, value, rng)


def _profiles(query: Query, skeleton: Query) -> bool:
    """The query shows the groups and the aggregate that the skeleton compares."""
    having, last = skeleton.having, query.select[-1]
    if having is None or not isinstance(last, Agg) or not isinstance(having.left, Agg) or last.fn != having.left.fn:
        return False
    sizes = [(len(q.joins), len(q.where), len(q.group)) for q in (query, skeleton)]
    return sizes[0] == sizes[1] and query.having is None and bool(query.group)


def _middle(query: Query, answer: Seen, scene: Scene) -> list[int | float]:
    """Values that leave groups on either side: those seen, or for an average values of the column near them."""
    found = sorted({row[-1] for row in answer.rows if isinstance(row[-1], int | float)})
    inner = found[len(found) // 4 : max(len(found) - 1, 0)]
    last = query.select[-1]
    if not isinstance(last, Agg) or last.fn != "AVG" or last.col is None or not inner:
        return inner
    known = {value for value in scene.values.get(last.col, []) if isinstance(value, int | float)}
    return sorted(value for value in known if inner[0] <= value <= inner[-1])


def _completed(skeleton: Query, query: Query, value: int | float, rng: random.Random) -> Query | None:
    aggregate, having = query.select[-1], skeleton.having
    if having is None or sum(isinstance(item, Col) for item in skeleton.select) > len(query.group):
        return None

    def moved(items: Sequence[Expr]) -> tuple[Expr, ...]:
        groups = list(query.group)
        return tuple(aggregate if isinstance(item, Agg) or not groups else groups.pop(0) for item in items)

    keys = moved([key.by for key in skeleton.order])
    return replace(
        query,
        select=moved(skeleton.select),
        having=replace(having, left=aggregate, right=(value,)),
        order=tuple(Order(by, key.desc) for by, key in zip(keys, skeleton.order, strict=True)),
        limit=None if skeleton.limit is None else rng.choice(LIMITS),
    )
