"""Registered memory and file ranges: ours, and those of peers, which get and store use.

Owns the handle by which a program hands a region over. Whose memory it is knows memory.py;
what begins a get or a store is peer.py.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

from careful._abi import ffi, lib
from careful.errors import CarefulError, check
from careful.node.arguments import handler_number, words
from careful.node.engine import Engine
from careful.node.memory import SPAN_MAX, Span

if TYPE_CHECKING:
    from careful.node.operation import Operation
    from careful.node.peer import Peer

ACCESS = {
    "r": int(lib.CAREFUL_REGION_READ),
    "w": int(lib.CAREFUL_REGION_WRITE),
    "rw": int(lib.CAREFUL_REGION_READ | lib.CAREFUL_REGION_WRITE),
}
_NAMES = {number: name for name, number in ACCESS.items()}
#: A handle: key, access and bytes, big-endian.
_HANDLE = struct.Struct(">IIQ")


class Region:
    """Memory or a part of a file that peers may use until remove() (Node.register()).

    The node holds it until then, whether somebody holds this object or not. `with`
    removes it at the end.

    Attributes:
        handle: 16 bytes that name it to peers: a handler returns them, or the region, or
            puts them beside other things; Peer.region() makes a RemoteRegion of them.
        key: the number by which programs in C name it, of 32 bits.
        access: "r", "w" or "rw".
        nbytes: of it.
    """

    def __init__(self, engine: Engine, what: Any, access: str, peer: int) -> None:
        if access not in ACCESS:
            raise ValueError(f"access {access!r}: one of {', '.join(ACCESS)}")
        self._engine = engine
        pointer = engine.pointer
        self._span = Span(what, access)
        self.only = peer
        self.access = access
        self.nbytes = self._span.nbytes
        region = ffi.new(
            "struct careful_region *",
            {
                "span": self._span.span,
                "bytes": self.nbytes,
                "access": ACCESS[access],
                "peer": peer,
            },
        )
        key = ffi.new("uint32_t *")
        rc = lib.careful_region_add(pointer, region, key)
        if rc < 0:
            self._span.release()
        texts = {
            -errno.ENOSPC: "all regions are in use",
            -errno.EOPNOTSUPP: "without /proc/self/mem, memory for peers is of Node.memory()",
        }
        check(rc, engine.what, texts.get(rc, ""))
        self.key = int(key[0])
        self.handle = _HANDLE.pack(self.key, ACCESS[access], self.nbytes)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Region {self.key:#010x} of {self.nbytes} bytes>"

    @property
    def memory(self) -> Any:
        """The object that was registered; None once it is removed."""
        return self._span.what

    def try_remove(self) -> bool:
        """Take it back unless messages are reading or writing it now."""
        if self._span.what is None:
            return True
        if not self._engine.closed:
            rc = lib.careful_region_remove(self._engine.pointer, self.key)
            if rc == -errno.EBUSY:
                return False
            check(rc, f"{self._engine.what}: {self!r}")
        self._span.release()
        return True

    def let_go(self) -> None:
        """Release the memory; the instance has ended."""
        self._span.release()

    def remove(self, timeout_s: float = 5.0) -> None:
        """Take it back, waiting for messages that are reading or writing it.

        Raises:
            CarefulError: they still do when the time is over (EBUSY), or this is
                called by a handler, which cannot wait.
        """
        if self.try_remove():
            return
        if self._engine.inside or not self._engine.wait_until(self.try_remove, timeout_s):
            text = "messages are still reading or writing it"
            raise CarefulError(errno.EBUSY, text, f"{self._engine.what}: {self!r}")


class RemoteRegion:
    """A region of a peer (Peer.region()): store bytes into it, get bytes from it.

    Attributes:
        peer: whose it is.
        key: names it there.
        access: "r", "w", "rw"; "" where a bare key was given.
        nbytes: of it; 0 where a bare key was given.
    """

    def __init__(self, peer: Peer, handle: bytes | int) -> None:
        self.peer = peer
        self.access, self.nbytes = "", 0
        if isinstance(handle, int):
            self.key = handle
            return
        if len(handle) != _HANDLE.size:
            raise ValueError(f"a region's handle has {_HANDLE.size} bytes, not {len(handle)}")
        self.key, access, self.nbytes = _HANDLE.unpack(handle)
        if access not in _NAMES:
            raise ValueError(f"{bytes(handle)!r} is not the handle of a region")
        self.access = _NAMES[access]

    def __repr__(self) -> str:
        return f"<RemoteRegion {self.key:#010x} of {self.peer.name}, {self.nbytes} bytes>"

    def store(
        self,
        source: Any,
        offset: int = 0,
        *,
        handler: int | None = None,
        args: tuple[int, ...] = (),
        digest: bool = True,
    ) -> Operation:
        """Put bytes into it; when all are in place, run a handler there, if named.

        Args:
            source: a contiguous buffer, a FileRange or an open file; held, and to be
                left as it is, until the operation has ended.
            offset: where in the region, bytes.
            handler: its number there, or None.
            args: for the handler, up to four words of 32 bits.
            digest: whether the bytes are checked there against their XXH3.

        Raises:
            CarefulError: the peer has failed.
            ValueError: 4 GiB or more at a time.
        """
        number = lib.CAREFUL_HANDLERS if handler is None else handler_number(handler)
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(source, "r")
        local = ffi.new("struct careful_span *", span.span)
        moved = (self.key, offset, local, span.nbytes, number, words(args), flags)
        return self.peer.begin(lib.careful_store, span, *moved)

    def get(self, target: Any, offset: int = 0, *, digest: bool = True) -> Operation:
        """Fetch bytes of it: as many as the target holds.

        Args:
            target: a writable contiguous buffer, or a FileRange with a length; held
                until the operation has ended.
            offset: where in the region, bytes.
            digest: whether the bytes are checked here against their XXH3.

        Raises:
            CarefulError: the peer has failed.
            ValueError: 4 GiB or more at a time.
        """
        flags = 0 if digest else lib.CAREFUL_NO_DIGEST
        span = _span(target, "w")
        local = ffi.new("struct careful_span *", span.span)
        return self.peer.begin(lib.careful_get, span, self.key, offset, local, span.nbytes, flags)


def _span(what: Any, access: str) -> Span:
    span = Span(what, access)
    if span.nbytes > SPAN_MAX:
        nbytes = span.nbytes
        span.release()
        raise ValueError(f"{nbytes} bytes at a time; {SPAN_MAX} is the most")
    return span
