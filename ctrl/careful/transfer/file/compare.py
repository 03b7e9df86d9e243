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


async def equal_blocks(
    remote: BlockClient, handle: int, sizes: tuple[int, int], fd: int, block_bytes: int, path: str
) -> dict[int, int]:
    """Returns the blocks, with their digests (XXH3), that two files have in common.

    sizes: bytes of the peer's file and of ours.
    """
    theirs, mine = (BlockSizes(size, block_bytes) for size in sizes)
    common = [a for a, b in zip(theirs, mine, strict=False) if a == b]
    digests = await remote.digests(handle, 0, sum(common), block_bytes, path) if common else []
    return await matching_blocks(fd, dict(enumerate(digests)), mine, block_bytes)


async def matching_blocks(
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
    """Reports whether two files begin with the same `nbytes`."""
    same = await equal_blocks(remote, handle, (nbytes, nbytes), fd, block_bytes, path)
    return len(same) == len(BlockSizes(nbytes, block_bytes))


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
    handle, now = await remote.open(source)
    try:
        if not may_hold(now, attr):
            return False
        theirs = await remote.digests(handle, *span, block_bytes, source)
        return theirs == list(received.values())
    finally:
        await quietly(remote.close(handle, source))


def open_old(path: str, folder: int | None = None) -> int:
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
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None = None
) -> str:
    """Returns how a peer's file and a local file differ, in words, or "".

    If the larger one is a block device, only the size of the smaller one counts. No symlink is
    followed below `root`. Raises CarefulError: a file cannot be read.
    """
    remote_bytes, local_bytes, same = await _compare(
        remote, source, target, block_bytes, False, root
    )
    if remote_bytes != local_bytes:
        return f"{remote_bytes} bytes there, {local_bytes} here"
    count = len(BlockSizes(local_bytes, block_bytes))
    first = next((index for index in range(count) if index not in same), None)
    if first is None:
        return ""
    return f"{count - len(same)} of {count} blocks differ, the first at byte {first * block_bytes}"


async def common_bytes(
    remote: BlockClient, source: str, target: str, block_bytes: int, root: str | None = None
) -> tuple[int, bool]:
    """Returns the bytes that two files share, and whether the files are equal."""
    remote_bytes, local_bytes, same = await _compare(
        remote, source, target, block_bytes, True, root
    )
    sizes = BlockSizes(max(remote_bytes, local_bytes), block_bytes)
    return sum(sizes[index] for index in same), remote_bytes == local_bytes and len(same) == len(
        sizes
    )


async def _compare(
    remote: BlockClient,
    source: str,
    target: str,
    block_bytes: int,
    partly: bool,
    root: str | None = None,
) -> tuple[int, int, dict[int, int]]:
    """Returns both sizes and the common blocks; without `partly`, no blocks if the sizes differ."""
    try:
        fd = open_file(target, root)
    except OSError as error:
        raise from_os(error, shown(target)) from None
    handle = 0
    try:
        if not os.fstat(fd).st_blocks:
            fd = settled(fd, shown(target))
        handle, attr = await remote.open(source)
        remote_bytes, local_bytes = attr.bytes, os.lseek(fd, 0, os.SEEK_END)
        is_device = attr.is_device or stat.S_ISBLK(os.fstat(fd).st_mode)
        if is_device and attr.is_device == (remote_bytes > local_bytes):
            remote_bytes = local_bytes = min(remote_bytes, local_bytes)
        same: dict[int, int] = {}
        if partly or remote_bytes == local_bytes:
            name = remote.name(shown(source))
            same = await equal_blocks(
                remote, handle, (remote_bytes, local_bytes), fd, block_bytes, name
            )
        return remote_bytes, local_bytes, same
    finally:
        os.close(fd)
        if handle:
            await quietly(remote.close(handle, source))
