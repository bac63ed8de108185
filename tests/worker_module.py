"""A benchmark of one number, for the tests of envs/worker.py: runs under envs/worker_host.py, by the library alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

NUMBERS: dict[int, int] = {}


def open_(start: int = 0) -> dict[str, int]:
    sid = len(NUMBERS)
    NUMBERS[sid] = start
    return {"sid": sid, "start": start}


def act(sid: int, do: str, by: Any = 1) -> Any:
    if do == "die":
        os._exit(3)
    if do == "hang":
        time.sleep(60)
    if do == "die_once" and not Path(by).exists():
        os.kill(os.getpid(), 9) if _mark(by) else None
    if do == "print":
        sys.stdout.write("no answer\n" * by)
        sys.stderr.write("neither\n" * by)
        os.write(1, b"nor this\n")
    if do == "speak":
        return "x" * by
    if do == "eat":
        return len(bytearray(by << 20))
    if do == "raise":
        raise ValueError("on purpose")
    if do == "pid":
        return os.getpid()
    if do == "environ":
        return dict(os.environ)
    if do == "write":
        return _refused(lambda: Path(by).write_text("text"))
    NUMBERS[sid] += by if do == "add" else 0
    return NUMBERS[sid]


def _mark(path: str) -> bool:
    """The host's limit lets a directory be made, but no file be written."""
    Path(path).mkdir()
    return True


def _refused(work: Any) -> str:
    try:
        work()
    except OSError as error:
        return type(error).__name__
    return "done"


def fork(sid: int) -> dict[str, int]:
    return open_(NUMBERS[sid])


def close(sid: int) -> None:
    del NUMBERS[sid]


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


HANDLERS = {"open": open_, "act": act, "fork": fork, "close": close, "sleep": sleep, "die": lambda: os._exit(4)}
