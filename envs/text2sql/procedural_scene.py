"""What the procedural explorer knows: read from the view that an LLM explorer is shown, and from nothing else.

Table   columns, types and keys, from the world's description or from describe_table
Seen    one answered query of the log: its SQL, columns and rows
Scene   the tables, the values seen of each column, and what was tried so far
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from envs.text2sql.procedural_parse import parse
from envs.text2sql.procedural_query import Col, Literal, Query, resolved
from store.rows import Json

TABLE = re.compile(r"(?:CREATE\s+TABLE\s+)?[\"`\[]?(\w+)[\"`\]]?\s*\(", re.IGNORECASE)
REFERENCE = re.compile(r"REFERENCES\s+[\"`\[]?(\w+)[\"`\]]?\s*\(\s*[\"`\[]?(\w+)", re.IGNORECASE)
NUMERIC = ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC")
NAMES = ("name", "title")
"""Columns that name a row, for all that is known of a table not looked at yet."""
DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?")
CONSTRAINTS = ("PRIMARY", "FOREIGN", "UNIQUE", "CHECK", "CONSTRAINT")


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    types: dict[str, str]
    """Column -> declared type, in order."""
    keys: frozenset[str] = frozenset()
    """Columns of the primary key."""
    links: tuple[tuple[str, str, str], ...] = ()
    """Foreign keys: (column, referenced table, referenced column)."""

    @property
    def plain(self) -> list[str]:
        """Columns that carry facts: neither primary nor foreign key."""
        linked = {column for column, _, _ in self.links}
        return [name for name in self.types if name not in linked and not (name in self.keys and name.endswith("id"))]


@dataclass(frozen=True, slots=True)
class Seen:
    """One answered SQL query of the log."""

    sql: str
    columns: list[str]
    rows: list[list[Any]]
    failed: bool

    @property
    def useful(self) -> bool:
        """It answered with something: rows, and not a lone NULL or zero."""
        return any(cell not in (None, 0) for row in self.rows for cell in row)

    @property
    def robust(self) -> bool:
        """Likely to answer on other data too: several rows, or one number over all of them."""
        return len(self.rows) > 2 or len(self.rows) == len(self.columns) == 1


@dataclass(frozen=True)
class Scene:
    tables: dict[str, Table]
    seen: list[Seen] = field(default_factory=list)

    @cached_property
    def values(self) -> dict[Col, list[Literal]]:
        """Values seen of each column in whole-table samples, NULL left out, in the order seen."""
        found: dict[Col, list[Literal]] = {}
        for seen in self.samples:
            for position, name in enumerate(seen.columns):
                cells = [row[position] for row in seen.rows]
                known = [cell for cell in cells if isinstance(cell, str | int | float) and "..." not in str(cell)]
                found.setdefault(Col(sampled(seen.sql) or "", name), []).extend(known)
        return found

    @cached_property
    def nulls(self) -> list[Col]:
        """Columns in which a sample showed NULL."""
        found = [
            Col(sampled(seen.sql) or "", name)
            for seen in self.samples
            for position, name in enumerate(seen.columns)
            if any(row[position] is None for row in seen.rows)
        ]
        return list(dict.fromkeys(found))

    @cached_property
    def samples(self) -> list[Seen]:
        return [seen for seen in self.seen if not seen.failed and sampled(seen.sql)]

    @cached_property
    def sampled_tables(self) -> list[str]:
        return [table for seen in self.samples if (table := sampled(seen.sql)) in self.tables]

    @cached_property
    def queries(self) -> list[Seen]:
        """Composed queries so far (not the samples), in order."""
        return [seen for seen in self.seen if not sampled(seen.sql)]

    # ------------------------------------------------------------ kinds of columns

    def is_numeric(self, col: Col) -> bool:
        return self.tables[col.table].types[col.name].upper().startswith(NUMERIC)

    def is_date(self, col: Col) -> bool:
        values = self.values.get(col, [])
        return bool(values) and all(isinstance(v, str) and DATE.match(v) for v in values)

    def repeats(self, col: Col) -> bool:
        """Several rows share its values: a category, good to filter or group by."""
        values = self.values.get(col, [])
        if not values:
            return not self.is_numeric(col) and col.name.lower() not in NAMES
        return len(set(values)) <= 0.7 * len(values)

    def unique(self, col: Col) -> bool:
        """No value was seen twice: sorting by it leaves no ties."""
        values = self.values.get(col, [])
        return len(values) > 4 and len(set(values)) == len(values)

    def labels(self, table: str) -> list[Col]:
        """Columns to show: what names a row or says a fact of it."""
        return [Col(table, name) for name in self.tables[table].plain]

    def measures(self, table: str) -> list[Col]:
        """Numbers to add, average and compare."""
        columns = [col for col in self.labels(table) if self.is_numeric(col)]
        return [col for col in columns if "year" not in col.name.lower()]

    def ordered(self, table: str) -> list[Col]:
        """Columns with an order that means something: numbers and dates."""
        return [col for col in self.labels(table) if self.is_numeric(col) or self.is_date(col)]

    def categories(self, table: str) -> list[Col]:
        return [col for col in self.labels(table) if self.repeats(col) and (not self.measure_like(col))]

    def measure_like(self, col: Col) -> bool:
        """A number with many values: to compare by order, not by equality."""
        return self.is_numeric(col) and len(set(self.values.get(col, []))) > 6 and "year" not in col.name.lower()


def read(view: Json) -> Scene:
    """The scene of a view (envs/protocols.py, Explorer)."""
    log = [entry for entry in view.get("log") or [] if isinstance(entry, dict)]
    tables = {table.name: table for table in tables_of(str(view.get("world") or ""))}
    for entry in log:
        described = _described(entry) if entry.get("name") == "describe_table" else None
        tables |= {described.name: described} if described else {}
    return Scene(tables=tables, seen=list(_answers(log)))


def _described(entry: Json) -> Table | None:
    """The table that an answer of describe_table tells of."""
    answer = _json(str(entry.get("observation") or ""))
    if not isinstance(answer, dict) or not {"table", "columns"} <= set(answer):
        return None
    references = {link["column"]: link["references"].split(".") for link in answer.get("foreign_keys") or []}
    return Table(
        name=answer["table"],
        types={column["name"]: column["type"] for column in answer["columns"]},
        keys=frozenset(answer.get("primary_key") or []),
        links=tuple((column, parent, key) for column, (parent, key) in references.items()),
    )


def _answers(log: list[Json]) -> Iterator[Seen]:
    for entry in log:
        args = entry.get("args")
        sql = (args.get("sql") or args.get("query")) if isinstance(args, dict) else None
        if entry.get("name") == "run_sql" and isinstance(sql, str):
            answer = None if entry.get("failed") else rows_of(str(entry.get("observation") or ""))
            columns, rows = answer or ([], [])
            yield Seen(sql=sql, columns=columns, rows=rows, failed=answer is None)


def sampled(sql: str) -> str | None:
    """The table that a `SELECT * FROM table LIMIT n` looks at, else None."""
    match = re.fullmatch(r"SELECT \* FROM (\w+) LIMIT \d+", sql)
    return match.group(1) if match else None


# ---------------------------------------------------------------- reading descriptions


@lru_cache(maxsize=256)
def tables_of(text: str) -> tuple[Table, ...]:
    """The tables that a DDL-like text describes; [] if it describes none."""
    tables, at = [], 0
    while match := TABLE.search(text, at):
        body, at = _inside(text, match.end())
        table = _table(match.group(1), body)
        if table.types:
            tables.append(table)
    return tuple(tables)


def _inside(text: str, start: int) -> tuple[str, int]:
    """The text up to the parenthesis that closes the one before `start`, and where it ends."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at], at + 1
    return text[start:], len(text)


def _table(name: str, body: str) -> Table:
    types: dict[str, str] = {}
    keys: set[str] = set()
    links: list[tuple[str, str, str]] = []
    for part in re.split(r",(?![^(]*\))", body):
        words = part.split()
        if not words:
            continue
        reference = REFERENCE.search(part)
        named = re.findall(r"\w+", part[part.find("(") : part.find(")") + 1])
        if words[0].upper().split("(")[0] in CONSTRAINTS:
            keys |= set(named) if "PRIMARY" in part.upper() else set()
            links += [(named[0], reference.group(1), reference.group(2))] if reference and named else []
            continue
        column = words[0].strip('"`[]')
        types[column] = words[1] if len(words) > 1 else "TEXT"
        keys |= {column} if "PRIMARY KEY" in part.upper() else set()
        links += [(column, reference.group(1), reference.group(2))] if reference else []
    return Table(name, types, frozenset(keys), tuple(links))


def rows_of(observation: str) -> tuple[list[str], list[list[Any]]] | None:
    """Columns and rows of a query's answer {"columns", "rows"}; None if it is no such thing."""
    answer = _json(observation)
    columns, rows = (answer.get("columns"), answer.get("rows")) if isinstance(answer, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(rows, list):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        return None
    return [str(name) for name in columns], rows


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def understood(sql: str, tables: dict[str, Table]) -> Query | None:
    """The SQL text as a query over these tables, every column with its table; None where it is not one."""
    query = parse(sql)
    return resolved(query, {name: list(table.types) for name, table in tables.items()}) if query else None
