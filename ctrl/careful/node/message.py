"""Messages that a handler receives, and the replies that it returns."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from careful._abi import Buffer, CData, ffi, lib
from careful.errors import CarefulError, check
from careful.node.arguments import payload_of, words
from careful.node.engine import Answers, Engine
from careful.node.region import Region

if TYPE_CHECKING:
    from careful.node.peer import Peer

_STATUS_MAX = 4096
#: The most answers to one peer that wait for room; a peer may send requests and read no answer.
_WAITING_MAX = 4 * int(lib.CAREFUL_SMALL_MAX)
_TEXTS = {
    -errno.EMSGSIZE: "the reply is too large for one frame (payload_bytes)",
    -errno.EAGAIN: f"{int(lib.CAREFUL_SMALL_MAX)} messages wait to be sent; poll, then try again",
}


@dataclass(frozen=True)
class Reply:
    """The answer to a request.

    Attributes:
        payload: any contiguous buffer, at most the peer's payload_bytes.
        args: up to four words of 32 bits.
        status: 0, or a positive errno that fails the request.
    """

    payload: Buffer = b""
    args: tuple[int, ...] = ()
    status: int = 0


class LateReply:
    """The answer to a request that its handler left open (Message.later()), while the session
    lasts.

    Attributes:
        sent: whether the answer was sent.
    """

    def __init__(self, engine: Engine, peer: Peer, raw: CData) -> None:
        self._engine = engine
        self._peer = peer
        self.sent = False
        self._to = ffi.new("struct careful_reply_to *")
        lib.careful_reply_name(raw, self._to)

    def send(self, reply: object = None) -> None:
        """Sends the answer, once: a Reply, a payload, or nothing. Raises RuntimeError: the answer
        was sent already. Raises CarefulError: the session is a new one (ECONNRESET), the payload is
        too large (EMSGSIZE), or there is no room (EAGAIN): poll, then try again.
        """
        self._note_sent(self._start(reply)())

    def send_with_room(self, reply: object, where: str) -> None:
        """Sends the answer as soon as there is room; a later failure goes to the hook."""

        def fail(number: int) -> None:
            self._engine.report_failure(CarefulError(number, "", self._peer.name), where)

        start, queue = self._start(reply, True), Answers(self._peer)
        is_full = self._engine.waiting(queue) >= _WAITING_MAX
        self._note_sent(-errno.EAGAIN if is_full else self._engine.begin(queue, start, fail))

    def _note_sent(self, rc: int) -> None:
        check(rc, self._peer.name, _TEXTS.get(rc, ""))
        self.sent = True

    def _start(self, reply: object, copies: bool = False) -> Callable[[], int]:
        """Returns a function that sends the answer.

        copies: whether the function copies the payload if there is no room, for the next call.
        """
        if self.sent:
            raise RuntimeError("the request has already been answered")
        answer = to_reply(reply)
        if not -_STATUS_MAX < answer.status < _STATUS_MAX:  # a reply has 12 bits for the status
            text = f"status {answer.status} must be 0, or a positive errno below {_STATUS_MAX}"
            raise ValueError(text)
        payload, args = payload_of(answer.payload), words(answer.args)

        def start() -> int:
            nonlocal payload, copies
            target = (self._engine.pointer, self._to)
            rc = int(lib.careful_reply_late(*target, answer.status, args, payload, len(payload)))
            if copies and rc == -errno.EAGAIN:
                payload, copies = ffi.from_buffer(bytes(ffi.buffer(payload))), False
            return rc

        return start


class Message:
    """A request, or a store that is complete.

    Attributes:
        peer: the sender.
        handler: the handler number in the message.
        args: four words.
        payload: a copy of a request's payload; b"" for a store, whose bytes are in the region.
        nbytes: length of the payload or of the store.
        region: the target of a store, or None.
        offset: where in the region, bytes.
    """

    def __init__(self, engine: Engine, raw: CData, peer: Peer, region: Region | None) -> None:
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
        self._raw: CData = raw
        self._late_reply: LateReply | None = None

    def later(self) -> LateReply:
        """Leaves the answer open: the handler's return value is not sent. Raises RuntimeError: the
        handler has returned, or this is a store.
        """
        if self._raw is None or self._raw.region:
            raise RuntimeError("later() works only for a request, while its handler runs")
        if self._late_reply is None:
            self._late_reply = LateReply(self._engine, self.peer, self._raw)
        return self._late_reply

    def answer(self, value: object, where: str) -> None:
        """Answers a request with its handler's return value, unless later() left the answer open.

        where: names the handler for the hook if sending fails later. Raises CarefulError: as
        LateReply.send(); EAGAIN: too many answers wait for room.
        """
        if self._late_reply is None and not self._raw.region:
            LateReply(self._engine, self.peer, self._raw).send_with_room(value, where)

    def fail(self, error: BaseException, where: str) -> None:
        """Answers a request whose handler raised, unless it has been answered."""
        if self._late_reply is None:
            self.answer(failure_reply(error, self.peer), where)
        elif not self._late_reply.sent:
            self._late_reply.send_with_room(failure_reply(error, self.peer), where)

    def drop(self) -> None:
        """Drops the C message; the handler has returned."""
        self._raw = None


Handler = Callable[[Message], object]


def to_reply(value: object) -> Reply:
    """Returns a handler's value as a Reply: None is empty, a buffer or region is the payload."""
    if value is None:
        return Reply()
    if isinstance(value, Region):
        return Reply(value.handle)
    return value if isinstance(value, Reply) else Reply(value)


def failure_reply(error: BaseException, peer: Peer) -> Reply:
    """Returns the reply for a handler's exception: errno, class and text."""
    number = error.errno if isinstance(error, OSError) else None
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace")
    status = number if number and 0 < number < _STATUS_MAX else errno.EIO
    return Reply(text[: peer.payload_bytes], status=status)
