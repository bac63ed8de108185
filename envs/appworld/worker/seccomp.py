"""Calls to the kernel that an agent's process never needs, turned away by the kernel itself (Linux, x86-64 and arm64).

Below the audit hook, for what Python does not hear of: new processes, programs, sockets, signals to others, looks into
other processes, the machine's clock, priorities and limits of others, owners and modes of files, and files named from
an open folder, whose path the hook cannot judge. Threads stay: the engine's client has one. A filter cannot be taken
off again.

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
CLONE3, OPENAT2 = 435, 437
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
    "clock_settime": (227, 112),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "reboot": (169, 142),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
}
AT_FDCWD = 0xFFFFFF9C
OWN = {
    # name: (x86_64, aarch64), the first argument with which alone it is allowed
    "openat": ((257, 56), AT_FDCWD),
    "prlimit64": ((302, 261), 0),
}
"""Of the process itself: files named from its own folder, its own limits."""
UNKNOWN = (CLONE3, OPENAT2)
"""Their arguments lie in memory, where no filter looks; libc then takes `clone` and `openat`."""


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
    ]
    for number in UNKNOWN:
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ABSENT)]
    for numbers in REFUSED.values():
        refused = numbers[column]
        if refused is not None:
            lines += [(EQUAL, 0, 1, refused), (RETURN, 0, 0, REFUSE)]
    for numbers, only in OWN.values():
        lines += [
            (EQUAL, 0, 4, numbers[column]),
            (LOAD, 0, 0, FIRST_ARGUMENT_AT),
            (EQUAL, 0, 1, only),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, REFUSE),
        ]
    lines += [
        (EQUAL, 0, 3, CLONE[machine]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (ANY_BIT, 1, 0, CLONE_THREAD),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
