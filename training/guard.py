"""`python -m training.guard PARENT COMMAND...`: runs a server that never outlives the process that asked for it.

The guard leads the server's process group. It ends the whole group (SIGTERM, then SIGKILL) when it is told to by
SIGTERM, when the server has ended and left children behind, and when PARENT is gone, even by SIGKILL. A watching
process and not PR_SET_PDEATHSIG, because that signal comes when the *thread* that started the server ends, and reaches
the server but not the engine processes that it forks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.2
GRACE_S = 8.0
"""Between SIGTERM and SIGKILL."""


def members(group: int) -> list[int]:
    """The live processes of a process group, zombies left out; [] where there is no /proc."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has just ended
        if int(its_group) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def await_that(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_S / 4)
    return true


def main(parent: int, command: list[str]) -> int:
    """The server's exit code; does not return if its group had to be killed."""
    told: list[int] = []
    # Handlers and not SIG_IGN: a handler is dropped at exec, so the server gets its own behaviour back.
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.signal(signal.SIGINT, lambda *_: None)
    server = subprocess.Popen(command)
    while server.poll() is None and not told and os.getppid() == parent:
        time.sleep(POLL_S)

    def alone() -> bool:
        return server.poll() is not None and members(os.getpgrp()) in ([], [os.getpid()])

    if not alone():
        os.killpg(0, signal.SIGTERM)
        if not await_that(alone, GRACE_S):
            os.killpg(0, signal.SIGKILL)
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
