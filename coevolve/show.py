"""Tables and JSON for people and programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from store.db import Table


def plain(value: Any) -> Any:
    """A Table as a list of dicts; anything else as it is."""
    if isinstance(value, Table):
        return [dict(zip(value.columns, row, strict=True)) for row in value.rows]
    return value


def csv_text(value: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(value.columns)
    writer.writerows([[_cell(cell) for cell in row] for row in value.rows])
    return out.getvalue()


def table(value: Table) -> None:
    """Print to stdout: fitted to a terminal, in full width to a pipe. Control characters are shown, never sent."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in value.columns:
        drawn.add_column(Text(inert(name)), overflow="fold")
    for row in value.rows:
        drawn.add_row(*(Text(inert(_cell(cell))) for cell in row))
    width = None if sys.stdout.isatty() else _full_width(value)
    Console(width=width).print(drawn)


def _full_width(value: Table) -> int:
    columns: Sequence[Sequence[str]] = [
        [name, *(inert(_cell(row[i])) for row in value.rows)] for i, name in enumerate(value.columns)
    ]
    return max(80, sum(max(map(len, column)) + 2 for column in columns))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def inert(text: str) -> str:
    """The text with control characters written out, so that stored model output can't drive a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
