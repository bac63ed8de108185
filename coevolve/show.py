"""Tables and JSON for people and programs."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from store.db import Table


def plain(value: Any) -> Any:
    """Plain JSON: a Table as a list of dicts (columns of one name are numbered), numbers that JSON lacks as null."""
    if isinstance(value, Table):
        names = _distinct(value.columns)
        return [plain(dict(zip(names, row, strict=True))) for row in value.rows]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(value: Any) -> Any:
    """Rows as dicts, anything else that JSON lacks as its text."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        number = sum(name == earlier for earlier in names[: len(found)])
        found.append(f"{name}_{number}" if number else name)
    return found


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
