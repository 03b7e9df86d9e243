"""Writes in place after a comparison: only blocks that differ move.

So an interrupted transfer onto a device is resumed without a journal: finished blocks are equal.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from careful.errors import about, shown
from careful.transfer.file.compare import BlockSizes, Side, equal_blocks, is_equal
from careful.transfer.file.partial_file import digest_of_blocks
from careful.transfer.file.resume import runs
from careful.transfer.file.source import check_source
from careful.transfer.options import FileResult, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING, Attr, local_attr
from careful.transfer.stream.ring import Stream


def bytes_from(fd: int, offset: int, name: str) -> int:
    """Returns the bytes from an offset to the end of a file or block device."""
    with about(shown(name)):
        return max(0, os.lseek(fd, 0, os.SEEK_END) - offset)


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
        here = Side(self.fd, sent.bytes, name, self.offset)
        still_equal = partial(is_equal, remote, sent, here, block_bytes)
        end = max(self.attr.bytes, self.offset + sent.bytes)  # growth may have been sent, too
        await check_source(self.attr._replace(bytes=end), after, still_equal, name, progress)


#: Moves bytes at an offset of the range; notes each block's digest.
Move = Callable[[int, int, dict[int, int]], Awaitable[FileResult]]


async def move_differing(
    stream: Stream, there: Side, here: Side, nbytes: int, move: Move
) -> FileResult:
    """Moves the blocks of a range of `nbytes` that differ between the ends.

    there, here: the peer's and our side, which may be shorter. move: moves a part. Raises
    CarefulError.
    """
    step, progress = stream.options.block_bytes, stream.progress
    sizes = BlockSizes(nbytes, step)
    there, here = (replace(side, bytes=min(side.bytes, nbytes)) for side in (there, here))
    equal, _ = await equal_blocks(stream.remote, there, here, step)
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
    if stream.options.digest:
        digest = digest_of_blocks(digests[index] for index in range(len(sizes)))
    return FileResult(*stream.names, nbytes, digest, retries, matched_bytes=matched)
