"""Commands to which a system call is denied, as a container's seccomp filter does it."""

from __future__ import annotations

import sys

IO_URING_SETUP = 425

#: Runs a command to which a system call, by its number, is denied with EPERM.
_DENIED = """
import os, sys
from ctypes import CDLL, addressof, create_string_buffer
from struct import pack
number, allow, deny = int(sys.argv[1]), 0x7FFF0000, 0x50001
code = pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number, 6, 0, 0, deny, 6, 0, 0, allow)
held = create_string_buffer(code)
program = create_string_buffer(pack("HxxxxxxQ", 4, addressof(held)))
assert CDLL(None).prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
os.execvp(sys.argv[2], sys.argv[2:])
"""


def denied(number: int) -> list[str]:
    """Runs a command without one system call; those from 424 on have one number everywhere."""
    return [sys.executable, "-c", _DENIED, str(number)]
