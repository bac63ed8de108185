"""What the kill tests run in a process of its own: explorations and validations that may be killed at any event.

Events are checkpoint writes, model calls, tool calls and row batches; the process kills itself with SIGKILL at the
n-th. The rows file stands for the journal: one fsynced line a row, a torn last line is dropped.
"""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from envs.protocols import Message, Observation, Session
from graphs.prompting import read
from graphs.runner import explore_all, validate_all
from graphs.settings import ModelSettings
from store.rows import ROW_TYPES, Candidate, Exploration, Json, Row, Task, Verdict
from tests.fakes import EchoEnv, EchoSession
from tests.graph_setup import CONTEXT, job, signal
from tests.scripted import ScriptedChatModel, calls, says

KINDS = {kind.__name__: kind for kind in ROW_TYPES}


class Fuse:
    """Kills the process at the n-th event; 0 = never."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.events = 0

    def event(self) -> None:
        self.events += 1
        if self.events == self.at:
            os.kill(os.getpid(), signals.SIGKILL)


class CountingSession(EchoSession):
    """Its answers tell how many calls came before: a resumed session that lost one answers differently."""

    fuse: Fuse
    count = 0

    async def act(self, message: Message) -> Observation:
        self.fuse.event()
        self.count += 1
        answer = await super().act(message)
        shown = [{**one, "content": f"{self.count}: {one['content']}"} for one in answer.messages]
        return Observation(messages=shown, done=answer.done, failed=answer.failed)


class CountingEcho(EchoEnv):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def open(self, world: str, task: Task | None = None, *, tools: bool = False) -> Session:
        session = CountingSession(task, tools=tools, turns=1, fault=None)
        session.fuse = self.fuse
        return session


def policy(fuse: Fuse) -> Any:
    """A validator and explorer whose answers depend on what it is shown alone."""

    def play(messages: Sequence[BaseMessage], tools: Sequence[Json]) -> AIMessage | Exception:
        fuse.event()
        role, payload = read(messages)
        log = payload["view"]["log"]
        words = [{"user_turns": [f"say {word}"], "reference": word} for word in ("a", "", f"b{len(log)}")]
        steps = [calls("look"), calls("say", word="x"), calls("fly"), says("done")]
        answers: Json = {"reflect": CONTEXT, "abstract": {"tasks": words}, "repair": {"task": words[-1]}}
        if role == "act":
            return steps[len(log)]
        if role == "try":
            return steps[len(log)] if len(log) < 2 else says('{"problem": null}')
        return says(msgspec.json.encode(answers[role]).decode())

    return play


def read_rows(path: Path) -> list[Row]:
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    whole = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
    return [msgspec.convert(row, KINDS[kind]) for kind, row in whole]


Append = Callable[[Sequence[Row]], None]
Work = Callable[[Fuse, Path, Path, Append], Coroutine[Any, Any, None]]
"""(fuse, rows file, checkpoints, append): what is run, and may be killed at any event."""


async def phases(fuse: Fuse, path: Path, checkpoints: Path, append: Append) -> None:
    """Explorations, and the validation of their candidates."""
    common: dict[str, Any] = {
        "env": CountingEcho(fuse),
        "model": "scripted",
        "factory": lambda seed: ScriptedChatModel(policy=policy(fuse)),
        "seed": 0,
        "append": append,
        "checkpoints": checkpoints,
        "calls": ModelSettings(concurrency=2, attempts=1),
    }
    done = {row.id for row in read_rows(path) if isinstance(row, Exploration)}
    await explore_all([job(0), job(1, signal=signal())], done=done, **common)
    rows = read_rows(path)
    decided = {row.candidate_id for row in rows if isinstance(row, Verdict)}
    pending = [row for row in rows if isinstance(row, Candidate) and row.id not in decided]
    known = [row for row in rows if isinstance(row, Task)]
    await validate_all(pending, t=0, known=known, held_out=[], **common)


def run(folder: Path, kill_at: int, work: Work = phases) -> None:
    """The work; writes the number of events when it gets to the end."""
    fuse = Fuse(kill_at)
    path = folder / "rows.jsonl"
    put = AsyncSqliteSaver.aput

    async def counted(self: AsyncSqliteSaver, *args: Any, **kwargs: Any) -> Any:
        fuse.event()
        return await put(self, *args, **kwargs)

    AsyncSqliteSaver.aput = counted  # type: ignore[method-assign]

    def append(rows: Sequence[Row]) -> None:
        fuse.event()
        with path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode((type(row).__name__, row)) + b"\n" for row in rows))
            file.flush()
            os.fsync(file.fileno())
        fuse.event()

    asyncio.run(work(fuse, path, folder / "graphs.sqlite", append))
    (folder / "events").write_text(str(fuse.events))
