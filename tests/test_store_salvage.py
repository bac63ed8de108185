"""A lost journal segment costs nothing: `rebuild` writes rows that only the index has back before it discards it."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store import db, repair
from store.db import Store
from store.errors import StoreError
from store.journal import Journal, read, segments, size
from store.repair import Rebuilt
from store.rows import ROW_TYPES, Row, Step, Task, Trajectory
from tests.store_rows import step, task, trajectory
from tests.test_store_index import ONE_OF_EACH

ROOT = Path(__file__).parent.parent
Damage = Callable[[Path], object]


def all_rows(store: Store) -> dict[str, list[Row]]:
    return {kind.__name__: store.rows(kind) for kind in ROW_TYPES}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One row of each kind in the first segment, five rows more in the second; index and export have them all."""
    root = tmp_path / "store"
    Store(root).append(ONE_OF_EACH)
    rollout = trajectory("later")
    Store(root).append(task(7), task(8), rollout, [step(rollout, ["SELECT", "WHERE"], index) for index in (0, 1)])
    store = Store(root)
    store.ingest()
    return store


LOSSES: dict[str, Damage] = {
    "deleted": Path.unlink,
    "emptied": lambda segment: segment.write_bytes(b""),
    "zeros": lambda segment: segment.write_bytes(bytes(5000)),
    "garbage": lambda segment: segment.write_bytes(random.Random(0).randbytes(5000)),
    "truncated": lambda segment: segment.write_bytes(segment.read_bytes()[:-10]),  # the batch's end, so the batch
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_rows_of_a_lost_segment_are_told_and_salvaged(store: Store, loss: Damage) -> None:
    before, calls = all_rows(store), store.query("FROM tool_calls ORDER BY ALL")
    loss(segments(store.journal.directory)[1])
    told = {problem.where: problem.detail for problem in store.check() if problem.kind == "unknown"}
    assert {table: detail.split()[0] for table, detail in told.items()} == {"task": "2", "trajectory": "1", "step": "2"}
    words = "2 rows of the index have no line in the journal; `coevolve db rebuild` writes them back to it"
    assert told["task"] == words
    assert store.rebuild() == Rebuilt(rows=len(ONE_OF_EACH) + 5, salvaged=5, unreadable="")
    assert (all_rows(store), store.query("FROM tool_calls ORDER BY ALL")) == (before, calls)
    assert {problem.kind for problem in store.check()} <= {"torn", "damaged"}
    assert store.rebuild().salvaged == 0


def test_a_journal_that_is_gone_comes_back_whole_whatever_the_kind_of_row(store: Store) -> None:
    before = all_rows(store)
    shutil.rmtree(store.journal.directory)
    assert store.rebuild() == Rebuilt(rows=len(ONE_OF_EACH) + 5, salvaged=len(ONE_OF_EACH) + 5, unreadable="")
    assert all_rows(store) == before
    for path in store.root.glob("*.duckdb"):
        path.unlink()
    assert all_rows(store) == before
    assert store.check() == []


def test_salvaged_rows_go_to_a_segment_of_their_own(store: Store) -> None:
    store.append(task(1, world="mine"))
    first, second, mine = segments(store.journal.directory)
    kept = {path: path.read_bytes() for path in (first, mine)}
    second.unlink()
    store.rebuild()
    assert len(segments(store.journal.directory)) == 3
    assert {path: path.read_bytes() for path in (first, mine)} == kept


def test_of_two_rows_with_one_key_the_one_in_the_journal_stays(store: Store) -> None:
    with store.reading() as connection:
        connection.execute("UPDATE trajectory SET score = 0.25 WHERE task_id = 'later'")
    (problem,) = store.check()
    assert (problem.kind, problem.where) == ("changed", "trajectory")
    assert problem.detail == "1 rows of the index differ from the journal's; `coevolve db rebuild` takes the journal's"
    assert store.rebuild().salvaged == 0
    assert [row.score for row in store.rows(Trajectory, "task_id = 'later'")] == [1.0]
    assert store.check() == []


def test_tool_calls_that_no_step_has_are_told_and_derived_again(store: Store) -> None:
    before = store.query("FROM tool_calls ORDER BY ALL")
    with store.reading() as connection:
        connection.execute("UPDATE tool_calls SET token = 'DROP' WHERE token = 'WHERE'")
    assert [(problem.kind, problem.where) for problem in store.check()] == [("changed", "tool_calls")]
    assert store.rebuild().salvaged == 0
    assert store.query("FROM tool_calls ORDER BY ALL") == before


# ---- crashes and faults between the steps


def test_a_crash_after_the_salvage_costs_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_rows(store)
    segments(store.journal.directory)[1].unlink()

    def crash(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(db, "_discard", crash)
    with pytest.raises(KeyboardInterrupt):
        store.rebuild()
    monkeypatch.undo()
    assert store.rebuild() == Rebuilt(rows=len(ONE_OF_EACH) + 5, salvaged=0, unreadable="")
    assert all_rows(store) == before
    assert store.check() == []


def test_a_disk_that_is_full_in_the_midst_of_the_salvage_costs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, index = all_rows(store), store.index.stat().st_ino
    segments(store.journal.directory)[1].unlink()
    write, written = Journal._write, list[bytes]()

    def full(journal: Journal, data: bytes) -> None:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(data)
        write(journal, data)

    monkeypatch.setattr(repair, "_CHUNK", 1)
    monkeypatch.setattr(Journal, "_write", full)
    with pytest.raises(StoreError, match="No space left on device; nothing was stored"):
        store.rebuild()
    monkeypatch.undo()
    assert store.index.stat().st_ino == index
    assert all_rows(store) == before
    assert store.rebuild().salvaged == 2
    assert all_rows(store) == before
    assert store.check() == []


def test_a_segment_that_cannot_be_read_is_named_and_nothing_is_discarded(store: Store) -> None:
    before = all_rows(store)
    segment = segments(store.journal.directory)[1]
    segment.unlink()
    segment.symlink_to(segment.name)
    for action in (store.check, store.rebuild, store.ingest):
        with pytest.raises(
            StoreError, match=rf"{segment.name} cannot be read \(Too many levels.*\).*move it away and run"
        ):
            action()
    segment.rename(store.root / "away")
    assert store.rebuild().salvaged == 5
    assert all_rows(store) == before


def test_a_folder_in_the_place_of_a_segment_is_told_and_keeps_nothing_from_being_salvaged(store: Store) -> None:
    before = all_rows(store)
    segment = segments(store.journal.directory)[1]
    segment.unlink()
    segment.mkdir()
    (segment / "x").mkdir()
    assert f"{segment.name}: damaged: a folder in the place of a segment" in map(str, store.check())
    made = store.rebuild()
    assert (made.salvaged, made.set_aside, all_rows(store)) == (5, 1, before)
    assert store.check() == []
    assert (store.journal.directory / "damaged" / segment.name / "x").is_dir()


# ---- damaged lines are set aside


def damage_the_first_line(segment: Path) -> bytes:
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    return segment.read_bytes()


def closed(root: Path) -> Store:
    """Two tasks in a segment whose writer has gone, and another with the same key as the second in a later one."""
    for rows in ([task(1), task(2)], [task(2, origin="outside")]):
        writer = Store(root)
        writer.append(rows)
        writer.journal.close()
    return Store(root)


@pytest.mark.parametrize("known", [True, False], ids=["the index has the row", "nobody has the row"])
def test_a_damaged_line_is_set_aside_and_everything_else_stays(tmp_path: Path, known: bool) -> None:
    store = closed(tmp_path)
    if known:
        store.ingest()
    segment, later = segments(store.journal.directory)
    data = damage_the_first_line(segment)
    made = store.rebuild()
    assert (made.salvaged, made.set_aside) == (int(known), 1)
    assert [row.origin for row in store.rows(Task, order="user_turns")] == ["seed"] * (1 + known)  # the first stays
    assert store.check() == []
    assert (store.journal.directory / "damaged" / segment.name).read_bytes() == data
    assert segment not in segments(store.journal.directory)
    assert later in segments(store.journal.directory)
    assert store.rebuild().set_aside == 0


def test_a_segment_that_is_written_to_is_left_alone(tmp_path: Path) -> None:
    writer = Store(tmp_path)
    writer.append(task(1), task(2))
    (segment,) = segments(writer.journal.directory)
    damage_the_first_line(segment)
    other = Store(tmp_path)
    assert other.rebuild().set_aside == 0
    writer.append(task(3))
    assert len(other.rows(Task)) == 2
    writer.journal.close()
    assert (other.rebuild().set_aside, other.check()) == (1, [])
    assert len(other.rows(Task)) == 2


def test_a_segment_that_is_set_aside_between_listing_and_reading_holds_up_nobody(tmp_path: Path) -> None:
    store = closed(tmp_path)
    listed = segments(store.journal.directory)
    damage_the_first_line(listed[0])
    store.rebuild()
    assert (size(listed[0]), list(read(listed[0]))) == (0, [])


# ---- the index can't be asked


def test_without_a_readable_index_the_journal_alone_is_read_and_that_is_told(store: Store) -> None:
    segments(store.journal.directory)[1].unlink()
    store.index.write_bytes(b"garbage" * 4000)
    store.export.unlink()
    made = store.rebuild()
    assert (made.rows, made.salvaged) == (len(ONE_OF_EACH), 0)
    assert made.unreadable.startswith(f"{store.index} is damaged (")
    assert len(store.rows(Task)) == 1


def damage_index(store: Store) -> None:
    store.index.write_bytes(b"garbage" * 4000)


def lose_index(store: Store) -> None:
    store.index.unlink()


@pytest.mark.parametrize("fault", [damage_index, lose_index])
def test_the_export_is_asked_where_the_index_is_gone(store: Store, fault: Callable[[Store], None]) -> None:
    before = all_rows(store)
    segments(store.journal.directory)[1].unlink()
    fault(store)
    made = store.rebuild()
    assert (made.rows, made.salvaged) == (len(ONE_OF_EACH) + 5, 5)
    assert all_rows(store) == before
    assert store.check() == []


def test_an_index_that_is_made_again_by_itself_loses_nothing_that_the_export_has(store: Store) -> None:
    before = all_rows(store)
    segments(store.journal.directory)[1].unlink()
    damage_index(store)
    assert store.ingest() == len(ONE_OF_EACH) + 5
    assert all_rows(store) == before
    assert store.check() == []


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_of_the_index_keeps_it_from_being_made_again(store: Store, seed: int) -> None:
    before, rng = all_rows(store), random.Random(seed)
    data = bytearray(store.index.read_bytes())
    for _ in range(1 + 40 * (seed % 2)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    store.index.write_bytes(data)
    assert store.rebuild().rows == len(ONE_OF_EACH) + 5
    assert all_rows(store) == before


# ---- other processes


WRITER = """
import sys
from pathlib import Path
from store.db import Store
from tests.store_rows import task
store = Store(Path(sys.argv[1]))
for number in range(100, 1_000_000):
    store.append(task(number))
    print(number, flush=True)
    if number % 5 == 0:
        store.ingest()
"""


def test_a_rebuild_beside_a_writer_loses_nothing(store: Store) -> None:
    before = {row.id for row in store.rows(Task)}
    segments(store.journal.directory)[1].unlink()
    command = [sys.executable, "-c", WRITER, str(store.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        child.stdout.readline()
        assert [store.rebuild().salvaged for _ in range(5)] == [5, 0, 0, 0, 0]
        child.kill()
        acknowledged = {100, *(int(line) for line in child.stdout.read().split("\n") if line)}
    assert len(acknowledged) > 5
    assert before | {task(number).id for number in acknowledged} <= {row.id for row in store.rows(Task)}
    assert len(store.rows(Step)) == 3
    assert [problem for problem in store.check() if problem.kind != "torn"] == []


def test_two_rebuilds_at_once_salvage_once(store: Store) -> None:
    before = all_rows(store)
    segments(store.journal.directory)[1].unlink()
    code = "import sys; from pathlib import Path; from store.db import Store; Store(Path(sys.argv[1])).rebuild()"
    children = [subprocess.Popen([sys.executable, "-c", code, store.root], cwd=ROOT) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert len(segments(store.journal.directory)) == 2
    assert all_rows(store) == before
    assert store.check() == []
