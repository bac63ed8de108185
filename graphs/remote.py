"""Threads of a graph on a LangGraph server, where LangGraph Studio shows them: runs, state history, tool calls.

The server lends the graph what this process cannot send (graphs/lending.py), under the name of the phase. What comes
back goes the way of threads played here: same retries, same rows. Threads stay there after their rows are written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import httpx
from langgraph.errors import GraphDrained
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import ThreadState

from envs.errors import InfraError, SessionLost
from graphs.bench import Player, ServerGone, Stop, disk_refuses
from graphs.model import BudgetSpent, ModelUnavailable, printable
from graphs.sitting import Halted
from graphs.state import RECURSION_LIMIT
from graphs.tracing import GraphName, Tracer
from store.errors import StoreError, UsageError
from store.rows import Json

POLL_S = 0.1
CONNECT_S = 5.0
ANSWER_S = 60.0
"""Until a request that only asks or starts something counts as unanswered."""
OURS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (InfraError, SessionLost, ModelUnavailable, ServerGone, BudgetSpent, Halted, UsageError, StoreError)
}

BY = {"by": "coevolve"}
"""Metadata of runs that a command sends, and so of their checkpoints."""

T = TypeVar("T")


class Failed(RuntimeError):
    """`<class>: <words>` of what a graph on the server failed with. A RuntimeError, because the server tells the words
    of no class that it does not know."""


def told(failure: Exception) -> Failed:
    if disk_refuses(failure):
        failure = ServerGone(f"the studio server's disk refuses: {failure}")
    return Failed(f"{type(failure).__name__}: {printable(str(failure))}")


def read(error: Mapping[str, Any]) -> Exception:
    """The failure that the server told of, as the exception that it was, or one of that name."""
    kind, words = str(error.get("error")), str(error.get("message"))
    if kind == Failed.__name__:
        kind, _, words = words.partition(": ")
    known: type[Exception] = OURS.get(kind) or type(kind if kind.isidentifier() else "Error", (Exception,), {})
    return known(words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A phase whose threads are played on a server."""

    url: str
    phase: str
    """What the server lends its resources under."""
    run: str
    t: int
    origin: str
    """Tells apart the runs, of whatever workspace, that have one id."""


@dataclass(kw_only=True, slots=True)
class RemoteBench(Player):
    """One graph of the server."""

    client: LangGraphClient
    graph: GraphName
    remote: Remote
    stop: Stop | None
    given: dict[str, dict[str, Json]] = field(default_factory=dict)
    """{thread: more of its `configurable`}."""

    async def forget(self, thread: str) -> None:
        self.given.pop(thread, None)

    async def values(self, thread: str) -> Any:
        return (await self._own(thread))[1]["values"] or {}

    async def invoke(self, thread: str, given: Any, trace: Tracer | None) -> Any:
        at, before = await self._own(thread)
        while True:
            if self.stop and self.stop.is_set():
                raise GraphDrained("stop")
            begun = before["created_at"] is not None
            if begun and not before["tasks"]:
                return before["values"]
            await self._run(at, thread, None if begun else given)
            before = await self._ask(self.client.threads.get_state(at))

    async def _own(self, thread: str) -> tuple[str, ThreadState]:
        """(its id on the server, its state). The id is derived, so a later call of the same command finds the thread;
        one that a person has gone on with, in Studio, is theirs, and ours is another."""
        about = {"coevolve": thread, "run": self.remote.run, "t": self.remote.t, "graph_id": self.graph}
        for number in count():
            at = str(uuid5(NAMESPACE_URL, f"coevolve:{self.remote.origin}:{self.graph}:{thread}:{number}"))
            await self._ask(self.client.threads.create(thread_id=at, if_exists="do_nothing", metadata=about))
            for run in await self._ask(self.client.runs.list(at, limit=10)):
                if run["status"] in ("pending", "running"):  # of a client that was killed
                    await self._ended(at, run["run_id"])
            state = await self._ask(self.client.threads.get_state(at))
            if state["created_at"] is None or (state["metadata"] or {}).get("by") == BY["by"]:
                return at, state
        raise AssertionError("unreachable")

    async def _run(self, at: str, thread: str, given: Any) -> None:
        key = "sitting" if self.graph == "refine" else "resources"
        run = await self._ask(
            self.client.runs.create(
                at,
                self.graph,
                input=given,
                config={
                    "configurable": {key: self.remote.phase, "subject": thread, **self.given.get(thread, {})},
                    "recursion_limit": RECURSION_LIMIT,
                },
                metadata=BY,
                durability="sync",
            )
        )
        if await self._ended(at, run["run_id"]) in ("error", "timeout"):
            ended: Mapping[str, Any] = await self._ask(self.client.threads.get(at))
            raise read(ended.get("error") or {})

    async def _ended(self, at: str, run: str) -> str:
        """How the run ended. GraphDrained where our stop cut it short: its last node is done again by a later call."""
        try:
            while True:
                status = (await self._ask(self.client.runs.get(at, run)))["status"]
                if status not in ("pending", "running"):
                    return str(status)
                if self.stop and self.stop.is_set():
                    await self._ask(self.client.runs.cancel(at, run, wait=True))
                    raise GraphDrained("stop")
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            with contextlib.suppress(ServerGone):
                await self._ask(self.client.runs.cancel(at, run))
            raise

    async def _ask(self, request: Awaitable[T]) -> T:
        """ServerGone where there is no answer, or a refusal."""
        try:
            return await request
        except httpx.HTTPStatusError as error:
            words = error.response.text[:200] if error.response is not None else str(error)
            raise ServerGone(f"the studio server {self.remote.url} refuses: {words}") from error
        except httpx.HTTPError as error:
            raise gone(self.remote.url, error) from error


def gone(url: str, error: Exception) -> ServerGone:
    words = str(error) or type(error).__name__
    return ServerGone(
        f"the studio server {url} does not answer ({words}); what was decided is kept: start it again with "
        "`coevolve studio`, and run the same command again"
    )


@asynccontextmanager
async def remote_bench(graph: GraphName, remote: Remote, stop: Stop | None) -> AsyncIterator[RemoteBench]:
    timeouts = (CONNECT_S, ANSWER_S, ANSWER_S, ANSWER_S)
    async with get_client(url=remote.url, api_key=None, timeout=timeouts) as client:
        yield RemoteBench(client=client, graph=graph, remote=remote, stop=stop)
