"""From skeleton to query: choose tables, columns and values that were seen, so that the statement means something.

    fill     a skeleton with every name and literal chosen from the scene; None if the scene has no place for it
    routes   how tables can be joined

Meaning is kept by one idea: joins run along foreign keys from one *root* table to its parents, so every row of the
result is one row of the root, and a question about "books whose author ..." says exactly what the statement says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from envs.text2sql.procedural_query import (
    Agg,
    Col,
    Cond,
    Expr,
    Join,
    Literal,
    Order,
    Query,
    columns,
    levels,
)
from envs.text2sql.procedural_scene import Scene

TRIES = 30
T = TypeVar("T")
LIMITS = (1, 2, 3, 3, 5, 5)


class StuckError(Exception):
    """The scene offers nothing for a slot of the skeleton."""


def fill(skeleton: Query, scene: Scene, rng: random.Random) -> Query | None:
    """The skeleton filled from what the scene has seen, or None. HAVING keeps its hole (procedural_having)."""
    for _ in range(TRIES):
        try:
            query = _Filler(scene, rng).query(skeleton)
        except StuckError:
            continue
        if _means_something(query):
            return query
    return None


def _means_something(query: Query) -> bool:
    """Every joined table is used, and nothing is shown, compared or sorted by to no purpose."""
    if query.combined and replace(query, combined=None) == query.combined[1]:
        return False
    return all(_uses_its_tables(level) and _compares_well(level) for level in levels(query))


def _uses_its_tables(level: Query) -> bool:
    """Every end of the join tree is mentioned; tables in between only lead there, and COUNT(*) speaks of the root."""
    having = (level.having.left,) if level.having else ()
    counts = Agg("COUNT") in (*level.select, *(key.by for key in level.order), *having)
    linked = [col.table for join in level.joins for col in (join.left, join.right)]
    ends = {name for name in level.tables if linked.count(name) == 1}
    return ends <= {col.table for col in columns(level)} | ({level.table} if counts else set())


def _compares_well(level: Query) -> bool:
    """No column twice, no column shown that a condition fixes, no order among the rows of an extreme value."""
    compared = [cond.left for cond in level.where]
    shown = [item.col if isinstance(item, Agg) else item for item in level.select]
    fixed = {cond.left for cond in level.where if cond.op == "=" and not level.either}
    sorted_by = {key.by for key in level.order}
    extreme = any(cond.op == "=" and isinstance(cond.right[0], Query) for cond in level.where)
    return (
        len(set(level.select)) == len(level.select)
        and (level.either or len(set(compared)) == len(compared))
        and not (set(compared) & set(level.select))
        and not (fixed & {*shown, *sorted_by, *level.group})
        and not (extreme and level.order)
    )


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
        query = replace(self.source(route), distinct=skeleton.distinct, select=select, group=group)
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

    def source(self, route: Route) -> Query:
        """The FROM clause: the root, then its parents."""
        return Query(table=route.root, select=(), joins=tuple(Join(key.table, key, fk) for fk, key in route.links))

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

    def grouping(self, route: Route) -> list[Col]:
        """Columns that several rows share: categories, and the names of parents."""
        shared = [col for table in route.tables for col in self.scene.categories(table)]
        return shared + [col for col in self.names(route) if col.table != route.root]

    def group_column(self, route: Route, index: int) -> Col:
        options = self.grouping(route)
        if index >= len(options):
            raise StuckError
        return self.choose(options) if index == 0 else options[index]

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
        repeated = skeleton.distinct or (skeleton.combined and skeleton.combined[0] != "UNION")
        options = self.grouping(route) if repeated else self.labels(route)
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
            keys = [Col(route.root, column) for column, _, _ in self.scene.tables[route.root].links]
            return replace(item, col=self.choose([*keys, *keys, *self.grouping(route)]))
        measures = self.measures(route)
        if item.fn in ("MIN", "MAX"):
            measures = [col for col in measures if self.scene.measure_like(col)] or measures
        return replace(item, col=self.choose(measures))

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
        names = [col for col in self.names(route) if col.table == route.root]
        if keys:
            return names
        measures = [col for col in self.scene.ordered(route.root) if self.scene.unique(col)]
        return measures or [col for col in names if col in shown] or (shown if len(shown) == 1 else [])

    def limit(self, skeleton: Query) -> int | None:
        return None if skeleton.limit is None else self.rng.choice(LIMITS)

    # -------------------------------------------------------- conditions

    def where(self, skeleton: Query, query: Query, route: Route) -> tuple[Cond, ...]:
        conds: list[Cond] = []
        for wanted in skeleton.where:
            alike = bool(conds) and skeleton.either and conds[0].op == wanted.op
            same = conds[0].left if alike and self.rng.random() < 0.7 else None
            tries = (self.cond(wanted, query, route, same) for _ in range(8))
            conds.append(self.choose([cond for cond in tries if cond not in conds]))
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
        """Columns in which NULL was seen."""
        return [col for col in self.scene.nulls if col.table in route.tables]

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
