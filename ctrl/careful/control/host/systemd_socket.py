"""Probes a Unix socket that systemd keeps while nobody serves it, without a connection."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.1


def listens(path: Path) -> bool:
    """Reports whether a process listens on a socket that we may connect to.

    A connect() of another socket type fails before it queues: with EPROTOTYPE if a process has the
    socket, with ECONNREFUSED if only the name is left (unix_find_bsd() of Linux). Unlike
    /proc/net/unix, this works in any network namespace.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return False


def wait(path: Path, served: Callable[[], object], seconds: float) -> None:
    """Waits until the socket is served, nobody listens any longer, or time is over."""
    deadline = time.monotonic() + seconds
    while listens(path) and not served() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
