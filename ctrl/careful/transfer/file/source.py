"""A source that changes while it is copied: what is let pass, and what is told of it.

A file that only grew, as a log does, is copied as it was at the start: what was copied is
compared by digest with what the source holds now. It calls nothing but the caller's comparison.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from careful.errors import CarefulError
from careful.transfer.options import Progress
from careful.transfer.protocol.entries import Attr

_CHANGED = "changed while it was being transferred"


def version(attr: Attr) -> tuple[int, ...]:
    """What is another once a file has changed, or is another file."""
    return attr.inode, attr.bytes, attr.mtime_ns, attr.ctime_ns


def may_hold(now: Attr, before: Attr) -> bool:
    """Reports whether a file is the one that it was, and may still hold what it held."""
    return now.inode == before.inode and now.bytes >= before.bytes


async def check_source(
    before: Attr,
    after: Attr,
    is_equal: Callable[[], Awaitable[bool]],
    name: str,
    progress: Progress,
) -> None:
    """Reports whether a source still holds what was copied of it.

    Args:
        before: what it was at the start: all of that was copied.
        after: what it is now.
        is_equal: asked where it has changed, whether it holds what was copied.
        name: of the source.
        progress: told if it has grown.

    Raises:
        CarefulError: it does not.
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
    """Reports whether a source has the size and time that it had.

    Raises:
        CarefulError: it has not.
    """
    if before != after:
        raise CarefulError(errno.ESTALE, _CHANGED, name)
