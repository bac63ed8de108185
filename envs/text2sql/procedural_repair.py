"""A query whose result was of no use, changed as little as helps; no new value comes in.

repaired   the changed query, or None where nothing would help
"""

from __future__ import annotations

from dataclasses import replace

from envs.text2sql.procedural_query import Agg, Col, Order, Query
from envs.text2sql.procedural_scene import NAMES, Table

OPPOSITE = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "=": "!="}
TOO_LITTLE = ("empty_result", "same_result", "noop_passes")


def repaired(query: Query, reason: str, tables: dict[str, Table]) -> Query | None:
    """The query without what `reason` (a word of text2sql/checks.py) found wrong with it."""
    if query.combined:
        return None
    if reason == "order_dependent":
        return _settled(query, tables)
    return _loosened(query) if reason in TOO_LITTLE else None


def _settled(query: Query, tables: dict[str, Table]) -> Query | None:
    """Ties are broken by the group, or by the name of the row; without a name the order goes, and the limit with it."""
    names = [Col(query.table, name) for name in tables[query.table].types if name in NAMES]
    breaks = query.group or names[:1]
    missing = tuple(Order(col) for col in breaks if col not in {key.by for key in query.order})
    if not query.order or query.distinct:
        return None
    return replace(query, order=(*query.order, *missing)) if missing else replace(query, order=(), limit=None)


def _loosened(query: Query) -> Query | None:
    """The last of several conditions goes; a comparison that stands alone is turned round."""
    if len(query.where) != 1:
        return replace(query, where=query.where[:-1], either=False) if query.where else None
    only = query.where[0]
    fixed = isinstance(only.left, Agg) or any(isinstance(operand, Query) for operand in only.right)
    if fixed or only.op not in OPPOSITE:
        return None
    return replace(query, where=(replace(only, op=OPPOSITE[only.op]),))
