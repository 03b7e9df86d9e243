"""Checks which blocks of a partial file can be trusted, by their digests here and at a peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from careful.errors import shown
from careful.transfer.file.holes import is_hole
from careful.transfer.file.journal import FOOTER_BYTES, TAIL_MAX, Journal
from careful.transfer.file.partial_file import digest_of_range
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import all_of, in_slices

#: Receives each change of a journal.
Note = Callable[[tuple[int, bytes]], None]


async def trusted(
    remote: BlockClient, handle: int, journal: Journal, fd: int, note: Note, path: str
) -> dict[int, int]:
    """Returns the blocks that both ends have, with their digests; unmarks all others.

    A block needs the same digest here, there and in the journal, if the journal has one. After a
    crash, a partial file may have blocks that were never written, and a source may have old data
    under its new times. fd: our file, partial or source.
    """
    own, present = await all_of(
        digests_of_own(fd, journal, journal.in_place),
        digests_there(remote, handle, journal, journal.in_place, path),
    )
    agreed = {}
    for index, digest in own.items():
        journaled = journal.digest(index)
        if digest == present[index] and journaled in (0, digest):
            agreed[index] = digest
            if not journaled:
                note(journal.mark(index, digest))
        else:
            note(journal.unmark(index))
    return agreed


def runs(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields first and count of each run of consecutive numbers in an ascending series."""
    first, count = -1, 0
    for index in chain(indices, (-1,)):
        if not count or index != first + count:
            if count:
                yield first, count
            first, count = index, 0
        count += 1


async def digests_there(
    remote: BlockClient, handle: int, journal: Journal, indices: Iterable[int], path: str
) -> dict[int, int]:
    """Returns the digests of blocks of a peer's open file."""
    found: dict[int, int] = {}
    for first, count in tuple(runs(indices)):
        offset, _ = journal.range_of(first)
        last_offset, last_bytes = journal.range_of(first + count - 1)
        nbytes = last_offset + last_bytes - offset
        digests = await remote.digests(handle, offset, nbytes, journal.block_bytes, path)
        found |= enumerate(digests, first)
    return found


async def digests_of_own(fd: int, journal: Journal, indices: list[int]) -> dict[int, int]:
    """Returns the digests of blocks of an open file here."""
    zeros: dict[int, int] = {}  # digests of holes by size: each size is read once

    def digest(index: int) -> int:
        offset, nbytes = journal.range_of(index)
        if not is_hole(fd, offset, nbytes):
            return digest_of_range(fd, offset, nbytes)
        if nbytes not in zeros:
            zeros[nbytes] = digest_of_range(fd, offset, nbytes)
        return zeros[nbytes]

    found = await in_slices(digest, indices, journal.block_bytes)
    return dict(zip(indices, found, strict=True))


async def read_journal_there(
    remote: BlockClient, handle: int, size: int, path: str
) -> Journal | None:
    """Returns the journal at the end of a peer's open file of `size` bytes, or None."""
    name = remote.name(shown(path))
    if size < FOOTER_BYTES:
        return None
    footer = await remote.read(handle, size - FOOTER_BYTES, FOOTER_BYTES, name)
    nbytes = Journal.bytes_of_tail(footer, size)
    if not 0 < nbytes <= TAIL_MAX:
        return None
    return Journal.parse(await remote.read(handle, size - nbytes, nbytes, name), size)
