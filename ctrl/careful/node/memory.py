"""Memory and file ranges that C reads and writes.

While a span exists, its buffer cannot be resized or freed, and its file has a descriptor of our
own. The creator of a span ends it.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from dataclasses import dataclass
from typing import Any

from careful._abi import Buffer, CData, ffi

#: The most bytes that one store or get moves.
SPAN_MAX = 0xFFFFFFFF


@dataclass(frozen=True)
class FileRange:
    """A part of a file.

    Attributes:
        file: an open file, or its descriptor; the caller may close it afterwards.
        offset: where the part begins, bytes.
        nbytes: length of the part; None: to the present end of the file.
    """

    file: Any
    offset: int = 0
    nbytes: int | None = None


class Span:
    """Memory or a file range that C uses, kept alive.

    Args:
        source: an object with a contiguous buffer (bytes, bytearray, mmap, a NumPy
            array ...), a FileRange, or an open file.
        access: whether C reads it ("r"), writes it ("w") or both ("rw").

    Raises:
        TypeError, ValueError, BufferError: there is no such buffer, or it is read-only.
        io.UnsupportedOperation: the file is not open for this access, or is not seekable.
        OSError: the file cannot be examined.
    """

    def __init__(self, source: object, access: str) -> None:
        self.source = source
        self._buffer: CData = None
        self._fd = -1
        has_buffer = _has_buffer(source)
        if not has_buffer and hasattr(source, "fileno"):
            source = FileRange(source)
        if isinstance(source, FileRange):
            self._open_file(source, access)
        elif not has_buffer:
            text = "must be an object with a contiguous buffer, a FileRange or an open file"
            raise TypeError(f"{text}, not {type(source).__name__}")
        else:
            self._buffer = ffi.from_buffer("uint8_t[]", source, require_writable="w" in access)
            self.nbytes = len(self._buffer)
            self.span = {"base": self._buffer, "fd": -1}

    def _open_file(self, file_range: FileRange, access: str) -> None:
        fd = file_range.file
        if not isinstance(fd, int):
            getattr(fd, "flush", bool)()  # C reads from the kernel, not from Python's buffer
            fd = fd.fileno()
        status, mode = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISBLK(status.st_mode):
            raise io.UnsupportedOperation(f"{file_range.file!r} is not a regular file")
        if "w" in access and mode == os.O_RDONLY:
            raise io.UnsupportedOperation(f"{file_range.file!r} is not open for writing")
        if "r" in access and mode == os.O_WRONLY:
            raise io.UnsupportedOperation(f"{file_range.file!r} is not open for reading")
        nbytes = file_range.nbytes
        if nbytes is None:
            nbytes = max(0, status.st_size - file_range.offset)
        if file_range.offset < 0 or nbytes < 0:
            raise ValueError("offset and length of a file range must not be negative")
        self.nbytes = nbytes
        self._fd = os.dup(fd)
        self.span = {"base": ffi.NULL, "fd": self._fd, "offset": file_range.offset}

    def release(self) -> None:
        """Releases the buffer or descriptor; C no longer uses it."""
        if self._buffer is not None:
            ffi.release(self._buffer)
            self._buffer = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.source = None

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


def _has_buffer(source: Buffer) -> bool:
    """Reports whether an object has a buffer; an mmap has both a buffer and a descriptor."""
    try:
        memoryview(source).release()
    except TypeError:
        return False
    return True
