"""A session with one peer through carefuld, for the time of a measurement."""

from __future__ import annotations

from typing import Self

from careful.daemon.client import Client
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes.diagnose import explained


class Session:
    """Base class of measuring sessions, connected by a route until `with` ends.

    Raises:
        CarefulError: careful is not up on both hosts, or too old for `_prepare`.
    """

    def __init__(self, route: Route) -> None:
        self.host, self._address = route.host, route.address
        self._own = f"carefuld of {route.instance}"
        self._client = Client(route.socket, self._own)
        try:
            self._peer = self._client.connect(route.address, route.host, route.timeout_s).peer
            self._prepare()
        except BaseException:
            self._client.close()
            raise

    def _prepare(self) -> None:
        """Asks the peer for what the first probe needs."""

    def _explained(self, error: CarefulError, size_bytes: int) -> CarefulError:
        return explained(error, self._own, self.host, self._address, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
