"""SIGKILL at the n-th durable operation (fsync, rename) of a process tree; loaded by PYTHONPATH, real code unchanged.

KILL_COUNTER  file in which all processes of the tree count their operations
KILL_AT       the operation to die at, 0 = only count; odd = after the operation, even = before it
PROCESSES     file in which each process of the tree writes its command line
KILL_ALL      "1": the process that started this one dies too, as in a power cut
"""

import fcntl
import os
import signal
import sys
from pathlib import Path


def _count() -> int:
    with Path(os.environ["KILL_COUNTER"]).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = len(file.read()) + 1
        file.write(".")
    return count


def _die() -> None:
    parent = os.environ.get("COEVOLVE_CHILD_OF")
    if parent and os.environ.get("KILL_ALL") == "1":
        os.kill(int(parent), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(name: str) -> None:
    real = getattr(os, name)

    def operation(*args: object, **kwargs: object) -> object:
        at, count = int(os.environ["KILL_AT"]), _count()
        if count == at and at % 2 == 0:
            _die()
        result = real(*args, **kwargs)
        if count == at:
            _die()
        return result

    setattr(os, name, operation)


if "KILL_COUNTER" in os.environ:
    for _name in ("fsync", "replace", "rename"):
        _deadly(_name)
if "PROCESSES" in os.environ:
    with Path(os.environ["PROCESSES"]).open("a") as _file:
        _file.write(" ".join(sys.orig_argv) + "\n")
