"""Checks that a peer still has its slot; after it leaves, another host may get the slot.

Each session has its own cookie. While the cookie in the peers map stays the same, the peer has the
slot; otherwise the check asks carefuld.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from careful.control.instance import maps
from careful.errors import CarefulError


class LeftError(CarefulError):
    """The peer is no longer in its slot, so its controller must not touch the slot."""


class Tenancy:
    """The time in which a peer has its slot. Once over, it stays over.

    peer: the peer's name for people; has_slot: asks carefuld whether the peer has the slot.
    """

    def __init__(self, instance: str, slot: int, peer: str, has_slot: Callable[[], bool]) -> None:
        self._peers = maps.peers_map(instance)
        self._slot, self._peer, self._has_slot = slot, peer, has_slot
        self._cookie = 0  # cookie of the session at the last positive answer
        self.is_over = False

    def close(self) -> None:
        self._peers.close()

    def check(self) -> None:
        cookie = int(maps.session(self._peers, self._slot).cookie)
        if not cookie or cookie != self._cookie:
            # There is no cookie between two sessions of the same peer, nor after its last.
            self.is_over = self.is_over or not self._has_slot()
            self._cookie = cookie
        if self.is_over:
            raise LeftError(errno.ENOTCONN, "the peer no longer has its slot", self._peer)
