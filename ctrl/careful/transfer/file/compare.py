"""Compares files by their blocks' digests, without moving them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from careful._abi import lib
from careful.errors import about, check, shown
from careful.transfer.file.partial_file import digest_of_range, prepare_read
from careful.transfer.file.source import may_hold
from careful.transfer.folder import open_file
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr
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


@dataclass(frozen=True)
class Side:
    """A range of an open file at one end.

    Attributes:
        handle: of the peer's file, or our descriptor.
        bytes: from the range's start to its end, or to the file's.
        name: for errors, without the host.
        offset: where the range begins.
    """

    handle: int
    bytes: int
    name: str
    offset: int = 0


async def equal_blocks(
    remote: BlockClient, there: Side, here: Side, block_bytes: int
) -> tuple[dict[int, int], bool]:
    """Returns the blocks, with their digests (XXH3), that two ranges share, and whether the ranges
    are equal.
    """
    theirs, mine = (BlockSizes(side.bytes, block_bytes) for side in (there, here))
    nbytes = sum(a for a, b in zip(theirs, mine, strict=False) if a == b)
    same: dict[int, int] = {}
    if nbytes:
        args = there.handle, there.offset, nbytes, block_bytes, there.name
        blocks = dict(enumerate(await remote.digests(*args)))
        same = await matching_blocks(here, blocks, block_bytes)
    return same, there.bytes == here.bytes and len(same) == len(mine)


async def matching_blocks(here: Side, blocks: dict[int, int], block_bytes: int) -> dict[int, int]:
    """Returns the blocks, with their digests (XXH3), that a local range still has."""
    sizes = BlockSizes(here.bytes, block_bytes)

    def digest(index: int) -> int:
        at = here.offset + index * block_bytes
        return digest_of_range(here.handle, at, sizes[index], shown(here.name))

    own = await in_slices(digest, blocks, block_bytes)
    return {index: a for (index, a), b in zip(blocks.items(), own, strict=True) if a == b}


async def is_equal(remote: BlockClient, there: Side, here: Side, block_bytes: int) -> bool:
    """Reports whether two ranges are equal."""
    return (await equal_blocks(remote, there, here, block_bytes))[1]


async def still_holds(
    remote: BlockClient,
    source: str,
    attr: Attr,
    span: tuple[int, int],
    received: dict[int, int],
    block_bytes: int,
) -> bool:
    """Reports whether a peer's file that has changed still holds what was fetched from it.

    span: offset and bytes of the fetched range. received: XXH3 of each block, by number.
    block_bytes: 0: there are no digests, and the answer is no.
    """
    if not block_bytes:
        return False
    async with remote.opened(source) as (handle, now):
        if not may_hold(now, attr):
            return False
        theirs = await remote.digests(handle, *span, block_bytes, source)
        return theirs == list(received.values())


def open_old(path: str, folder: int) -> int:
    """Opens a file in a directory to read it; returns -1 unless the file is regular."""
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
    """Copies the first `nbytes` of an old file into a new one."""

    def copy(at: int) -> None:
        check(lib.careful_copy(old, new, at, min(SLICE_BYTES, nbytes - at)), name)

    await in_slices(copy, range(0, nbytes, SLICE_BYTES), SLICE_BYTES)


async def difference_of(
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None
) -> str:
    """Returns how a peer's file and a local file differ, in words, or "".

    If the larger one is a block device, only the size of the smaller one counts. No symlink is
    followed below `root`. Raises CarefulError: a file cannot be read.
    """
    there, here, same = await _compare(remote, source, target, block_bytes, False, root)
    if there != here:
        return f"{there} bytes there, {here} here"
    count = len(BlockSizes(here, block_bytes))
    first = next((index for index in range(count) if index not in same), None)
    if first is None:
        return ""
    return f"{count - len(same)} of {count} blocks differ, the first at byte {first * block_bytes}"


async def common_bytes(
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None
) -> tuple[int, bool]:
    """Returns the bytes that two files share, and whether the files are equal."""
    there, here, same = await _compare(remote, source, target, block_bytes, True, root)
    sizes = BlockSizes(max(there, here), block_bytes)
    return sum(sizes[index] for index in same), there == here and len(same) == len(sizes)


async def _compare(
    remote: BlockClient, source: str, target: str, block_bytes: int, partly: bool, root: str | None
) -> tuple[int, int, dict[int, int]]:
    """Returns both sizes and the common blocks; without `partly`, no blocks if the sizes differ."""
    with about(shown(target)):
        fd = open_file(target, root)
    handle = 0
    try:
        if not os.fstat(fd).st_blocks:
            fd = prepare_read(fd, shown(target))
        handle, attr = await remote.open(source)
        there, here = attr.bytes, os.lseek(fd, 0, os.SEEK_END)
        is_device = attr.is_device or stat.S_ISBLK(os.fstat(fd).st_mode)
        if is_device and attr.is_device == (there > here):
            there = here = min(there, here)
        same: dict[int, int] = {}
        if partly or there == here:
            sides = Side(handle, there, source), Side(fd, here, target)
            same, _ = await equal_blocks(remote, *sides, block_bytes)
        return there, here, same
    finally:
        os.close(fd)
        if handle:
            await quietly(remote.close(handle, source))
