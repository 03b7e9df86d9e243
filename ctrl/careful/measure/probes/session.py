"""A session with one peer by way of carefuld, for as long as a measurement takes.

What is asked in it is exchange.py's and ping.py's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from careful.address import Address
from careful.daemon.client import Client
from careful.errors import CarefulError
from careful.measure.probes.diagnose import explained


class Session:
    """Connected while it exists; what derives from it asks.

    Args:
        socket: of our own carefuld.
        instance: what errors call it.
        address: of the peer.
        host: what errors call it.
        timeout_s: for the handshake, seconds.

    Raises:
        CarefulError: careful is not up here or there, or too old for what `_prepare` asks.
    """

    def __init__(
        self, socket: Path, instance: str, address: Address, host: str, timeout_s: float = 5.0
    ) -> None:
        self.host, self._address = host, address
        self._own = f"carefuld of {instance}"
        self._client = Client(socket, self._own)
        try:
            self._peer = self._client.connect(address, host, timeout_s).peer
            self._prepare()
        except BaseException:
            self._client.close()
            raise

    def _prepare(self) -> None:
        """What is asked before the first probe."""

    def _explained(self, error: CarefulError, size_bytes: int) -> CarefulError:
        """Explains an error to a person who measures."""
        return explained(error, self._own, self.host, self._address, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
