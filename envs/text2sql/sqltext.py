"""What can be said of a SQL text without running it.

    extract_sql     the statement in a model's reply
    strip_comments  the statement without comments: what is read here and what SQLite runs
    action_tokens   one token a clause, in order of appearance (docs/concepts.md, rare)
    structure       the skeleton: names become `_`, literals `?`, so questions of one shape share it
    canonical       one spelling for statements that differ only in case, spacing, aliases
    difficulty      a weighted count of clauses
    settled         what must have the same result if the statement's own is no accident
    cte_expansion   how many SELECTs its WITH clauses unfold to

All of them are total: any text goes in and none raises. Text that is not one SELECT (or WITH ... SELECT) has the
tokens `["invalid"]`, the structure `invalid`, itself as canonical form, and difficulty 0.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import sqlglot
from sqlglot import exp

# it warns of statements that it reads only roughly; what a policy writes is no news
logging.getLogger("sqlglot").setLevel(logging.ERROR)

INVALID = "invalid"
MAX_CHARS = 10_000
"""Longer texts are not parsed: the parser is pure Python."""
MAX_DEPTH = 40
"""Deeper nesting of parentheses is not parsed: the parser is recursive."""

_FENCE = re.compile(r"```[^\S\n]*(?:sqlite|sql)?[^\S\n]*\n?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED_OR_COMMENT = re.compile(r"('[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\])|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_CLAUSES = {"joins": "JOIN", "where": "WHERE", "group": "GROUP", "having": "HAVING", "order": "ORDER", "limit": "LIMIT"}
_ORDER_OF_CLAUSES = ("with_", "this", "expression", "expressions", "from_", *_CLAUSES, "offset")
_WEIGHTS: tuple[tuple[type, float], ...] = (
    (exp.Join, 1.0),
    (exp.Group, 1.0),
    (exp.Having, 1.0),
    (exp.SetOperation, 2.0),
    (exp.Case, 1.0),
    (exp.Window, 2.0),
    (exp.AggFunc, 0.5),
    (exp.Predicate, 0.5),
    (exp.Distinct, 0.5),
    (exp.Order, 0.5),
    (exp.Limit, 0.5),
)
_NESTING = 1.5


def extract_sql(text: str) -> str:
    """The statement in a reply: the inside of its first code fence, if there is one, without trailing semicolons."""
    fenced = _FENCE.search(text)
    return (fenced.group(1) if fenced else text).strip().rstrip("; \t\r\n")


def strip_comments(sql: str) -> str:
    """A space for each comment, as SQLite delimits them. (The parser nests `/* /* */ */`, SQLite does not: a text could
    show them two different statements.)"""
    return _QUOTED_OR_COMMENT.sub(lambda match: match.group(1) or " ", sql)


def parse(sql: str) -> exp.Query | None:
    """The statement's tree, or None if it is not one SELECT. Callers must not change it: it is cached."""
    return _parse(sql) if len(sql) <= MAX_CHARS else None


@lru_cache(maxsize=1024)
def _parse(sql: str) -> exp.Query | None:
    if _depth(sql) > MAX_DEPTH:
        return None
    try:
        statements = [tree for tree in sqlglot.parse(strip_comments(sql), read="sqlite") if tree is not None]
        tree = statements[0] if len(statements) == 1 else None
        if not isinstance(tree, exp.Select | exp.SetOperation) or not tree.sql("sqlite"):
            return None
        return tree if all(select.expressions for select in tree.find_all(exp.Select)) else None
    except Exception:  # a third-party parser over hostile text: RecursionError, IndexError, ... all mean "no SQL"
        return None


def _depth(sql: str) -> int:
    deepest = depth = 0
    for char in sql:
        depth += (char == "(") - (char == ")")
        deepest = max(deepest, depth)
    return deepest


def _total(sql: str, default: str, make: Callable[[exp.Query], str]) -> str:
    """`make` of the statement's own copy of the tree; `default` where it is no SELECT or cannot be walked."""
    tree = parse(sql)
    if tree is None:
        return default
    try:
        return make(tree.copy())
    except Exception:  # as in _parse: hostile text must not raise
        return default


def action_tokens(sql: str) -> list[str]:
    """SELECT, JOIN, WHERE, GROUP, HAVING, ORDER, LIMIT, SET, SUBQUERY, one a clause; a subquery's own clauses follow
    its token, the clauses of a set operation's second half follow SET."""
    return _total(sql, INVALID, lambda tree: " ".join(_clauses(tree))).split()


def _clauses(query: exp.Expr) -> Iterator[str]:
    for key in _ORDER_OF_CLAUSES:
        value = query.args.get(key)
        if key == "expressions" and isinstance(query, exp.Select):
            yield "SELECT"
        if key == "expression" and isinstance(query, exp.SetOperation):
            yield "SET"
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, exp.Expr):
                if key in _CLAUSES:
                    yield _CLAUSES[key]
                half = key in ("this", "expression") and isinstance(query, exp.SetOperation)
                yield from _clauses(node.unnest()) if half else _subqueries(node)


def _subqueries(node: exp.Expr) -> Iterator[str]:
    """Tokens of the queries nested in a clause, outermost first."""
    if isinstance(node, exp.Select | exp.SetOperation):
        yield "SUBQUERY"
        yield from _clauses(node)
        return
    for child in node.iter_expressions():
        yield from _subqueries(child)


def structure(sql: str) -> str:
    """The skeleton: tables and columns are `_`, literals `?` (a list of them one), aliases gone."""
    return _total(sql, INVALID, _skeleton)


def _skeleton(tree: exp.Query) -> str:
    _unify(tree)
    for node in list(tree.walk()):
        if isinstance(node, exp.In) and len(node.expressions) > 1:
            node.set("expressions", node.expressions[:1])
        elif isinstance(node, exp.Literal) and isinstance(node.parent, exp.Neg):
            node.parent.replace(exp.Placeholder())
        elif isinstance(node, exp.Literal) or _is_string(node):
            node.replace(exp.Placeholder())
        elif isinstance(node, exp.Column):
            node.replace(exp.Star() if isinstance(node.this, exp.Star) else exp.column("_"))
        elif isinstance(node, exp.Table | exp.TableAlias):
            node.set("alias" if isinstance(node, exp.Table) else "columns", None)
            node.set("this", exp.to_identifier("_"))
    return str(tree.sql("sqlite"))


def _is_string(node: exp.Expr) -> bool:
    """A column that is double-quoted and unqualified: SQLite reads it as a string where no column has that name."""
    return isinstance(node, exp.Column) and not node.table and bool(node.this.args.get("quoted"))


def _unify(tree: exp.Query) -> None:
    """Spell what may be said in two ways in one: INNER JOIN, ASC, names of outputs in later clauses."""
    for select in list(tree.find_all(exp.Select)):
        outputs = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        later = [select.args[key] for key in ("group", "having", "order") if select.args.get(key)]
        for column in [column for clause in later for column in clause.find_all(exp.Column)]:
            if not column.table and column.name.lower() in outputs:
                column.replace(outputs[column.name.lower()].copy())
        for item in select.expressions:
            if isinstance(item, exp.Alias):
                item.replace(item.this)
    for node in tree.find_all(exp.Join, exp.Ordered):
        if isinstance(node, exp.Join) and node.kind == "INNER":
            node.set("kind", None)
        elif isinstance(node, exp.Ordered) and not node.args.get("desc"):
            node.set("desc", None)


def canonical(sql: str) -> str:
    """One spelling: keywords and names in one case, output aliases gone, table aliases replaced by table names where
    each table occurs once, qualifiers gone where there is one table."""
    return _total(sql, sql.strip(), _canonical)


def _canonical(tree: exp.Query) -> str:
    _unify(tree)
    tables = list(tree.find_all(exp.Table))
    names = [table.name.lower() for table in tables]
    aliases = {table.alias_or_name.lower(): table.name.lower() for table in tables}
    plain = len(set(names)) == len(names) == len(aliases) and not tree.find(exp.CTE, exp.Subquery)
    for node in list(tree.walk()):
        if plain and isinstance(node, exp.Table):
            node.set("alias", None)
        elif plain and isinstance(node, exp.Column) and node.table:
            owner = aliases.get(node.table.lower(), node.table)
            node.set("table", exp.to_identifier(owner) if len(names) > 1 else None)
    for name in list(tree.find_all(exp.Identifier)):
        if not (name.parent and _is_string(name.parent)):
            name.replace(exp.to_identifier(name.name.lower()))
    return str(tree.sql("sqlite"))


def difficulty(sql: str) -> float:
    """1 for a SELECT, plus 1 a join, grouping, HAVING, CASE; 2 a set operation, window; 0.5 an aggregate, predicate,
    DISTINCT, ORDER BY, LIMIT; 1.5 for each query nested in another. 0 for text that is no SELECT."""
    return float(_total(sql, "0", lambda tree: str(_difficulty(tree))))


def _difficulty(tree: exp.Expr) -> float:
    nodes = list(tree.walk())
    weights = (weight for node in nodes for kind, weight in _WEIGHTS if isinstance(node, kind))
    selects = sum(isinstance(node, exp.Select) for node in nodes)
    halves = sum(isinstance(node, exp.SetOperation) for node in nodes)
    return 1.0 + sum(weights) + _NESTING * max(0, selects - halves - 1)


def ordered(sql: str) -> bool:
    """Whether the statement itself (no query inside it) has an ORDER BY: then its result is a list, not a multiset."""
    tree = parse(sql)
    return tree is not None and tree.args.get("order") is not None


def cte_expansion(sql: str) -> int | None:
    """How many SELECTs the statement has after every reference to a WITH clause is unfolded, None if it is no
    SELECT or too deep to tell.

    SQLite unfolds them while it prepares a statement, where no budget of ours can stop it.
    """
    unfolded = _total(sql, "", lambda tree: str(_expansion(tree)))
    return int(unfolded) if unfolded else None


def _expansion(tree: exp.Expr) -> int:
    # scopes are not told apart: a name counts for all the bodies that it has anywhere
    bodies: dict[str, list[exp.Expr]] = {}
    for cte in tree.find_all(exp.CTE):
        bodies.setdefault(cte.alias.lower(), []).append(cte.this)
    sizes: dict[str, int] = {}

    def size(query: exp.Expr) -> int:
        total = 0
        for node in query.walk(prune=lambda n: isinstance(n, exp.With)):
            total += isinstance(node, exp.Select)
            if isinstance(node, exp.Table) and (name := node.name.lower()) in bodies:
                total += measure(name)
        return total

    def measure(name: str) -> int:
        if name not in sizes:
            sizes[name] = 1  # a recursive reference counts once
            sizes[name] = sum(size(body) for body in bodies[name])
        return sizes[name]

    return size(tree)


def settled(sql: str, columns: int) -> list[str]:
    """The statement with every choice that it leaves to SQLite made in two opposite ways; [] if it leaves none.

    Ties of an ORDER BY are broken by all columns of the result (`columns` at the top), up and down; a column that is
    neither grouped nor aggregated in a grouped SELECT becomes its smallest and its greatest value. If both of these
    and the statement itself have one result, then nothing in it was left open.
    """
    both = [_total(sql, "", partial(_settle, columns=columns, up=up)) for up in (True, False)]
    return [text for text in both if text]


def _settle(tree: exp.Query, columns: int, up: bool) -> str:
    _unify(tree)
    bare = [column for select in tree.find_all(exp.Select) for column in _bare_columns(select)]
    for column in bare:
        column.replace((exp.Min if up else exp.Max)(this=column.copy()))
    orders = [(query, query.args["order"]) for query in tree.find_all(exp.Query) if query.args.get("order")]
    for query, order in orders:
        width = columns if query is tree else len(query.selects)
        keys = [exp.Ordered(this=exp.Literal.number(n), desc=not up, nulls_first=up) for n in range(1, width + 1)]
        order.set("expressions", order.expressions + keys)
    return str(tree.sql("sqlite")) if bare or orders else ""


def _bare_columns(select: exp.Select) -> list[exp.Column]:
    """Columns of a grouped or aggregated SELECT that have many values in a group, of which SQLite takes any."""
    group = select.args.get("group")
    parts = [*select.expressions, *(select.args[key] for key in ("having", "order") if select.args.get(key))]
    if not group and not any(_inside(part, exp.AggFunc) for part in parts):
        return []
    grouped = {_name(key) for key in group.expressions} if group else set()
    return [column for part in parts for column in _inside(part, exp.Column) if _name(column) not in grouped]


def _inside(part: exp.Expr, kind: type) -> list[Any]:
    """Nodes of a kind in a clause, not those inside an aggregate, a window or a nested query."""
    closed = (exp.AggFunc, exp.Window, exp.Query)
    return [node for node in part.walk(prune=lambda n: isinstance(n, closed)) if isinstance(node, kind)]


def _name(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Column) else str(node.sql("sqlite")).lower()
