"""Rows as Arrow tables and back: what bulk inserts into the index and the snapshots' Parquet files share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from store.rows import Row
from store.schema import Column, columns

R = TypeVar("R", bound=Row)

_TYPES = {
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
}


def to_arrow(row_type: type[Any], rows: Sequence[Row]) -> pa.Table:
    """One column a field; `Json` fields as canonical JSON text, None as NULL."""
    described = columns(row_type)
    arrays = [
        pa.array([_plain(column, getattr(row, column.name)) for row in rows], _type(column)) for column in described
    ]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(row_type))


def arrow_schema(row_type: type[Any]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _type(column), column.nullable) for column in columns(row_type)])


def from_tuples(row_type: type[R], tuples: Iterable[Sequence[Any]]) -> Iterator[R]:
    """Typed rows of tuples that hold the columns in order, as a database cursor or a Parquet file gives them. What was
    written before the last columns were added has their defaults."""
    names = [column.name for column in columns(row_type)]
    json_at = [at for at, column in enumerate(columns(row_type)) if column.type == "JSON"]
    for values in tuples:
        cells = list(values)
        for at in json_at:
            cells[at] = None if cells[at] is None else msgspec.json.decode(cells[at])
        yield row_type(**dict(zip(names, cells, strict=False)))


def _plain(column: Column, value: Any) -> Any:
    if column.type != "JSON" or value is None:
        return value
    return msgspec.json.encode(value, order="sorted").decode()


def _type(column: Column) -> pa.DataType:
    inner = _TYPES[column.type.removesuffix("[]")]
    return pa.list_(inner) if column.type.endswith("[]") else inner
