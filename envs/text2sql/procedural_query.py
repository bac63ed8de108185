"""A small algebra of SELECT statements: what the procedural explorer composes, varies and phrases.

    Query   one SELECT; its parts are Col, Agg, Cond, Join, Order, and a second Query in a set operation
    HOLE    stands for a literal that is still to be chosen
    parse   SQL text -> Query, or None where the text is no SQL or lies outside the algebra
    render  Query -> SQL text in the style of the reference solutions: names are qualified only where tables are joined

A Query with holes and unknown names ("_") is a *skeleton*: parsing an environment's structure key gives one. Plain
tree walking, no schema: whether the names exist is the business of `procedural_fill`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlglot
from sqlglot import exp

Literal = str | int | float
COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.Like: "LIKE",
}
AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
}
SET_OPERATIONS: dict[type[exp.Expression], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}
NEGATED = {"IN": "NOT IN", "LIKE": "NOT LIKE", "BETWEEN": "NOT BETWEEN", "IS NULL": "IS NOT NULL", "=": "!="}


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


# ---------------------------------------------------------------- parsing


class _OutsideError(Exception):
    """The statement uses something that the algebra has no word for."""


def parse(sql: str) -> Query | None:
    """The query that the text says, names as written (aliases resolved to tables); None if it says none we know."""
    try:
        return _query(sqlglot.parse_one(sql, read="sqlite"))
    except (_OutsideError, sqlglot.errors.SqlglotError, RecursionError, ValueError):
        return None


def _query(node: exp.Expression) -> Query:
    for kind, operation in SET_OPERATIONS.items():
        if isinstance(node, kind):
            if operation == "UNION" and not node.args.get("distinct"):
                raise _OutsideError("UNION ALL")
            first = replace(_query(node.this), combined=(operation, _query(node.expression)))
            return _ordered(first, node, _Names(node.find(exp.Select)))
    if not isinstance(node, exp.Select):
        raise _OutsideError(type(node).__name__)
    _only(node, {"expressions", "from_", "from", "joins", "where", "group", "having", "order", "limit", "distinct"})
    return _select(node)


def _only(node: exp.Expression, known: set[str]) -> None:
    """Refuse a node with a filled argument that is not understood (a window, an offset, a CTE ...)."""
    unknown = {key for key, value in node.args.items() if value and key not in known}
    if unknown:
        raise _OutsideError(", ".join(sorted(unknown)))


class _Names:
    """Resolves aliases of one SELECT."""

    def __init__(self, select: Any) -> None:
        source = select.args.get("from_") or select.args.get("from")
        if source is None:
            raise _OutsideError("no FROM")
        self.base: exp.Expression = source.this
        joins = [join.this for join in select.args.get("joins") or []]
        if not all(isinstance(table, exp.Table) for table in (self.base, *joins)):
            raise _OutsideError("a derived table")
        self.aliases = {table.alias_or_name: table.name for table in (self.base, *joins)}
        self.outputs = {item.alias: item.this for item in select.expressions if isinstance(item, exp.Alias)}
        self.only = self.base.name if not joins else UNKNOWN

    def column(self, node: exp.Column) -> Col:
        table = node.table
        return Col(self.aliases.get(table, table) if table else self.only, node.name)


def _select(node: exp.Select) -> Query:
    names = _Names(node)
    where, either = _conditions(node.args["where"].this, names) if node.args.get("where") else ((), False)
    group = node.args.get("group")
    having = _conditions(node.args["having"].this, names)[0] if node.args.get("having") else ()
    if len(having) > 1:
        raise _OutsideError("two conditions in HAVING")
    query = Query(
        table=names.base.name,
        select=tuple(_expression(item.unalias(), names) for item in node.expressions),
        joins=tuple(_join(join, names) for join in node.args.get("joins") or []),
        distinct=bool(node.args.get("distinct")),
        where=where,
        either=either,
        group=tuple(_column(col, names) for col in group.expressions) if group else (),
        having=having[0] if having else None,
    )
    return _ordered(query, node, names)


def _ordered(query: Query, node: exp.Expression, names: _Names) -> Query:
    order, limit = node.args.get("order"), node.args.get("limit")
    keys = order.expressions if order else []
    count = _operand(limit.expression, names) if limit else None
    if not (count is None or isinstance(count, (Hole, int))):
        raise _OutsideError("LIMIT by an expression")
    return replace(
        query,
        order=tuple(Order(_expression(key.this, names), bool(key.args.get("desc"))) for key in keys),
        limit=0 if isinstance(count, Hole) else count,
    )


def _join(node: exp.Join, names: _Names) -> Join:
    on = node.args.get("on")
    if not isinstance(on, exp.EQ) or node.side or node.kind not in ("", "INNER"):
        raise _OutsideError("a join other than ON a = b")
    return Join(node.this.name, _column(on.this, names), _column(on.expression, names))


def _column(node: exp.Expression, names: _Names) -> Col:
    if not isinstance(node, exp.Column):
        raise _OutsideError("a column is expected")
    return names.column(node)


def _expression(node: exp.Expression, names: _Names) -> Expr:
    if isinstance(node, exp.Column):
        named = names.outputs.get(node.name) if not node.table else None
        return names.column(node) if named is None or node.name == UNKNOWN else _expression(named, names)
    if isinstance(node, exp.Star):
        raise _OutsideError("*")
    fn = AGGREGATES.get(type(node))
    if fn is None:
        raise _OutsideError(type(node).__name__)
    inner = node.this
    if isinstance(inner, exp.Distinct):
        return Agg(fn, _column(inner.expressions[0], names), distinct=True)
    return Agg(fn, None if isinstance(inner, exp.Star) else _column(inner, names))


def _conditions(node: exp.Expression, names: _Names) -> tuple[tuple[Cond, ...], bool]:
    """Conditions of a flat AND or OR, and whether it is OR."""
    node = node.unnest()
    if isinstance(node, exp.Or | exp.And):
        kind = type(node)
        parts = tuple(_condition(part.unnest(), names) for part in node.flatten())
        return parts, kind is exp.Or
    return (_condition(node, names),), False


def _condition(node: exp.Expression, names: _Names) -> Cond:
    if isinstance(node, exp.Not):
        inner = _condition(node.this.unnest(), names)
        if inner.op not in NEGATED:
            raise _OutsideError("NOT")
        return replace(inner, op=NEGATED[inner.op])
    left = node.this
    if isinstance(node, exp.Between):
        return Cond(_expression(left, names), "BETWEEN", _operands([node.args["low"], node.args["high"]], names))
    if isinstance(node, exp.In):
        query = node.args.get("query")
        return Cond(_expression(left, names), "IN", _operands([query] if query else node.expressions, names))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return Cond(_expression(left, names), "IS NULL", ())
    op = COMPARISONS.get(type(node))
    if op is None:
        raise _OutsideError(type(node).__name__)
    return Cond(_expression(left, names), op, _operands([node.expression], names))


def _operands(nodes: list[exp.Expression], names: _Names) -> tuple[Literal | Hole | Query, ...]:
    return tuple(_operand(node, names) for node in nodes)


def _operand(node: exp.Expression, names: _Names) -> Literal | Hole | Query:
    if isinstance(node, exp.Placeholder) or (isinstance(node, exp.Column) and node.name == UNKNOWN):
        return HOLE
    if isinstance(node, exp.Subquery):
        return _query(node.this)
    if isinstance(node, exp.Neg):
        value = _operand(node.this, names)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if str(node.this).isdigit() else float(node.this)
    raise _OutsideError(type(node).__name__)


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
            raise _OutsideError(f"column {given.name}")
        return Col(owners[0], given.name)

    def inner(given: Query) -> Query:
        found = resolved(given, tables)
        if found is None:
            raise _OutsideError("subquery")
        return found

    try:
        return mapped(query, col, inner)
    except _OutsideError:
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
