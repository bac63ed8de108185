"""A child process that answers lines with lines, one after the other, each within its time. No knowledge of contents.

A thread of its own does all that can block (start, write, wait, kill), so the caller may be any thread or event loop.
The time of a request runs from when the process is given it, not from when it was asked: others' requests cost it none.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from store.errors import CoevolveError

STDERR_BYTES = 1000
"""The end of what the process said on stderr that an error message shows."""
CHUNK = 1 << 16


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


@dataclass(frozen=True, slots=True)
class _Request:
    line: bytes
    seconds: float
    answer: Future[bytes] = field(default_factory=Future)


class Process:
    """Starts when it is first asked for something. The process says a first line by itself once it is ready."""

    def __init__(self, command: Sequence[str], *, environ: dict[str, str], start_s: float, answer_bytes: int) -> None:
        self.dead = False
        self.served = False
        self._command = command
        self._environ = environ
        self._start_s = start_s
        self._answer_bytes = answer_bytes
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._why = "it was closed"
        self._innocent = False
        self._unread = bytearray()
        self._stderr = b""

    @property
    def pid(self) -> int | None:
        """None before it is started and after it died."""
        return None if self._child is None or self.dead else self._child.pid

    def send(self, line: bytes, seconds: float) -> Future[bytes]:
        """The answer to one line, which ends in a line feed and holds no other. Died."""
        request = _Request(line, seconds)
        with self._lock:
            if self.dead:
                self._fail(request, guilty=False)
            else:
                self._queue.put(request)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="worker", daemon=True)
                    self._thread.start()
        return request.answer

    def kill(self) -> None:
        with self._lock:
            if not self.dead:
                self._queue.put(None)
                self._kill_child()
            self.dead = self.dead or self._thread is None

    def _serve(self) -> None:
        request: _Request | None = None
        try:
            self._start()
            self._exchange(b"", self._start_s)
            self.served = True
            while (request := self._queue.get()) is not None:
                self._look()
                answer = self._exchange(request.line, request.seconds)
                request.answer.set_result(answer)
        except (_Gone, OSError) as error:
            self._why = str(error)
        finally:
            self._end(request)

    def _look(self) -> None:
        """Before a request: a process that died of something else is not the request's doing."""
        assert self._child is not None
        if self._child.poll() is not None:
            self._innocent = True
            raise _Gone(self._last_words())

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environ, bufsize=0, start_new_session=True
        )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._in, self._out, self._err = child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._err, False)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)

    def _exchange(self, line: bytes, seconds: float) -> bytes:
        """Write `line`, return the next line that comes."""
        deadline = time.monotonic() + seconds
        unsent = self._write(memoryview(line))
        if unsent:
            self._poll.register(self._in, select.POLLOUT)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _Gone(f"no answer within {seconds:g} s")
            for fd, _ in self._poll.poll(left * 1000 + 1):
                if fd == self._in:
                    unsent = self._write(unsent)
                    if not unsent:
                        self._poll.unregister(self._in)
                elif fd == self._err:
                    self._hear()
                elif answer := self._read():
                    return answer

    def _write(self, data: memoryview) -> memoryview:
        """What could not be written yet."""
        try:
            return data[os.write(self._in, data[:CHUNK]) :] if data else data
        except BlockingIOError:
            return data
        except BrokenPipeError:
            raise _Gone(self._last_words()) from None

    def _read(self) -> bytes | None:
        data = os.read(self._out, CHUNK)
        if not data:
            raise _Gone(self._last_words())
        self._unread += data
        if len(self._unread) > self._answer_bytes:
            raise _Gone(f"an answer of more than {self._answer_bytes} bytes")
        if b"\n" not in data:
            return None
        answer, _, self._unread = self._unread.partition(b"\n")
        return bytes(answer)

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
        self._kill_child()
        code = self._child.wait()
        with contextlib.suppress(KeyError, BlockingIOError):  # it has ended before, or somebody else holds it
            while self._hear():
                pass
        said = " ".join(self._stderr.decode(errors="replace").split())
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process was {how}" + (f": {said}" if said else "")

    def _end(self, at_hand: _Request | None) -> None:
        with self._lock:
            self.dead = True
            if self._child is not None:
                self._kill_child()
                self._child.wait()
                for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
                    if pipe is not None:
                        pipe.close()
            if at_hand is not None:
                self._fail(at_hand, guilty=not self._innocent)
            with contextlib.suppress(queue.Empty):
                while True:
                    if (waiting := self._queue.get_nowait()) is not None:
                        self._fail(waiting, guilty=False)

    def _fail(self, request: _Request, *, guilty: bool) -> None:
        request.answer.set_exception(Died(self._why, guilty=guilty, served=self.served))

    def _kill_child(self) -> None:
        """It and what it started."""
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
