"""The route to a peer: which local carefuld to use, and the peer's address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from careful.address import Address


@dataclass(frozen=True)
class Route:
    """How to reach a peer's tree.

    Attributes:
        socket: of the local carefuld.
        instance: its name in errors.
        address: of the peer.
        host: the peer's name in errors.
        timeout_s: limit of the handshake, and of the peer's silence afterwards, seconds.
    """

    socket: Path
    instance: str
    address: Address
    host: str
    timeout_s: float = 5.0
