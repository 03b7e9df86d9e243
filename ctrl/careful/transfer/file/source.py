"""Opens a source here, and checks a source that changes while it is copied.

A file that only grew, like a log, is copied as it was at the start: a comparison by digest shows
that the source still holds the copied bytes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable, Callable

from careful.errors import CarefulError, about, shown
from careful.transfer.file.partial_file import prepare_read
from careful.transfer.folder import open_file
from careful.transfer.options import Progress
from careful.transfer.protocol.entries import Attr, local_attr

_CHANGED = "changed while it was being transferred"


def open_source(path: str, root: str | None) -> tuple[int, Attr]:
    """Opens a regular file to copy it; returns descriptor and attributes. Follows no symlink below
    `root`. Raises CarefulError: the file cannot be read, or is not regular.
    """
    with about(shown(path)):
        fd = open_file(path, root)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CarefulError(errno.EINVAL, "is not a regular file", shown(path))
        fd = prepare_read(fd, shown(path))
        return fd, local_attr(os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise


def version(attr: Attr) -> tuple[int, ...]:
    """Returns the attributes that differ if a file has changed, or is another one."""
    return attr.inode, attr.bytes, attr.mtime_ns, attr.ctime_ns


def may_hold(now: Attr, before: Attr) -> bool:
    """Reports whether a file is the same one and at least as large."""
    return now.inode == before.inode and now.bytes >= before.bytes


async def check_source(
    before: Attr,
    after: Attr,
    is_equal: Callable[[], Awaitable[bool]],
    name: str,
    progress: Progress,
) -> None:
    """Raises CarefulError unless a source still holds the bytes that were copied from it.

    is_equal: compares them after a change. progress: is notified if the source has grown.
    """
    if version(before) == version(after):
        return
    if not may_hold(after, before) or not await is_equal():
        raise CarefulError(errno.ESTALE, _CHANGED, name)
    if after.bytes > before.bytes:
        progress.note(
            f"{name}: grew during the transfer; its first {before.bytes} bytes were copied"
        )


def check_same(before: tuple[int, int], after: tuple[int, int], name: str) -> None:
    """Raises CarefulError unless size and time of a source are unchanged."""
    if before != after:
        raise CarefulError(errno.ESTALE, _CHANGED, name)
