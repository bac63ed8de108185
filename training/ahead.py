"""Sampling ahead: while the trainer takes a step, the groups of the next ones are played already.

With `staleness` s, rollouts may come from weights up to s optimiser steps older than those that the step begins with:
s + 1 steps are sampled by the same weights at first, and one more after each sync. With s = 1:

    trainer   sync 0   waits           step 1            sync 1   step 2            sync 2   step 3
    sampler            groups of 1     groups of 2                groups of 3                groups of 4

With 0 (on-policy) nothing is played before the trainer asks for it, all in the trainer's own thread.

Weights change only between two batches of groups, never under a request, so that a rollout's `policy_step` is true of
each of its tokens: before a sync the sampler ends what it has begun, after it it goes on, if need be in the middle of a
step's groups.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from training.groups import Feed, Group, Tally

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """The groups of one optimiser step."""

    groups: list[Group]
    before: Tally
    """As it stood before they were sampled."""
    after: Tally


class Ahead:
    """Gives the trainer one step's groups after the other; a context, at whose end nothing is under way any more."""

    wants_weights = True
    """Each step's are of use to groups that are still to be sampled."""

    def __init__(self, feed: Feed, *, groups: int, staleness: int) -> None:
        """`groups` a step. One event loop serves all steps, for clients of servers live in it."""
        self.waited = 0.0
        """Seconds in which the trainer stood still for rollouts."""
        self._feed, self._groups, self._staleness = feed, groups, staleness
        self._begun: deque[asyncio.Task[Filled]] = deque()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="sampling ahead", daemon=True) if staleness else None
        self._closed = False

    def __enter__(self) -> Ahead:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        if self._thread:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._runner.close()  # cancels what is under way, and waits for the sessions to be closed

    @contextmanager
    def idle(self) -> Iterator[None]:
        """A block in which no request is under way. One that fails is the end: nothing is sampled after it."""
        self._do(self._feed.turn.acquire())
        yield
        self._do(self._release())

    def next(self, step: int) -> Filled:
        """The groups for weights that have seen `step` optimiser steps and were just loaded; errors of sampling."""
        return self._do(self._next(step))

    async def _next(self, step: int) -> Filled:
        while len(self._begun) <= self._staleness:
            last = self._begun[-1] if self._begun else None
            oldest = step + len(self._begun) - self._staleness
            task = asyncio.create_task(self._fill(oldest, last))
            task.add_done_callback(_heard)
            self._begun.append(task)
        return await self._begun.popleft()

    async def _fill(self, oldest: int, last: asyncio.Task[Filled] | None) -> Filled:
        """After `last`, the step before: tasks are taken in order, and an error there is one here."""
        if last:
            await last
        before = self._feed.tally
        groups = await self._feed.fill(self._groups, oldest)
        return Filled(groups=groups, before=before, after=self._feed.tally)

    async def _release(self) -> None:
        self._feed.turn.release()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the trainer wait for it."""
        started = time.monotonic()
        try:
            if self._thread:
                return asyncio.run_coroutine_threadsafe(work, self._loop).result()
            return self._runner.run(work)
        finally:
            self.waited += time.monotonic() - started

    def _run(self) -> None:
        """The thread. What ends a process must not end it unheard: the trainer waits for the task that raised it."""
        while not self._closed:
            with suppress(KeyboardInterrupt, SystemExit):
                self._loop.run_forever()


def _heard(task: asyncio.Task[Filled]) -> None:
    """Its error is that of the steps after it too: asyncio need not complain that nobody asked for it."""
    if not task.cancelled():
        task.exception()
