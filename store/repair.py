"""Where index and journal differ, and how rows that only the index has come back into the journal.

All SQL runs on a connection to the index, or to a copy of it, with an index made from the journal alone attached as
`fresh`. A row is known by its key: of two rows with one key the journal's is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from store.arrow import from_tuples
from store.journal import START, Problem, read, segments, size, strays
from store.migrations import Connection
from store.rows import Row
from store.schema import KINDS, columns, tool_calls_of

FRESH = "fresh"
_CHUNK = 50_000
"""Rows of one batch that `salvage` appends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What `Store.rebuild` did."""

    rows: int
    """Of the journal, each once, the salvaged ones among them."""
    salvaged: int
    """Written back to the journal, which had lost them."""
    unreadable: str
    """Why the old index could not be asked; empty if it could."""
    set_aside: int = 0
    """Damaged segments of the journal that were moved to its folder `damaged`, their whole rows to new ones."""


def bad_segments(directory: Path) -> Iterator[Path]:
    """Segments with damaged lines, and what stands in the place of one."""
    yield from strays(directory)
    for segment in segments(directory):
        if any(problem.kind == "damaged" for problem in bad_lines(segment)):
            yield segment


def journal_problems(directory: Path) -> Iterator[Problem]:
    for stray in strays(directory):
        yield Problem(kind="damaged", where=stray.name, detail="a folder in the place of a segment")
    for segment in segments(directory):
        yield from bad_lines(segment)


def bad_lines(segment: Path) -> Iterator[Problem]:
    end = START
    for batch in read(segment):
        end = batch.end
        yield from batch.problems
    torn = size(segment) - end.offset
    if torn:
        detail = f"{torn} bytes of an unfinished batch, dropped: its writer was killed or is still writing"
        yield Problem(kind="torn", where=f"{segment.name}:{end.line + 1}", detail=detail)


def differences(connection: Connection) -> Iterator[Problem]:
    for kind, row_type in KINDS.items():
        yield from _differences(connection, kind, row_type)
    stored, derived = "FROM tool_calls", tool_calls_of("step")
    if wrong := sum(_count(connection, f"({a}) EXCEPT ALL ({b})") for a, b in ((stored, derived), (derived, stored))):
        detail = f"{wrong} rows differ from the steps that they are derived from; run `coevolve db rebuild`"
        yield Problem(kind="changed", where="tool_calls", detail=detail)


def _differences(connection: Connection, kind: str, row_type: type[Row]) -> Iterator[Problem]:
    lost = _count(connection, f'FROM {FRESH}."{kind}" ANTI JOIN "{kind}" USING ({_key(row_type)})')
    if lost:
        detail = f"{lost} rows of the journal are not in the index; run `coevolve db rebuild`"
        yield Problem(kind="missing", where=kind, detail=detail)
    if changed := _count(connection, f'(FROM {FRESH}."{kind}") EXCEPT ALL (FROM "{kind}")') - lost:
        detail = f"{changed} rows of the index differ from the journal's; `coevolve db rebuild` takes the journal's"
        yield Problem(kind="changed", where=kind, detail=detail)
    if extra := _count(connection, f"SELECT 1 {_unjournaled(kind, row_type)}"):
        detail = f"{extra} rows of the index have no line in the journal; `coevolve db rebuild` writes them back to it"
        yield Problem(kind="unknown", where=kind, detail=detail)


def salvage(connection: Connection, append: Callable[[list[Row]], None]) -> Iterator[int]:
    """Append the rows that have no line in the journal, batch by batch; how many each had."""
    for kind, row_type in KINDS.items():
        names = ", ".join(f'"{column.name}"' for column in columns(row_type))
        found = connection.execute(f"SELECT {names} {_unjournaled(kind, row_type)}")
        while tuples := found.fetchmany(_CHUNK):  # streams: nothing else may use the connection meanwhile
            rows: list[Row] = list(from_tuples(row_type, tuples))
            append(rows)
            yield len(rows)


def _unjournaled(kind: str, row_type: type[Row]) -> str:
    return f'FROM "{kind}" ANTI JOIN {FRESH}."{kind}" USING ({_key(row_type)})'


def _key(row_type: type[Row]) -> str:
    return ", ".join(f'"{name}"' for name in row_type.KEY)


def _count(connection: Connection, select: str) -> int:
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({select})").fetchall()
    return int(count)
