"""Which files a process may touch, kept by the kernel (Linux from 5.13, where Landlock is on), for good.

The audit hook of cage.py judges the path that Python was given: it does not hear of a folder that the path starts
from (`dir_fd`), and what it asks may be replaced by the code that it watches. The kernel judges the file itself.

https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from envs.appworld.worker.seccomp import PR_SET_NO_NEW_PRIVS

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same numbers on all machines."""
VERSION = 1
BENEATH = 1
WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
RIGHTS = {1: 13, 2: 14}
"""{version: kinds of access it knows}; later ones know 15 or more."""
LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/etc/ld.so.cache")
"""What the loader reads for a module that was not imported before."""


def confine(writable: Iterable[str], readable: Iterable[str]) -> bool:
    """Whether it is on: from now on this thread, and those that it starts, may touch nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)
    if version < 1:
        return False
    known = (1 << RIGHTS.get(version, 15)) - 1
    attributes = struct.pack("Q", known)
    ruleset = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        for place in (*readable, *LIBRARIES):
            _allow(libc, ruleset, place, READ_FILE | READ_DIR)
        for place in writable:
            _allow(libc, ruleset, place, known)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        done: int = libc.syscall(RESTRICT_SELF, ruleset, 0)
        return done == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, place: str, rights: int) -> None:
    """A file, or all beneath a folder; nothing where there is none."""
    if not os.path.exists(place):
        return
    if not os.path.isdir(place):
        rights &= WRITE_FILE | READ_FILE | TRUNCATE
    found = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        libc.syscall(ADD_RULE, ruleset, BENEATH, struct.pack("=Qi", rights, found), 0)
    finally:
        os.close(found)
