"""A message that is built in a send buffer of the device, from which it is sent.

The buffer cannot end while a view of it exists.
"""

from __future__ import annotations

import errno
import operator
from typing import TYPE_CHECKING

from careful._abi import CData, ffi, lib
from careful.errors import check
from careful.node.arguments import checked_handler, words
from careful.node.engine import Engine
from careful.node.operation import Operation

if TYPE_CHECKING:
    from careful.node.peer import Peer

_TEXTS = {
    -errno.EAGAIN: "a quarter of the send buffers (tx_buffers), or 64 with careful.attach(), "
    "hold unsent messages"
}


class Outgoing:
    """Room for the payload of a request (Node.outgoing()); end it once with send() or free().

    Attributes:
        payload: a writable view; numpy.frombuffer() makes an array from it.
    """

    def __init__(self, engine: Engine) -> None:
        raw = ffi.new("void **")
        engine.free_unsent()
        rc = lib.careful_alloc(engine.pointer, raw)
        payload_bytes = check(rc, engine.name, _TEXTS.get(rc, ""))
        self._engine = engine
        self._raw: CData = raw[0]
        self.payload = engine.view_of(self._raw, payload_bytes)
        engine.outgoing.add(self)

    def __del__(self) -> None:
        if getattr(self, "_raw", None) is not None:
            self._engine.unsent.append(self._raw)

    def release_views(self) -> None:
        """Releases the program's view. Raises BufferError: another view of the payload exists, an
        array or a slice.
        """
        nbytes = len(self.payload)
        self.payload.release()
        self.payload = memoryview(b"")
        if self._raw is not None and self._engine.has_views(self._raw):
            self.payload = self._engine.view_of(self._raw, nbytes)
            raise BufferError("another view of the message's payload exists: release it first")

    def _end(self, action: str) -> CData:
        """Ends the program's use of the buffer; returns the pointer that C knows."""
        if self._raw is None:
            raise RuntimeError(f"the message was sent or freed: it cannot be {action}")
        self.release_views()
        raw, self._raw = self._raw, None
        return raw

    def free(self) -> None:
        """Frees the buffer. Raises RuntimeError: the message was sent or freed. Raises BufferError:
        another view of the payload exists, an array or a slice.
        """
        check(lib.careful_free(self._engine.pointer, self._end("freed")), self._engine.name)

    def send(
        self, peer: Peer, handler: int, nbytes: int | None = None, args: tuple[int, ...] = ()
    ) -> Operation:
        """Sends the message to a handler, as Peer.request() does, without a copy.

        Args:
            peer: the receiver.
            handler: its number at the peer.
            nbytes: how many bytes of the payload, from its start; None: all.
            args: up to four words of 32 bits.

        Raises:
            ValueError: `nbytes` is more than the payload has.
            RuntimeError, BufferError: as free().
            CarefulError: as Peer.request(); the message is lost.
        """
        count = len(self.payload) if nbytes is None else operator.index(nbytes)
        if self._raw is not None and not 0 <= count <= len(self.payload):
            raise ValueError(f"{count} bytes do not fit the payload of {len(self.payload)}")
        target = checked_handler(handler), words(args)
        raw = self._end("sent")
        return peer.begin(lib.careful_send, None, *target, raw, count, unsent=raw)
