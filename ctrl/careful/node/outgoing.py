"""A message that is built where it leaves from, in a send buffer of the device.

Owns the buffer from careful_alloc() to its end, and that it has none while somebody sees it.
"""

from __future__ import annotations

import errno
import operator
from typing import TYPE_CHECKING

from careful._abi import CData, ffi, lib
from careful.errors import check
from careful.node.arguments import handler_number, words
from careful.node.engine import Engine
from careful.node.operation import Operation

if TYPE_CHECKING:
    from careful.node.peer import Peer

_TEXTS = {
    -errno.EAGAIN: "a quarter of the send buffers (tx_buffers), or 64 beside carefuld, hold "
    "messages that were not sent",
}


class Outgoing:
    """Room for the payload of a request (Node.outgoing()); send() or free() ends it, once.

    Attributes:
        payload: a writable view of it; numpy.frombuffer() makes an array of that.
    """

    def __init__(self, engine: Engine) -> None:
        raw = ffi.new("void **")
        engine.take_back()
        rc = lib.careful_alloc(engine.pointer, raw)
        room = check(rc, engine.what, _TEXTS.get(rc, ""))
        self._engine = engine
        self._raw: CData = raw[0]
        self.payload = engine.seen(self._raw, room)
        engine.outgoing.add(self)

    def __del__(self) -> None:
        if getattr(self, "_raw", None) is not None:
            self._engine.unsent.append(self._raw)

    def unsee(self) -> None:
        """The program's view ends.

        Raises:
            BufferError: something else sees the payload: an array of it, or a part.
        """
        nbytes = len(self.payload)
        self.payload.release()
        self.payload = memoryview(b"")
        if self._raw is not None and self._engine.is_seen(self._raw):
            self.payload = self._engine.seen(self._raw, nbytes)
            raise BufferError("something else sees the payload of a message: let go of it first")

    def _end(self, what: str) -> CData:
        """What C knows it by, which is the program's no more: nothing sees it."""
        if self._raw is None:
            raise RuntimeError(f"the message was sent or freed: it cannot be {what}")
        self.unsee()
        raw, self._raw = self._raw, None
        return raw

    def free(self) -> None:
        """Give the buffer back.

        Raises:
            RuntimeError: it was sent or freed.
            BufferError: something else sees the payload: an array of it, or a part.
        """
        check(lib.careful_free(self._engine.pointer, self._end("freed")), self._engine.what)

    def send(
        self, peer: Peer, handler: int, nbytes: int | None = None, args: tuple[int, ...] = ()
    ) -> Operation:
        """Run a handler there, as Peer.request(); the payload leaves from where it stands.

        Args:
            peer: to whom.
            handler: its number there.
            nbytes: of the payload, from its begin; None: all.
            args: up to four words of 32 bits.

        Raises:
            ValueError: more bytes than there are.
            RuntimeError, BufferError: as free().
            CarefulError: as Peer.request(); the message is lost.
        """
        count = len(self.payload) if nbytes is None else operator.index(nbytes)
        if self._raw is not None and not 0 <= count <= len(self.payload):
            raise ValueError(f"{count} bytes: the payload has {len(self.payload)}")
        asked = handler_number(handler), words(args)
        raw = self._end("sent")
        taken = False

        def start(*call: object) -> int:
            nonlocal taken
            taken = True  # also where an interrupt hides what C answered
            rc = int(lib.careful_send(*call))
            taken = not rc
            return rc

        def left() -> None:
            if not taken:
                self._engine.unsent.append(raw)

        try:
            operation = peer.begin(start, None, *asked, raw, count)
        except BaseException:
            left()
            raise
        operation.add_done_callback(lambda _: left())
        return operation
