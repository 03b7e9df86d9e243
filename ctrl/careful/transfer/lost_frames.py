"""Frames lost between this host and a peer, as both ends counted them; --on-loss fail."""

from __future__ import annotations

import errno
from typing import NamedTuple

from careful._abi import CData, lib
from careful.daemon.client import AsyncClient, peers_of
from careful.errors import LossError, Option

#: Bytes of a frame besides its payload: Ethernet, IPv6, UDP, our headers, and a digest behind it.
_HEADERS_BYTES = 14 + 40 + 8 + 48 + 48 + 8
#: Statuses of a lost or damaged block: ask for it again.
LOST = (-errno.ECONNRESET, -errno.EBADMSG, -errno.EMSGSIZE, -errno.ECOMM)


class Lost(NamedTuple):
    """Losses in some time.

    Attributes:
        frames: never arrived, or only after later ones; found by either end.
        epochs: new epochs, because of losses or for another reason.
    """

    frames: int = 0
    epochs: int = 0


class Losses:
    """Counts losses from begin() on.

    Args:
        ipc: the connection to the local carefuld.
        peer: index of the peer, from BlockClient.connect().
        host: the peer's name in errors.
        fail: whether a loss ends the transfer.
    """

    def __init__(self, ipc: AsyncClient, peer: int, host: str, fail: bool) -> None:
        self._ipc, self._slot, self._host = ipc, peer & 0xFFFF, host
        self._fail = fail
        self._before = Lost()
        self._failure: LossError | None = None
        #: Payload of the largest frame to the peer, bytes; 0: unknown.
        self.payload_bytes = 0

    async def begin(self) -> None:
        info = await self._info()
        if info is not None:
            self._before = _lost(info)
            self.payload_bytes = max(0, info.frame_bytes - _HEADERS_BYTES)

    async def so_far(self) -> Lost:
        """Returns the losses since begin(), including those of other transfers with the peer."""
        info = await self._info()
        now = _lost(info) if info is not None else self._before
        return Lost(
            *(max(0, count - before) for count, before in zip(now, self._before, strict=True))
        )

    async def check(self, status: int) -> None:
        """Raises LossError if the -errno of an operation is a loss that ends the transfer."""
        if not self._fail or status not in LOST:
            return
        lost = await self.so_far()
        if status == -errno.EBADMSG:
            cause = "data arrived damaged"
        elif status in (-errno.EMSGSIZE, -errno.ECOMM):
            cause = "the network lost a frame again and again"
        elif lost.frames:
            cause = f"the network lost {lost.frames} frame{'s' * (lost.frames > 1)}"
        else:  # the peer restarted or its MTU changed: no loss
            return
        self._fail = False  # lets the clean-up use the network
        text = (f"{cause} (", Option.FAIL_ON_LOSS, ")")
        self._failure = LossError(errno.ECONNABORTED, text, self._host)
        raise self._failure

    def check_end(self) -> None:
        """Raises check()'s error again: check() may have run in a task that nobody awaited."""
        if self._failure is not None:
            raise self._failure

    async def _info(self) -> CData:
        answer = await self._ipc.ask(lib.CAREFUL_IPC_PEERS)
        return next((one for one in peers_of(answer.payload) if one.slot == self._slot), None)


def _lost(info: CData) -> Lost:
    return Lost(info.lost_here + info.lost_there, info.epochs)
