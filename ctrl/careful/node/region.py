"""Registered memory and file ranges, which gets and stores use."""

from __future__ import annotations

import errno
import struct

from careful._abi import Buffer, ffi, lib
from careful.errors import CarefulError, check
from careful.node.engine import Engine
from careful.node.memory import Span

ACCESS = {
    "r": int(lib.CAREFUL_REGION_READ),
    "w": int(lib.CAREFUL_REGION_WRITE),
    "rw": int(lib.CAREFUL_REGION_READ | lib.CAREFUL_REGION_WRITE),
}
NAMES = {number: name for name, number in ACCESS.items()}
#: A handle: key, access and bytes, big-endian.
HANDLE = struct.Struct(">IIQ")


class Region:
    """Memory or a part of a file that peers may use until remove() (Node.register()).

    The node holds the region until then, even if the program drops this object. `with` removes the
    region at the end.

    Attributes:
        handle: 16 bytes that name it to peers. A handler returns the handle or the region, or
            sends it in a payload; Peer.region() makes a RemoteRegion from it.
        key: the 32-bit number by which programs in C name it.
        access: "r", "w" or "rw".
        nbytes: its size.
    """

    def __init__(self, engine: Engine, source: object, access: str, peer: int) -> None:
        if access not in ACCESS:
            raise ValueError(f"access {access!r} must be one of {', '.join(ACCESS)}")
        self._engine = engine
        pointer = engine.pointer
        self._span = Span(source, access)
        self.only = peer
        self.access = access
        self.nbytes = self._span.nbytes
        region = ffi.new(
            "struct careful_region *",
            {"span": self._span.span, "bytes": self.nbytes, "access": ACCESS[access], "peer": peer},
        )
        key = ffi.new("uint32_t *")
        rc = lib.careful_region_add(pointer, region, key)
        if rc < 0:
            self._span.release()
        texts = {
            -errno.ENOSPC: "all regions are in use",
            -errno.EOPNOTSUPP: "without /proc/self/mem, peers can use only Node.memory()",
        }
        check(rc, engine.name, texts.get(rc, ""))
        self.key = int(key[0])
        self.handle = HANDLE.pack(self.key, ACCESS[access], self.nbytes)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Region {self.key:#010x} of {self.nbytes} bytes>"

    @property
    def memory(self) -> Buffer:
        """Returns the registered object; None after remove()."""
        return self._span.source

    def try_remove(self) -> bool:
        """Removes the region unless messages are using it; reports whether it is gone."""
        if self._span.source is None:
            return True
        if not self._engine.closed:
            rc = lib.careful_region_remove(self._engine.pointer, self.key)
            if rc == -errno.EBUSY:
                return False
            check(rc, f"{self._engine.name}: {self!r}")
        self._span.release()
        return True

    def release_buffers(self) -> None:
        """Releases the memory after the instance has ended."""
        self._span.release()

    def remove(self, timeout_s: float = 5.0) -> None:
        """Removes the region once no message is using it. Raises CarefulError: messages still use
        it when the time is over; or a handler, which cannot wait, is the caller (EBUSY).
        """
        if self.try_remove():
            return
        if self._engine.inside or not self._engine.wait_until(self.try_remove, timeout_s):
            text = "messages are still reading or writing it"
            raise CarefulError(errno.EBUSY, text, f"{self._engine.name}: {self!r}")
