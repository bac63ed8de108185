"""One world of text2sql: a schema in one or more populations, and who is to blame when a query on it takes too long."""

from __future__ import annotations

from dataclasses import dataclass, field

from envs.text2sql.engine import Column, Database, Limits, QueryError, Result, Source, Table, sql_name
from store.rows import Split


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlWorld:
    id: str
    split: Split
    tables: tuple[Table, ...]
    populations: tuple[Source, ...]
    """The same schema with different rows; an answer must be right on all of them."""
    limits: Limits = field(default_factory=Limits)

    def table(self, wanted: str) -> Table | None:
        return next((table for table in self.tables if table.name.lower() == wanted.lower()), None)

    def compact(self) -> str:
        """`table(column,column)`, one line a table: the direct mode's prompt."""
        return "\n".join(
            f"{sql_name(t.name)}({','.join(sql_name(column.name) for column in t.columns)})" for t in self.tables
        )

    def describe(self) -> str:
        """CREATE TABLE statements: columns, types, keys; no data."""
        return "\n".join(_create(table) for table in self.tables)


def _create(table: Table) -> str:
    keys = [sql_name(column.name) for column in table.columns if column.primary_key]
    lines = [_column(column, alone=len(keys) == 1) for column in table.columns]
    if len(keys) > 1:
        lines.append(f"PRIMARY KEY ({', '.join(keys)})")
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {sql_name(table.name)} (\n  {body}\n);"


def _column(column: Column, *, alone: bool) -> str:
    key = " PRIMARY KEY" if column.primary_key and alone else ""
    references = " REFERENCES {}({})".format(*map(sql_name, column.references)) if column.references else ""
    return f"{sql_name(column.name)} {column.type}".rstrip() + key + references


class Populations:
    """Open connections to a world's populations, one each, made when first needed. Close it."""

    def __init__(self, world: SqlWorld) -> None:
        self._world = world
        self._open: dict[tuple[int, bool], Database] = {}

    def __len__(self) -> int:
        return len(self._world.populations)

    def run(self, index: int, sql: str, *, backwards: bool = False) -> Result | QueryError:
        """Run on population `index`; `backwards`: rows are visited so wherever the statement leaves it open.

        A query over its deadline is sent once more to a fresh connection: if it fails again it is the query's fault and
        the error stands, else it was the machine's and nobody hears of it. Queries leave no trace, so there is no log
        of calls to be replayed first.
        """
        result = self._database(index, backwards).run(sql)
        if isinstance(result, QueryError) and result.kind == "deadline":
            self._open.pop((index, backwards)).close()
            result = self._database(index, backwards).run(sql)
        return result

    def _database(self, index: int, backwards: bool) -> Database:
        key = index, backwards
        if key not in self._open:
            world = self._world
            self._open[key] = Database(world.populations[index], world.limits, reverse=backwards)
        return self._open[key]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
