"""A session with one peer through carefuld, for the time of a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from careful.address import Address
from careful.daemon.client import Client
from careful.errors import CarefulError
from careful.measure.probes.diagnose import explained


class Session:
    """Base class of measuring sessions, connected until `with` ends.

    Args:
        socket: socket of our own carefuld.
        instance: its name in errors.
        address: the peer's address.
        host: the peer's name in errors.
        timeout_s: limit of the handshake, seconds.

    Raises:
        CarefulError: careful is not up here or there, or too old for `_prepare`.
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
        """Asks the peer for what the first probe needs."""

    def _explained(self, error: CarefulError, size_bytes: int) -> CarefulError:
        return explained(error, self._own, self.host, self._address, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
