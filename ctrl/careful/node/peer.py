"""A peer as a program uses it: requests, stores, gets, and its end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from careful._abi import enum_names, ffi, lib
from careful.address import Address
from careful.errors import CarefulError, check
from careful.node.engine import Engine
from careful.node.memory import SPAN_MAX, Span
from careful.node.message import payload_of, words
from careful.node.operation import Operation

_STATES = enum_names("careful_peer_state", "CAREFUL_PEER_")
_BUSY = "too many operations are on their way: poll() until some have ended"

Then = Callable[[Operation], object]


class Peer:
    """A host that we have, or had, a session with (Node.connect(), Message.peer).

    Attributes:
        index: its slot here.
        address: where it is.
        name: what errors call it.
    """

    def __init__(self, engine: Engine, index: int, name: str = "") -> None:
        self._engine = engine
        self._gone = False
        self.index = index
        raw = ffi.addressof(self._info(), "address")
        self.address = Address.from_sockaddr(bytes(ffi.buffer(raw)))
        self.name = name or str(self.address)

    def __repr__(self) -> str:
        return f"<Peer {self.name}, {self.state}>"

    def _info(self) -> Any:
        info = ffi.new("struct careful_peer_info *")
        if not self._gone:
            lib.careful_peer_info(self._engine.pointer, self.index, info)  # or all 0
        return info

    @property
    def state(self) -> str:
        """none, connecting, up, stalled, renewing or failed."""
        return _STATES[self._info().state]

    @property
    def error(self) -> int:
        """Why it failed, a positive errno; 0: it did not."""
        return int(self._info().last_errno)

    @property
    def payload_bytes(self) -> int:
        """The most that a request to it, or its reply, can carry.

        Raises:
            CarefulError: there is no session (EAGAIN).
        """
        rc = lib.careful_payload_bytes(self._live(), self.index)
        return check(rc, self.name, "there is no session" if rc == -errno.EAGAIN else "")

    def _forget(self) -> None:
        """Its slot is free: this object names nobody any more."""
        self._gone = True

    def close(self) -> None:
        """End the session; what is on its way ends with ECONNRESET."""
        if not self._gone:
            check(self._engine.run(lib.careful_peer_close, self.index), self.name)

    def _live(self) -> Any:
        pointer = self._engine.pointer
        if self._gone:
            raise CarefulError(errno.ENOTCONN, "the session has ended", self.name)
        return pointer

    def _in_use(self) -> int:
        """Its slot, while that is its own."""
        self._live()
        return self.index

    def _begin(
        self, function: Callable[..., int], span: Span | None, then: Then | None, *args: Any
    ) -> Operation:
        operation = Operation(self._engine, self, span, then)
        self._engine.operations.add(operation)  # before C has its handle
        try:
            self._refused(function(self._live(), self.index, *args, lib.on_done, operation._handle))
        except Exception:  # not an interrupt: C may have the handle then
            operation._drop()
            raise
        return operation

    def _refused(self, rc: int) -> None:
        text = _BUSY if rc == -errno.EAGAIN else ""
        if rc == -errno.EMSGSIZE:
            text = "the payload is too large for one frame (payload_bytes); store or get it"
        check(rc, self.name, text)

    def request(
        self, handler: int, payload: Any = b"", args: tuple[int, ...] = (), then: Then | None = None
    ) -> Operation:
        """Run a handler there; its reply ends the operation.

        Args:
            handler: its number, 0 to 127 for applications.
            payload: any contiguous buffer, at most payload_bytes; copied.
            args: up to four words of 32 bits.
            then: called with the operation when it has ended.

        Raises:
            CarefulError: the payload is too large (EMSGSIZE), too many are on their
                way (EAGAIN), or the peer has failed.
        """
        data = payload_of(payload)
        asked = (_number(handler), words(args), data, len(data))
        return self._begin(lib.careful_request, None, then, *asked)

    def send(self, handler: int, payload: Any = b"", args: tuple[int, ...] = ()) -> None:
        """A request that wants no reply; raises as request()."""
        data = payload_of(payload)
        asked = (_number(handler), words(args), data, len(data), ffi.NULL, ffi.NULL)
        self._refused(lib.careful_request(self._live(), self.index, *asked))

    def store(
        self,
        key: int,
        source: Any,
        offset: int = 0,
        *,
        handler: int | None = None,
        args: tuple[int, ...] = (),
        digest: bool = True,
        then: Then | None = None,
    ) -> Operation:
        """Put bytes into a region there; when all are in place, run a handler, if named.

        Args:
            key: of the region.
            source: a contiguous buffer, a FileRange or an open file; held, and to be
                left as it is, until the operation has ended.
            offset: where in the region, bytes.
            handler: its number there, or None.
            args: for the handler.
            digest: whether the bytes are checked there against their XXH3.
            then: called with the operation when it has ended.

        Raises:
            CarefulError: too many are on their way (EAGAIN), or the peer has failed.
            ValueError: 4 GiB or more at a time.
        """
        number = lib.CAREFUL_HANDLERS if handler is None else _number(handler)
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(source, "r")
        local = ffi.new("struct careful_span *", span.span)
        moved = (key, offset, local, span.nbytes, number, words(args), flags)
        return self._begin(lib.careful_store, span, then, *moved)

    def get(
        self,
        key: int,
        target: Any,
        offset: int = 0,
        *,
        digest: bool = True,
        then: Then | None = None,
    ) -> Operation:
        """Fetch bytes of a region there: as many as the target holds.

        Args:
            key: of the region.
            target: a writable contiguous buffer, or a FileRange with a length; held
                until the operation has ended.
            offset: where in the region, bytes.
            digest: whether the bytes are checked here against their XXH3.
            then: called with the operation when it has ended.

        Raises:
            CarefulError: too many are on their way (EAGAIN), or the peer has failed.
            ValueError: 4 GiB or more at a time.
        """
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(target, "w")
        local = ffi.new("struct careful_span *", span.span)
        return self._begin(lib.careful_get, span, then, key, offset, local, span.nbytes, flags)


def _number(handler: int) -> int:
    if not 0 <= handler < lib.CAREFUL_HANDLERS:
        raise ValueError(f"handler {handler}: 0 to {lib.CAREFUL_HANDLERS - 1}")
    return handler


def _span(what: Any, access: str) -> Span:
    span = Span(what, access)
    if span.nbytes > SPAN_MAX:
        nbytes = span.nbytes
        span.release()
        raise ValueError(f"{nbytes} bytes at a time; {SPAN_MAX} is the most")
    return span
