"""A Unix socket that systemd keeps while nobody serves it: who connects waits.

Owns the waiting; whether somebody should serve it is the caller's to know.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from careful.errors import CarefulError

_LOOK_MS = 100


@contextmanager
def _in_line(path: Path) -> Iterator[socket.socket | None]:
    """A connection; None: nobody listens there, or lets us.

    Raises:
        CarefulError: so many wait already that there is no room for another.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.setblocking(False)
        try:
            one.connect(str(path))
        except BlockingIOError:
            text = "nobody serves it yet, and many wait for that already"
            raise CarefulError(errno.EAGAIN, text, str(path)) from None
        except OSError:
            yield None
        else:
            yield one


def listens(path: Path) -> bool:
    """Whether somebody listens there.

    Raises:
        CarefulError: so many wait already that there is no room for another.
    """
    with _in_line(path) as line:
        return line is not None


def wait(path: Path, served: Callable[[], object], seconds: float) -> None:
    """Wait until it is served, nobody listens any more, or time is over.

    Raises:
        CarefulError: as listens().
    """
    deadline = time.monotonic() + seconds
    with _in_line(path) as line:
        if line is None:
            return
        poller = select.poll()
        poller.register(line, 0)  # a hang-up is told of all the same
        while not served() and time.monotonic() < deadline:
            if poller.poll(_LOOK_MS):
                return
