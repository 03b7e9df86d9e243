"""A peer as a program uses it; a session that ended while the program paused is renewed."""

from __future__ import annotations

import errno
from collections.abc import Callable

from careful._abi import Buffer, CData, enum_names, ffi, lib
from careful.address import Address
from careful.errors import CarefulError, check
from careful.node.arguments import checked_handler, payload_of, words
from careful.node.engine import Engine
from careful.node.memory import SPAN_MAX, Span
from careful.node.operation import TOO_LARGE, Operation
from careful.node.region import HANDLE, NAMES

_STATES = enum_names("careful_peer_state", "CAREFUL_PEER_")
_TEXTS = {-errno.EMSGSIZE: TOO_LARGE}
_MOVE_TEXTS = {
    -errno.EMSGSIZE: "without /proc/self/mem, other memory moves at most memory_bytes at a time"
}


class Peer:
    """A host that this program has, or had, a session with (Node.connect(), Message.peer).

    Attributes:
        index: its slot on this host.
        address: its address.
        name: its name in errors.
        failed: whether its session failed.
        lost_operation: whether an operation failed too; then only connect() opens a new session.
    """

    def __init__(self, engine: Engine, index: int, name: str = "") -> None:
        self._engine = engine
        self._is_detached = False
        self.failed = self.lost_operation = False
        self.index = index
        raw = ffi.addressof(self._info(), "address")
        self.address = Address.from_sockaddr(bytes(ffi.buffer(raw)))
        self.name = name or str(self.address)

    def __repr__(self) -> str:
        return f"<Peer {self.name}, {self.state}>"

    def _info(self) -> CData:
        info = ffi.new("struct careful_peer_info *")
        if not self._is_detached:
            lib.careful_peer_info(self._engine.pointer, self.index, info)  # all 0 if it fails
        return info

    @property
    def state(self) -> str:
        """Returns none, connecting, up, stalled, renewing or failed."""
        return _STATES[self._info().state]

    @property
    def error(self) -> int:
        """Returns the positive errno of the failure; 0: the peer has not failed."""
        return int(self._info().last_errno)

    @property
    def payload_bytes(self) -> int:
        """Returns the most bytes that a request to the peer, or its reply, can carry. Raises
        CarefulError: there is no session (EAGAIN).
        """
        rc = lib.careful_payload_bytes(self._usable_pointer(), self.index)
        return check(rc, self.name, "there is no session" if rc == -errno.EAGAIN else "")

    def detach(self) -> None:
        """Detaches this object from its slot, which is free."""
        self._is_detached = True

    def close(self) -> None:
        """Ends the session; operations on their way end with ECONNRESET in the next poll.

        With carefuld, a get without a copy ends only when nothing can write to its memory.
        """
        if not self._is_detached:
            check(self._engine.run(lib.careful_peer_close, self.index), self.name)
            if self._engine.driver is not None:
                self._engine.driver.wake()

    def _usable_pointer(self) -> CData:
        """Returns the C instance, to use it for this peer.

        Renews a session that ended while no operation was on its way: the peer gives up a program
        that does not poll for stall_ms, and no caller has seen an error.
        """
        pointer = self._engine.pointer
        self._engine.catch_up()
        if self._is_detached:
            raise CarefulError(errno.ENOTCONN, "the session has ended", self.name)
        if self.failed and not self.lost_operation:
            self._renew(pointer)
        return pointer

    def _renew(self, pointer: CData) -> None:
        self.failed = False
        raw = ffi.from_buffer(self.address.sockaddr())
        args = (ffi.cast("struct sockaddr *", raw), len(raw))
        try:
            if self._engine.inside:
                check(lib.careful_peer(pointer, *args), self.name)
            else:
                check(self._engine.run(lib.careful_peer, *args), self.name)
        except BaseException:
            self.failed = True  # the next operation tries again
            raise

    def in_use(self) -> int:
        """Returns the peer's slot; raises CarefulError if the slot belongs to another peer."""
        self._usable_pointer()
        return self.index

    def begin(
        self,
        function: Callable[..., int],
        span: Span | None,
        *args: object,
        unsent: CData = None,
    ) -> Operation:
        """Returns an operation that a C function begins, now or as soon as there is room.

        unsent: a send buffer among the arguments; freed if the operation never begins.
        """
        operation = Operation(self._engine, self, span)
        self._engine.operations.add(operation)  # before C gets the handle
        has_begun = False

        def begin(*call: object) -> int:
            nonlocal has_begun
            has_begun = True  # set first: an interrupt may hide C's answer
            try:
                rc = function(*call)
            except (OverflowError, TypeError):  # C cannot take an argument
                has_begun = False
                raise
            has_begun = not rc
            return rc

        def free_unsent(_: object = None) -> None:
            if unsent is not None and not has_begun:
                self._engine.unsent.append(unsent)

        texts = _TEXTS if span is None else _MOVE_TEXTS
        try:
            self._start(begin, operation.fail, texts, *args, lib.on_done, operation.handle)
        except BaseException:  # may come from another operation's callback
            if not has_begun:
                operation.drop()
            free_unsent()
            raise
        operation.add_done_callback(free_unsent)
        return operation

    def _start(
        self,
        function: Callable[..., int],
        fail: Callable[[int], object],
        texts: dict[int, str],
        *args: object,
    ) -> None:
        """Calls a C function, now or as soon as there is room; `fail` receives a later errno.
        Raises CarefulError: the call failed at once.
        """
        self._usable_pointer()

        def start() -> int:
            return (
                -errno.ENOTCONN
                if self._is_detached
                else function(self._engine.pointer, self.index, *args)
            )

        rc = self._engine.begin(self, start, fail)
        check(rc, self.name, texts.get(rc, ""))

    def request(self, handler: int, payload: Buffer = b"", args: tuple[int, ...] = ()) -> Operation:
        """Runs a handler at the peer; its reply ends the operation. Raises CarefulError: the
        payload is too large (EMSGSIZE), or the peer has failed.

        Args:
            handler: its number at the peer.
            payload: any contiguous buffer of at most payload_bytes; copied.
            args: up to four words of 32 bits.
        """
        return self.begin(lib.careful_request, None, *_request_arguments(handler, payload, args))

    def send(self, handler: int, payload: Buffer = b"", args: tuple[int, ...] = ()) -> None:
        """Sends a request that needs no reply; raises as request()."""
        arguments = _request_arguments(handler, payload, args)
        self._start(lib.careful_request, bool, _TEXTS, *arguments, ffi.NULL, ffi.NULL)

    def region(self, handle: bytes | int) -> RemoteRegion:
        """Returns a region of the peer, to store into and get from. Raises ValueError: `handle` is
        not valid.

        Args:
            handle: the peer's Region.handle, as received in a payload; or the bare key
                of a C program.
        """
        return RemoteRegion(self, handle)


def _request_arguments(handler: int, payload: Buffer, args: tuple[int, ...]) -> tuple[object, ...]:
    """Returns the arguments of careful_request(), with a copy of the payload: it may wait."""
    data = payload_of(payload)
    if not isinstance(payload, bytes):
        data = ffi.from_buffer(bytes(ffi.buffer(data)))
    return checked_handler(handler), words(args), data, len(data)


class RemoteRegion:
    """A region of a peer (Peer.region()): stores write into it, gets read from it.

    Attributes:
        peer: the owner.
        key: the peer's name for the region.
        access: "r", "w", "rw"; "" if only a bare key is known.
        nbytes: its size; 0 if only a bare key is known.
    """

    def __init__(self, peer: Peer, handle: bytes | int) -> None:
        self.peer = peer
        self.access, self.nbytes = "", 0
        if isinstance(handle, int):
            self.key = handle
            return
        if len(handle) != HANDLE.size:
            raise ValueError(f"a region's handle has {HANDLE.size} bytes, not {len(handle)}")
        self.key, access, self.nbytes = HANDLE.unpack(handle)
        if access not in NAMES:
            raise ValueError(f"{bytes(handle)!r} is not the handle of a region")
        self.access = NAMES[access]

    def __repr__(self) -> str:
        return f"<RemoteRegion {self.key:#010x} of {self.peer.name}, {self.nbytes} bytes>"

    def store(
        self,
        source: object,
        offset: int = 0,
        *,
        handler: int | None = None,
        args: tuple[int, ...] = (),
        digest: bool = True,
    ) -> Operation:
        """Writes bytes into the region; then runs a handler at the peer, if one is named. Raises
        CarefulError: the peer has failed. Raises ValueError: 4 GiB or more at a time.

        Args:
            source: a contiguous buffer, a FileRange or an open file; held, and not to be
                changed, until the operation has ended.
            offset: where in the region, bytes.
            handler: its number at the peer, or None.
            args: for the handler, up to four words of 32 bits.
            digest: whether the peer checks the bytes against their XXH3.
        """
        number = lib.CAREFUL_HANDLERS if handler is None else checked_handler(handler)
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(source, "r")
        local = ffi.new("struct careful_span *", span.span)
        arguments = (self.key, offset, local, span.nbytes, number, words(args), flags)
        return self.peer.begin(lib.careful_store, span, *arguments)

    def get(self, target: object, offset: int = 0, *, digest: bool = True) -> Operation:
        """Reads bytes from the region, as many as the target holds. Raises CarefulError: the peer
        has failed. Raises ValueError: 4 GiB or more at a time.

        Args:
            target: a writable contiguous buffer, or a FileRange with a length; held
                until the operation has ended.
            offset: where in the region, bytes.
            digest: whether to check the bytes here against their XXH3.
        """
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(target, "w")
        local = ffi.new("struct careful_span *", span.span)
        return self.peer.begin(lib.careful_get, span, self.key, offset, local, span.nbytes, flags)


def _span(source: object, access: str) -> Span:
    span = Span(source, access)
    if span.nbytes > SPAN_MAX:
        nbytes = span.nbytes
        span.release()
        raise ValueError(f"{nbytes} bytes are too many: at most {SPAN_MAX} at a time")
    return span
