"""Parent side of a benchmark that runs in a venv of its own (child side: worker_host.py).

    Program  which interpreter runs which module, within which limits
    Pool     as many workers of a program as are needed, recycled after so many sessions
    Remote   one session in a worker, which it outlives: its requests are logged, and replayed on a fresh worker

An environment holds one `Pool`. `pool.ask` is for questions that leave no trace (blocking, from any thread);
`Remote(pool, opening)` is for an episode, from any event loop:

    remote = Remote(pool, {"world": "base_0"})    # the arguments of the module's verb `open`, which gives {"sid": ...}
    await remote.start()                          # what `open` answered
    await remote.ask("act", calls=[...])          # verb `act`, with sid added
    await remote.again()                          # all of that once more: is it answered alike?
    await remote.close()                          # verb `close`

Whose fault (docs/concepts.md): when a worker dies over a request or gives no answer in time, the log is replayed on
a worker with no other session, and the request is sent once more. It fails again: `Blamed`, the actor's own doing; the
session is as it was before that request, and goes on. It does not: SessionLost. Sessions that shared the worker were
not asked anything, so they are only replayed. A replay that is answered differently is SessionLost.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envs.errors import InfraError, SessionLost
from envs.process import Died, Process
from store.rows import Json

ALARM_S = 120.0
"""The kernel ends a worker that is longer at one request, should nobody be there any more to do so."""
MOVES = 5
"""Workers that may die under a session by other sessions' doing before it is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    request_s: float = 5.0
    """Seconds that a worker may take over one request."""
    start_s: float = 120.0
    """Seconds from the start of a process to its first answer."""
    memory_mb: int = 2048
    """Address space of a worker. It is retired once it holds a quarter of that."""
    answer_mb: int = 64
    """A longer answer counts as none: modules cut what they show long before."""
    sessions: int = 2000
    """Sessions that a worker opens before it is retired."""
    crowd: int = 16
    """Sessions at a time that make a further worker worth its start. 1 = one session a worker, always."""
    workers: int = 2
    """Workers that sessions are spread over; those that hold a suspect alone come on top."""
    isolated: bool = False
    """Each session is a process of its own, under the worker: none is held alone, as none shares its fate."""
    file_mb: int = 0
    """Size of the largest file that a worker may write. 0 = none at all."""
    processes: int = 0
    """Processes that a worker may start; holds for root nowhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    python: Path
    """Of the benchmark's venv."""
    module: str
    """Dotted name. Has `HANDLERS` (worker_host.py), `open`, `close` and, for `Remote.fork`, `fork` among them."""
    environ: dict[str, str] = field(default_factory=dict)
    """All that the process has for an environment: nothing of ours, keys and tokens above all, is handed on."""
    limits: Limits = field(default_factory=Limits)


class Blamed(Exception):
    """A request failed twice, on two workers: the doing of who asked for it. The words are for the actor to read."""


class WorkerError(InfraError):
    """The worker's module raised: a fault of ours."""


class Worker:
    """One process and who sits in it. Requests are served one at a time, in the order in which they were asked."""

    def __init__(self, program: Program) -> None:
        self.limits = program.limits
        self.opened = 0
        self.sessions = 0
        self.rss_mb = 0
        limits = program.limits
        host = Path(__file__).with_name("worker_host.py")
        own = json.dumps(
            {
                "memory_mb": limits.memory_mb,
                "alarm_s": max(ALARM_S, 2 * limits.request_s),
                "file_mb": limits.file_mb,
                "processes": limits.processes,
            }
        )
        self._process = Process(
            [str(program.python), "-P", "-s", str(host), program.module, str(_place(program.module)), own],
            environ=program.environ,
            start_s=limits.start_s,
            answer_bytes=limits.answer_mb << 20,
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def retired(self) -> bool:
        """It takes no more sessions."""
        worn = self.opened >= self.limits.sessions or self.rss_mb > self.limits.memory_mb // 4
        return worn or self._process.dead

    def ask(self, request: Json, seconds: float | None = None) -> Future[Json]:
        """The answer; Died, or WorkerError."""
        line = json.dumps(request).encode() + b"\n"
        return self._process.send(line, seconds or self.limits.request_s, self._read)

    def _read(self, line: bytes) -> Json:
        answer = json.loads(line)
        if "died" in answer:
            raise Died(answer["died"], guilty=True, served=True)
        if "ok" not in answer:
            raise WorkerError(str(answer.get("error")))
        self.rss_mb = answer.get("rss_mb", self.rss_mb)
        return answer["ok"]

    def kill(self) -> None:
        self._process.kill()


def _place(module: str) -> Path:
    """Its folder if it is a package, else its file. It is not imported here."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


class Pool:
    """Thread-safe; holds no process until it is asked for one, and none of its parent's after a fork."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._pid = os.getpid()
        atexit.register(self.close)

    def ask(self, request: Json, seconds: float | None = None) -> Json:
        """The answer to a request that leaves no trace. Blamed where it fails on a fresh worker too; WorkerError."""
        for alone in (False, True):
            worker = self.take(alone=alone)
            try:
                return worker.ask(request, seconds).result()
            except Died as died:
                if not died.served:
                    raise SessionLost(f"a worker could not be started: {died}") from None
                blame = Blamed(str(died))
            finally:
                self.leave(worker, alone=alone)
        raise blame

    def take(self, *, alone: bool = False) -> Worker:
        """A worker with a seat for one more session; `alone`: a new one that nobody else is given. To be left."""
        limits = self.program.limits
        with self._lock:
            if self._pid != os.getpid():
                self._workers, self._pid = [], os.getpid()
            open_ = [worker for worker in self._workers if not worker.retired]
            worker = min(open_, key=lambda worker: worker.sessions, default=None)
            full = worker is None or limits.crowd == 1 <= worker.sessions
            wanted = worker is not None and worker.sessions >= limits.crowd and len(open_) < limits.workers
            if alone or full or wanted or worker is None:
                worker = Worker(self.program)
                if not alone:
                    self._workers.append(worker)
            worker.sessions += 1
            worker.opened += 1
            return worker

    def leave(self, worker: Worker, *, alone: bool = False) -> None:
        with self._lock:
            worker.sessions -= 1
            if worker.sessions == 0 and (alone or worker.retired):
                worker.kill()
                if worker in self._workers:
                    self._workers.remove(worker)

    @property
    def pids(self) -> list[int]:
        """Processes of the pool, those that hold a suspect alone not among them."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def close(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                for worker in self._workers:
                    worker.kill()
            self._workers = []


@dataclass(slots=True)
class Seat:
    worker: Worker
    sid: Json
    alone: bool


class Remote:
    """One session in a pool: start, ask ... ask, close; one at a time."""

    def __init__(self, pool: Pool, opening: dict[str, Any]) -> None:
        self.pool = pool
        self._opening = opening
        self._log: list[tuple[Json, str]] = []
        """Requests that were answered, and the digest of each answer."""
        self._opened: Json = None
        self._seat: Seat | None = None
        self._alone = False

    async def start(self) -> Json:
        """What the verb `open` answers. SessionLost where it can't be opened."""
        await self._seated()
        return self._opened

    async def ask(self, verb: str, **arguments: Any) -> Json:
        """The answer, logged. Blamed where the request itself is what kills the worker; SessionLost."""
        request = {"verb": verb, **arguments}
        try:
            answer = await self._send(request)
        except Died as died:
            await self._ask_again(request, died)
        else:
            self._log.append((request, digest(answer)))
            return answer

    async def _ask_again(self, request: Json, first: Died) -> None:
        """On a worker of its own. Never returns."""
        self._alone = not self.pool.program.limits.isolated
        try:
            await self._send(request)
        except Died as second:
            raise Blamed(str(second)) from None
        raise SessionLost(f"{first}; the same request did not fail on a fresh worker")

    async def again(self) -> None:
        """Answer the whole log once more, in a fresh session: SessionLost where an answer differs, else it was the
        actor's doing."""
        await self.close()
        await self._seated()

    async def fork(self) -> Remote:
        """A second session in the same state, which shares nothing with this one."""
        other = Remote(self.pool, self._opening)
        other._log, other._opened, other._alone = list(self._log), self._opened, self._alone
        seat = await self._seated()
        if not self._alone:
            sid = (await self._send({"verb": "fork"}))["sid"]
            if self._seat is seat:
                other._seat = self._pool_again(seat, sid)
        return other

    def _pool_again(self, seat: Seat, sid: Json) -> Seat:
        with self.pool._lock:
            seat.worker.sessions += 1
        return Seat(seat.worker, sid, alone=False)

    async def close(self) -> None:
        seat, self._seat = self._seat, None
        if seat is None:
            return
        try:
            await _wait(seat.worker, {"verb": "close", "sid": seat.sid})
        except Died:
            pass
        finally:
            self.pool.leave(seat.worker, alone=seat.alone)

    async def _send(self, request: Json) -> Json:
        """Died where the worker dies over this very request."""
        for _ in range(MOVES):
            seat = await self._seated()
            try:
                return await _wait(seat.worker, {**request, "sid": seat.sid})
            except Died as died:
                self._stand_up()
                if died.guilty:
                    raise
        raise SessionLost(f"{MOVES} workers died under the session, over other sessions' requests")

    async def _seated(self) -> Seat:
        """A live seat with all of the log behind it."""
        for _ in range(MOVES):
            if self._seat is None:
                self._seat = Seat(self.pool.take(alone=self._alone), None, self._alone)
            elif self._seat.sid is not None:
                return self._seat
            try:
                await self._replay(self._seat)
            except Died as died:
                self._stand_up()
                if not died.served:
                    raise SessionLost(f"a worker could not be started: {died}") from None
                if died.guilty:
                    raise SessionLost(f"{died}, over what had been answered before") from None
            except BaseException:
                self._stand_up()
                raise
        raise SessionLost(f"{MOVES} workers died while the session was opened")

    async def _replay(self, seat: Seat) -> None:
        opened = await _wait(seat.worker, {"verb": "open", **self._opening})
        sid, self._opened = opened["sid"], opened
        for request, known in self._log:
            answer = await _wait(seat.worker, {**request, "sid": sid})
            if digest(answer) != known:
                raise SessionLost(f"on replay, {request['verb']} was answered differently")
        seat.sid = sid

    def _stand_up(self) -> None:
        if self._seat is not None:
            self.pool.leave(self._seat.worker, alone=self._seat.alone)
            self._seat = None


async def _wait(worker: Worker, request: Json) -> Json:
    asked = worker.ask(request)
    return asked.result() if asked.done() else await asyncio.wrap_future(asked)


def digest(answer: Json) -> str:
    return hashlib.sha256(repr(answer).encode("utf-8", "surrogatepass")).hexdigest()
