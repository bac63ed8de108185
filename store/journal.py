"""The journal: every row ever written, one JSON line each; the truth of which the DuckDB file is an index.

Each writing process appends to a segment of its own, so writers never wait for each other. A batch is durable when
`append` returns, and whole or absent after a kill:

    {"crc":"<CRC-32 of the rest>","kind":"step","left":1,"row":{...}}
    {"crc":"...","kind":"step","left":0,"row":{...}}

`left` counts the batch's lines that follow; lines after the last `"left":0` of a segment are the torn tail of a
writer that died, and are not read. A line whose checksum fails is reported and skipped; the rest is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import secrets
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from store.errors import RowRefused, StoreError
from store.rows import Row, without_lone_surrogates
from store.schema import KINDS, columns, kind_of

_PREFIX, _SUFFIX = b'{"crc":"', b'",'
_BODY = len(_PREFIX) + 8 + len(_SUFFIX)
"""Where the checksummed rest of a line begins."""


class Cursor(NamedTuple):
    """How far a segment is read; always between two batches."""

    offset: int
    """Bytes."""
    line: int
    """Lines."""


START = Cursor(0, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something that `check` found."""

    kind: Literal["torn", "damaged", "missing", "changed", "unknown"]
    """torn: the unfinished last batch of a killed writer, harmless, as it was never acknowledged. damaged: a line or
    a snapshot that can't be read. missing: rows of the journal that the index lacks. changed: rows that have other
    values in the index. unknown: rows of the index that the journal lacks."""
    where: str
    """`segment:line`, a table, or a run."""
    detail: str

    @property
    def harmless(self) -> bool:
        """Every kill leaves a torn tail; it alone is no reason to act."""
        return self.kind == "torn"

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.detail}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Rows that one `append` wrote, and where the next batch begins."""

    rows: list[Row]
    end: Cursor
    problems: list[Problem] = field(default_factory=list)


class _Line(msgspec.Struct):
    kind: str
    left: int
    row: msgspec.Raw


class _Unreadable(Exception):
    pass


_LINE = msgspec.json.Decoder(_Line)
_ROWS: dict[str, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(row) for kind, row in KINDS.items()}
_INTEGERS = {
    kind: [column.name for column in columns(row) if column.type.startswith("BIGINT")] for kind, row in KINDS.items()
}


class Journal:
    """The writer of this process's segment. Safe to share between threads; a forked child gets its own segment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._file: int | None = None
        self._path = directory
        self._size = 0
        self._pid = 0

    def append(self, rows: Iterable[Row]) -> None:
        """Write the rows as one batch: all durable on return, or none. StoreError says why it could not."""
        data = encode(list(rows))
        if not data:
            return
        with self._lock:
            try:
                self._write(data)
            except BaseException as error:
                self._abandon()
                if isinstance(error, OSError):
                    raise StoreError(f"cannot write {self._path}: {error.strerror}; nothing was stored") from error
                raise

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _write(self, data: bytes) -> None:
        file = self._segment()
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
        self._size += len(data)

    def _segment(self) -> int:
        """The open segment; made at the first append, so that readers alone leave no files."""
        if self._file is None or self._pid != os.getpid():
            self._forget()
            _make_directory(self.directory)
            self._path = self.directory / f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_SH)  # until it is closed: it tells `set_aside` of a writer at work
            self._pid, self._size = os.getpid(), 0
            _sync_directory(self.directory)
        return self._file

    def _abandon(self) -> None:
        """Cut off what a failed append left; later appends go to a new segment, behind no half line in any case."""
        if self._file is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
        self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = None


def encode(rows: list[Row]) -> bytes:
    """The lines of one batch. RowRefused if a row's values don't fit its type, so that no unreadable line is made."""
    lines = []
    for left, row in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        body = b'"kind":"%s","left":%d,"row":%s}' % (kind_of(type(row)).encode(), left, _encode_row(row))
        lines.append(b"%s%08x%s%s\n" % (_PREFIX, zlib.crc32(body), _SUFFIX, body))
    return b"".join(lines)


def _encode_row(row: Row) -> bytes:
    try:
        try:
            data = msgspec.json.encode(row)
        except UnicodeEncodeError:
            data = msgspec.json.encode(without_lone_surrogates(msgspec.to_builtins(row)))
        _ROWS[kind_of(type(row))].decode(data)
        _check_integers(row)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, KeyError) as error:
        raise RowRefused(f"this {type(row).__name__} row cannot be stored: {error}") from error
    return data


def _check_integers(row: Row) -> None:
    for name in _INTEGERS[kind_of(type(row))]:
        value = getattr(row, name)
        numbers = value if isinstance(value, list) else [value or 0]
        if numbers and not -(2**63) <= min(numbers) <= max(numbers) < 2**63:
            raise OverflowError(f"{name} = {value} does not fit 64 bits")


def segments(directory: Path) -> list[Path]:
    """All segments, oldest first."""
    return [path for path in sorted(directory.glob("*.jsonl")) if not path.is_dir()]


def strays(directory: Path) -> list[Path]:
    """Folders that stand where a segment should: no row is in them, and none can be."""
    return [path for path in sorted(directory.glob("*.jsonl")) if path.is_dir()]


def size(segment: Path) -> int:
    """Bytes of a segment; 0 if it was set aside meanwhile."""
    with _readable(segment) as file:
        return file.seek(0, os.SEEK_END)


def set_aside(segment: Path) -> bool:
    """Move a damaged segment, or a stray, to the folder `damaged`, where it is kept and nothing reads it. Before, its
    whole rows are made durable in a segment of their own, at the same place in the order. False, and nothing is
    touched, while its writer is at work."""
    if segment.is_dir():
        _move_aside(segment)
        return True
    with _readable(segment) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        _mend(segment)
        _move_aside(segment)
    return True


def _mend(segment: Path) -> None:
    draft = segment.with_name(f".mended-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            for batch in read(segment):
                file.write(encode(batch.rows))
            file.flush()
            os.fsync(file.fileno())
            some = file.tell() > 0
        if some:
            draft.replace(segment.with_name(f"{segment.stem}-mended.jsonl"))
            _sync_directory(segment.parent)
    finally:
        draft.unlink(missing_ok=True)


def _move_aside(path: Path) -> None:
    folder = path.parent / "damaged"
    folder.mkdir(exist_ok=True)
    target = folder / path.name
    path.rename(target if not target.exists() else target.with_name(f"{path.name}-{secrets.token_hex(4)}"))
    _sync_directory(folder)
    _sync_directory(path.parent)


def read(segment: Path, start: Cursor = START) -> Iterator[Batch]:
    """Whole batches from `start` on. The torn tail is left for the next reading, when it may be whole."""
    offset, line = start
    rows: list[Row] = []
    problems: list[Problem] = []
    with _readable(segment) as file:
        file.seek(offset)
        for data in file:
            if not data.endswith(b"\n"):
                break
            offset, line = offset + len(data), line + 1
            try:
                left, row = _decode(data)
            except _Unreadable as error:
                problems.append(Problem(kind="damaged", where=f"{segment.name}:{line}", detail=str(error)))
                continue
            rows.append(row)
            if left == 0:
                yield Batch(rows=rows, end=Cursor(offset, line), problems=problems)
                rows, problems = [], []
    if problems:  # the damaged line may have been the batch's last: better its other rows than none
        yield Batch(rows=rows, end=Cursor(offset, line), problems=problems)


@contextlib.contextmanager
def _readable(segment: Path) -> Iterator[BinaryIO]:
    try:
        if os.path.lexists(segment):
            with segment.open("rb") as file:
                yield file
        else:  # set aside since it was listed: its rows are in another
            yield io.BytesIO()
    except OSError as error:
        raise StoreError(
            f"journal {segment} cannot be read ({error.strerror}); make it readable, or, if it is lost, move it away "
            "and run `coevolve db rebuild`, which keeps what the index has of it"
        ) from error


def _decode(data: bytes) -> tuple[int, Row]:
    body = data[_BODY:-1]
    if data[:_BODY] != b"%s%08x%s" % (_PREFIX, zlib.crc32(body), _SUFFIX):
        raise _Unreadable("the checksum does not match")
    try:
        line = _LINE.decode(b"{" + body)
        return line.left, _ROWS[line.kind].decode(line.row)
    except (msgspec.MsgspecError, KeyError) as error:
        raise _Unreadable(f"not a row that this version knows ({error})") from error


def _make_directory(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the names in it durable too."""
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
