"""How a peer is reached: which carefuld of ours, and the peer's address. It calls nobody."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from careful.address import Address


@dataclass(frozen=True)
class Route:
    """How to reach a peer's tree.

    Attributes:
        socket: of our own carefuld.
        instance: what errors call it.
        address: of the peer.
        host: what errors call the peer.
        timeout_s: for the handshake, and how long the peer may be silent then, seconds.
    """

    socket: Path
    instance: str
    address: Address
    host: str
    timeout_s: float = 5.0
