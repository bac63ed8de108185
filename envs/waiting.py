"""Waiting for what may hang: it is given a time, then told to stop and left behind, so that nobody waits for it.

within        what a task gives, or Overdue, or CutOff
side_by_side  several pieces of work at once, at most so many
Group         the rollouts of one task: once enough have ended, the others have a last grace
Closing       sessions that are being closed in the background, each for a bounded time
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from envs.errors import InfraError
from envs.protocols import Session

T = TypeVar("T")

CLOSE_S = 10.0
"""Seconds that a session which was told to stop is waited for, and again seconds that its `close` may take."""
log = logging.getLogger(__name__)
_left: set[asyncio.Task[Any]] = set()
"""Work left behind that has not ended yet: the event loop itself keeps weak references only."""


class Overdue(InfraError):
    """It took longer than it was given."""


class CutOff(InfraError):
    """The others of its group have ended, and the grace after that too."""


async def within(task: asyncio.Task[T], seconds: float, cut: asyncio.Future[None] | None = None) -> T:
    """What `task` gives. Overdue after `seconds`, CutOff as soon as `cut` is done, even where the result is there too.

    A task that is not done then, or when the caller is cancelled, is told to stop; what it does later, nobody hears.
    """
    waits: set[asyncio.Future[Any]] = {task} if cut is None else {task, cut}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = task.done()
        if not ended:
            _leave(task)
    if cut is not None and cut.done():
        raise CutOff
    if not ended:
        raise Overdue
    if task.cancelled():
        raise InfraError("it stopped itself")
    return task.result()


def _leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _left.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled() and (error := task.exception()):
        log.debug("what was left behind failed", exc_info=error)


async def side_by_side(works: Sequence[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """Their results in order, at most `limit` of them at work. An error of one stops all."""
    slots = asyncio.Semaphore(max(1, limit))

    async def one(work: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await work()

    tasks = [asyncio.create_task(one(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class Group:
    """The rollouts of one task in one call. Made inside the event loop."""

    def __init__(self, size: int, quorum: float, grace_s: float) -> None:
        self.size = size
        self.enough = max(1, math.ceil(round(quorum * size, 9)))  # 0.55 of 100 is 55.00000000000001 in floats
        self.grace_s = grace_s
        loop = asyncio.get_running_loop()
        self.cut: asyncio.Future[None] | None = loop.create_future() if self.enough < size else None
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def late(self) -> bool:
        return self.cut is not None and self.cut.done()

    def one_ended(self) -> None:
        self._ended += 1
        if self._ended == self.enough and self.cut is not None:
            self._timer = asyncio.get_running_loop().call_later(self.grace_s, self.cut.set_result, None)

    def dissolve(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Closing:
    """Sessions on their way out."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, session: Session, work: asyncio.Task[Any] | None) -> None:
        """Close `session` as soon as `work`, the last that it was asked for, has ended."""
        task = asyncio.create_task(_close(session, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Bounded, since each of them is."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _close(session: Session, work: asyncio.Task[Any] | None) -> None:
    if work is not None and not work.done():
        await asyncio.wait({work}, timeout=CLOSE_S)
    try:
        await within(asyncio.create_task(_closed(session)), CLOSE_S)
    except Exception:
        log.warning("a session did not close", exc_info=True)


async def _closed(session: Session) -> None:
    await session.close()
