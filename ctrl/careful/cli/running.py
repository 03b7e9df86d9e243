"""Runs a command's requests to a peer, to their end or to a signal.

Owns how long a command waits for a carefuld that ended meanwhile.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Self, TypeVar

import click

from careful import cancelled
from careful.daemon.route import Route
from careful.errors import FATAL, CarefulError, LossError, OtherReleaseError, SilenceError
from careful.transfer.protocol.block import BlockClient
from careful.transfer.run.session import connected

_T = TypeVar("_T")
Work = Callable[[BlockClient], Coroutine[object, None, _T]]
#: Time between two attempts to reconnect, seconds.
_LOOK_S = 0.5
#: Errors that end a connection.
_GONE = FATAL | {errno.ECONNRESET}


class Outlasting:
    """Waits until a carefuld that ended, here or at the peer, is up again.

    Args:
        patience_s: longest time without data, seconds; 0: do not wait.
        again: whether the command can be run again with the same words.
    """

    def __init__(self, patience_s: float, again: bool = True) -> None:
        self.patience_s = patience_s
        self._again = again
        #: True after the first connection; before, an error ends the command.
        self.begun = False
        self._until = 0.0
        self._first: CarefulError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Replaces this process by the new carefulctl if carefuld was upgraded meanwhile.

        The same command then resumes. If the new program cannot speak with carefuld either, it
        reports the error and ends, since it never had a connection.
        """
        is_upgraded = isinstance(error, OtherReleaseError) and self.begun
        if is_upgraded and self.patience_s and self._again:
            with suppress(OSError):
                text = "carefulctl: carefuld was upgraded; continuing with the installed command"
                click.echo(text, err=True)
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def wait(self, error: CarefulError, has_moved: bool = False, is_way: bool = False) -> bool:
        """Waits before the next try. Returns True at the first failure since data last moved.

        Args:
            error: the error of the last try.
            has_moved: whether the last try moved data.
            is_way: the error is about the way to the host: carefuld is not up here, or is starting.

        Raises:
            CarefulError: `error` if no try can help; the first failure if patience_s is over.
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
    """Does work(peer) in a session of its own; signals cancel it, as by cancelled.run().

    Raises CarefulError: the peer cannot be reached, or the work failed.
    """

    async def session() -> _T:
        async with connected(route) as remote:
            return await work(remote)

    return cancelled.run(session())
