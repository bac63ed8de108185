"""Waiting for work that may hang."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.errors import InfraError
from envs.waiting import CutOff, Overdue, side_by_side, within


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_result_that_is_there_at_the_cut_is_late_too() -> None:
    async def scenario() -> None:
        task, cut = asyncio.create_task(asyncio.sleep(0, "done")), asyncio.get_running_loop().create_future()
        assert await task == "done"
        assert await within(task, 60, cut) == "done"
        cut.set_result(None)
        with pytest.raises(CutOff):
            await within(task, 60, cut)

    run(scenario)


def test_work_that_is_over_its_time_is_told_to_stop() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(forever())
        with pytest.raises(Overdue):
            await within(task, 0.0)
        await asyncio.wait({task})
        assert task.cancelled()

    run(scenario)


def test_work_whose_caller_is_stopped_is_told_to_stop() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(forever())
        caller = asyncio.create_task(within(task, 60))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({task, caller})
        assert (task.cancelled(), caller.cancelled()) == (True, True)

    run(scenario)


def test_work_that_stops_itself_does_not_stop_its_caller() -> None:
    async def stops() -> None:
        raise asyncio.CancelledError

    async def scenario() -> None:
        with pytest.raises(InfraError, match="it stopped itself"):
            await within(asyncio.create_task(stops()), 60)

    run(scenario)


def test_an_error_of_what_was_left_behind_is_nobodys() -> None:
    async def bad() -> None:
        try:
            await forever()
        finally:
            raise RuntimeError("too late to matter")

    heard: list[Any] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        with pytest.raises(Overdue):
            await within(asyncio.create_task(bad()), 0.0)
        await asyncio.sleep(0)

    run(scenario)
    assert heard == []


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 5))
def test_side_by_side_keeps_order_and_limit(pauses: list[int], limit: int) -> None:
    now, most = 0, 0

    async def work(index: int, pause: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(pause):
            await asyncio.sleep(0)
        now -= 1
        return index

    async def scenario() -> None:
        works = [partial(work, index, pause) for index, pause in enumerate(pauses)]
        assert await side_by_side(works, limit) == list(range(len(pauses)))

    run(scenario)
    assert most <= max(1, limit)


def test_an_error_of_one_stops_the_others() -> None:
    stopped: list[str] = []

    async def other() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            stopped.append("other")

    async def bad() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def scenario() -> None:
        works: list[Callable[[], Awaitable[None]]] = [other, bad]
        with pytest.raises(ValueError, match="no"):
            await side_by_side(works, 2)
        assert stopped == ["other"], "and it was waited for"

    run(scenario)
