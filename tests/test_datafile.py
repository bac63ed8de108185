"""Records go in and out of JSON, JSONL and Parquet by streaming; what can't be read is told by place."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import datafile
from store.datafile import Fault, Record, check_pair, read, writing
from store.errors import UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=8)


def values(path: Path) -> list[Any]:
    found = list(read(path))
    assert all(isinstance(record, Record) for record in found), found
    return [record.value for record in found if isinstance(record, Record)]


def faults(path: Path) -> list[str]:
    return [str(record) for record in read(path) if isinstance(record, Fault)]


def write(target: Path, records: list[Any], like: Path | None = None, more: Any = ()) -> None:
    with writing(target, target.with_name("draft"), like=like or target, more=more) as put:
        for record in records:
            put(record)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@given(records=RECORDS)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, name: str, records: Any) -> None:
    path = tmp_path_factory.mktemp("d") / name
    write(path, records)
    assert values(path) == records


@given(records=RECORDS, chunk=st.integers(1, 40), indent=st.sampled_from([None, 1]), ascii=st.booleans())
def test_an_array_is_read_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, records: Any, chunk: int, indent: Any, ascii: bool
) -> None:
    path = tmp_path_factory.mktemp("d") / "a.json"
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=ascii), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datafile, "CHUNK", chunk)
        assert values(path) == records


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", '{"a": 1}\n'), ("a.json", '[{"a": 1}]')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert values(tmp_path / name) == [{"a": 1}]


def test_empty_lines_are_no_records_but_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"a": 1}\n \n{oops}\n{"b": 2}')
    assert [record.place for record in read(path)] == ["line 2", "line 4", "line 5"]
    assert faults(path)[0].startswith("line 4: not JSON: ")


def test_every_line_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": "\xff"}\n{"a": 1}\n{"a": "caf\xe9"}\n')
    assert faults(path) == [
        "line 1: not UTF-8: byte 0xff at position 7; save the file as UTF-8",
        "line 3: not UTF-8: byte 0xe9 at position 10; save the file as UTF-8",
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_an_array_in_another_encoding_is_told(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('[{"a": "é"}]'.encode(encoding))
    assert any("not UTF-8" in fault for fault in faults(path))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1}\n{"a": 2}', "line 1: not a JSON array; a file with one object a line is named .jsonl"),
        ("", "line 1: not a JSON array"),
        ('[{"a": 1}\n {"a": 2}]', "item 1 (line 1): not JSON: no comma and no ] after it"),
        ('[{"a": 1},\n\n {"a": oops}, {"a": 3}]', "item 2 (line 3): not JSON: "),
        ('[{"a": 1},', "item 2 (line 1): not JSON: "),
        ('[{"a": 1}', "item 1 (line 1): not JSON: no comma"),
        ('[{"a": 1}]\nmore', "line 2: text after the end of the array"),
        ("[" * 100_000, "item 1 (line 1): not JSON: "),
        ('[{"a": ' + "9" * 5000 + "}]", "item 1 (line 1): not JSON: "),
    ],
)
def test_a_broken_array_is_told_by_item_and_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    (told,) = faults(path)
    assert told.startswith(fault)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_records_or_faults(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("d")
    for name in ("a.json", "a.jsonl"):
        (folder / name).write_bytes(data)
        assert all(isinstance(record, Record | Fault) for record in read(folder / name))


def test_a_long_array_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, [{"text": "x" * 1000}] * 20_000)
    tracemalloc.start()
    assert sum(1 for _ in read(path)) == 20_000
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def test_half_characters_outlive_a_round_trip(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"a": "\ud800"}])
    assert values(tmp_path / "a.jsonl") == [{"a": "\ud800"}]


def parquet(path: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_parquet_keeps_its_schema_over_many_batches(tmp_path: Path) -> None:
    rows = [{"id": at, "said": [{"from": "human", "value": "é"}], "score": at / 3} for at in range(1000)]
    source, target = parquet(tmp_path / "in.parquet", rows), tmp_path / "out.parquet"
    write(target, values(source), like=source)
    assert pq.read_schema(target) == pq.read_schema(source)
    assert values(target) == rows


def test_parquet_gets_further_columns(tmp_path: Path) -> None:
    source, target = parquet(tmp_path / "in.parquet", [{"a": 1}]), tmp_path / "out.parquet"
    write(target, [{"a": 1, "why": "x", "n": 2}], like=source, more=[("why", ""), ("n", 0)])
    assert values(target) == [{"a": 1, "why": "x", "n": 2}]


def test_a_further_column_takes_the_place_of_one_of_its_name(tmp_path: Path) -> None:
    source, target = parquet(tmp_path / "in.parquet", [{"why": 3, "a": 1}]), tmp_path / "out.parquet"
    write(target, [{"why": "x", "a": 1}], like=source, more=[("why", "")])
    assert pq.read_schema(target).names == ["why", "a"]
    assert values(target) == [{"why": "x", "a": 1}]


def test_two_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="more than one column 'a'; rename"):
        list(read(tmp_path / "a.parquet"))


def test_a_parquet_date_beyond_the_calendar_is_told_by_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([0, -(10**6)], pa.date32())}), tmp_path / "a.parquet")
    assert faults(tmp_path / "a.parquet") == ["row 2: a value that can't be read: date value out of range"]


def test_what_is_no_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("PAR1 and then nothing")
    with pytest.raises(UsageError, match="is no whole Parquet file"):
        list(read(tmp_path / "a.parquet"))


def test_a_parquet_text_that_is_not_utf8_is_told_by_row(tmp_path: Path) -> None:
    column = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    assert faults(tmp_path / "a.parquet") == ["row 2: not UTF-8: byte 0xff at position 0; save the file as UTF-8"]


@pytest.mark.parametrize("name", ["a.csv", "a", "a.jsonl.gz"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"end it in \.json, \.jsonl or \.parquet"):
        check_pair(tmp_path / name, tmp_path / "out.jsonl")


def test_json_does_not_become_parquet() -> None:
    check_pair(Path("a.json"), Path("b.jsonl"))
    with pytest.raises(UsageError, match=r"--out: 'b.parquet': a .json file can't become a .parquet"):
        check_pair(Path("a.json"), Path("b.parquet"))


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").mkdir()
    for name in ("none.jsonl", "d.jsonl", "none.parquet"):
        with pytest.raises(UsageError, match="name a file that can be read"):
            list(read(tmp_path / name))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_writer_that_fails_leaves_nothing(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_text("[]")

    def fail() -> None:
        with writing(target, tmp_path / "draft", like=target) as put:
            put({"a": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.read_text() == "[]"
    assert list(tmp_path.iterdir()) == [target]
