"""Whether a peer still has its slot: when it has gone, another host may have it, settings and all.

Owns when carefuld is asked. A session has a cookie of its own: while it is the same, so is the
peer, and one look into the peers map says so. Calls control.maps.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from careful.control import maps
from careful.errors import CarefulError


class LeftError(CarefulError):
    """The peer is not in its slot any more: what is there is none of its controller's business."""


class Tenancy:
    """A peer's hold of a slot; once it is over it stays so.

    Args:
        instance: name of the instance.
        slot: which.
        peer: what people call the peer.
        asked: whether the peer has the slot, as carefuld says.
    """

    def __init__(self, instance: str, slot: int, peer: str, asked: Callable[[], bool]) -> None:
        self._peers = maps.peers_map(instance)
        self._slot, self._peer, self._asked = slot, peer, asked
        self._cookie = 0  # of the session that it was last said to have
        self.is_over = False

    def close(self) -> None:
        """Let go of the map."""
        self._peers.close()

    def check(self) -> None:
        """Raise LeftError unless the peer has its slot."""
        cookie = int(maps.session(self._peers, self._slot).cookie)
        if not cookie or cookie != self._cookie:
            # Between two sessions of the peer's own there is no cookie, nor after its last.
            self.is_over = self.is_over or not self._asked()
            self._cookie = cookie
        if self.is_over:
            raise LeftError(errno.ENOTCONN, "it is not in its slot any more", self._peer)
