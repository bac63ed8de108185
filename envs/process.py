"""A child process that answers lines with lines, one after the other, each within its time. No knowledge of contents.

An answer that comes at once is read by whoever asked: the way to a thread and back takes longer than most answers. For
what takes longer than a moment there is a thread, so the caller may be any thread or event loop. The time of a request
runs from when the process is given it, not from when it was asked: others' requests cost it none.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from store.errors import CoevolveError

STDERR_BYTES = 1000
"""The end of what the process said on stderr that an error message shows."""
CHUNK = 1 << 16
MOMENT_S = 0.002
"""How long whoever asks waits in place."""
T = TypeVar("T")


class Died(CoevolveError):
    """The process is gone."""

    def __init__(self, words: str, *, guilty: bool, served: bool) -> None:
        super().__init__(words)
        self.guilty = guilty
        """It died over the very request that gets this error."""
        self.served = served
        """It had started up."""


class _Gone(Exception):
    """The process is of no use any more; the words say why."""


@dataclass(slots=True)
class _Request:
    unsent: memoryview
    seconds: float
    read: Callable[[bytes], Any]
    answer: Future[Any] = field(default_factory=Future)
    deadline: float | None = None
    """None until the process is given it."""
    gone: _Gone | None = None
    """How the process ended over it."""

    def give(self, line: bytes) -> None:
        if self.answer.set_running_or_notify_cancel():  # else nobody waits for it any more
            try:
                self.answer.set_result(self.read(line))
            except Exception as error:
                self.answer.set_exception(error)

    def fail(self, error: Died) -> None:
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_exception(error)


class Process:
    """Starts when it is first asked for something. The process says a first line by itself once it is ready."""

    def __init__(self, command: Sequence[str], *, environ: dict[str, str], start_s: float, answer_bytes: int) -> None:
        self.dead = False
        self.served = False
        self._command = command
        self._environ = environ
        self._start_s = start_s
        self._answer_bytes = answer_bytes
        self._turn = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._busy = True
        """Somebody talks to the process, or starts it."""
        self._closed = False
        self._innocent = False
        """It died while nobody talked to it."""
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = bytearray()
        self._stderr = b""

    @property
    def pid(self) -> int | None:
        """None before it is started and after it died."""
        return None if self._child is None or self.dead else self._child.pid

    def send(self, line: bytes, seconds: float, read: Callable[[bytes], T]) -> Future[T]:
        """What `read` makes of the answer to one line, which ends in a line feed and holds no other. Died."""
        request = _Request(memoryview(line), seconds, read)
        with self._turn:
            at_once = not (self._busy or self._waiting or self._closed or self.dead)
            self._busy = self._busy or at_once
            if not at_once:
                self._queue(request)
        if at_once:
            self._ask_at_once(request)
        return request.answer

    def kill(self) -> None:
        with self._turn:
            self._closed = True
            self.dead = self.dead or self._thread is None
            self._kill_child()
            self._turn.notify()

    def _queue(self, request: _Request) -> None:
        if self.dead or self._closed:
            return request.fail(Died("it was closed", guilty=False, served=self.served))
        self._waiting.append(request)
        self._turn.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="worker", daemon=True)
            self._thread.start()

    def _ask_at_once(self, request: _Request) -> None:
        """What is not answered in a moment is left to the thread."""
        line = None
        try:
            line = self._exchange(request, MOMENT_S)
        except _Gone as gone:
            request.gone = gone
        if line is not None:
            request.give(line)
        with self._turn:
            self._busy = False
            if line is None:
                self._waiting.appendleft(request)
            if self._waiting or self._closed:
                self._turn.notify()

    def _serve(self) -> None:
        request, why = None, "it was closed"
        try:
            self._start()
            self._exchange(_Request(memoryview(b""), self._start_s, bytes))
            self.served = True
            while (request := self._next()) is not None:
                line = self._exchange(request)
                assert line is not None
                request.give(line)
        except (_Gone, OSError) as error:
            why = str(error)
        finally:
            self._end(request, why)

    def _next(self) -> _Request | None:
        """The next request, once nobody else is talking to the process; None if it is closed."""
        with self._turn:
            self._busy = False
            while self._busy or not (self._waiting or self._closed):
                self._turn.wait()
            if self._closed:
                return None
            self._busy = True
            return self._waiting.popleft()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environ, bufsize=0, start_new_session=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._in, self._out, self._err = child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._err, False)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)
        with self._turn:
            self._child = child
            if self._closed:
                self._kill_child()

    def _exchange(self, request: _Request, moment: float | None = None) -> bytes | None:
        """The next line that comes after the request is written, or goes on being so; None: not within the moment."""
        if request.gone:
            raise request.gone
        if request.deadline is None:
            self._look()
            request.deadline = time.monotonic() + request.seconds
            self._write(request)
            if request.unsent:
                self._poll.register(self._in, select.POLLOUT)
        end = request.deadline if moment is None else time.monotonic() + moment
        while (left := end - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(math.ceil(left * 1000)):
                if fd == self._in:
                    self._write(request)
                    if not request.unsent:
                        self._poll.unregister(self._in)
                elif fd == self._err:
                    self._hear()
                elif (line := self._read()) is not None:
                    return line
        if moment is None:
            raise _Gone(f"no answer within {request.seconds:g} s")
        return None

    def _look(self) -> None:
        """A process that died before it was given a request did not die of it."""
        assert self._child is not None
        if self._child.poll() is not None:
            self._innocent = True
            raise _Gone(self._last_words())

    def _write(self, request: _Request) -> None:
        try:
            while request.unsent:
                request.unsent = request.unsent[os.write(self._in, request.unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            raise _Gone(self._last_words()) from None

    def _read(self) -> bytes | None:
        """The line, if it is whole."""
        data = os.read(self._out, CHUNK)
        if not data:
            raise _Gone(self._last_words())
        self._unread += data
        if len(self._unread) > self._answer_bytes:
            raise _Gone(f"an answer of more than {self._answer_bytes} bytes")
        if b"\n" not in data:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        return bytes(line)

    def _hear(self) -> bool:
        data = os.read(self._err, CHUNK)
        self._stderr = (self._stderr + data)[-STDERR_BYTES:]
        if not data:
            self._poll.unregister(self._err)
        return bool(data)

    def _last_words(self) -> str:
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1)
        with self._turn:
            self._kill_child()
        code = self._child.wait()
        with contextlib.suppress(KeyError, BlockingIOError):  # it has ended before, or somebody else holds it
            while self._hear():
                pass
        said = " ".join(self._stderr.decode(errors="replace").split())
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process was {how}" + (f": {said}" if said else "")

    def _end(self, at_hand: _Request | None, why: str) -> None:
        with self._turn:
            self.dead = True
            self._kill_child()
            if self._child is not None:
                self._child.wait()
                for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
                    if pipe is not None:
                        pipe.close()
            waiting = list(self._waiting)
            self._waiting.clear()
        if at_hand is not None:
            at_hand.fail(Died(why, guilty=not self._innocent, served=self.served))
        for request in waiting:
            request.fail(Died(why, guilty=False, served=self.served))

    def _kill_child(self) -> None:
        """It and what it started. The lock is held."""
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
