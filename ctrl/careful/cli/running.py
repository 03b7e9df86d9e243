"""What a command asks of a peer, run to its end or to a signal.

Owns the event loop, and that SIGINT, SIGTERM and SIGHUP end it cleanly: what is under way is
cancelled, and cleans up; and how long a command waits for a carefuld that ended under it. It calls
transfer/run/session.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Self, TypeVar

import click

from careful.daemon.route import Route
from careful.errors import (
    FATAL,
    CarefulError,
    Ended,
    LossError,
    OtherReleaseError,
    SilenceError,
)
from careful.transfer.protocol.block import BlockClient
from careful.transfer.run.session import connected

_T = TypeVar("_T")
Work = Callable[[BlockClient], Coroutine[object, None, _T]]
#: Between two looks at whether a connection can be had again, seconds.
_LOOK_S = 0.5
#: What ends a connection.
_GONE = FATAL | {errno.ECONNRESET}


class Outlasting:
    """How long a command waits for a carefuld that ended, here or at the peer, to be up again.

    Args:
        patience_s: from when nothing came any more, seconds; 0: not at all.
        again: whether the command's words mean the same when they are read again.
    """

    def __init__(self, patience_s: float, again: bool = True) -> None:
        self.patience_s = patience_s
        self._again = again
        #: Whether there was a connection: before, an error is the command's end.
        self.begun = False
        self._until = 0.0
        self._first: CarefulError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """If carefuld was upgraded under the command, become the carefulctl that came with it.

        The same command goes on with what is there. Where that cannot speak with carefuld either,
        it says so and ends: nothing had begun.
        """
        is_upgraded = isinstance(error, OtherReleaseError) and self.begun
        if is_upgraded and self.patience_s and self._again:
            with suppress(OSError):
                text = "carefulctl: carefuld was upgraded; goes on as the command that is installed"
                click.echo(text, err=True)
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def wait(self, error: CarefulError, has_moved: bool = False, is_way: bool = False) -> bool:
        """Wait a little, to try again; whether this is the first time since something came.

        Args:
            error: what ended the last try.
            has_moved: whether it brought anything.
            is_way: it only looked for a way: carefuld is not up here, or just begins.

        Raises:
            CarefulError: the first one since then; there is no going on, or time is up.
        """
        is_gone = error.errno in _GONE or (is_way and error.errno != errno.EPROTO)
        if not (is_gone and self.begun and self.patience_s) or isinstance(
            error, LossError | SilenceError
        ):
            raise error
        now = time.monotonic()
        is_first = self._first is None or has_moved
        if is_first:
            self._first, self._until = error, now + self.patience_s
        elif now >= self._until:
            assert self._first is not None
            raise self._first
        time.sleep(min(_LOOK_S, max(0.0, self._until - now)))
        return is_first


def run(route: Route, work: Work[_T]) -> _T:
    """Do work(peer) in a session of its own.

    Raises:
        CarefulError: the peer cannot be reached, or the work failed.
        Ended: SIGTERM or SIGHUP came, which our parent does not ignore.
        KeyboardInterrupt: SIGINT came.
    """
    found: list[_T] = []
    asyncio.run(_guarded(route, work, found))
    return found[0]


async def _guarded(route: Route, work: Work[_T], found: list[_T]) -> None:
    """Do it, and put what it found there.

    Not returned: asyncio.run() ends by signal.getsignal(), which formats the handler, its task, and
    what that returned. Of 10,000 files this took 15 ms.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, end, number)
    try:
        async with connected(route) as remote:
            found.append(await work(remote))
    except asyncio.CancelledError:
        if received:
            raise Ended(received[0]) from None
        raise
