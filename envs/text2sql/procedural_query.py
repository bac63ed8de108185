"""A small algebra of SELECT statements: what the procedural explorer composes, varies and phrases.

    Query   one SELECT; its parts are Col, Agg, Cond, Join, Order, and a second Query in a set operation
    HOLE    stands for a literal that is still to be chosen
    render  Query -> SQL text in the style of the reference solutions: names are qualified only where tables are joined

A Query with holes and unknown names ("_") is a *skeleton*: parsing an environment's structure key gives one
(procedural_parse).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

Literal = str | int | float


class OutsideError(Exception):
    """A statement, or a name in it, that the algebra has no word for."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A literal that is not chosen yet."""


HOLE = Hole()
UNKNOWN = "_"
"""A table or column that is not chosen yet."""


@dataclass(frozen=True, slots=True)
class Col:
    table: str
    name: str


@dataclass(frozen=True, slots=True)
class Agg:
    fn: str
    col: Col | None = None
    """None = `*`."""
    distinct: bool = False


Expr = Col | Agg


@dataclass(frozen=True, slots=True)
class Cond:
    left: Expr
    op: str
    """A comparison, or [NOT] IN | LIKE | BETWEEN, IS [NOT] NULL."""
    right: tuple[Literal | Hole | Query, ...]
    """One operand; two for BETWEEN; any number for IN; none for IS NULL."""


@dataclass(frozen=True, slots=True)
class Join:
    table: str
    left: Col
    right: Col


@dataclass(frozen=True, slots=True)
class Order:
    by: Expr
    desc: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    table: str
    select: tuple[Expr, ...]
    joins: tuple[Join, ...] = ()
    distinct: bool = False
    where: tuple[Cond, ...] = ()
    either: bool = False
    """The conditions are joined by OR, not AND."""
    group: tuple[Col, ...] = ()
    having: Cond | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    """Rows to keep; 0 = not chosen yet."""
    combined: tuple[str, Query] | None = None
    """(UNION | INTERSECT | EXCEPT, the second query)."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables of this level's FROM clause, in order."""
        return (self.table, *(join.table for join in self.joins))


# ---------------------------------------------------------------- rendering


def literal(value: Literal | Hole) -> str:
    if isinstance(value, Hole):
        return "?"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def render(query: Query) -> str:
    """SQL text of the query, one line."""
    text = _render_core(query)
    if query.combined:
        operation, second = query.combined
        text += f" {operation} {render(second)}"
    if query.order:
        scope = query.tables
        text += " ORDER BY " + ", ".join(_expr(o.by, scope) + (" DESC" if o.desc else "") for o in query.order)
    if query.limit is not None:
        text += f" LIMIT {query.limit or '?'}"
    return text


def _render_core(query: Query) -> str:
    scope = query.tables
    items = ", ".join(_expr(item, scope) for item in query.select)
    text = f"SELECT {'DISTINCT ' if query.distinct else ''}{items} FROM {query.table}"
    for join in query.joins:
        text += f" JOIN {join.table} ON {_expr(join.left, scope)} = {_expr(join.right, scope)}"
    if query.where:
        text += " WHERE " + (" OR " if query.either else " AND ").join(_cond(c, scope) for c in query.where)
    if query.group:
        text += " GROUP BY " + ", ".join(_expr(col, scope) for col in query.group)
    if query.having:
        text += " HAVING " + _cond(query.having, scope)
    return text


def _expr(expr: Expr, scope: tuple[str, ...]) -> str:
    if isinstance(expr, Agg):
        inner = "*" if expr.col is None else _expr(expr.col, scope)
        return f"{expr.fn}({'DISTINCT ' if expr.distinct else ''}{inner})"
    return f"{expr.table}.{expr.name}" if len(scope) > 1 and expr.table != UNKNOWN else expr.name


def _cond(cond: Cond, scope: tuple[str, ...]) -> str:
    left = _expr(cond.left, scope)
    right = [f"({render(x)})" if isinstance(x, Query) else literal(x) for x in cond.right]
    if cond.op.endswith("NULL"):
        return f"{left} {cond.op}"
    if cond.op.endswith("BETWEEN"):
        return f"{left} {cond.op} {right[0]} AND {right[1]}"
    if cond.op.endswith("IN"):
        return f"{left} {cond.op} {right[0] if isinstance(cond.right[0], Query) else '(' + ', '.join(right) + ')'}"
    return f"{left} {cond.op} {right[0]}"


# ---------------------------------------------------------------- walking


def levels(query: Query) -> Iterator[Query]:
    """The query, its subqueries and the second halves of its set operations."""
    yield query
    for cond in (*query.where, *((query.having,) if query.having else ())):
        for operand in cond.right:
            if isinstance(operand, Query):
                yield from levels(operand)
    if query.combined:
        yield from levels(query.combined[1])


def columns(query: Query) -> set[Col]:
    """Columns that one level mentions outside its ON clauses."""
    exprs: list[Expr] = [*query.select, *query.group, *(o.by for o in query.order), *(c.left for c in query.where)]
    if query.having:
        exprs.append(query.having.left)
    found = (expr.col if isinstance(expr, Agg) else expr for expr in exprs)
    return {col for col in found if col is not None}


def resolved(query: Query, tables: dict[str, list[str]]) -> Query | None:
    """The query with every column's table filled in; None where a name is unknown or belongs to several tables."""
    scope = query.tables
    if any(name not in tables for name in scope):
        return None

    def col(given: Col) -> Col:
        owners = [given.table] if given.table in scope else [name for name in scope if given.name in tables[name]]
        if len(owners) != 1 or given.name not in tables[owners[0]]:
            raise OutsideError(f"column {given.name}")
        return Col(owners[0], given.name)

    def inner(given: Query) -> Query:
        found = resolved(given, tables)
        if found is None:
            raise OutsideError("subquery")
        return found

    try:
        return mapped(query, col, inner)
    except OutsideError:
        return None


def mapped(query: Query, col: Callable[[Col], Col], inner: Callable[[Query], Query]) -> Query:
    """The query with `col` applied to every column of this level and `inner` to every query inside it."""

    def expr(given: Expr) -> Expr:
        if isinstance(given, Agg):
            return given if given.col is None else replace(given, col=col(given.col))
        return col(given)

    def cond(given: Cond) -> Cond:
        right = tuple(inner(x) if isinstance(x, Query) else x for x in given.right)
        return Cond(expr(given.left), given.op, right)

    return replace(
        query,
        select=tuple(expr(item) for item in query.select),
        joins=tuple(Join(join.table, col(join.left), col(join.right)) for join in query.joins),
        where=tuple(cond(c) for c in query.where),
        group=tuple(col(c) for c in query.group),
        having=cond(query.having) if query.having else None,
        order=tuple(Order(expr(o.by), o.desc) for o in query.order),
        combined=(query.combined[0], inner(query.combined[1])) if query.combined else None,
    )
