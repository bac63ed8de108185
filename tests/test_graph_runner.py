"""The runner: row order, what is skipped, stopping, budgets, and giving up a phase that only fails."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from envs.errors import InfraError
from envs.protocols import Draft
from graphs import model
from graphs.bench import in_order
from graphs.settings import ExploreSettings, ModelSettings
from store.errors import StoreError, UsageError
from store.journal import encode
from store.rows import Candidate, Exploration, Json, Origin, Row, Signal, Task, Verdict
from tests.graph_setup import DONE, LOOK, Echo, candidate, explore, explorer, job, of, signal, validate
from tests.scripted import Roles, calls


def keys(rows: Sequence[Row]) -> list[object]:
    return [tuple(getattr(row, key) for key in row.KEY) for row in rows]


def test_results_come_in_order_and_few_are_at_work_at_once() -> None:
    at_work = 0
    most = 0

    async def work(n: int) -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.02 if n % 3 == 0 else 0.001)
        at_work -= 1
        return n * n

    async def run() -> list[tuple[int, int]]:
        return [pair async for pair in in_order(range(10), work, 3)]

    assert asyncio.run(run()) == [(n, n * n) for n in range(10)]
    assert most == 3


def test_a_failure_cancels_what_is_at_work() -> None:
    cancelled: list[int] = []

    async def work(n: int) -> int:
        if n == 0:
            raise ValueError("first")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    async def run() -> None:
        async for _ in in_order(range(3), work, 3):
            pass

    with pytest.raises(ValueError, match="first"):
        asyncio.run(run())
    assert cancelled in ([1, 2], [])


def test_rows_come_in_job_order(tmp_path: Path) -> None:
    jobs = [job(i, signal=signal() if i % 2 else None) for i in range(6)]
    found, rows = explore(explorer(act=[LOOK] * 30 + [DONE]), tmp_path, jobs)
    assert [one.id for one in found] == [one.id for one in jobs]
    assert [one.id for one in of(Exploration, rows)] == [one.id for one in jobs]
    owners = [one.exploration_id for one in of(Candidate, rows)]
    assert owners == [one.id for one in jobs]


def test_the_same_jobs_give_the_same_ids(tmp_path: Path) -> None:
    _, first = explore(explorer(), tmp_path / "a", [job(signal=signal())])
    _, again = explore(explorer(), tmp_path / "b", [job(signal=signal())])
    assert keys(first) == keys(again)


def test_what_is_done_is_skipped(tmp_path: Path) -> None:
    jobs = [job(0), job(1)]
    found, _ = explore(explorer(), tmp_path, jobs, done={jobs[0].id})
    assert [one.id for one in found] == [jobs[1].id]


def test_seeds_do_not_depend_on_the_runs_name() -> None:
    def of_run(name: str) -> int:
        made = job(3, signal=signal())
        about = Signal(**{field: getattr(signal(), field) for field in Signal.__slots__} | {"run": name, "id": name})
        return type(made)(run=name, t=0, index=3, world="room", signal=about).seed(7)

    assert of_run("a") == of_run("b")
    assert job(1).seed(7) != job(2).seed(7) != job(2).seed(8)


def test_a_stop_ends_early_and_the_next_call_goes_on(tmp_path: Path) -> None:
    stop = threading.Event()
    seen = 0

    def play(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        nonlocal seen
        seen += 1
        if seen == 7:
            stop.set()
        return inner(messages, tools)

    inner = explorer(act=LOOK)
    jobs = [job(i) for i in range(5)]
    one_by_one = ModelSettings(attempts=1, concurrency=1)
    found, rows = explore(play, tmp_path, jobs, stop=stop, calls=one_by_one)
    assert 0 < len(found) < 5
    rest, more = explore(inner, tmp_path, jobs, done={one.id for one in found}, calls=one_by_one)
    assert [one.id for one in found + rest] == [one.id for one in jobs]
    assert len(set(keys([*rows, *more]))) == len(rows) + len(more)


def test_a_stop_before_the_start_does_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert explore(explorer(), tmp_path, [job()], stop=stop) == ([], [])
    assert validate(explorer(), tmp_path, [candidate(), candidate("b", index=1)], stop=stop) == ([], [])


def test_a_stop_frees_candidates_that_wait_for_their_turn(tmp_path: Path) -> None:
    stop = threading.Event()

    def play(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        if "slow" in str(messages[1].content):
            stop.set()
            time.sleep(0.3)  # in the model's thread: long enough for the drain to be asked for
            return calls("look")
        return explorer()(messages, tools)

    slow_first = [candidate("a", index=0, turns=["slow"]), candidate("b", index=1, turns=["fast"])]
    verdicts, _ = validate(play, tmp_path, slow_first, stop=stop)
    assert verdicts == []


def test_a_spent_budget_stops_without_an_error_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    play = Roles(act=[calls("look", tokens=60), DONE], abstract={"tasks": []})
    low = ModelSettings(attempts=1, concurrency=1, token_budget=50)
    found, rows = explore(play, tmp_path, [job()], calls=low)
    assert (found, rows) == ([], [])
    found, _ = explore(play, tmp_path, [job()])
    assert [(one.outcome, one.steps, one.tokens) for one in found] == [("done", 1, 60)]


def test_a_dead_model_ends_the_phase(tmp_path: Path) -> None:
    jobs = [job(i) for i in range(40)]
    with pytest.raises(InfraError, match=r"8 of 8 failed.*no route"):
        explore(explorer(act=ConnectionError("no route")), tmp_path, jobs)


def test_a_wrong_key_ends_the_phase_at_once(tmp_path: Path) -> None:
    class Refused(Exception):
        status_code = 401

    with pytest.raises(UsageError, match="401"):
        explore(explorer(act=Refused("key")), tmp_path, [job(i) for i in range(40)])


def test_progress_is_reported(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    explore(explorer(), tmp_path, [job(0), job(1)], report=lambda *one: told.append(one))
    validate(explorer(), tmp_path, [candidate()], report=lambda *one: told.append(one))
    assert told == [("explore", 1, 2), ("explore", 2, 2), ("validate", 1, 1)]


def test_verdicts_come_in_candidate_order(tmp_path: Path) -> None:
    many = [candidate(f"w{i % 3}", index=i) for i in range(9)]
    verdicts, rows = validate(explorer(), tmp_path, many, env=Echo())
    assert [one.candidate_id for one in of(Verdict, rows)] == [one.id for one in many]
    assert [one.reason for one in verdicts] == ["valid"] * 3 + ["duplicate"] * 6


class Refusing(list[Row]):
    """A store that takes what the journal takes."""

    def append_batch(self, rows: Sequence[Row]) -> None:
        encode(list(rows))
        self.extend(rows)


def unstorable() -> Roles:
    """A model whose figures nobody has checked, so that a row can't hold their sum."""
    return explorer(act=[calls("look", tokens=2**62), calls("look", tokens=2**62), DONE])


def test_rows_that_the_store_refuses_end_the_exploration_as_infra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "MAX_COUNT", 2**63)
    rich = ExploreSettings(token_budget=2**64)
    calls, kept = ModelSettings(attempts=1, concurrency=1), Refusing()
    found, _ = explore(unstorable(), tmp_path, [job(0), job(1)], settings=rich, calls=calls, append=kept.append_batch)
    assert [one.outcome for one in found] == ["infra", "done"]
    assert "does not fit 64 bits" in str(found[0].error)
    assert [one.id for one in of(Exploration, kept)] == [one.id for one in found]
    with closing(sqlite3.connect(tmp_path / "graphs.sqlite")) as connection:
        assert connection.execute("select count(*) from checkpoints").fetchone() == (0,)


def test_rows_that_the_store_refuses_end_the_validation_as_infra(tmp_path: Path) -> None:
    class Absurd(Echo):
        def materialize(self, draft: Draft, origin: Origin) -> Task:
            return replace(super().materialize(draft, origin), split="nowhere")  # type: ignore[arg-type]

    kept = Refusing()
    verdicts, _ = validate(explorer(), tmp_path, [candidate()], env=Absurd(), append=kept.append_batch)
    assert [(one.adopt, one.reason) for one in verdicts] == [(False, "infra")]
    assert "split" in verdicts[0].detail
    assert of(Verdict, kept) == verdicts
    assert of(Task, kept) == []


def full_sqlite() -> sqlite3.OperationalError:
    """What SQLite raises when it may write no further page."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (x)")
        connection.execute("pragma max_page_count = 2")
        try:
            connection.execute("insert into t values (zeroblob(100000))")
        except sqlite3.OperationalError as error:
            return error
    raise AssertionError("SQLite wrote past its limit")


@pytest.mark.parametrize("refusal", [OSError(errno.ENOSPC, "No space left on device"), full_sqlite()])
def test_a_full_disk_decides_no_candidate(tmp_path: Path, refusal: Exception) -> None:
    class Full(Echo):
        def materialize(self, draft: Draft, origin: Origin) -> Task:
            raise refusal

    with pytest.raises((OSError, StoreError), match=r"space|full"):
        validate(explorer(), tmp_path, [candidate()], env=Full())
    verdicts, _ = validate(explorer(), tmp_path, [candidate()])
    assert [verdict.reason for verdict in verdicts] == ["valid"]
