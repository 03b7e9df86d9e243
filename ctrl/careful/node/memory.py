"""Memory and file ranges that C reads and writes, held as long as it may.

Owns the pin: a buffer cannot be resized or freed while it is in a span, a file's
descriptor is our own. A span's end is whoever made it to say.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from careful._abi import ffi

#: The most that one store or get moves, bytes.
SPAN_MAX = 0xFFFFFFFF


@dataclass(frozen=True)
class FileRange:
    """A part of a file.

    Attributes:
        file: an open file, or its descriptor; it may be closed afterwards.
        offset: where the part begins, bytes.
        nbytes: of the part; None: to the file's end as it is now.
    """

    file: Any
    offset: int = 0
    nbytes: int | None = None


class Span:
    """What C was given, kept alive.

    Args:
        what: an object with a contiguous buffer (bytes, bytearray, mmap, a NumPy
            array ...), a FileRange, or an open file.
        writable: whether C will write there.

    Raises:
        TypeError, ValueError, BufferError: no such buffer, or it is read-only.
        OSError: of the file.
    """

    def __init__(self, what: Any, writable: bool) -> None:
        self.what = what
        self._buffer: Any = None
        self._fd = -1
        if not isinstance(what, FileRange) and hasattr(what, "fileno") and not _has_buffer(what):
            what = FileRange(what)
        if isinstance(what, FileRange):
            self._open_file(what)
        else:
            self._buffer = ffi.from_buffer("uint8_t[]", what, require_writable=writable)
            self.nbytes = len(self._buffer)
            self.span = {"base": self._buffer, "fd": -1}

    def _open_file(self, part: FileRange) -> None:
        fd = part.file if isinstance(part.file, int) else part.file.fileno()
        nbytes = part.nbytes
        if nbytes is None:
            nbytes = max(0, os.fstat(fd).st_size - part.offset)
        if part.offset < 0 or nbytes < 0:
            raise ValueError("a file range has no negative offset or length")
        self.nbytes = nbytes
        self._fd = os.dup(fd)
        self.span = {"base": ffi.NULL, "fd": self._fd, "offset": part.offset}

    def release(self) -> None:
        """Let go; C uses it no more."""
        if self._buffer is not None:
            ffi.release(self._buffer)
            self._buffer = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.what = None

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


def _has_buffer(what: Any) -> bool:
    """Whether an object has a buffer of its own (an mmap has a descriptor, too)."""
    try:
        memoryview(what).release()
    except TypeError:
        return False
    return True
