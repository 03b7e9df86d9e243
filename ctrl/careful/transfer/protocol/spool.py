"""A peer's listing in an unnamed file, read a page at a time, whatever its size."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator

from careful.closing import Closing
from careful.errors import CarefulError, about
from careful.transfer.protocol.entries import Entry, parse_page, without_records

#: Listings up to this size lie in memory, bytes.
_MEMORY_BYTES = 4 << 20
#: Free memory if the system does not report it, bytes.
_ANY_BYTES = 8 << 30
#: How much of a listing is parsed at a time, bytes.
_PAGE_BYTES = 256 << 10


def available_bytes() -> int:
    """Returns the memory available without swapping (MemAvailable, proc(5)), bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return _ANY_BYTES


class Spool(Closing):
    """A listing; end it with `with` or close(). Raises CarefulError: there is no room for it.

    Args:
        nbytes: size of its records, which the caller writes to `fd`.
        unreadable: entries that could not be read; some have no record.
        more: entries without records.
    """

    def __init__(self, nbytes: int = 0, unreadable: int = 0, more: tuple[Entry, ...] = ()) -> None:
        self.nbytes, self.unreadable, self._more = nbytes, unreadable, more
        with about(f"listing in {tempfile.gettempdir()}"):
            if nbytes > _MEMORY_BYTES:
                with tempfile.TemporaryFile(prefix="careful-listing-") as file:
                    self.fd = os.dup(file.fileno())
            else:
                self.fd = os.memfd_create("careful-listing", os.MFD_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)

    def data(self) -> bytes:
        return os.pread(self.fd, self.nbytes, 0)

    def pages(self) -> Iterator[list[Entry]]:
        """Yields the entries, many at a time, and one more for all entries without a record."""
        yield list(self._more)
        at, errors, rest = 0, 0, b""
        while at < self.nbytes:
            chunk = os.pread(self.fd, min(_PAGE_BYTES, self.nbytes - at), at)
            if not chunk:
                raise CarefulError(errno.EPROTO, "the listing ended early")
            at += len(chunk)
            page, used = parse_page(rest + chunk)
            rest = (rest + chunk)[used:]
            errors += sum(entry.error != 0 for entry in page)
            yield page
        if rest:
            raise CarefulError(errno.EPROTO, "the listing ends in the middle of an entry")
        yield without_records(self.unreadable - errors)
