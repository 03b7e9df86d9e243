"""The local end of a stream: standard input or output, null:, a device, a part of a file.

Owns how each is opened. A device or an existing file is written in place, where its readers see it
half-written, so the user must ask for this.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TextIO

from careful.errors import CarefulError, about, shown
from careful.transfer.file.partial_file import Partial, sync_directory
from careful.transfer.folder import exists_error
from careful.transfer.options import Options

STDIO = "-"
NULL = "null:"


@dataclass(frozen=True)
class Span:
    """A part of a file.

    Attributes:
        offset: where it begins in the source, bytes.
        nbytes: its length; None: to the end.
        at: its offset in an existing target; None: the target is made.
    """

    offset: int = 0
    nbytes: int | None = None
    at: int | None = None

    @property
    def is_whole(self) -> bool:
        """Reports whether the span is the default, the whole file."""
        return self == Span()


def is_device(path: str) -> bool:
    """Reports whether a local path is a block device."""
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


def _open_device(path: str, at: int, options: Options) -> int:
    """Opens a local device or file to write it in place."""
    if not options.replace:
        raise exists_error(shown(path), "overwrites")
    flags = os.O_RDWR if options.checksum else os.O_WRONLY
    flags |= os.O_CLOEXEC | (os.O_EXCL if is_device(path) else 0)
    with about(shown(path)):
        fd = os.open(path, flags)
        os.lseek(fd, at, os.SEEK_SET)
    return fd


def _standard(stream: TextIO | None) -> int:
    """Returns the descriptor of standard input or output. Raises CarefulError if it is closed:
    another file may then have its number.
    """
    if stream is None:
        raise CarefulError(errno.EBADF, "is closed", STDIO)
    return stream.fileno()


class Sink:
    """The local end that receives the bytes of a get."""

    def __init__(self, target: str, span: Span, mode: int, options: Options) -> None:
        self.fd: int | None = None
        self._sync = options.fsync != "none"  # of one file, "end" means the file's end
        self._partial: Partial | None = None
        self._is_device = False
        if target == NULL:
            return
        if target == STDIO:
            self.fd = _standard(sys.stdout)
        elif span.at is not None or is_device(target):
            self.fd = _open_device(target, span.at or 0, options)
            self._is_device = True
        else:
            self._partial = Partial(target, 0, mode, options.replace)
            self.fd = self._partial.fd

    def finish(self, is_complete: bool) -> None:
        """Syncs the file and gives it its name, or removes it if it is incomplete."""
        if self._partial is not None:
            if is_complete:
                self._partial.commit(self._sync)
                if self._sync:
                    sync_directory(os.path.dirname(self._partial.path))
            else:
                self._partial.discard()
        elif self._is_device and self.fd is not None:
            try:
                if is_complete and self._sync:
                    os.fsync(self.fd)
            finally:
                os.close(self.fd)


def open_source(source: str, offset: int) -> tuple[int | None, int]:
    """Opens a local source; returns a descriptor (None: zeros) and permission bits for a copy."""
    if source == NULL:
        return None, 0o644
    if source == STDIO:
        fd = os.dup(_standard(sys.stdin))
        while offset and (piece := os.read(fd, min(offset, 1 << 20))):  # it may not be able to seek
            offset -= len(piece)
        return fd, 0o644
    with about(shown(source)):
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        os.lseek(fd, offset, os.SEEK_SET)
        return fd, stat.S_IMODE(mode) & 0o777
