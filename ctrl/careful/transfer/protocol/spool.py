"""A peer's listing in a file without a name: it is read a page at a time, whatever its size.

Owns the file. The records are entries.py's; the listing is got by block.py.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from typing import Self

from careful.errors import CarefulError, from_os
from careful.transfer.protocol.entries import Entry, parse_page, without_records

#: A listing up to this lies in memory, bytes.
_MEMORY_BYTES = 4 << 20
#: Where the system does not say what is free, bytes.
_ANY_BYTES = 8 << 30
#: How much of it is taken apart at a time, bytes.
_PAGE_BYTES = 256 << 10


def available_bytes() -> int:
    """Memory that can be had without swapping (MemAvailable, proc(5))."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return _ANY_BYTES


class Spool:
    """A listing; `with` it, or close() it.

    Args:
        nbytes: of its records, which are to be written to `fd`.
        unreadable: entries that could not be read; some have no record.
        more: entries without records.

    Attributes:
        fd: of the file.

    Raises:
        CarefulError: there is no room for it.
    """

    def __init__(self, nbytes: int = 0, unreadable: int = 0, more: tuple[Entry, ...] = ()) -> None:
        self.nbytes, self.unreadable, self._more = nbytes, unreadable, more
        try:
            if nbytes > _MEMORY_BYTES:
                with tempfile.TemporaryFile(prefix="careful-listing-") as file:
                    self.fd = os.dup(file.fileno())
            else:
                self.fd = os.memfd_create("careful-listing", os.MFD_CLOEXEC)
        except OSError as error:
            raise from_os(error, f"listing in {tempfile.gettempdir()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it."""
        os.close(self.fd)

    def data(self) -> bytes:
        """All its records."""
        return os.pread(self.fd, self.nbytes, 0)

    def pages(self) -> Iterator[list[Entry]]:
        """Its entries, many at a time, and one for all that have no record.

        Raises:
            CarefulError: it is none, or has a name that leads out.
        """
        yield list(self._more)
        at, errors, rest = 0, 0, b""
        while at < self.nbytes:
            piece = os.pread(self.fd, min(_PAGE_BYTES, self.nbytes - at), at)
            if not piece:
                raise CarefulError(errno.EPROTO, "the listing ended early")
            at += len(piece)
            page, used = parse_page(rest + piece)
            rest = (rest + piece)[used:]
            errors += sum(entry.error != 0 for entry in page)
            yield page
        if rest:
            raise CarefulError(errno.EPROTO, "the listing ends in the middle of an entry")
        yield without_records(self.unreadable - errors)
