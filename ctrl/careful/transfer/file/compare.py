"""Compares files by their blocks' digests, without moving them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from careful._abi import lib
from careful.errors import check, from_os, shown
from careful.transfer.file.partial_file import digest_of_range, settled
from careful.transfer.file.source import may_hold
from careful.transfer.folder import open_file
from careful.transfer.protocol.block import Attr, BlockClient
from careful.transfer.tasks import SLICE_BYTES, in_slices, quietly


class BlockSizes:
    """The sizes of a file's blocks. Uses no memory per block: a peer may announce any count."""

    def __init__(self, nbytes: int, block_bytes: int) -> None:
        self.nbytes, self.block_bytes = nbytes, block_bytes

    def __len__(self) -> int:
        return -(-self.nbytes // self.block_bytes)

    def __getitem__(self, index: int) -> int:
        return min(self.block_bytes, self.nbytes - index * self.block_bytes)

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, range(len(self)))


def block_sizes(nbytes: int, block_bytes: int) -> BlockSizes:
    """Returns the sizes of a file's blocks."""
    return BlockSizes(nbytes, block_bytes)


async def equal_blocks(
    remote: BlockClient, handle: int, sizes: tuple[int, int], fd: int, block_bytes: int, path: str
) -> dict[int, int]:
    """Finds the blocks that two files have in common, at the same places.

    `sizes` are the bytes of the peer's file and of ours.

    Returns:
        Block numbers and digests (XXH3).
    """
    theirs, mine = (block_sizes(size, block_bytes) for size in sizes)
    common = [a for a, b in zip(theirs, mine, strict=False) if a == b]
    found = await remote.digests(handle, 0, sum(common), block_bytes, path) if common else []
    return await held(fd, dict(enumerate(found)), mine, block_bytes)


async def held(
    fd: int, blocks: dict[int, int], sizes: BlockSizes, block_bytes: int
) -> dict[int, int]:
    """Returns the blocks, with their digests (XXH3), that a local file still has."""

    def digest(index: int) -> int:
        return digest_of_range(fd, index * block_bytes, sizes[index])

    own = await in_slices(digest, blocks, block_bytes)
    return {index: a for (index, a), b in zip(blocks.items(), own, strict=True) if a == b}


async def is_all_equal(
    remote: BlockClient, handle: int, nbytes: int, fd: int, block_bytes: int, path: str
) -> bool:
    """Reports whether two files begin with the same bytes; see equal_blocks()."""
    same = await equal_blocks(remote, handle, (nbytes, nbytes), fd, block_bytes, path)
    return len(same) == len(block_sizes(nbytes, block_bytes))


async def still_holds(
    remote: BlockClient,
    source: str,
    attr: Attr,
    span: tuple[int, int],
    came: dict[int, int],
    block_bytes: int,
) -> bool:
    """Reports whether a peer's file, which has changed, still holds what came from it.

    `span` is the offset and the bytes of the range that came; `came` has each block's XXH3, by
    number. Without digests (`block_bytes` is 0) the answer is no.
    """
    if not block_bytes:
        return False
    handle, now = await remote.open(source)
    try:
        if not may_hold(now, attr):
            return False
        found = await remote.digests(handle, *span, block_bytes, source)
        return found == list(came.values())
    finally:
        await quietly(remote.close(handle, source))


def open_old(path: str, folder: int | None = None) -> int:
    """Opens a path, in a directory, to read it; returns -1 unless it is a regular file."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        fd = os.open(path, flags, dir_fd=folder)
    except OSError:
        return -1
    if not os.path.isfile(f"/proc/self/fd/{fd}"):
        os.close(fd)
        return -1
    return fd


async def copy_into(old: int, new: int, nbytes: int, name: str) -> None:
    """Copies the first `nbytes` of an old file into a new one. Raises CarefulError: the old file
    cannot be read, or there is no room.
    """

    def copy(at: int) -> None:
        check(lib.careful_copy(old, new, at, min(SLICE_BYTES, nbytes - at)), name)

    await in_slices(copy, range(0, nbytes, SLICE_BYTES), SLICE_BYTES)


async def is_same(
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None = None
) -> str:
    """Returns how a peer's file and a local file differ, in words, or "".

    If one is a larger block device, only the size of the other counts. No symlink is followed
    below `root`.

    Raises:
        CarefulError: a file cannot be read.
    """
    there, here, same = await _compared(remote, source, target, block_bytes, False, root)
    if there != here:
        return f"{there} bytes there, {here} here"
    count = len(block_sizes(here, block_bytes))
    first = next((index for index in range(count) if index not in same), None)
    if first is None:
        return ""
    return f"{count - len(same)} of {count} blocks differ, the first at byte {first * block_bytes}"


async def common_bytes(
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None = None
) -> tuple[int, bool]:
    """Returns the number of bytes that two files share, and whether the files are equal.

    Arguments and errors are those of is_same().
    """
    there, here, same = await _compared(remote, source, target, block_bytes, True, root)
    sizes = block_sizes(max(there, here), block_bytes)
    return sum(sizes[index] for index in same), there == here and len(same) == len(sizes)


async def _compared(
    remote: BlockClient,
    source: str,
    target: str,
    block_bytes: int,
    parts: bool,
    root: str | None = None,
) -> tuple[int, int, dict[int, int]]:
    """Returns both sizes and the common blocks; without `parts`, only of files of one size."""
    try:
        fd = open_file(target, root)
    except OSError as error:
        raise from_os(error, shown(target)) from None
    handle = 0
    try:
        if not os.fstat(fd).st_blocks:
            fd = settled(fd, shown(target))
        handle, attr = await remote.open(source)
        there, here = attr.bytes, os.lseek(fd, 0, os.SEEK_END)
        is_device = attr.is_device or stat.S_ISBLK(os.fstat(fd).st_mode)
        if is_device and attr.is_device == (there > here):
            there = here = min(there, here)
        same: dict[int, int] = {}
        if parts or there == here:
            name = remote.name(shown(source))
            same = await equal_blocks(remote, handle, (there, here), fd, block_bytes, name)
        return there, here, same
    finally:
        os.close(fd)
        if handle:
            await quietly(remote.close(handle, source))
