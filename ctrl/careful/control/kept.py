"""A Unix socket that systemd keeps while nobody serves it.

Owns looking at it, which takes no place among those that wait to be served; whether somebody should
serve it is the caller's to know.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.1


def listens(path: Path) -> bool:
    """Reports whether somebody has a socket there that we may connect to.

    One of another type is refused before it would wait in line: with EPROTOTYPE where a process has
    the socket, with ECONNREFUSED where only its name was left (unix_find_bsd() of Linux). In any
    network namespace, other than /proc/net/unix.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        try:
            one.connect(str(path))
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return False


def wait(path: Path, served: Callable[[], object], seconds: float) -> None:
    """Wait until it is served, nobody listens any more, or time is over."""
    deadline = time.monotonic() + seconds
    while listens(path) and not served() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
