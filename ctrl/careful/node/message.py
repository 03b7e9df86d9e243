"""What a handler is given, and what it gives back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from careful._abi import ffi, lib
from careful.errors import check
from careful.node.engine import Engine

if TYPE_CHECKING:
    from careful.node.peer import Peer
    from careful.node.region import Region


_TOO_LARGE = "the reply is too large for one frame (payload_bytes)"


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
                large (EMSGSIZE), too much is waiting to be sent (EAGAIN).
        """
        if self.sent:
            raise RuntimeError("the request has been answered")
        answer = as_reply(reply)
        payload = payload_of(answer.payload)
        args = words(answer.args)
        rc = lib.careful_reply_late(
            self._engine.pointer, self._to, answer.status, args, payload, len(payload)
        )
        check(rc, self._peer.name, _TOO_LARGE if rc == -errno.EMSGSIZE else "")
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

    def _answer(self, value: Any) -> None:
        """Answer a request with what its handler returned, unless that was left open.

        Raises:
            CarefulError: as LateReply.send().
        """
        if self._late is None and not self._raw.region:
            LateReply(self._engine, self.peer, self._raw).send(value)

    def _fail(self, status: int) -> None:
        """Answer a request whose handler raised, unless it has been answered."""
        if self._late is None:
            self._answer(Reply(status=status))
        elif not self._late.sent:
            self._late.send(Reply(status=status))

    def _over(self) -> None:
        """The handler has returned: C's message is gone."""
        self._raw = None


Handler = Callable[[Message], Any]


def as_reply(value: Any) -> Reply:
    """What a handler returned, as a Reply: None is an empty one, a buffer its payload."""
    if value is None:
        return Reply()
    return value if isinstance(value, Reply) else Reply(value)


def payload_of(value: Any) -> Any:
    """A payload for C.

    Raises:
        TypeError, ValueError: it is no contiguous buffer.
    """
    if isinstance(value, str):
        raise TypeError("a payload is bytes or another buffer, not str: encode it")
    return ffi.from_buffer(value)


def words(args: tuple[int, ...]) -> Any:
    """Up to four words for C.

    Raises:
        ValueError: more than four.
        OverflowError: one does not fit 32 bits.
    """
    if len(args) > lib.CAREFUL_AM_ARGS:
        raise ValueError(f"a message has {lib.CAREFUL_AM_ARGS} args, not {len(args)}")
    return ffi.new("uint32_t[]", [*args, 0, 0, 0, 0][: lib.CAREFUL_AM_ARGS])
