"""No server outlives the process that asked for it: the guard, with commands that are no vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.guard import GRACE_S, await_that, members

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
FORKS = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
OWNER = """
import os, subprocess, sys, time
command = [sys.executable, "-m", "training.guard", str(os.getpid()), sys.executable, "-c", sys.argv[1]]
guard = subprocess.Popen(command, start_new_session=True)
print(guard.pid, flush=True)
time.sleep(60)
"""


def guarded(code: str) -> subprocess.Popen[bytes]:
    """The guard around a Python program, once that has had time to start."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "training.guard", str(os.getpid()), sys.executable, "-c", code], start_new_session=True
    )
    time.sleep(0.8)
    return guard


def gone(group: int, seconds: float) -> bool:
    return await_that(lambda: not members(group), seconds)


def test_sigterm_ends_the_whole_group() -> None:
    guard = guarded(FORKS + "; time.sleep(60)")
    assert len(members(guard.pid)) == 3
    guard.terminate()
    guard.wait(GRACE_S)
    assert gone(guard.pid, 1)


@pytest.mark.slow
def test_who_ignores_sigterm_is_killed() -> None:
    guard = guarded(STUBBORN)
    guard.terminate()
    guard.wait(GRACE_S + 4)
    assert gone(guard.pid, 1)


def test_what_the_server_leaves_behind_ends_with_it() -> None:
    guard = guarded(FORKS)
    guard.wait(GRACE_S)
    assert gone(guard.pid, 1)


def test_the_exit_code_is_the_servers() -> None:
    assert guarded("raise SystemExit(7)").wait(5) == 7


def test_a_killed_owner_takes_its_server_along(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, FORKS + "; time.sleep(60)"], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout
    with owner.stdout as out:
        group = int(out.readline())
    assert await_that(lambda: len(members(group)) == 3, 5)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert gone(group, 5)
