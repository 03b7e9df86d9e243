"""Runs commands without some system calls, like a container's seccomp filter."""

from __future__ import annotations

import sys

IO_URING_SETUP = 425

#: Calls that Docker's default profile denies without CAP_SYS_ADMIN (numbers of x86_64): mounts,
#: namespaces, modules, keys, clocks, kexec, handles, userfaultfd, io_uring.
DOCKER_DENIES = (
    *(155, 163, 164, 165, 166, 167, 168, 169, 170, 171, 175, 176, 179, 227, 246, 248, 249, 250),
    *(272, 304, 308, 313, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442),
)

#: Runs a command; system calls with these numbers fail with EPERM.
_DENIED = """
import os, sys
from ctypes import CDLL, addressof, create_string_buffer
from struct import pack
numbers = [int(word) for word in sys.argv[1].split(",")]
code = pack("HBBI", 0x20, 0, 0, 0)  # the number
for at, number in enumerate(numbers):
    code += pack("HBBI", 0x15, len(numbers) - at, 0, number)
code += pack("HBBI" * 2, 6, 0, 0, 0x7FFF0000, 6, 0, 0, 0x50001)  # allow, deny
held = create_string_buffer(code)
program = create_string_buffer(pack("HxxxxxxQ", len(code) // 8, addressof(held)))
libc = CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
os.execvp(sys.argv[2], sys.argv[2:])
"""


def denied(*numbers: int) -> list[str]:
    """Returns words that deny a command these calls; numbers from 424 on are equal everywhere."""
    return [sys.executable, "-c", _DENIED, ",".join(map(str, numbers))]
