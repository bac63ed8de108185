"""The kernel turns away what the audit hook may not hear of, in all threads; what an episode needs still works."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from envs.appworld.env import AppWorld
from tests.appworld_play import WORLD

FILTER = Path(__file__).parent.parent / "envs" / "appworld" / "worker" / "seccomp.py"
BEFORE = f"""
import asyncio, os, runpy, socket, subprocess, sys, threading
filter = runpy.run_path({str(FILTER)!r})
"""
FILTERED = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
needs_filter = pytest.mark.skipif(not FILTERED, reason="no filter for this machine")


def python(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", BEFORE + code], capture_output=True, text=True, timeout=30)
    return ran.stdout.strip() or ran.stderr


@needs_filter
@pytest.mark.parametrize(
    "call",
    [
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "subprocess.run(['/bin/true'])",
        "socket.socket()",
        "os.kill(os.getppid(), 0)",
    ],
)
def test_the_kernel_turns_it_away(call: str) -> None:
    shown = python(
        f"assert filter['turn_away']()\ntry: {call}\nexcept PermissionError: print('no')\nelse: print('yes')"
    )
    assert shown == "no"


@needs_filter
def test_a_thread_that_was_there_before_is_held_too() -> None:
    code = """
go, found = threading.Event(), []
def late():
    go.wait()
    try: os.fork()
    except PermissionError: found.append('no')
thread = threading.Thread(target=late)
thread.start()
filter['turn_away']()
go.set()
thread.join()
print(*found)
"""
    assert python(code) == "no"


@needs_filter
def test_threads_files_and_event_loops_go_on() -> None:
    code = """
filter['turn_away']()
thread = threading.Thread(target=print, args=['thread'])
thread.start()
thread.join()
asyncio.run(asyncio.sleep(0))
print(open(os.devnull).read() + 'all')
"""
    assert python(code).split() == ["thread", "all"]


def test_it_is_on_where_an_agent_acts(appworld: AppWorld) -> None:
    run = appworld.agents.ask({"verb": "play", "world": WORLD, "blocks": ["print(6 * 7)"]})
    assert run["steps"][0]["output"].strip() == "42"
    assert ("system calls filtered" in run["layers"]) == FILTERED
