"""A forked child that answers one JSON line with one, each within its time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from envs.appworld.worker.own import copy_of

json = copy_of("json")
Json = Any
ANSWER_BYTES = 16 << 20
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Raised(RuntimeError):
    """The child's own code raised."""


class Child:
    """`make` runs in the child and gives who answers requests: a function, called with what was asked."""

    def __init__(self, make: Callable[[], Callable[..., Json]]) -> None:
        asked, self._out = os.pipe()
        self._in, answered = os.pipe()
        self.pid = os.fork()
        self.name = str(self.pid)
        if self.pid == 0:
            _serve(make, asked, answered)
        os.close(asked)
        os.close(answered)

    def ask(self, request: Json, seconds: float) -> Json:
        """ProcessLookupError where it gives no answer; it is dead then. Raised."""
        deadline = time.monotonic() + seconds
        try:
            os.write(self._out, json.dumps(request).encode() + b"\n")
            answer = json.loads(self._line(deadline, seconds))
            if not isinstance(answer, dict) or not answer.keys() & {"ok", "error"}:
                raise ValueError("it gave no answer of any form")
        except (OSError, ValueError, EOFError, RecursionError) as error:
            raise ProcessLookupError(f"{self._end()}{error}") from None
        if "error" in answer:
            raise Raised(str(answer["error"]))
        return answer["ok"]

    def _line(self, deadline: float, seconds: float) -> bytes:
        read = bytearray()
        while b"\n" not in read:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it took more than {seconds:g} s")
            if not select.select([self._in], [], [], left)[0]:
                continue
            data = os.read(self._in, 1 << 16)
            if not data:
                raise EOFError("")
            read += data
            if len(read) > ANSWER_BYTES:
                raise ValueError("it answered without end")
        return bytes(read)

    def kill(self) -> None:
        self._end()

    def _end(self) -> str:
        """How it ended, if by itself."""
        if self.pid == 0:
            return ""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done == 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = 0
        os.close(self._out)
        os.close(self._in)
        return f"the process ended with status {status} " if done else ""


def _serve(make: Callable[[], Callable[..., Json]], asked: int, answered: int) -> None:
    """Never returns."""
    try:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in (asked, answered):
                with contextlib.suppress(OSError):
                    os.close(fd)
        answering = make()
        with os.fdopen(asked, "rb") as requests:
            for line in requests:
                _write(answered, _answer(answering, json.loads(line)))
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(0)


def _answer(answering: Callable[..., Json], request: Json) -> bytes:
    try:
        answer: str = json.dumps({"ok": answering(**request)})
        return answer.encode() + b"\n"
    except Exception as error:
        failure: str = json.dumps({"error": f"{type(error).__name__}: {error}"})
        return failure.encode() + b"\n"


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[_WRITE(fd, data) :]


_WRITE = os.write
"""Kept: while agent code runs, the engine replaces `os.write`, and does not always put it back."""
