"""envs/worker.py: real processes of a small module; who is to blame, replay, recycling, caps."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.errors import SessionLost
from envs.worker import Blamed, Limits, Pool, Program, Remote, WorkerError

MODULE = "tests.worker_module"
QUICK = {"request_s": 0.5, "start_s": 30.0}


@pytest.fixture
def made() -> Iterator[list[Pool]]:
    pools: list[Pool] = []
    yield pools
    for each in pools:
        each.close()


def pool(made: list[Pool], module: str = MODULE, **limits: Any) -> Pool:
    program = Program(python=Path(sys.executable), module=module, limits=Limits(**QUICK | limits))
    made.append(Pool(program))
    return made[-1]


async def begun(pool: Pool, start: int = 0) -> Remote:
    remote = Remote(pool, {"start": start})
    await remote.start()
    return remote


def killed(pool: Pool) -> None:
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    assert _gone(pid)


def test_sessions_of_one_worker_share_nothing(made: list[Pool]) -> None:
    async def play() -> list[int]:
        shared = pool(made)
        one, two = await begun(shared, 10), await begun(shared, 20)
        return [await one.ask("act", do="add"), await two.ask("act", do="add", by=2), await one.ask("act", do="add")]

    assert asyncio.run(play()) == [11, 22, 12]
    assert len(made[0].pids) == 1


def test_a_fork_goes_its_own_way(made: list[Pool]) -> None:
    async def play() -> list[int]:
        first = await begun(pool(made))
        await first.ask("act", do="add", by=5)
        second = await first.fork()
        return [await second.ask("act", do="add"), await first.ask("act", do="add", by=10)]

    assert asyncio.run(play()) == [6, 15]


def test_a_fork_outlives_the_worker(made: list[Pool]) -> None:
    async def play() -> int:
        first = await begun(pool(made))
        await first.ask("act", do="add", by=5)
        second = await first.fork()
        killed(made[0])
        result = await second.ask("act", do="add")
        assert isinstance(result, int)
        return result

    assert asyncio.run(play()) == 6


@pytest.mark.parametrize(("do", "words"), [("die", "code 3"), ("hang", "no answer within 0.5 s")])
def test_a_request_that_fails_twice_is_the_actors_fault_and_the_session_goes_on(
    made: list[Pool], do: str, words: str
) -> None:
    async def play() -> list[int]:
        remote = await begun(pool(made))
        before = await remote.ask("act", do="add")
        with pytest.raises(Blamed, match=words):
            await remote.ask("act", do=do)
        return [before, await remote.ask("act", do="add")]

    assert asyncio.run(play()) == [1, 2]


def test_a_request_that_fails_once_is_nobodys_fault(made: list[Pool], tmp_path: Path) -> None:
    async def play() -> None:
        remote = await begun(pool(made))
        await remote.ask("act", do="add")
        with pytest.raises(SessionLost, match="did not fail on a fresh worker"):
            await remote.ask("act", do="die_once", by=str(tmp_path / "mark"))

    asyncio.run(play())


def test_other_sessions_of_a_killed_worker_are_replayed(made: list[Pool]) -> None:
    async def play() -> list[int]:
        shared = pool(made)
        good, bad = await begun(shared), await begun(shared)
        await good.ask("act", do="add", by=7)
        hanging = asyncio.create_task(bad.ask("act", do="hang"))
        waiting = asyncio.create_task(good.ask("act", do="add"))  # queued behind it
        with pytest.raises(Blamed):
            await hanging
        return [await waiting, await good.ask("act", do="add")]

    assert asyncio.run(play()) == [8, 9]


def test_a_replay_that_answers_otherwise_is_lost(made: list[Pool]) -> None:
    async def play() -> None:
        remote = await begun(pool(made))
        await remote.ask("act", do="pid")
        killed(made[0])
        with pytest.raises(SessionLost, match="answered differently"):
            await remote.ask("act", do="add")

    asyncio.run(play())


def test_what_the_module_prints_is_no_answer(made: list[Pool]) -> None:
    async def play() -> Any:
        return await (await begun(pool(made))).ask("act", do="print", by=50_000)

    assert asyncio.run(play()) == 0


def test_too_long_an_answer_is_the_actors_fault(made: list[Pool]) -> None:
    async def play() -> Any:
        remote = await begun(pool(made, answer_mb=1))
        with pytest.raises(Blamed, match="more than 1048576 bytes"):
            await remote.ask("act", do="speak", by=2 << 20)
        return len(await remote.ask("act", do="speak", by=1 << 19))

    assert asyncio.run(play()) == 1 << 19


def test_memory_is_capped(made: list[Pool]) -> None:
    async def play() -> None:
        remote = await begun(pool(made, memory_mb=300))
        with pytest.raises(Blamed, match="code 77"):
            await remote.ask("act", do="eat", by=400)
        assert await remote.ask("act", do="eat", by=20) == 20 << 20

    asyncio.run(play())


def test_no_file_is_written(made: list[Pool], tmp_path: Path) -> None:
    async def play() -> Any:
        return await (await begun(pool(made))).ask("act", do="write", by=str(tmp_path / "file"))

    assert asyncio.run(play()) == "OSError"
    assert not (tmp_path / "file").exists() or not (tmp_path / "file").stat().st_size


def test_a_worker_gets_no_variable_of_ours(made: list[Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "secret")

    async def play() -> Any:
        return await (await begun(pool(made))).ask("act", do="environ")

    assert "SECRET_KEY" not in asyncio.run(play())


def test_a_worker_is_recycled(made: list[Pool]) -> None:
    async def play() -> list[Any]:
        shared = pool(made, sessions=3)
        seen = []
        for _ in range(7):
            remote = await begun(shared)
            seen.append(await remote.ask("act", do="pid"))
            await remote.close()
        return seen

    seen = asyncio.run(play())
    assert [seen.count(pid) for pid in dict.fromkeys(seen)] == [3, 3, 1]
    assert len(made[0].pids) == 1


def test_one_session_a_worker(made: list[Pool]) -> None:
    async def play() -> set[Any]:
        shared = pool(made, crowd=1, workers=3)
        remotes = [await begun(shared) for _ in range(3)]
        return {await remote.ask("act", do="pid") for remote in remotes}

    assert len(asyncio.run(play())) == 3


def test_a_module_that_raises_is_our_fault(made: list[Pool]) -> None:
    async def play() -> None:
        with pytest.raises(WorkerError, match="ValueError: on purpose"):
            await (await begun(pool(made))).ask("act", do="raise")

    asyncio.run(play())


def test_a_module_that_does_not_load_is_our_fault(
    made: list[Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "module_that_does_not_load"
    (tmp_path / f"{module}.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SessionLost, match="nothing_of_that_name"):
        asyncio.run(begun(pool(made, module)))
    with pytest.raises(SessionLost, match="nothing_of_that_name"):
        pool(made, module).ask({"verb": "sleep", "seconds": 0})


def test_a_question_is_asked_on_a_fresh_worker_again(made: list[Pool]) -> None:
    with pytest.raises(Blamed, match="code 4"):
        pool(made).ask({"verb": "die"})
    assert made[0].ask({"verb": "sleep", "seconds": 0}) == 0


def test_a_question_can_be_asked_from_within_an_event_loop(made: list[Pool]) -> None:
    async def play() -> Any:
        return pool(made).ask({"verb": "sleep", "seconds": 0.01})

    assert asyncio.run(play()) == 0.01


def test_waiting_in_the_queue_costs_no_time_of_a_request(made: list[Pool]) -> None:
    async def play() -> list[Any]:
        shared = pool(made)
        return await asyncio.gather(*(asyncio.to_thread(shared.ask, {"verb": "sleep", "seconds": 0.3}) for _ in "abc"))

    assert asyncio.run(play()) == [0.3] * 3


def test_a_session_is_used_from_one_event_loop_after_the_other(made: list[Pool]) -> None:
    remote = asyncio.run(begun(pool(made)))
    assert asyncio.run(remote.ask("act", do="add")) == 1
    assert asyncio.run(remote.ask("act", do="add")) == 2
    asyncio.run(remote.close())


def test_a_cancelled_request_leaves_the_worker_to_others(made: list[Pool]) -> None:
    async def play() -> Any:
        shared = pool(made)
        one, two = await begun(shared), await begun(shared)
        cut = asyncio.create_task(one.ask("act", do="hang"))
        await asyncio.sleep(0.05)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        await one.close()
        return await two.ask("act", do="add")

    assert asyncio.run(play()) == 1


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from envs.worker import *\n"
        f"pool = Pool(Program(python=Path(sys.executable), module={MODULE!r}))\n"
        "pool.ask({'verb': 'sleep', 'seconds': 0}); print(pool.pids[0], flush=True); time.sleep(60)"
    )
    import subprocess

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert _gone(pid)


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
