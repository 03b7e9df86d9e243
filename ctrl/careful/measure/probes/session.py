"""A session with one peer, or with several, through carefuld, for the time of a measurement."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Self, TypeVar

from careful.daemon.client import Client
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes.diagnose import OVER, explained

#: Pause between two attempts to connect to a peer that restarts, seconds.
_PAUSE_S = 0.05

_T = TypeVar("_T")


class Session:
    """Base class of measuring sessions, connected by routes through one carefuld until `with` ends.

    If a peer restarts, connects again for at most twice the timeout of the first route.

    Raises CarefulError: careful is not up on all hosts, or too old for `_prepare`.
    """

    def __init__(self, route: Route, *more: Route) -> None:
        self._routes = (route, *more)
        self.host = ", ".join(each.host for each in self._routes)
        self._address = route.address
        self._own = f"carefuld of {route.instance}"
        #: Number of restarts of a peer.
        self.restarts = 0
        self._client = Client(route.socket, self._own)
        try:
            self._connect(())
        except BaseException:
            self._client.close()
            raise

    def _connect(self, patiently: tuple[int, ...]) -> None:
        """Connects all sessions; tries again if one session is over, or after `patiently`."""
        self._connecting = True
        deadline = time.monotonic() + self._routes[0].timeout_s
        while True:
            try:
                self._peers = [
                    self._client.connect(each.address, each.host, each.timeout_s).peer
                    for each in self._routes
                ]
                self._peer = self._peers[0]
                self._prepare()
                break
            except CarefulError as error:
                again = self._is_over(error) or error.errno in patiently
                if not again or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)
        self._connecting = False

    def _prepare(self) -> None:
        """Asks the peer for the data that the first probe needs."""

    def _is_over(self, error: CarefulError) -> bool:
        """Reports whether a peer's session is over; the end of our own carefuld is final."""
        return error.errno in OVER and error.what != self._own

    def _repeated(self, ask: Callable[[], _T]) -> _T:
        """Asks; if a session is over, connects again and asks once more."""
        try:
            return ask()
        except CarefulError as error:
            if self._connecting or not self._is_over(error):
                raise
        self._connect((errno.ECONNREFUSED,))
        self.restarts += 1
        return ask()

    def _explained(self, error: CarefulError, size_bytes: int) -> CarefulError:
        return explained(error, self._own, self.host, self._address, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
