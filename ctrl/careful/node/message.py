"""What a handler is given, and what it gives back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from careful._abi import ffi, lib
from careful.errors import check
from careful.node.arguments import payload_of, words
from careful.node.engine import Engine
from careful.node.region import Region

if TYPE_CHECKING:
    from careful.node.peer import Peer

_STATUS_MAX = 4096
_TEXTS = {
    -errno.EMSGSIZE: "the reply is too large for one frame (payload_bytes)",
    -errno.EAGAIN: f"{int(lib.CAREFUL_SMALL_MAX)} messages wait to be sent; poll, then again",
}


@dataclass(frozen=True)
class Reply:
    """The answer to a request.

    Attributes:
        payload: any contiguous buffer, at most the peer's payload_bytes.
        args: up to four words of 32 bits.
        status: 0, or a positive errno that fails the request.
    """

    payload: Any = b""
    args: tuple[int, ...] = ()
    status: int = 0


class LateReply:
    """The answer to a request that its handler left open (Message.later()).

    It can be given as long as the session lasts.

    Attributes:
        sent: whether it was given.
    """

    def __init__(self, engine: Engine, peer: Peer, raw: Any) -> None:
        self._engine = engine
        self._peer = peer
        self.sent = False
        self._to = ffi.new("struct careful_reply_to *")
        lib.careful_reply_name(raw, self._to)

    def send(self, reply: Reply | Any = None) -> None:
        """Answer, once: with a Reply, a payload, or nothing.

        Raises:
            RuntimeError: it was sent already.
            CarefulError: the session began anew (ECONNRESET), the payload is too
                large (EMSGSIZE), or too much waits to be sent (EAGAIN): poll, then again.
        """
        if self.sent:
            raise RuntimeError("the request has been answered")
        answer = as_reply(reply)
        payload = payload_of(answer.payload)
        args = words(answer.args)
        rc = lib.careful_reply_late(
            self._engine.pointer, self._to, answer.status, args, payload, len(payload)
        )
        check(rc, self._peer.name, _TEXTS.get(rc, ""))
        self.sent = True


class Message:
    """A request, or a store that is in its place.

    Attributes:
        peer: who sent it.
        handler: the number that it named.
        args: four words.
        payload: of a request, a copy; of a store b"", it is in the region.
        nbytes: of the payload, or stored.
        region: where a store went, or None.
        offset: where in the region, bytes.
    """

    def __init__(self, engine: Engine, raw: Any, peer: Peer, region: Region | None) -> None:
        self.peer = peer
        self.handler = int(raw.handler)
        self.args = tuple(raw.args)
        self.nbytes = int(raw.bytes)
        self.region = region
        self.offset = int(raw.region_off)
        self.payload = b""
        if raw.region == 0 and raw.bytes:
            self.payload = bytes(ffi.buffer(raw.payload, raw.bytes))
        self._engine = engine
        self._raw: Any = raw
        self._late: LateReply | None = None

    def later(self) -> LateReply:
        """Leave the answer open: what the handler returns is not sent.

        Raises:
            RuntimeError: the handler has returned, or this is a store.
        """
        if self._raw is None or self._raw.region:
            raise RuntimeError("only a request can be answered later, and its handler says so")
        if self._late is None:
            self._late = LateReply(self._engine, self.peer, self._raw)
        return self._late

    def answer(self, value: Any) -> None:
        """Answer a request with what its handler returned, unless that was left open.

        Raises:
            CarefulError: as LateReply.send().
        """
        if self._late is None and not self._raw.region:
            LateReply(self._engine, self.peer, self._raw).send(value)

    def fail(self, error: BaseException) -> None:
        """Answer a request whose handler raised, unless it has been answered."""
        if self._late is None:
            self.answer(failure(error, self.peer))
        elif not self._late.sent:
            self._late.send(failure(error, self.peer))

    def over(self) -> None:
        """The handler has returned: C's message is gone."""
        self._raw = None


Handler = Callable[[Message], Any]


def as_reply(value: Any) -> Reply:
    """What a handler returned, as a Reply: None is empty, a buffer or a region its payload."""
    if value is None:
        return Reply()
    if isinstance(value, Region):
        return Reply(value.handle)
    return value if isinstance(value, Reply) else Reply(value)


def failure(error: BaseException, peer: Peer) -> Reply:
    """The answer to a request whose handler raised: the errno, the class and the text."""
    number = error.errno if isinstance(error, OSError) else None
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace")
    status = number if number and 0 < number < _STATUS_MAX else errno.EIO
    return Reply(text[: peer.payload_bytes], status=status)
