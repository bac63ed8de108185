"""The columns that a mistyped one may stand for, where DuckDB names none: it does so for tables, not for views."""

from __future__ import annotations

import difflib
import re

from store.migrations import Connection

_OFFERED = 3
_UNKNOWN = re.compile(r'Values list "(.+?)" does not have a column named "(.+?)"')


def offer(connection: Connection, query: str, words: str) -> str:
    """What to add to DuckDB's `words` on a query: the nearest columns if they are that a view lacks one, or nothing."""
    if not (found := _UNKNOWN.search(words)):
        return ""
    name, wrong = found.groups()
    for view in (name, *_aliased(name, query)):
        known = connection.execute("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [view]).fetchall()
        if known:
            nearest = difflib.get_close_matches(wrong, [column for (column,) in known], _OFFERED, cutoff=0.0)
            return f"; the nearest columns of {view} are {', '.join(nearest)}"
    return ""


def _aliased(alias: str, query: str) -> list[str]:
    """What the query may call so: each name before it."""
    return re.findall(rf'(\w+)"?\s+(?:AS\s+)?"?{re.escape(alias)}\b', query, re.IGNORECASE)
