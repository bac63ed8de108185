"""The journal: batches are durable, whole or absent, and damage costs no more than the damaged lines."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import journal as journal_module
from store.errors import StoreError
from store.journal import START, Cursor, Journal, encode, read, segments
from store.rows import ROW_TYPES, Row, Score, Step, Task, Trajectory, Withdrawal, content_id
from tests.store_rows import exploration, phase, step, task, trajectory


def written(directory: Path) -> list[Row]:
    return [row for segment in segments(directory) for batch in read(segment) for row in batch.rows]


def notes(*names: str) -> list[Row]:
    return [Withdrawal(run="r", task_id=name, t=0, reason="x") for name in names]


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    rows: list[Row] = [task(1), trajectory("a"), step("x", ["SELECT"]), exploration(None), phase(0), *notes("a")]
    journal = Journal(tmp_path / "deep" / "journal")
    journal.append(rows[:2])
    journal.append(iter(rows[2:]))
    assert written(tmp_path / "deep" / "journal") == rows


def test_a_reader_or_an_empty_batch_leaves_no_segment(tmp_path: Path) -> None:
    Journal(tmp_path / "journal").append([])
    assert segments(tmp_path / "journal") == []


def test_each_writer_has_a_segment_and_names_sort_by_time(tmp_path: Path) -> None:
    writers = [Journal(tmp_path) for _ in range(3)]
    for number, writer in enumerate(writers):
        writer.append(notes(str(number)))
    for number, writer in enumerate(writers):
        writer.append(notes(f"again {number}"))
    assert len(segments(tmp_path)) == 3
    assert [row.task_id for row in written(tmp_path) if isinstance(row, Withdrawal)][::2] == ["0", "1", "2"]


def test_reading_goes_on_from_a_cursor(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(notes("a", "b"))
    (segment,) = segments(tmp_path)
    (first,) = read(segment)
    assert first.end == Cursor(segment.stat().st_size, 2)
    assert list(read(segment, first.end)) == []
    journal.append(notes("c"))
    (second,) = read(segment, first.end)
    assert (second.rows, second.end.line) == (notes("c"), 3)


def test_threads_share_a_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    threads = [
        threading.Thread(target=lambda n=n: [journal.append(notes(f"{n}-{i}", f"{n}-{i}+")) for i in range(20)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(written(tmp_path))) == 160
    (segment,) = segments(tmp_path)
    assert all(len(batch.rows) == 2 for batch in read(segment))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # other tests' libraries may have started threads
def test_a_forked_child_writes_a_segment_of_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(notes("parent"))
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        journal.append(notes("child"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    journal.append(notes("parent again"))
    assert len(segments(tmp_path)) == 2
    assert written(tmp_path) == notes("parent", "parent again", "child")


# ---- values


def test_values_that_do_not_fit_their_type_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    wrong: list[tuple[Row, str]] = [
        (trajectory(score="high"), r"score"),
        (trajectory(seed=2**63), "seed = 9223372036854775808 does not fit 64 bits"),
        (step("x", ["a"], prompt_ids=[1, 2**63]), r"prompt_ids = .* does not fit 64 bits"),
        (step("x", [1]), r"tokens"),  # type: ignore[list-item]
        (step("x", ["a"], logprobs=[float("nan")]), r"logprobs"),
        (task(1, difficulty=float("inf")), r"difficulty"),
        (phase("0"), r"\$.t"),  # type: ignore[arg-type]
        (exploration(None, context=object()), "Exploration"),
    ]
    for row, words in wrong:
        with pytest.raises(StoreError, match=words):
            journal.append([task(0), row])
    assert segments(tmp_path) == []


def test_what_utf_8_cannot_hold_is_replaced(tmp_path: Path) -> None:
    Journal(tmp_path).append([step("x", ["a\ud800"], action="\udfff!", observation="\ud83d\ude00 \x00")])
    (row,) = written(tmp_path)
    assert isinstance(row, Step)
    assert (row.tokens, row.action, row.observation) == (["a�"], "�!", "😀 \x00")


def test_an_id_of_such_content_is_the_id_of_what_is_stored() -> None:
    assert content_id("a\ud800", {"b": ["\udfff"]}) == content_id("a�", {"b": ["�"]})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(TEXT, TEXT, JSON, st.lists(TEXT, max_size=3)), min_size=1, max_size=4))
def test_any_text_and_any_json_come_back_as_they_were(contents: list[Any]) -> None:
    rows: list[Row] = []
    for action, observation, value, tokens in contents:
        rows.append(step("x", tokens, action=action, observation=observation))
        rows.append(task(0, id="x", reference=value, user_turns=tokens, world=action))
    assert [journal_module._decode(line + b"\n")[1] for line in encode(rows).split(b"\n")[:-1]] == rows


def test_every_kind_of_row_is_known() -> None:
    assert set(journal_module._ROWS) == {row_type.__name__.lower() for row_type in ROW_TYPES}
    assert {Task, Trajectory, Score} <= set(ROW_TYPES)


# ---- a failing disk


def test_a_failed_write_leaves_nothing_and_later_appends_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append(notes("before"))
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, bytes(data)[:30])

    monkeypatch.setattr(journal_module.os, "write", full)
    with pytest.raises(StoreError, match="No space left on device; nothing was stored"):
        journal.append(notes("lost", "lost too"))
    monkeypatch.undo()
    journal.append(notes("after"))
    assert written(tmp_path) == notes("before", "after")
    assert [batch.problems for segment in segments(tmp_path) for batch in read(segment)] == [[], []]


def test_half_a_line_that_could_not_be_cut_off_stands_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append(notes("before"))

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal_module.os, "fsync", broken)
    monkeypatch.setattr(journal_module.os, "ftruncate", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        journal.append(notes("unknown fate"))
    monkeypatch.undo()
    journal.append(notes("after"))
    assert {"before", "after"} <= {row.task_id for row in written(tmp_path) if isinstance(row, Withdrawal)}


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Journal(tmp_path / "file" / "journal").append(notes("a"))


# ---- damage


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Three batches, of 2, 1 and 3 lines."""
    journal = Journal(tmp_path)
    for batch in (["a", "b"], ["c"], ["d", "e", "f"]):
        journal.append(notes(*batch))
    return segments(tmp_path)[0]


def names(path: Path) -> list[str]:
    return [row.task_id for batch in read(path) for row in batch.rows if isinstance(row, Withdrawal)]


def test_every_truncation_leaves_whole_batches(segment: Path) -> None:
    data = segment.read_bytes()
    ends = [batch.end.offset for batch in read(segment)]
    for size in range(len(data)):
        segment.write_bytes(data[:size])
        batches = list(read(segment))
        assert [batch.end.offset for batch in batches] == [end for end in ends if end <= size]
        assert not any(batch.problems for batch in batches)


def test_a_torn_batch_is_read_once_its_writer_has_finished_it(segment: Path) -> None:
    data = segment.read_bytes()
    segment.write_bytes(data[:-10])
    *_, last = read(segment)
    segment.write_bytes(data)
    assert [len(batch.rows) for batch in read(segment, last.end)] == [3]


def test_every_flipped_byte_costs_its_line_alone_and_is_reported(segment: Path) -> None:
    data = segment.read_bytes()
    starts = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    for at in range(len(data)):
        for bit in (1, 32, 128):
            flipped = bytearray(data)
            flipped[at] ^= bit
            segment.write_bytes(flipped)
            line = max(number for number, start in enumerate(starts) if start <= at)
            is_newline = data[at] == 10
            lost = {"abcdef"[line]} | ({"abcdef"[line + 1]} if is_newline and line < 5 else set())
            if is_newline and line == 5:
                assert names(segment) == ["a", "b", "c"]  # the last batch looks torn
                continue
            assert set(names(segment)) == set("abcdef") - lost
            problems = [problem for batch in read(segment) for problem in batch.problems]
            assert problems
            assert problems[0].where == f"{segment.name}:{line + 1}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=200), at=st.integers(0, 600))
def test_garbage_anywhere_never_crashes_the_reader(segment: Path, garbage: bytes, at: int) -> None:
    data = encode(notes("a", "b")) + encode(notes("c")) + encode(notes("d"))
    segment.write_bytes(data[:at] + garbage + data[at:])
    assert set(names(segment)) <= set("abcd")
    for batch in read(segment, START):
        assert batch.end.offset <= segment.stat().st_size


def test_a_line_of_a_kind_that_is_not_known_is_reported_not_fatal(segment: Path) -> None:
    import zlib

    body = b'"kind":"dream","left":0,"row":{}}'
    segment.write_bytes(b'{"crc":"%08x",%s\n' % (zlib.crc32(body), body) + encode(notes("a")))
    (batch,) = read(segment)
    assert batch.rows == notes("a")
    assert "not a row that this version knows" in batch.problems[0].detail
