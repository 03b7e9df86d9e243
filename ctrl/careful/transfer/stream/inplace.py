"""Writes in place after a comparison: only blocks that differ move.

So an interrupted transfer onto a device is resumed without a journal: finished blocks are equal.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from careful.errors import CarefulError, from_os, shown
from careful.transfer.file.compare import BlockSizes
from careful.transfer.file.partial_file import digest_of_blocks, digest_of_range
from careful.transfer.file.resume import runs
from careful.transfer.file.source import check_source
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import Attr, BlockClient
from careful.transfer.protocol.entries import NOTHING, local_attr
from careful.transfer.tasks import in_slices


@dataclass(frozen=True)
class Side:
    """A range of an open file at one end.

    Attributes:
        handle: of the peer's file, or our descriptor.
        offset: where the range begins.
        bytes: from there to the file's end, maybe fewer than the range has.
        name: for errors, without the host.
    """

    handle: int
    offset: int
    bytes: int
    name: str


def bytes_from(fd: int, offset: int, name: str) -> int:
    """Returns the bytes from an offset to the end of a file or block device."""
    try:
        return max(0, os.lseek(fd, 0, os.SEEK_END) - offset)
    except OSError as error:
        raise from_os(error, shown(name)) from None


async def _equal_blocks(
    remote: BlockClient, remote_side: Side, local_side: Side, sizes: BlockSizes, block_bytes: int
) -> dict[int, int]:
    """Returns the blocks that both ends share, with their digests, by number."""
    common_bytes, available_bytes = 0, min(remote_side.bytes, local_side.bytes)
    count = 0
    while count < len(sizes) and common_bytes + sizes[count] <= available_bytes:
        common_bytes += sizes[count]
        count += 1
    if not count:
        return {}
    path = remote_side.name
    theirs = await remote.digests(
        remote_side.handle, remote_side.offset, common_bytes, block_bytes, path
    )

    def digest_of(block: tuple[int, int]) -> int:
        try:
            return digest_of_range(local_side.handle, *block)
        except CarefulError as error:
            raise CarefulError(error.errno or 0, error.reason, shown(local_side.name)) from None

    starts = range(local_side.offset, local_side.offset + common_bytes, block_bytes)
    mine = await in_slices(digest_of, zip(starts, sizes, strict=False), block_bytes)
    pairs = zip(mine, theirs, strict=True)
    return {index: a for index, (a, b) in enumerate(pairs) if a == b}


@dataclass(frozen=True)
class SentFile:
    """A regular local file that is being sent, as it was at the start.

    Attributes:
        fd: of the file.
        offset: where the sent range begins.
        attr: its attributes at the start.
    """

    fd: int
    offset: int
    attr: Attr

    @staticmethod
    def record(fd: int | None) -> SentFile | None:
        """Returns the record of an open source; None unless it is regular and its size known."""
        attr = local_attr(os.fstat(fd)) if fd is not None else NOTHING
        if fd is None or not (attr.is_file and attr.bytes):
            return None
        return SentFile(fd, os.lseek(fd, 0, os.SEEK_CUR), attr)

    async def check(
        self, remote: BlockClient, sent: Side, name: str, block_bytes: int, progress: Progress
    ) -> None:
        """Raises CarefulError unless the file still holds the bytes that were sent.

        sent: the peer's side. progress: is notified if the file has grown.
        """
        after = local_attr(os.fstat(self.fd))
        local_side = Side(self.fd, self.offset, sent.bytes, name)
        sizes = BlockSizes(sent.bytes, block_bytes)

        async def is_equal() -> bool:
            return len(await _equal_blocks(remote, sent, local_side, sizes, block_bytes)) == len(
                sizes
            )

        end = max(self.attr.bytes, self.offset + sent.bytes)  # growth may have been sent, too
        await check_source(self.attr._replace(bytes=end), after, is_equal, name, progress)


#: Moves bytes at an offset of the range; notes each block's digest.
Move = Callable[[int, int, dict[int, int]], Awaitable[FileResult]]


async def move_differing(
    remote: BlockClient,
    sides: tuple[Side, Side],
    nbytes: int,
    names: tuple[str, str],
    options: Options,
    progress: Progress,
    move: Move,
) -> FileResult:
    """Moves the blocks of a range that differ between the ends.

    sides: the peer's and ours. move: moves a part. Raises CarefulError.
    """
    step = options.block_bytes
    sizes = BlockSizes(nbytes, step)
    equal = await _equal_blocks(remote, *sides, sizes, step)
    digests = dict(equal)
    matched = sum(sizes[index] for index in equal)
    progress.present(matched)
    retries = 0
    for first, count in runs(index for index in range(len(sizes)) if index not in equal):
        part = first * step, min(count * step, nbytes - first * step)
        digests_of_part: dict[int, int] = {}
        retries += (await move(*part, digests_of_part)).retries
        digests |= {index + first: value for index, value in digests_of_part.items()}
    digest = None
    if options.digest:
        digest = digest_of_blocks(digests[index] for index in range(len(sizes)))
    return FileResult(*names, nbytes, digest, retries, matched_bytes=matched)
