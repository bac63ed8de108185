"""What each written item must hold, found out by running it: plain sqlite3, no part of the environment.

A reference is kept only if a competent analyst's other way to write it gives the same rows (no ties that ORDER BY
leaves open), and a wrong or a lazy answer does not (rows in every population, different ones between them).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import exp

from envs.text2sql.schemas import POPULATIONS, SCHEMAS
from scripts.build_text2sql.parse import Item

MAX_QUESTION = 500
MAX_ROWS = 200


@cache
def database(world: str, population: int) -> sqlite3.Connection:
    """One population in memory, with foreign keys enforced while it is filled."""
    schema = SCHEMAS[world]
    db = sqlite3.connect(":memory:")
    db.execute("PRAGMA foreign_keys = ON")
    db.executescript(schema.ddl)
    for table, rows in schema.populate(population).items():
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.commit()
    return db


def answers(world: str, sql: str) -> list[list[tuple[Any, ...]]]:
    """The rows of `sql` on each population. sqlite3.Error if it does not run."""
    return [database(world, population).execute(sql).fetchall() for population in POPULATIONS]


def signature(world: str, sql: str) -> list[list[tuple[Any, ...]]]:
    """Rows as they are compared: a list where the statement is ordered at its top, else a multiset; floats rounded."""
    ordered = _parsed(sql).args.get("order") is not None
    rounded = [[tuple(_value(v) for v in row) for row in rows] for rows in answers(world, sql)]
    return rounded if ordered else [sorted(rows, key=repr) for rows in rounded]


def _value(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, int | float) else value


def _parsed(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, dialect="sqlite")


def canonical(sql: str) -> str:
    return str(_parsed(sql).sql(dialect="sqlite", comments=False)).lower()


def skeleton(sql: str) -> str:
    """The statement with names and values masked. Shares no code with the environment's `structure`."""

    def mask(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.column("c")
        if isinstance(node, exp.Table):
            return exp.to_table("t")
        return exp.Literal.string("?") if isinstance(node, exp.Literal) else node

    return re.sub(r" AS \w+", "", _parsed(sql).transform(mask).sql(dialect="sqlite"))


def problems(item: Item) -> Iterator[str]:
    """Everything that is wrong with one item; nothing if it may go into a data file."""
    if not 0 < len(item.question) <= MAX_QUESTION:
        yield "question: empty or too long"
    if len(sqlglot.parse(item.sql, dialect="sqlite")) != 1 or not isinstance(_parsed(item.sql), exp.Query):
        yield "sql: not one query"
        return
    try:
        results = answers(item.world, item.sql)
    except sqlite3.Error as error:
        yield f"sql: {error}"
        return
    yield from _result_problems(results)
    yield from _tie_problems(item)
    yield from _literal_problems(item)


def _result_problems(results: list[list[tuple[Any, ...]]]) -> Iterator[str]:
    if any(not rows for rows in results):
        yield "result: empty in a population"
    elif any(all(value is None for row in rows for value in row) for rows in results):
        yield "result: nothing but NULL in a population"
    if any(len(rows) > MAX_ROWS for rows in results):
        yield "result: too large"
    if all(sorted(map(repr, rows)) == sorted(map(repr, results[0])) for rows in results):
        yield "result: the same in every population"


def _tie_problems(item: Item) -> Iterator[str]:
    """Rows that ORDER BY leaves in no certain order, up to the one after the last that LIMIT keeps."""
    for select in _parsed(item.sql).find_all(exp.Select):
        order = select.args.get("order")
        if order is None:
            continue
        limit, offset = select.args.get("limit"), select.args.get("offset")
        end = int(limit.expression.name) + (int(offset.expression.name) if offset else 0) + 1 if limit else None
        keys = [ordered.this.sql(dialect="sqlite") for ordered in order.expressions]
        probe = select.copy().select(*keys).limit(10**6)
        probe.set("offset", None)
        for population, rows in zip(POPULATIONS, answers(item.world, probe.sql(dialect="sqlite")), strict=True):
            seen = [row[-len(keys) :] for row in rows[:end]]
            if any(a == b for a, b in pairwise(seen)):
                yield f"order: ties in population {population}"


def _literal_problems(item: Item) -> Iterator[str]:
    """Text values must stand in the question exactly as they are stored: the prompt shows no data."""
    for literal in _parsed(item.sql).find_all(exp.Literal):
        text = literal.name.strip("%")
        if literal.is_string and isinstance(literal.parent, exp.Predicate | exp.In) and text not in item.question:
            yield f"literal: {text!r} is not in the question"
