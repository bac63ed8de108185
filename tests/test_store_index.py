"""Append, ingest, ask: every row comes back typed, once, whoever wrote it and whoever holds the index."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import pytest

from store import db
from store.db import Locked, Store
from store.errors import StoreError
from store.rows import (
    ROW_TYPES,
    Candidate,
    Decision,
    Figure,
    Metric,
    Phase,
    Rating,
    Refined,
    Remark,
    Row,
    Run,
    Score,
    Signal,
    Snapshot,
    Span,
    Task,
    Trajectory,
    Verdict,
    Vote,
    Withdrawal,
)
from tests.store_rows import exploration, phase, step, task, trajectory

ONE_OF_EACH: list[Row] = [
    Run(id="r", created_at=1.5, seed=7, env="text2sql", policy="hf:x", config={"a": [1, None]}, versions={"p": "3"}),
    task(1),
    Snapshot(id="s", run="r", t=0, task_ids=["b", "a"], created_at=2.5),
    trajectory("a", suite=None, violation="peeked", score=0.0),
    step("x", ["SELECT"], prompt_ids=[1, 2], completion_ids=[3], logprobs=[-0.1], observation="a\x00b 😀"),
    Signal(id="g", run="r", t=0, kind="rare", task_id=None, pattern=["a", "b"], evidence=["e"], stats={"count": 1}),
    exploration("g", context={"where": "shop"}),
    Candidate(
        id="c",
        exploration_id="e",
        run="r",
        t=0,
        world="shop",
        user_turns=["q"],
        tools=[],
        reference={"sql": "SELECT 'it''s'"},
        index=0,
    ),
    Verdict(
        id="v",
        candidate_id="c",
        run="r",
        t=0,
        adopt=True,
        reason="valid",
        detail="",
        task_id="a",
        repairs=0,
        seconds=0.1,
    ),
    Withdrawal(run="r", task_id="z", t=0, reason="replay"),
    Metric(run="r", t=0, step=3, name="reward", value=0.25),
    Score(run="r", t=0, suite="gold", slice="all", metric="accuracy", n=150, value=0.5, low=0.4, high=0.6),
    phase(0),
    Remark(
        job="d001",
        sample=3,
        response=0,
        iteration=1,
        role="judge",
        part=2,
        model="litellm:x",
        text="{}",
        cut=False,
        scores={"old": 4.5, "new": 7},
        prompt_tokens=9,
        completion_tokens=2,
        cost=0.25,
        seconds=0.5,
    ),
    Refined(
        job="d001",
        sample=3,
        attempt=1,
        name=None,
        outcome="improved",
        stops=["limit"],
        iterations=[3],
        accepted=[3],
        responses=["a\nb"],
        tokens_before=1,
        tokens_after=2,
        error=None,
    ),
    Figure(run="r", t=1, name="difficulty", value=2.5),
    Decision(
        run="r",
        t=1,
        rule="guard",
        number=0,
        action="rollback",
        reason="gold fell",
        figures={"gold": -0.2},
        version=0,
        checkpoint="abc",
        snapshot="def",
        decided_at=1.5,
    ),
    Span(
        thread="e",
        index=0,
        run="r",
        t=0,
        graph="explore",
        node="act",
        started_at=1.5,
        seconds=0.5,
        calls=1,
        prompt_tokens=10,
        completion_tokens=2,
        cost=0.001,
        error=None,
        messages=[{"role": "ai", "text": "a\nb"}],
    ),
    Vote(
        candidate_id="c",
        run="r",
        t=0,
        stage="strong",
        judge=1,
        model="litellm:m",
        adopt=None,
        passes=False,
        scores={"validity": 3},
        reason="vague",
        text="{}",
        shown={"world": "w"},
        prompt_tokens=10,
        completion_tokens=2,
        cost=0.001,
        seconds=0.5,
    ),
    Rating(candidate_id="c", run="r", rater="anna", revision=0, adopt=True, scores={}, comment="fine", created_at=1.5),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the index."""
    store.ingest()
    code = """
import sys, duckdb
with duckdb.connect(sys.argv[1]) as connection:
    print("held", flush=True)
    sys.stdin.readline()
"""
    command = [sys.executable, "-c", code, str(store.index)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


# ---- rows in, rows out


def test_every_kind_of_row_comes_back_as_it_was(store: Store) -> None:
    assert {type(row) for row in ONE_OF_EACH} == set(ROW_TYPES)
    store.append(ONE_OF_EACH)
    for row in ONE_OF_EACH:
        assert store.rows(type(row)) == [row]


def test_rows_and_iterables_make_one_batch(store: Store) -> None:
    store.append(task(1), [task(2)], (task(n) for n in (3, 4)))
    assert len(store.rows(Task)) == 4
    assert len(list((store.root / "journal").iterdir())) == 1


def test_ingesting_again_changes_nothing(store: Store) -> None:
    store.append(ONE_OF_EACH)
    assert (store.ingest(), store.ingest()) == (len(ONE_OF_EACH), 0)
    Store(store.root).append(ONE_OF_EACH)  # a resumed process repeats itself
    assert store.ingest() == len(ONE_OF_EACH)
    assert all(store.rows(type(row)) == [row] for row in ONE_OF_EACH)
    assert store.query("SELECT count(*) FROM tool_calls") == [(1,)]


HOSTILE: list[Any] = [
    [2**63, 2**64 - 1, -(2**63), 1e308, 5e-324, -0.0],
    {"": {"\x00": "\x00\ud800"}, "a b": [], "\"'": {}},
    "NULL",
    "",
    0,
    False,
    [None],
    {"text": "x" * 100_000},
    reduce(lambda inner, _: [inner], range(200), "deep"),
]


def test_hostile_json_is_stored_and_never_stops_the_ingest(store: Store) -> None:
    for number, value in enumerate(HOSTILE):
        store.append(task(0, id=f"{number:02}", reference=value, user_turns=[repr(value)[:50], "\udfff"]))
    stored = [row.reference for row in store.rows(Task)]
    assert stored[0] == HOSTILE[0]
    assert stored[1] == {"": {"\x00": "\x00�"}, "a b": [], "\"'": {}}
    assert stored[2:] == HOSTILE[2:]
    assert store.check() == []


def test_of_two_rows_with_one_key_the_first_stays(store: Store) -> None:
    first, second = phase(0), Phase(run="r", t=0, name="train", finished_at=9.0, seconds=9.0, counts={"n": 1})
    store.append(first, second)
    store.append(second)
    assert store.rows(Phase) == [first]
    store.append(second)
    assert store.rows(Phase) == [first]


def test_rows_take_a_condition_and_an_order(store: Store) -> None:
    store.append([trajectory(name, k) for name in "ab" for k in (2, 0, 1)])
    found = store.rows(Trajectory, "task_id = ? AND k > ?", ["b", 0], order="k DESC")
    assert [row.k for row in found] == [2, 1]
    assert [row.id for row in store.rows(Trajectory)] == sorted(row.id for row in store.rows(Trajectory))


def test_tool_calls_hold_each_token_in_order(store: Store) -> None:
    store.append(step("x", ["b", "c"], 1), step("x", ["a"], 0), step("y", [], 0))
    assert store.query('SELECT trajectory_id, step, "position", token FROM tool_calls ORDER BY ALL') == [
        ("x", 0, 0, "a"),
        ("x", 1, 0, "b"),
        ("x", 1, 1, "c"),
    ]


def test_more_rows_than_one_transaction_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "_CHUNK", 10)
    for number in range(12):
        store.append([step(f"{number}", ["a"], index) for index in range(7)])
    assert store.ingest() == 84
    assert store.query("SELECT count(*), count(DISTINCT trajectory_id) FROM step") == [(84, 12)]
    assert store.check() == []


def test_other_writers_are_seen(store: Store) -> None:
    Store(store.root).append(task(1))
    assert len(store.rows(Task)) == 1
    Store(store.root).append(task(2))
    assert len(store.rows(Task)) == 2


def test_one_connection_for_several_questions(store: Store) -> None:
    store.append(task(1))
    with store.reading() as connection:
        store.append(task(2))
        assert store.rows(Task) == sorted([task(1), task(2)], key=lambda row: row.id)
        assert connection.execute("SELECT count(*) FROM task").fetchall() == [(2,)]
    with duckdb.connect(str(store.index)):  # and it was closed
        pass


def test_threads_may_share_a_store(store: Store) -> None:
    store.append([task(number) for number in range(50)])
    answers: list[Any] = []

    def work(number: int) -> None:
        for _ in range(5):
            store.append(trajectory("a", number))
            answers.append(store.query("SELECT count(*) FROM task"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[(50,)]] * 20
    assert len(store.rows(Trajectory)) == 4


def test_a_mistake_of_ours_in_sql_is_one_clear_line(store: Store) -> None:
    with pytest.raises(StoreError, match=r"^\S+index.duckdb: Parser Error: [^\n]*$"):
        store.query("SELEC")


def test_parameters_go_by_place_or_by_name(store: Store) -> None:
    assert store.query("SELECT ? + 1", [1]) == store.query("SELECT $a + 1", {"a": 1}) == [(2,)]


# ---- another process holds the index


def test_readers_of_a_held_index_see_everything(store: Store, holder: subprocess.Popen[str]) -> None:
    store.append(task(1), trajectory("a"))
    reader = Store(store.root, wait_s=0.05)
    start = time.time()
    assert reader.rows(Task) == [task(1)]
    assert reader.sql("SELECT score FROM trajectory").rows == [(1.0,)]
    assert start <= reader.as_of <= time.time()
    assert duckdb_free(store.export)


def duckdb_free(path: Path) -> bool:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute("SELECT count(*) FROM task").fetchall() == [(0,)]  # exported before the hold


def test_writers_of_a_held_index_are_told_who_holds_it(store: Store, holder: subprocess.Popen[str]) -> None:
    waiting = Store(store.root, patience_s=0.2)
    for action in (waiting.ingest, waiting.rebuild, waiting.check):
        start = time.monotonic()
        with pytest.raises(Locked, match=f"held by process {holder.pid}; wait for it or end it"):
            action()
        assert 0.2 <= time.monotonic() - start < 5


def test_a_short_hold_is_waited_for(store: Store, holder: subprocess.Popen[str]) -> None:
    store.append(task(1))
    patient = Store(store.root, patience_s=20)
    threading.Timer(0.3, holder.kill).start()
    assert patient.ingest() == 1


def test_a_held_index_without_an_export_is_read_from_the_journal(store: Store, holder: subprocess.Popen[str]) -> None:
    store.append(task(1))
    store.export.unlink()
    assert Store(store.root, wait_s=0.05).rows(Task) == [task(1)]


def test_the_export_is_replaced_only_when_there_is_something_new(store: Store) -> None:
    store.append(task(1))
    store.ingest()
    before = store.export.stat().st_ino
    store.ingest()
    assert store.export.stat().st_ino == before
    store.append(task(2))
    assert len(store.rows(Task)) == 2  # reading does not export ...
    assert store.export.stat().st_ino == before
    store.ingest()  # ... and the next ingest makes up for it
    with duckdb.connect(str(store.export), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM task").fetchall() == [(2,)]
    assert sorted(path.name for path in store.root.iterdir()) == ["export.duckdb", "index.duckdb", "journal"]


def test_a_user_with_a_long_query_does_not_hold_up_the_loop(store: Store) -> None:
    store.append(task(1))
    store.ingest()
    with duckdb.connect(str(store.export), read_only=True) as connection:
        held = connection.execute("SELECT * FROM range(1000000)")
        store.append(task(2))
        assert Store(store.root, patience_s=0).ingest() == 1
        assert held.fetchone() == (0,)


# ---- places that can't be written


def test_a_root_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    store = Store(tmp_path / "store")
    for action in (lambda: store.append(task(1)), store.ingest, store.rebuild, lambda: store.sql("SELECT 1")):
        with pytest.raises(StoreError, match=r"cannot (write|use).*store\S*: (File exists|Not a directory)"):
            action()


def test_a_damaged_export_is_no_reason_to_touch_an_index_that_another_process_holds(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    store.append(task(1))
    inode = store.index.stat().st_ino
    data = bytearray(store.export.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    store.export.write_bytes(data)
    reader = Store(store.root, wait_s=0.05)
    assert reader.rows(Task) == [task(1)]
    assert reader.sql("SELECT count(*) FROM task").rows == [(1,)]
    assert store.index.stat().st_ino == inode
