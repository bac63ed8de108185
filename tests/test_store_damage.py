"""Whatever happens to the index, the journal makes it again; whoever is killed, nothing acknowledged is lost.

The matrix of kills, truncations and flipped bits: over the journal (here and in test_journal.py), the index, its
write-ahead log and the export.
"""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.db import Store
from store.journal import segments
from store.rows import Row, Step, Task, Trajectory
from tests.store_rows import step, task, trajectory

ROOT = Path(__file__).parent.parent
KINDS: tuple[type[Row], ...] = (Task, Trajectory, Step)


def rows_of(number: int) -> list[Row]:
    rollout = trajectory(f"task{number}", number)
    return [
        task(number),
        rollout,
        *[step(rollout, ["SELECT", "WHERE"], index, observation="o" * 40) for index in (0, 1)],
    ]


def all_rows(store: Store) -> list[list[Row]]:
    return [store.rows(kind) for kind in KINDS]


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed with a write-ahead log that is not yet in the index."""
    root = tmp_path_factory.mktemp("killed")
    store = Store(root)
    for number in range(60):
        store.append(rows_of(number))
    store.ingest()
    for number in range(60, 90):
        store.append(rows_of(number))
    child = python(
        """
import os, sys, time
from pathlib import Path
from store.db import Store
store = Store(Path(sys.argv[1]))
with store.reading() as connection:
    print(connection.execute("SELECT count(*) FROM task").fetchall(), flush=True)
    time.sleep(60)
""",
        root,
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "[(90,)]\n"
        child.kill()
    assert Path(f"{store.index}.wal").stat().st_size > 1000
    return root


@pytest.fixture(scope="module")
def expected(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Row]]:
    root = tmp_path_factory.mktemp("expected")
    shutil.copytree(killed / "journal", root / "journal")
    rows = all_rows(Store(root))
    assert [len(each) for each in rows] == [90, 90, 180]
    return rows


def damaged(killed: Path, root: Path, name: str, change: object) -> Store:
    """A copy of the store with one of its files changed."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(killed, root)
    data = bytearray((root / name).read_bytes())
    (root / name).write_bytes(change(data))  # type: ignore[operator]
    return Store(root)


def flip(at: int, bit: int) -> object:
    def change(data: bytearray) -> bytearray:
        data[at] ^= bit
        return data

    return change


def check_all(store: Store, expected: list[list[Row]]) -> None:
    assert all_rows(store) == expected
    assert store.query("SELECT count(*) FROM tool_calls") == [(360,)]
    assert store.sql("SELECT count(*) FROM task").rows == [(90,)]


@pytest.mark.parametrize("share", [0.1, 0.6, 0.999])
@pytest.mark.parametrize("name", ["index.duckdb", "index.duckdb.wal", "export.duckdb"])
def test_a_truncated_file_costs_nothing(
    name: str, share: float, killed: Path, expected: list[list[Row]], tmp_path: Path
) -> None:
    size = int((killed / name).stat().st_size * share)
    check_all(damaged(killed, tmp_path / "s", name, lambda data: data[:size]), expected)


@pytest.mark.parametrize("name", ["index.duckdb", "index.duckdb.wal", "export.duckdb"])
@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_costs_nothing(
    name: str, seed: int, killed: Path, expected: list[list[Row]], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    size = (killed / name).stat().st_size
    at = rng.randrange(min(size, 12288)) if seed % 2 else rng.randrange(size)  # the headers are the first 12 KiB
    check_all(damaged(killed, tmp_path / "s", name, flip(at, 1 << rng.randrange(4))), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.duckdb", "index.duckdb.wal", "export.duckdb"])
def test_many_flipped_bits_and_truncations_cost_nothing(
    name: str, killed: Path, expected: list[list[Row]], tmp_path: Path
) -> None:
    rng = random.Random(name)
    size = (killed / name).stat().st_size
    for _ in range(40):
        at = rng.randrange(size)
        change = flip(at, 1 << rng.randrange(4)) if rng.random() < 0.7 else lambda data, at=at: data[:at]
        assert all_rows(damaged(killed, tmp_path / "s", name, change)) == expected


@pytest.mark.parametrize("name", ["index.duckdb", "export.duckdb"])
@pytest.mark.parametrize("content", [b"", b"garbage" * 4000])
def test_a_file_that_is_no_database_is_made_again(
    name: str, content: bytes, killed: Path, expected: list[list[Row]], tmp_path: Path
) -> None:
    check_all(damaged(killed, tmp_path / "s", name, lambda data: content), expected)


def test_making_the_index_again_is_logged(
    killed: Path, expected: list[list[Row]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = damaged(killed, tmp_path / "s", "index.duckdb", lambda data: b"garbage" * 4000)
    with caplog.at_level(logging.WARNING, "store.db"):
        assert all_rows(store) == expected
    assert [record.getMessage().split("(")[0] for record in caplog.records] == [f"{store.index} is damaged "]
    assert "making it again from the journal" in caplog.text


def test_a_lost_index_is_made_again(killed: Path, expected: list[list[Row]], tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "s")
    for path in (tmp_path / "s").glob("*.duckdb*"):
        path.unlink()
    check_all(Store(tmp_path / "s"), expected)
    assert Store(tmp_path / "s").check() == []


def test_a_log_of_another_index_is_not_taken_for_ours(killed: Path, expected: list[list[Row]], tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "s")
    (tmp_path / "s" / "index.duckdb").unlink()
    check_all(Store(tmp_path / "s"), expected)


WRITER = """
import sys
from pathlib import Path
from store.db import Store
from tests.test_store_damage import rows_of
store = Store(Path(sys.argv[1]))
for number in range(int(sys.argv[2]), 1_000_000):
    store.append(rows_of(number))
    print(number, flush=True)
    if number % 7 == 0:
        store.ingest()
"""


@pytest.mark.slow
def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    rng, store, start, acknowledged = random.Random(0), Store(tmp_path), 0, set[int]()
    for _ in range(12):
        with python(WRITER, tmp_path, start) as child:
            assert child.stdout
            child.stdout.readline()
            time.sleep(rng.random() * 0.25)
            child.send_signal(signal.SIGKILL)
            printed = [start, *(int(line) for line in child.stdout.read().split("\n") if line)]
        acknowledged |= set(printed)
        start = max(printed) + 2  # the next one may be there too, unacknowledged
        tasks = {row.user_turns[0] for row in store.rows(Task)}
        assert {f"question {number}" for number in acknowledged} <= tasks
        assert len(tasks) == len(store.rows(Trajectory)) == len(store.rows(Step)) // 2
        assert [problem for problem in store.check() if problem.kind != "torn"] == []


def test_a_damaged_line_is_reported_and_the_rest_is_read(
    killed: Path, expected: list[list[Row]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(killed, tmp_path / "s")
    store = Store(tmp_path / "s")
    (segment,) = segments(store.journal.directory)
    lines = segment.read_bytes().split(b"\n")
    lines[8] = lines[8].replace(b"question 2", b"question 3")
    segment.write_bytes(b"\n".join(lines))
    assert all_rows(store) == expected  # it was ingested before
    kinds = [(problem.kind, problem.where) for problem in store.check()]
    assert kinds == [("damaged", f"{segment.name}:9"), ("unknown", "task")]
    with caplog.at_level(logging.WARNING, "store.db"):
        assert store.rebuild().salvaged == 1
    assert f"{segment.name}:9: damaged: the checksum does not match; skipped" in caplog.text
    assert all_rows(store) == expected
    assert store.check() == []  # the damaged line is kept aside
    assert (store.journal.directory / "damaged" / segment.name).read_bytes() == b"\n".join(lines)


def test_a_torn_tail_is_told_but_harms_nothing(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed / "journal", tmp_path / "s" / "journal")
    store = Store(tmp_path / "s")
    (segment,) = segments(store.journal.directory)
    segment.write_bytes(segment.read_bytes()[:-100])
    assert [len(rows) for rows in all_rows(store)] == [89, 89, 178]
    (problem,) = store.check()
    assert (problem.kind, problem.where) == ("torn", f"{segment.name}:357")
    store.append(rows_of(89))
    assert [len(rows) for rows in all_rows(store)] == [90, 90, 180]


def test_rows_in_which_the_index_differs_are_told(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "s")
    store = Store(tmp_path / "s")
    with store.reading() as connection:
        connection.execute("DELETE FROM task WHERE user_turns[1] < 'question 3'")
        connection.execute("UPDATE trajectory SET score = 0 WHERE task_id = 'task5'")
    assert [(problem.kind, problem.where, problem.detail.split()[0]) for problem in store.check()] == [
        ("missing", "task", "23"),
        ("changed", "trajectory", "1"),
    ]
    assert store.rebuild().salvaged == 0
    assert store.check() == []
