"""Memory and file ranges that C reads and writes, held as long as it may.

Owns the pin: a buffer cannot be resized or freed while it is in a span, a file's
descriptor is our own. A span's end is whoever made it to say.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from dataclasses import dataclass
from typing import Any

from careful._abi import Buffer, CData, ffi

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
        access: whether C reads it ("r"), writes it ("w") or both ("rw").

    Raises:
        TypeError, ValueError, BufferError: no such buffer, or it is read-only.
        io.UnsupportedOperation: the file is not open for that, or none that has places.
        OSError: of the file.
    """

    def __init__(self, what: object, access: str) -> None:
        self.what = what
        self._buffer: CData = None
        self._fd = -1
        has_buffer = _has_buffer(what)
        if not has_buffer and hasattr(what, "fileno"):
            what = FileRange(what)
        if isinstance(what, FileRange):
            self._open_file(what, access)
        elif not has_buffer:
            text = "an object with a contiguous buffer, a FileRange or an open file is wanted"
            raise TypeError(f"{text}, not {type(what).__name__}")
        else:
            self._buffer = ffi.from_buffer("uint8_t[]", what, require_writable="w" in access)
            self.nbytes = len(self._buffer)
            self.span = {"base": self._buffer, "fd": -1}

    def _open_file(self, part: FileRange, access: str) -> None:
        fd = part.file
        if not isinstance(fd, int):
            getattr(fd, "flush", bool)()  # C sees what the kernel has
            fd = fd.fileno()
        status, mode = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISBLK(status.st_mode):
            raise io.UnsupportedOperation(f"{part.file!r} is not a regular file")
        if "w" in access and mode == os.O_RDONLY:
            raise io.UnsupportedOperation(f"{part.file!r} is not open for writing")
        if "r" in access and mode == os.O_WRONLY:
            raise io.UnsupportedOperation(f"{part.file!r} is not open for reading")
        nbytes = part.nbytes
        if nbytes is None:
            nbytes = max(0, status.st_size - part.offset)
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


def _has_buffer(what: Buffer) -> bool:
    """Reports whether an object has a buffer of its own (an mmap has a descriptor, too)."""
    try:
        memoryview(what).release()
    except TypeError:
        return False
    return True
