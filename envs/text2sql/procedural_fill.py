"""From skeleton to query: choose tables, columns and values that were seen, so that the statement means something.

    fill     a skeleton with every name and literal chosen from the scene; None if the scene has no place for it
    thresholds   the HAVING skeleton over a grouping whose groups were seen

Meaning is kept by one idea: joins run along foreign keys from one *root* table to its parents, so every row of the
result is one row of the root, and a question about "books whose author ..." says exactly what the statement says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from envs.text2sql.procedural_query import (
    HOLE,
    Agg,
    Col,
    Cond,
    Expr,
    Hole,
    Join,
    Literal,
    Order,
    Query,
    columns,
    levels,
)
from envs.text2sql.procedural_scene import Scene, Seen, understood

TRIES = 30
T = TypeVar("T")
LIMITS = (1, 2, 3, 3, 5, 5)


class StuckError(Exception):
    """The scene offers nothing for a slot of the skeleton."""


def fill(skeleton: Query, scene: Scene, rng: random.Random) -> Query | None:
    """The skeleton filled from what the scene has seen, or None. HAVING keeps its hole (see `thresholds`)."""
    for _ in range(TRIES):
        try:
            query = _Filler(scene, rng).query(skeleton)
        except StuckError:
            continue
        if _means_something(query):
            return query
    return None


def _means_something(query: Query) -> bool:
    """Every joined table is used, and no column is shown or compared twice to no purpose."""
    for level in levels(query):
        used = {col.table for col in columns(level)}
        if not set(level.tables) <= used | ({level.table} if not level.joins or _counts(level) else set()):
            return False
        if len(set(level.select)) < len(level.select):
            return False
        compared = [cond.left for cond in level.where]
        if len(set(compared)) < len(compared) and not level.either:
            return False
    return query.combined is None or replace(query, combined=None) != query.combined[1]


def _counts(query: Query) -> bool:
    return any(isinstance(item, Agg) and item.col is None for item in query.select)


@dataclass(frozen=True, slots=True)
class Route:
    """Tables of a FROM clause: the root first, then parents in the order in which foreign keys reach them."""

    tables: tuple[str, ...]
    links: tuple[tuple[Col, Col], ...]
    """Foreign key and referenced key of each table after the root."""

    @property
    def root(self) -> str:
        return self.tables[0]


def routes(scene: Scene, joins: int) -> list[Route]:
    """All routes with that many joins, no table twice."""
    found = [Route((name,), ()) for name in scene.tables]
    for _ in range(joins):
        found = [
            Route((*route.tables, parent), (*route.links, (Col(child, column), Col(parent, key))))
            for route in found
            for child in route.tables
            for column, parent, key in scene.tables[child].links
            if parent in scene.tables and parent not in route.tables
        ]
    return list(dict.fromkeys(found))


class _Filler:
    """Fills one skeleton; raises StuckError at a slot that the scene has nothing for."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.scene = scene
        self.rng = rng

    # -------------------------------------------------------- whole statements

    def query(self, skeleton: Query, route: Route | None = None, select: tuple[Expr, ...] = ()) -> Query:
        route = route or self.route(len(skeleton.joins))
        group = tuple(self.group_column(route, i) for i in range(len(skeleton.group)))
        select = select or self.selection(skeleton, route, group)
        query = replace(self.source(skeleton, route), distinct=skeleton.distinct, select=select, group=group)
        query = replace(query, where=self.where(skeleton, query, route), either=skeleton.either)
        if skeleton.having:
            query = replace(
                query, having=replace(skeleton.having, left=self.reused(skeleton.having.left, query, route))
            )
        query = replace(query, order=self.order(skeleton, query, route), limit=self.limit(skeleton))
        return replace(query, combined=self.second(skeleton, query, route)) if skeleton.combined else query

    def route(self, joins: int, within: Sequence[str] = ()) -> Route:
        """A random route; one that begins where values were seen is preferred."""
        found = [route for route in routes(self.scene, joins) if not within or route.root in within]
        seen = [route for route in found if set(route.tables) & set(self.scene.sampled_tables)]
        return self.choose([route for route in seen or found if self.scene.tables[route.root].plain or joins])

    def source(self, skeleton: Query, route: Route) -> Query:
        """The FROM clause: root first, or, with one join and by chance, the parent first."""
        joins = tuple(Join(key.table, fk, key) for fk, key in route.links)
        if len(joins) == 1 and self.rng.random() < 0.3:
            fk, key = route.links[0]
            return Query(table=key.table, select=(), joins=(Join(fk.table, key, fk),))
        return Query(table=route.root, select=(), joins=joins)

    def second(self, skeleton: Query, first: Query, route: Route) -> tuple[str, Query]:
        """The other half of a set operation: the same columns elsewhere, or under other conditions."""
        operation, half = skeleton.combined or ("", skeleton)
        if len(half.select) != len(first.select):
            raise StuckError
        if half.where or half.joins:
            return operation, self.query(half, route if len(half.joins) == len(route.links) else None, first.select)
        names = {col.name for col in columns(first)}
        others = [
            name for name, table in self.scene.tables.items() if name not in route.tables and names <= set(table.plain)
        ]
        other = self.choose(others)
        return operation, Query(table=other, select=tuple(self.moved(item, other) for item in first.select))

    def moved(self, item: Expr, table: str) -> Expr:
        if isinstance(item, Agg):
            raise StuckError
        return Col(table, item.name)

    # -------------------------------------------------------- columns

    def choose(self, options: Sequence[T]) -> T:
        if not options:
            raise StuckError
        return self.rng.choice(options)

    def labels(self, route: Route) -> list[Col]:
        return [col for table in route.tables for col in self.scene.labels(table)]

    def names(self, route: Route) -> list[Col]:
        """Columns that name a row of their table."""
        return [col for col in self.labels(route) if not self.scene.is_numeric(col) and not self.scene.repeats(col)]

    def group_column(self, route: Route, index: int) -> Col:
        grouping = [col for table in route.tables for col in self.scene.categories(table)]
        grouping += [col for col in self.names(route) if col.table != route.root]
        return self.choose(grouping)

    def selection(self, skeleton: Query, route: Route, group: tuple[Col, ...]) -> tuple[Expr, ...]:
        plain = sum(isinstance(item, Col) for item in skeleton.select)
        if group:
            if plain > len(group):
                raise StuckError
            shown = list(group)
        else:
            if 0 < plain < len(skeleton.select):
                raise StuckError
            shown = self.shown(skeleton, route, plain)
        return tuple(self.agg(item, route) if isinstance(item, Agg) else shown.pop(0) for item in skeleton.select)

    def shown(self, skeleton: Query, route: Route, count: int) -> list[Col]:
        """Columns to list, names before other facts."""
        if skeleton.distinct or (skeleton.combined and not skeleton.where):
            options = [col for table in route.tables for col in self.scene.categories(table)]
        else:
            options = self.labels(route)
        names = set(self.names(route))
        keyed = sorted(options, key=lambda col: self.rng.random() * (0.45 if col in names else 1.0))
        if len(keyed) < count:
            raise StuckError
        return keyed[:count]

    def agg(self, item: Agg, route: Route) -> Agg:
        """The aggregate over a column for which it makes sense."""
        if item.col is None:
            return item
        if item.fn == "COUNT":
            if not item.distinct:
                raise StuckError
            return replace(item, col=self.choose([c for t in route.tables for c in self.scene.categories(t)]))
        if item.fn in ("SUM", "AVG"):
            return replace(item, col=self.choose(self.measures(route)))
        return replace(item, col=self.choose(self.measures(route)))

    def measures(self, route: Route) -> list[Col]:
        """Measures of the root mostly: a parent's would count once for every child."""
        own = self.scene.measures(route.root)
        return own or [col for table in route.tables for col in self.scene.measures(table)]

    def reused(self, item: Expr, query: Query, route: Route) -> Expr:
        """The selected aggregate of the same kind, or a new one."""
        if isinstance(item, Col):
            raise StuckError
        same = [x for x in query.select if isinstance(x, Agg) and x.fn == item.fn]
        return same[0] if same else self.agg(item, route)

    # -------------------------------------------------------- order and limit

    def order(self, skeleton: Query, query: Query, route: Route) -> tuple[Order, ...]:
        keys: list[Order] = []
        for wanted in skeleton.order:
            taken = {key.by for key in keys}
            if isinstance(wanted.by, Agg):
                by: Expr = self.reused(wanted.by, query, route)
            else:
                by = self.choose([col for col in self.keys(query, route, keys) if col not in taken])
            keys.append(replace(wanted, by=by))
        return tuple(keys)

    def keys(self, query: Query, route: Route, keys: list[Order]) -> list[Col]:
        """Columns to sort by: numbers first, then a tie-break that names the row."""
        if query.group:
            return list(query.group)
        shown = [item for item in query.select if isinstance(item, Col)]
        if query.distinct or query.combined:
            return shown
        if keys:
            return [col for col in shown if col.table == route.root] or self.names(route)
        return [col for col in self.scene.ordered(route.root) if not self.scene.repeats(col)] or shown

    def limit(self, skeleton: Query) -> int | None:
        return None if skeleton.limit is None else self.rng.choice(LIMITS)

    # -------------------------------------------------------- conditions

    def where(self, skeleton: Query, query: Query, route: Route) -> tuple[Cond, ...]:
        conds: list[Cond] = []
        for wanted in skeleton.where:
            same = conds[0].left if conds and skeleton.either and conds[0].op == wanted.op else None
            for _ in range(8):
                cond = self.cond(wanted, query, route, same if self.rng.random() < 0.7 else None)
                if cond not in conds:
                    break
            conds.append(cond)
        return tuple(conds)

    def cond(self, wanted: Cond, query: Query, route: Route, same: Expr | None) -> Cond:
        operand = wanted.right[0] if wanted.right else None
        if isinstance(operand, Query):
            return self.nested(wanted, operand, route)
        if isinstance(wanted.left, Agg):
            raise StuckError
        if wanted.op.endswith("NULL"):
            return replace(wanted, left=self.choose(self.nullable(route)))
        if wanted.op in ("=", "!=", "IN", "NOT IN"):
            col = same if isinstance(same, Col) else self.choose(self.filters(query, route))
            count = len(wanted.right) if len(wanted.right) > 1 else self.rng.choice((2, 2, 3))
            picked = self.distinct(col, 1 if wanted.op in ("=", "!=") else count)
            return Cond(col, wanted.op, tuple(picked))
        if wanted.op.endswith("LIKE"):
            col = self.choose([col for col in self.names(route) if self.scene.values.get(col)])
            return Cond(col, wanted.op, (self.pattern(col),))
        col = self.choose([c for t in route.tables for c in self.scene.ordered(t) if self.scene.values.get(c)])
        return Cond(col, wanted.op, self.bounds(col, wanted.op))

    def nullable(self, route: Route) -> list[Col]:
        """Columns that may be NULL, by their declaration."""
        return [
            Col(name, c) for name in route.tables for c in self.scene.tables[name].types if self.holds_null(name, c)
        ]

    def holds_null(self, table: str, column: str) -> bool:
        known = self.scene.tables[table]
        return column in known.nullable and column not in known.keys

    def filters(self, query: Query, route: Route) -> list[Col]:
        """Columns to compare for equality: categories seen, seldom a parent's name; not what is shown."""
        categories = [col for table in route.tables for col in self.scene.categories(table)]
        names = [col for col in self.names(route) if col.table != route.root]
        options = names if names and self.rng.random() < 0.25 else categories
        return [col for col in options if self.scene.values.get(col) and col not in query.select]

    def distinct(self, col: Col, count: int) -> list[Literal]:
        """Values that were seen, frequent ones more often."""
        values = list(self.scene.values.get(col, []))
        self.rng.shuffle(values)
        found = list(dict.fromkeys(values))
        if len(found) < count:
            raise StuckError
        return found[:count]

    def pattern(self, col: Col) -> str:
        """A LIKE pattern that values of the column match: by first letter or by a word."""
        value = str(self.choose(self.scene.values[col]))
        word = self.choose(value.split() or [value])
        return self.rng.choice((f"{value[:1]}%", f"{value[:1]}%", f"%{word}%"))

    def bounds(self, col: Col, op: str) -> tuple[Literal, ...]:
        """Values from the middle of those seen, so that rows remain on either side."""
        values = sorted(set(self.scene.values[col]), key=lambda v: (str(type(v)), v))
        if len(values) < 3:
            raise StuckError
        size = len(values) - 1
        if op.endswith("BETWEEN"):
            low, high = self.rng.uniform(0.05, 0.4), self.rng.uniform(0.6, 0.95)
            return values[round(low * size)], values[round(high * size)]
        share = self.rng.uniform(0.15, 0.7) if op in (">", ">=") else self.rng.uniform(0.3, 0.85)
        return (values[min(max(round(share * size), 1), size - 1)],)

    def nested(self, wanted: Cond, inner: Query, route: Route) -> Cond:
        """A comparison with another query: an aggregate of the same column, or membership along a foreign key."""
        item = inner.select[0]
        if len(inner.select) > 1 or inner.combined or (inner.joins and isinstance(item, Agg)):
            raise StuckError
        if wanted.op.endswith("IN") or (wanted.op == "=" and isinstance(item, Col)):
            return self.member(wanted, inner, route)
        col = self.choose(self.measures(route))
        if isinstance(item, Agg) and item.col is not None and item.fn != "COUNT":
            select: tuple[Expr, ...] = (replace(item, col=col),)
        elif isinstance(item, Col):
            select = (col,)
        else:
            raise StuckError
        return Cond(col, wanted.op, (self.query(inner, Route((col.table,), ()), select),))

    def member(self, wanted: Cond, inner: Query, route: Route) -> Cond:
        links = [
            link
            for child, table in self.scene.tables.items()
            for column, parent, key in table.links
            if parent in self.scene.tables
            for link in ((Col(child, column), Col(parent, key)), (Col(parent, key), Col(child, column)))
            if link[0].table in route.tables and link[1].table not in route.tables
        ]
        outer, there = self.choose(links)
        conditions_ahead = bool(inner.where)
        if conditions_ahead and not inner.joins and there.table not in self.scene.sampled_tables:
            raise StuckError
        select: tuple[Expr, ...] = (there,)
        return Cond(outer, wanted.op, (self.query(inner, self.route(len(inner.joins), (there.table,)), select),))


# ---------------------------------------------------------------- HAVING


def profile(skeleton: Query) -> Query:
    """What to look at before a HAVING can be written: the groups and the aggregate that it compares."""
    if skeleton.having is None or not isinstance(skeleton.having.left, Agg):
        return skeleton
    shown = tuple(item for item in skeleton.select if isinstance(item, Col))
    select = (*(shown or skeleton.group), skeleton.having.left)
    return replace(skeleton, select=select, having=None, order=(), limit=None)


def thresholds(skeleton: Query, seen: Sequence[Seen], scene: Scene, rng: random.Random) -> Query | None:
    """The HAVING skeleton over a grouping of the log, its threshold from the middle of the values seen there."""
    having = skeleton.having
    if having is None or not isinstance(having.left, Agg):
        return None
    options = []
    for answer in seen:
        query = understood(answer.sql, scene.tables) if answer.useful else None
        if query is None or query.having or not query.group or len(query.joins) != len(skeleton.joins):
            continue
        aggregate = query.select[-1]
        same = isinstance(aggregate, Agg) and aggregate.fn == having.left.fn
        if same and len(query.group) == len(skeleton.group) and len(query.where) == len(skeleton.where):
            options.append((query, sorted(row[-1] for row in answer.rows if isinstance(row[-1], int | float))))
    if not options:
        return None
    query, values = rng.choice(options)
    middle = sorted(set(values))[:-1]
    if not middle:
        return None
    value = middle[round(rng.uniform(0.2, 0.8) * (len(middle) - 1))]
    return _having(skeleton, query, value, rng)


def _having(skeleton: Query, query: Query, value: Literal, rng: random.Random) -> Query | None:
    aggregate = query.select[-1]
    having = skeleton.having
    if having is None or isinstance(value, float):
        value = round(value) if isinstance(value, float) else value
    groups = list(query.group)
    select: list[Expr] = []
    for item in skeleton.select:
        select.append(groups.pop(0) if isinstance(item, Col) and groups else aggregate)
    order = tuple(replace(o, by=aggregate if isinstance(o.by, Agg) else query.group[0]) for o in skeleton.order)
    limit = None if skeleton.limit is None else rng.choice(LIMITS)
    cond = replace(having, left=aggregate, right=(value,)) if having else None
    return replace(query, select=tuple(select), having=cond, order=order, limit=limit)


def open_slots(query: Query) -> bool:
    """A literal is still to be chosen."""
    conds = [c for level in levels(query) for c in (*level.where, *((level.having,) if level.having else ()))]
    return any(isinstance(x, Hole) for cond in conds for x in cond.right) or query.limit == 0


__all__ = ["HOLE", "fill", "open_slots", "profile", "routes", "thresholds"]
