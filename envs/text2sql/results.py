"""When two results are the same, and what a result looks like to others.

Rows are tuples; column names never count. A result is a multiset of rows unless its reference orders them.
Numbers compare by value (1 = 1.0), fractions to a relative 1e-6; NULL equals NULL; text compares exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from envs.text2sql.engine import Result, Value
from store.rows import content_id

_TOLERANCE = 1e-6
_DIGITS = 7
Row = tuple[Value, ...]


def fingerprint(result: Result, *, ordered: bool) -> str:
    """A hash of the rows; fractions are rounded to 7 digits first."""
    rows = [[_key(value) for value in row] for row in result.rows]
    return content_id("result", rows if ordered else sorted(rows))


def same(left: Result, right: Result, *, ordered: bool) -> bool:
    """Whether the rows agree, as lists or as multisets."""
    if len(left.rows) != len(right.rows):
        return False
    if fingerprint(left, ordered=ordered) == fingerprint(right, ordered=ordered):
        return True
    if ordered:
        return _close(left.rows, right.rows)
    # two fractions may differ by less than the tolerance and still be rounded apart: compare them once more by value
    return _close(sorted(left.rows, key=_rank), sorted(right.rows, key=_rank))


def empty(result: Result) -> bool:
    """No rows, or nothing but NULLs: there is no answer in it."""
    return all(value is None for row in result.rows for value in row)


def constant_query(result: Result) -> str:
    """A SELECT that yields these rows without reading a table: what a policy that knows one answer would say."""
    if not result.rows:
        return "SELECT NULL WHERE 0"
    if len(result.rows) == 1:
        return f"SELECT {', '.join(map(_literal, result.rows[0]))}"
    return f"SELECT * FROM (VALUES {', '.join('(' + ', '.join(map(_literal, row)) + ')' for row in result.rows)})"


def show(result: Result, *, rows: int, chars: int) -> str:
    """The result as JSON for a model: {"columns", "rows", "row_count"}; at most `rows` rows and about `chars`
    characters are shown, long texts are cut; "row_count" counts all."""
    shown: list[list[Value]] = []
    size = 0
    for row in result.rows[:rows]:
        cells = [_cell(value) for value in row]
        size += len(msgspec.json.encode(cells))
        if size > chars:
            break
        shown.append(cells)
    data = {"columns": [name[:80] for name in result.columns], "rows": shown, "row_count": len(result.rows)}
    return msgspec.json.encode(data).decode()


def _cell(value: Value) -> Value:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value[:197] + "..." if isinstance(value, str) and len(value) > 200 else value


def _key(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bytes():
            return "b" + value.hex()
        case str():
            return "t" + value
        case float() if not math.isfinite(value):
            return f"n{value}"
        case float() if not value.is_integer():
            value = float(f"{value:.{_DIGITS}g}")
    return f"n{int(value)}" if value == int(value) else f"n{value!r}"


def _rank(row: Row) -> list[tuple[int, float, str]]:
    """A sort key under which rows that are nearly the same lie next to each other."""
    return [(0, float(value), "") if isinstance(value, int | float) else (1, 0.0, _key(value)) for value in row]


def _close(left: Sequence[Row], right: Sequence[Row]) -> bool:
    return all(
        len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def _equal(x: Value, y: Value) -> bool:
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    if isinstance(x, int | float) and isinstance(y, int | float):
        return math.isclose(x, y, rel_tol=_TOLERANCE)
    return type(x) is type(y) and x == y


def _literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"x'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float() if not math.isfinite(value):
            return "9e999" if value > 0 else "-9e999"
    return repr(value)
