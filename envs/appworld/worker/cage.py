"""What keeps an agent's process in: limits, no network, files (landlock.py) and system calls (seccomp.py) that the
kernel turns away, and an audit hook that turns away what no episode needs.

The hook hears of every file, process and socket that Python is asked for, by whatever road; it cannot be taken out
again. What it turns away is an error for the code that asked. Writes, processes, sockets and looks at the ground truth
are kept in CAUGHT: attempts to cheat, as nothing that the engine itself does while code runs is among them. Code that
gets at the hook's own parts may blind it, not the kernel.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Any

from envs.appworld.worker import landlock, seccomp

TRUTH = "ground_truth"
GROWTH = 512 << 20
"""Bytes of address space that an episode may take on top of what the engine has."""
FILE_BYTES = 64 << 20
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
CAUGHT: list[str] = []
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEVER = (
    "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "os.putenv", "os.unsetenv",
    "os.chroot", "os.setxattr", "subprocess.", "pty.", "socket.", "ctypes.", "signal.", "gc.", "sys.addaudithook",
    "sqlite3.enable_load_extension", "sqlite3.load_extension", "resource.", "code.", "mmap.", "webbrowser.", "ftplib.",
    "http.", "urllib.", "smtplib.", "imaplib.", "poplib.", "telnetlib.", "syslog.",
)  # fmt: skip
"""Events, or how they begin."""
_CHANGES = (
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate",
    "os.utime", "os.chflags", "shutil.", "tempfile.",
)  # fmt: skip
_LOOKS = ("os.listdir", "os.scandir", "os.walk", "glob.", "os.chdir", "pathlib.")
_state: dict[str, Any] = {}


def confine(home: str, data: str) -> None:
    """For good, and before the engine opens databases: what is open for writing stays so. `home`: the folder that may
    be written to; `data`: one that may be read, besides Python's own."""
    own = (sys.prefix, sys.base_prefix, "/usr/share/zoneinfo", "/etc/localtime", "/dev/null", "/dev/urandom")
    readable = tuple(os.path.realpath(place) for place in (home, data, *own))
    _state.update(home=os.path.realpath(home), readable=readable, statm=os.open("/proc/self/statm", os.O_RDONLY))
    _state["confined"] = landlock.confine((home, "/dev/null"), readable)


def enter() -> None:
    """For good, after `confine`."""
    network = no_network()
    used = int(os.pread(_state["statm"], 100, 0).split()[0]) * resource.getpagesize()
    os.close(_state["statm"])
    for kind, most in (
        (resource.RLIMIT_AS, used + GROWTH),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    filtered = seccomp.turn_away()
    _state.update(network=network, filtered=filtered)
    sys.addaudithook(_watch)


def layers() -> list[str]:
    """Those that are on in this process."""
    found = ["audit hook", "memory and file limits", "no new privileges"] if _state else []
    found += ["files confined"] if _state.get("confined") else []
    found += ["system calls filtered"] if _state.get("filtered") else []
    return found + (["no network"] if _state.get("network") else [])


def no_network() -> bool:
    """Whether this process has a network of its own, an empty one, from now on."""
    return any(_LIBC.unshare(flags) == 0 for flags in (CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWNET))


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        _file(args[0], args[2] if isinstance(args[2], int) else 0)
    elif event == "sqlite3.connect":
        if ":memory:" not in str(args[0]) and "mode=memory" not in str(args[0]):
            _catch(f"{event} {args[0]!r}")
    elif event.startswith(_NEVER):
        _catch(event)
    elif event.startswith(_CHANGES):
        for place in args:
            if isinstance(place, str | bytes) and not _under(place, (_state["home"],)):
                _catch(f"{event} {place!r}")
    elif event.startswith(_LOOKS) and args and isinstance(args[0], str | bytes):
        _file(args[0], 0)


def _file(place: Any, flags: int) -> None:
    if not isinstance(place, str | bytes):
        return  # a number: a file that is open already
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
        if not _under(place, (_state["home"], "/dev/null")):
            _catch(f"write {place!r}")
    elif not _under(place, _state["readable"]):
        if TRUTH in os.fsdecode(place):
            _catch(f"read {place!r}")
        raise PermissionError(f"reading {place!r} is not allowed here")  # Python itself looks for sources, and may not


def _under(place: str | bytes, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(os.fsdecode(place))
    return any(real == folder or real.startswith(folder + "/") for folder in folders)


def _catch(what: str) -> None:
    if len(CAUGHT) < 20:
        CAUGHT.append(what[:200])
    raise PermissionError(f"{what[:200]} is not allowed here")
