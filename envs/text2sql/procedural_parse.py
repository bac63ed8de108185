"""SQL text, or a structure key, as a Query.

parse   the query that a text says; None where it is no SQL or lies outside the algebra of procedural_query
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from envs.text2sql import sqltext
from envs.text2sql.procedural_query import (
    HOLE,
    UNKNOWN,
    Agg,
    Col,
    Cond,
    Expr,
    Hole,
    Join,
    Literal,
    Order,
    OutsideError,
    Query,
)

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.Like: "LIKE",
}
AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
}
SET_OPERATIONS: dict[type[exp.Expr], str] = {
    exp.Union: "UNION",
    exp.Intersect: "INTERSECT",
    exp.Except: "EXCEPT",
}
NEGATED = {"IN": "NOT IN", "LIKE": "NOT LIKE", "BETWEEN": "NOT BETWEEN", "IS NULL": "IS NOT NULL", "=": "!="}


def parse(sql: str) -> Query | None:
    """The query that the text says, names as written (aliases resolved to tables); None if it says none we know."""
    tree = sqltext.parse(sql)
    try:
        return _query(tree) if tree else None
    except OutsideError:
        return None


def _query(node: exp.Expr) -> Query:
    for kind, operation in SET_OPERATIONS.items():
        if isinstance(node, kind):
            if operation == "UNION" and not node.args.get("distinct"):
                raise OutsideError("UNION ALL")
            first = replace(_query(node.this), combined=(operation, _query(node.expression)))
            return _ordered(first, node, _Names(node.find(exp.Select)))
    if not isinstance(node, exp.Select):
        raise OutsideError(type(node).__name__)
    _only(node, {"expressions", "from_", "from", "joins", "where", "group", "having", "order", "limit", "distinct"})
    return _select(node)


def _only(node: exp.Expr, known: set[str]) -> None:
    """Refuse a node with a filled argument that is not understood (a window, an offset, a CTE ...)."""
    unknown = {key for key, value in node.args.items() if value and key not in known}
    if unknown:
        raise OutsideError(", ".join(sorted(unknown)))


class _Names:
    """Resolves aliases of one SELECT."""

    def __init__(self, select: Any) -> None:
        source = select.args.get("from_") or select.args.get("from")
        if source is None:
            raise OutsideError("no FROM")
        self.base: exp.Expr = source.this
        joins = [join.this for join in select.args.get("joins") or []]
        if not all(isinstance(table, exp.Table) for table in (self.base, *joins)):
            raise OutsideError("a derived table")
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
        raise OutsideError("two conditions in HAVING")
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


def _ordered(query: Query, node: exp.Expr, names: _Names) -> Query:
    order, limit = node.args.get("order"), node.args.get("limit")
    keys = order.expressions if order else []
    count = _operand(limit.expression, names) if limit else None
    if not (count is None or isinstance(count, (Hole, int))):
        raise OutsideError("LIMIT by an expression")
    return replace(
        query,
        order=tuple(Order(_expression(key.this, names), bool(key.args.get("desc"))) for key in keys),
        limit=0 if isinstance(count, Hole) else count,
    )


def _join(node: exp.Join, names: _Names) -> Join:
    on = node.args.get("on")
    if not isinstance(on, exp.EQ) or node.side or node.kind not in ("", "INNER"):
        raise OutsideError("a join other than ON a = b")
    return Join(node.this.name, _column(on.this, names), _column(on.expression, names))


def _column(node: exp.Expr, names: _Names) -> Col:
    if not isinstance(node, exp.Column):
        raise OutsideError("a column is expected")
    return names.column(node)


def _expression(node: exp.Expr, names: _Names) -> Expr:
    if isinstance(node, exp.Column):
        named = names.outputs.get(node.name) if not node.table else None
        return names.column(node) if named is None or node.name == UNKNOWN else _expression(named, names)
    if isinstance(node, exp.Star):
        raise OutsideError("*")
    fn = AGGREGATES.get(type(node))
    if fn is None:
        raise OutsideError(type(node).__name__)
    inner = node.this
    if isinstance(inner, exp.Distinct):
        return Agg(fn, _column(inner.expressions[0], names), distinct=True)
    return Agg(fn, None if isinstance(inner, exp.Star) else _column(inner, names))


def _conditions(node: exp.Expr, names: _Names) -> tuple[tuple[Cond, ...], bool]:
    """Conditions of a flat AND or OR, and whether it is OR."""
    node = node.unnest()
    if isinstance(node, exp.Or | exp.And):
        kind = type(node)
        parts = tuple(_condition(part.unnest(), names) for part in node.flatten())
        return parts, kind is exp.Or
    return (_condition(node, names),), False


def _condition(node: exp.Expr, names: _Names) -> Cond:
    if isinstance(node, exp.Not):
        inner = _condition(node.this.unnest(), names)
        if inner.op not in NEGATED:
            raise OutsideError("NOT")
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
        raise OutsideError(type(node).__name__)
    return Cond(_expression(left, names), op, _operands([node.expression], names))


def _operands(nodes: list[exp.Expr], names: _Names) -> tuple[Literal | Hole | Query, ...]:
    return tuple(_operand(node, names) for node in nodes)


def _operand(node: exp.Expr, names: _Names) -> Literal | Hole | Query:
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
    raise OutsideError(type(node).__name__)
