"""Files of records, in and out by streaming: JSON (one array), JSONL (an object a line), Parquet.

A record is what the file says, whatever that is; `Fault` stands in for one that can't be read at all.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import UsageError
from store.rows import Json

Kind = Literal["json", "jsonl", "parquet"]
KINDS: tuple[Kind, ...] = ("json", "jsonl", "parquet")

Put = Callable[[Json], object]
"""Writes one record more."""

BATCH = 256
"""Parquet rows that are in memory at once."""
CHUNK = 1 << 16
MAX_ITEM = 1 << 26
"""Characters of one item of a JSON array."""
_BOM = codecs.BOM_UTF8


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Why a record can't be used."""

    place: str
    """`line 3`, `item 3 (line 17)`, `row 3`; 1-based."""
    words: str

    def __str__(self) -> str:
        return f"{self.place}: {self.words}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    place: str
    value: Json


def kind_of(path: Path, field: str) -> Kind:
    """By the file's name. UsageError, which calls it `field`, for any other ending."""
    for kind in KINDS:
        if path.suffix.lower() == f".{kind}":
            return kind
    raise UsageError(f"{field}: {path.name!r} does not say what it is; end it in .json, .jsonl or .parquet")


def read(path: Path) -> Iterator[Record | Fault]:
    """The records in order. UsageError if there is no such file, or it is none of the kind that its name says."""
    try:
        if kind_of(path, "data set") == "parquet":
            yield from _parquet(path)
        else:
            with path.open("rb") as file:
                yield from (_lines(file) if kind_of(path, "data set") == "jsonl" else _items(file))
    except OSError as error:
        raise UsageError(f"data set: {path}: {error.strerror or error}; name a file that can be read") from None
    except pa.ArrowInvalid as error:
        raise UsageError(f"data set: {path} is no whole Parquet file ({str(error).splitlines()[0]})") from None


def _lines(file: BinaryIO) -> Iterator[Record | Fault]:
    for number, line in enumerate(file, 1):
        place = f"line {number}"
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.strip():
            continue
        try:
            yield Record(place=place, value=json.loads(text.decode()))
        except UnicodeDecodeError as error:
            yield Fault(place=place, words=_not_utf8(error))
        except (ValueError, RecursionError) as error:
            yield Fault(place=place, words=f"not JSON: {error}")


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}; save the file as UTF-8"


class _Source:
    """The text of a JSON file from where it is being read on, and the line on which that is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self.line = 1
        self._ended = False

    def take(self, mark: str) -> bool:
        """Whether `mark` is next after white space; it is then read."""
        while True:
            self._drop(len(self._text) - len(self._text.lstrip()))
            if self._text or not self._more():
                break
        if not self._text.startswith(mark):
            return False
        self._drop(len(mark))
        return True

    def value(self) -> Json:
        """The JSON value that is next. ValueError if it is none."""
        self.take("")
        while True:
            try:
                value, end = self._scan(self._text)
            except ValueError:
                if len(self._text) > MAX_ITEM or not self._more():
                    raise
                continue
            if end < len(self._text) or not self._more():
                self._drop(end)
                return value

    @property
    def ended(self) -> bool:
        self.take("")
        return not self._text

    def _more(self) -> bool:
        """Twice as much text, so that a long item is not scanned often. False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(max(CHUNK, len(self._text)))
        self._ended = not data
        self._text += self._decode.decode(data, final=self._ended)
        return True

    def _drop(self, length: int) -> None:
        self.line += self._text.count("\n", 0, length)
        self._text = self._text[length:]


def _items(file: BinaryIO) -> Iterator[Record | Fault]:
    source = _Source(file)
    place = "item 1 (line 1)"
    try:
        if not source.take("["):
            yield Fault(place="line 1", words="not a JSON array; a file with one object a line is named .jsonl")
            return
        if source.take("]"):
            return
        for number in count(1):
            source.take("")
            place = f"item {number} (line {source.line})"
            yield Record(place=place, value=source.value())
            if source.take("]"):
                break
            if not source.take(","):
                raise ValueError("no comma and no ] after it")
        if not source.ended:
            yield Fault(place=f"line {source.line}", words="text after the end of the array")
    except UnicodeDecodeError as error:
        yield Fault(place=place, words=f"{_not_utf8(error)}; what follows was not read")
    except (ValueError, RecursionError) as error:
        yield Fault(place=place, words=f"not JSON: {error}; what follows was not read")


def _parquet(path: Path) -> Iterator[Record | Fault]:
    number = 0
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"data set: {path} has more than one column {twice[0]!r}; rename or remove the others")
        for batch in file.iter_batches(batch_size=BATCH):
            for at in range(batch.num_rows):
                number += 1
                try:
                    (value,) = batch.slice(at, 1).to_pylist()
                except UnicodeDecodeError as error:
                    yield Fault(place=f"row {number}", words=_not_utf8(error))
                except (ValueError, OverflowError) as error:
                    yield Fault(place=f"row {number}", words=f"a value that can't be read: {error}")
                else:
                    yield Record(place=f"row {number}", value=value)


def check_pair(source: Path, target: Path) -> None:
    """UsageError unless records of `source` can be written to `target`."""
    kinds = kind_of(source, "IN"), kind_of(target, "--out")
    if (kinds[0] == "parquet") != (kinds[1] == "parquet"):
        raise UsageError(
            f"--out: {target.name!r}: a .{kinds[0]} file can't become a .{kinds[1]}; end it in .{kinds[0]}"
        )


@contextmanager
def writing(target: Path, draft: Path, *, like: Path, more: Sequence[tuple[str, Json]] = ()) -> Iterator[Put]:
    """Writes records to `draft`, which becomes `target` when the block ends; if it raises, nothing is left.

    `like` is the file that they come from: Parquet keeps its columns and gets those of `more`, as (name, a value), in
    place of columns of the same name.

    OSError if the disk does not take it.
    """
    try:
        with _writer(kind_of(target, "--out"), draft, like, more) as put:
            yield put
        _sync(draft)
        draft.replace(target)
        _sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _writer(kind: Kind, draft: Path, like: Path, more: Sequence[tuple[str, Json]]) -> Iterator[Put]:
    if kind == "parquet":
        with _parquet_writer(draft, like, more) as put:
            yield put
        return
    with draft.open("w", encoding="utf-8", newline="\n") as file:
        if kind == "jsonl":
            yield lambda value: file.write(f"{_text(value)}\n")
            return
        before = iter(["\n"])
        file.write("[")
        yield lambda value: file.write(next(before, ",\n") + _text(value))
        file.write("\n]\n")


def _text(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


@contextmanager
def _parquet_writer(draft: Path, like: Path, more: Sequence[tuple[str, Json]]) -> Iterator[Put]:
    schema = pq.read_schema(like)
    for name, value in more:
        field, at = pa.field(name, pa.scalar(value).type), schema.get_field_index(name)
        schema = schema.append(field) if at < 0 else schema.set(at, field)
    if more:
        kept = {key: text for key, text in (schema.metadata or {}).items() if key not in (b"huggingface", b"pandas")}
        schema = schema.with_metadata(kept)  # they describe columns, and would now be wrong
    rows: list[Json] = []
    with pq.ParquetWriter(draft, schema) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            rows.clear()

        def put(value: Json) -> None:
            rows.append(value)
            if len(rows) >= BATCH:
                flush()

        yield put
        flush()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def encodable(texts: Iterable[Any]) -> bool:
    """Whether UTF-8 can hold the texts: JSON may escape half a character, as in "\\ud800"."""
    return all(text == text.encode(errors="replace").decode() for text in texts)
