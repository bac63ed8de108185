"""Calls to the kernel that an agent's process never needs, turned away by the kernel itself (Linux, x86-64 and arm64).

Below the audit hook, for what Python does not hear of: new processes, programs, sockets, signals to others, looks into
other processes. Threads stay: the engine's client has one. A filter cannot be taken off again.

https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, TSYNC = 1, 1
"""TSYNC: for threads that are there already, too."""
CLONE_THREAD = 0x10000
LOAD, EQUAL, ANY_BIT, ATLEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
"""Of classic BPF, words of 32 bits: load one of `struct seccomp_data`, jump, return."""
NUMBER_AT, ARCH_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW, REFUSE, ABSENT = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
SECCOMP = {"x86_64": 317, "aarch64": 277}
X32 = 0x40000000
"""From here on, x86-64 has all calls again, for another ABI."""
REFUSED = {
    # name: (x86_64, aarch64), None where there is none
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "socket": (41, 198),
    "connect": (42, 203),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
}


def turn_away() -> bool:
    """For good, in this process. Whether it is on: the kernel or the machine may have no such filter."""
    machine = os.uname().machine
    if machine not in ARCHES:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    code = _program(machine)
    held = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(held)))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done: int = libc.syscall(SECCOMP[machine], SET_MODE_FILTER, TSYNC, program)
    return done == 0


def _program(machine: str) -> bytes:
    """Instructions of 8 bytes: (code, jump if true, jump if not, operand)."""
    column = list(ARCHES).index(machine)
    lines = [
        (LOAD, 0, 0, ARCH_AT),
        (EQUAL, 1, 0, ARCHES[machine]),
        (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, NUMBER_AT),
        (ATLEAST, 0, 1, X32),
        (RETURN, 0, 0, REFUSE),
        (EQUAL, 0, 1, CLONE3),  # its flags lie in memory, where no filter looks; libc then takes clone
        (RETURN, 0, 0, ABSENT),
    ]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    lines += [
        (EQUAL, 0, 3, CLONE[machine]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (ANY_BIT, 1, 0, CLONE_THREAD),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
