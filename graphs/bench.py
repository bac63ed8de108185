"""A bench plays threads of one graph: checkpointed, resumed, retried once, drained on a stop; results in job order.

Every superstep is checkpointed in SQLite before the next begins, so a killed process goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl

from envs.errors import InfraError
from graphs.model import BudgetSpent, in_short
from graphs.resources import Resources
from graphs.sessions import SESSIONS
from graphs.state import RECURSION_LIMIT, ActState
from graphs.tracing import Tracer
from store.errors import StoreError, UsageError

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""Runs of one graph before a failure of ours becomes a row."""
STOP_POLL_S = 0.1
FLOOR_AFTER = 8
"""Failed jobs until a phase may be given up."""

DISK_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
DISK_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT}

Item = TypeVar("Item")
Result = TypeVar("Result")


class Stop(Protocol):
    """A flag that asks to finish what is at hand; `threading.Event` and `asyncio.Event` fit."""

    def is_set(self) -> bool: ...


async def in_order(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], width: int
) -> AsyncGenerator[tuple[Item, Result]]:
    """Results in the order of `items`, at most `width` at work. On close, what is at work is cancelled."""
    at_work: deque[tuple[Item, asyncio.Future[Result]]] = deque()
    try:
        for item in items:
            at_work.append((item, asyncio.ensure_future(work(item))))
            if len(at_work) >= width:
                yield at_work[0][0], await at_work[0][1]
                at_work.popleft()
        while at_work:
            yield at_work[0][0], await at_work[0][1]
            at_work.popleft()
    finally:
        for _, future in at_work:
            future.cancel()
        await asyncio.gather(*(future for _, future in at_work), return_exceptions=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a graph ended: its last state, and our own failure if that ended it."""

    state: Any
    error: str | None = None
    trace: Tracer | None = None
    """What its nodes did."""


@dataclass(kw_only=True, slots=True)
class Floor:
    """Ends a phase whose jobs mostly fail for our own faults: a dead model must not look like a quiet round."""

    ended: int = 0
    failed: int = 0

    def note(self, ended: Ended) -> None:
        """InfraError once at least `FLOOR_AFTER` jobs, and more than half of all, have failed."""
        self.ended += 1
        self.failed += ended.error is not None
        if self.failed >= FLOOR_AFTER and self.failed * 2 > self.ended:
            raise InfraError(f"{self.failed} of {self.ended} failed, the last with: {ended.error}")


class ServerGone(InfraError):
    """The server that plays the threads does not answer, or refuses: no other thread would fare better."""


class Player(ABC):
    """Plays threads of one graph until it is stopped."""

    @abstractmethod
    async def invoke(self, thread: str, given: Any, trace: Tracer | None) -> Any:
        """The last state of the thread, run to its end, or on from where it stopped. GraphDrained if stopped."""

    @abstractmethod
    async def values(self, thread: str) -> Any:
        """Its state as it is."""

    @abstractmethod
    async def forget(self, thread: str) -> None:
        """Its rows are written: nothing is left to resume."""

    def tracer(self) -> Tracer | None:
        """What notes the nodes of a thread for the one who asks; None where they are noted elsewhere."""
        return None

    async def play(self, thread: str, given: ActState) -> Ended | None:
        """Run the thread to its end, or on from where it stopped. None if stopped, or the budget is spent."""
        trace = self.tracer()
        error = ""
        try:
            for attempt in range(ATTEMPTS):
                try:
                    return Ended(state=await self.invoke(thread, given, trace), trace=trace)
                except (GraphDrained, BudgetSpent, UsageError, ServerGone):
                    raise
                except Exception as failure:  # one bad job must not end the phase
                    if disk_refuses(failure):
                        raise
                    error = in_short(failure)
                    log.warning("%s failed in attempt %d: %s", thread, attempt + 1, error)
                    log.debug("traceback of %s", thread, exc_info=failure)
            return Ended(state=await self.values(thread), error=error, trace=trace)
        except (GraphDrained, BudgetSpent) as early:
            log.warning("stopped early: %s", early)
            return None
        finally:
            await SESSIONS.drop(thread)


@dataclass(kw_only=True, slots=True)
class Bench(Player):
    """One compiled graph with its checkpointer, in this process."""

    graph: CompiledStateGraph[Any, Any, Any, Any]
    saver: AsyncSqliteSaver
    resources: Resources
    stop: Stop | None
    controls: set[RunControl] = field(default_factory=set)

    async def forget(self, thread: str) -> None:
        await self.saver.adelete_thread(thread)

    def tracer(self) -> Tracer:
        return Tracer(self.resources.calls)

    async def values(self, thread: str) -> Any:
        return (await self.graph.aget_state(self._config(thread, None))).values

    async def invoke(self, thread: str, given: Any, trace: Tracer | None) -> Any:
        if self.stop and self.stop.is_set():
            raise GraphDrained("stop")
        config = self._config(thread, trace)
        before = await self.graph.aget_state(config)
        begun = before.created_at is not None
        if begun and not before.tasks:  # `next` is empty too where a node has ended but its superstep has not
            return before.values
        control = RunControl()
        self.controls.add(control)
        try:
            return await self.graph.ainvoke(None if begun else given, config, durability="sync", control=control)
        finally:
            self.controls.discard(control)

    def _config(self, thread: str, trace: Tracer | None) -> RunnableConfig:
        return RunnableConfig(
            configurable={"thread_id": thread, "resources": self.resources},
            recursion_limit=RECURSION_LIMIT,
            callbacks=[trace] if trace else None,
        )

    async def watch(self) -> None:
        """Turn the stop flag into drain requests: each graph stops after the node at hand."""
        while not (self.stop and self.stop.is_set()):  # noqa: ASYNC110 - the flag is set by a signal handler
            await asyncio.sleep(STOP_POLL_S)
        for control in self.controls:
            control.request_drain()


def disk_refuses(error: BaseException | None) -> bool:
    """A full or read-only disk, or one that fails: it will meet every other job too, so none may be judged by it."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in DISK_CODES
    return isinstance(error, OSError) and error.errno in DISK_ERRNOS


@asynccontextmanager
async def bench(
    builder: StateGraph[Any, Any, Any, Any], resources: Resources, checkpoints: Path, stop: Stop | None
) -> AsyncIterator[Bench]:
    """Open the checkpoints and compile the graph with them. StoreError if their file cannot be used."""
    try:
        async with _opened(builder, resources, checkpoints, stop) as made:
            yield made
    except sqlite3.Error as error:
        raise StoreError(f"cannot use {checkpoints}: {error}; free space or move it away, and run again") from error


@asynccontextmanager
async def _opened(
    builder: StateGraph[Any, Any, Any, Any], resources: Resources, checkpoints: Path, stop: Stop | None
) -> AsyncIterator[Bench]:
    checkpoints.parent.mkdir(parents=True, exist_ok=True)
    await asyncio.to_thread(drop_if_damaged, checkpoints)
    async with aiosqlite.connect(checkpoints) as connection:
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        await connection.execute("PRAGMA synchronous=NORMAL")  # WAL: a killed process loses nothing
        made = Bench(graph=builder.compile(checkpointer=saver), saver=saver, resources=resources, stop=stop)
        watcher = asyncio.create_task(made.watch())
        try:
            yield made
        finally:
            watcher.cancel()


def drop_if_damaged(checkpoints: Path) -> None:
    """Delete a damaged checkpoint file. It holds unfinished work only, which then begins anew."""
    if not checkpoints.exists():
        return
    with closing(sqlite3.connect(checkpoints)) as connection:
        try:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            found = str(error)
    if found == "ok":
        return
    log.warning("%s is damaged (%s); unfinished explorations and validations begin anew", checkpoints, found)
    for suffix in ("", "-wal", "-shm"):
        checkpoints.with_name(checkpoints.name + suffix).unlink(missing_ok=True)
