"""Continues partial files: checks which blocks can be trusted, here and at a peer.

Owns these checks, and the journal of the peer's partial file, which this end writes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from careful._abi import lib
from careful.errors import FATAL, CarefulError, shown
from careful.transfer.file.holes import is_hole
from careful.transfer.file.journal import (
    FOOTER_BYTES,
    LOCK_S,
    TAIL_MAX,
    Identity,
    Journal,
    busy,
    check_source,
    tag_of,
)
from careful.transfer.file.local import digest_of_range
from careful.transfer.options import Options
from careful.transfer.protocol.block import BlockClient, Created
from careful.transfer.tasks import all_of, in_slices, quietly

#: How long a dead session's handle may keep its file, seconds: the peer's stall time (`up --stall`,
#: 30 s) and a margin.
_LETS_GO_S = 35.0
_NO_IDENTITY = Identity("", 0, 0, 0, 0)
Note = Callable[[tuple[int, bytes]], None]


async def verify_here(fd: int, journal: Journal, note: Note) -> None:
    """Unmarks blocks whose local digest differs from the journal's.

    After a crash, a partial file may have pages on the disk without their data. For a source see
    verify_there(). `note` receives each change of the journal.
    """
    for index, found in (await _digests_of_own(fd, journal, journal.in_place)).items():
        if found != journal.digest(index):
            note(journal.unmark(index))


def runs(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields first and count of each run of consecutive numbers in an ascending series."""
    first, count = -1, 0
    for index in indices:
        if count and index == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = index, 1
    if count:
        yield first, count


async def take_digests(
    remote: BlockClient, handle: int, journal: Journal, fd: int, note: Note, path: str
) -> None:
    """Adds digests to blocks that came without; unmarks blocks that differ between the ends.

    `fd` is our file, partial or source. `note` receives each change of the journal.
    """
    bare = [index for index in journal.in_place if not journal.digest(index)]
    own = await _digests_of_own(fd, journal, bare)
    for index, digest in await _digests_there(remote, handle, journal, bare, path):
        same = own[index] == digest
        note(journal.mark(index, digest) if same else journal.unmark(index))


async def _digests_there(
    remote: BlockClient, handle: int, journal: Journal, indices: Iterable[int], path: str
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, count in tuple(runs(indices)):
        offset, _ = journal.range_of(first)
        last_offset, last_bytes = journal.range_of(first + count - 1)
        nbytes = last_offset + last_bytes - offset
        digests = await remote.digests(handle, offset, nbytes, journal.block_bytes, path)
        found += enumerate(digests, first)
    return found


async def verify_there(
    remote: BlockClient, handle: int, journal: Journal, note: Note, path: str
) -> None:
    """Unmarks blocks whose digest at the peer differs from the journal's.

    This includes a source with the same attributes: if power failed, its times may be on the disk
    without its new data. `note` receives each change of the journal.
    """
    for index, digest in await _digests_there(remote, handle, journal, journal.in_place, path):
        if journal.digest(index) != digest:
            note(journal.unmark(index))


async def _digests_of_own(fd: int, journal: Journal, indices: list[int]) -> dict[int, int]:
    zeros: dict[int, int] = {}  # holes of one size are read once

    def digest(index: int) -> int:
        offset, nbytes = journal.range_of(index)
        if not is_hole(fd, offset, nbytes):
            return digest_of_range(fd, offset, nbytes)
        if nbytes not in zeros:
            zeros[nbytes] = digest_of_range(fd, offset, nbytes)
        return zeros[nbytes]

    found = await in_slices(digest, indices, journal.block_bytes)
    return dict(zip(indices, found, strict=True))


class RemotePartial:
    """A file being written at a peer; it has a journal if it has several blocks.

    Attributes:
        handle: its handle; 0 before open() and after commit().
        journal: the blocks in place.
    """

    def __init__(self, remote: BlockClient, target: str, options: Options) -> None:
        self.remote = remote
        self.target = target
        self.options = options
        self.handle = 0
        self.journal = Journal(_NO_IDENTITY, options.block_bytes)
        #: Blocks that the replaced file has, with their digests. The caller sets them before
        #: open(); continuing a partial file empties them.
        self.seeded: dict[int, int] = {}
        #: True if parts are to be holes; set by the caller before open().
        self.sparse = False
        self._kept = False
        self._file = -1
        self._fd = -1
        self._way = 0, 0
        self._dirty: list[tuple[int, bytes]] = []
        self._writer: asyncio.Task[None] | None = None
        self._written = False
        #: True if the file caused a commit to fail, so that the peer closed it.
        self._refused = False

    async def open(self, identity: Identity, source: str, fd: int, mode: int) -> dict[int, int]:
        """Creates the file, or opens an earlier transfer's partial file.

        `source` is the absolute path of the source.

        Returns:
            The blocks that need not be sent, with their digests.

        Raises:
            CarefulError: the file cannot be made; the source changed; another transfer has it.
        """
        options = self.options
        self.journal = Journal(identity, options.block_bytes)
        if identity.bytes <= options.block_bytes:
            size = identity.bytes
            flags = lib.CAREFUL_BLOCK_SPARSE if self.sparse else 0
            made = await self.remote.create(self.target, size, mode, options.replace, flags=flags)
            self.handle = made.handle
            self.seeded = {}  # its only block is sent, or the file is equal
            return {}
        tag = tag_of("put", os.uname().nodename, source, self.target)
        self._way = tag, mode
        self._kept = True
        if not await self._open_kept(tag, mode):
            await self._begin()
            # Another program may have changed the replaced file since the comparison: check the
            # copied blocks.
            self.seeded = await self._marked(self.seeded)
            return dict(self.seeded)
        self.seeded = {}
        self._open_tail()
        journal = self.journal
        never = [index for index in range(journal.count) if journal.digest(index) is None]
        # Needed without options.digest, too: a crash may have lost blocks.
        await take_digests(self.remote, self.handle, journal, fd, self._note, self.target)
        await all_of(
            verify_here(fd, journal, self._note),
            verify_there(self.remote, self.handle, journal, self._note, self.target),
        )
        # Blocks that were in place before the journal noted them.
        missing = never[: 2 * options.blocks_in_flight + 1]
        await self._marked(await _digests_of_own(fd, journal, missing))
        return {index: journal.digest(index) or 0 for index in journal.in_place}

    async def _marked(self, blocks: dict[int, int]) -> dict[int, int]:
        """Marks the blocks that the peer has with these digests; returns them."""
        there = await _digests_there(self.remote, self.handle, self.journal, blocks, self.target)
        found = {index: digest for index, digest in there if blocks[index] == digest}
        for index, digest in found.items():
            self.mark(index, digest)
        return found

    async def _open_kept(self, tag: int, mode: int) -> bool:
        """Opens the partial file of a tag; reports whether to continue it."""
        while True:
            journal = self.journal
            made = await self._create(tag, mode, journal.tail_bytes)
            self.handle = made.handle
            if not made.continued:
                return False
            found = None if self.options.restart else await self._read_journal(made)
            if found is not None and self.options.blake3 and not found.is_for_blake3:
                found = None
            if found is not None and self.options.restart_changed:
                found = None if found.identity.changed(journal.identity) else found
            if found is not None:
                try:
                    check_source(found.identity, journal.identity, journal.identity.source)
                except CarefulError:
                    await quietly(self.remote.close(made.handle, self.target))
                    self.handle = 0
                    raise
                if found.tail_bytes == journal.tail_bytes:
                    self.journal = found
                    return True
            # Opens a file of another block size again as it is; discards any other.
            other = found is not None and found.block_bytes != journal.block_bytes
            await self.remote.close(made.handle, self.target, discard=not other)
            self.handle = 0
            if found is not None and other:
                self.journal = Journal(journal.identity, found.block_bytes)

    async def reopen(self) -> int:
        """Opens the file again after the peer lost its handle; returns the new handle.

        Raises:
            CarefulError: the file is gone, or the old handle still has it.
        """
        name = self.remote.name(shown(self.target))
        if not self._kept:  # it has no name to find it by
            raise CarefulError(
                errno.ECONNRESET, "the connection to it was lost; send it again", name
            )
        tag, mode = self._way
        made = await self._create(tag, mode, self.journal.tail_bytes, _LETS_GO_S)
        self.handle = made.handle
        if not made.continued:
            raise CarefulError(errno.ESTALE, "its partial file is gone from the other host", name)
        self._note((0, self.journal.tail))  # changes on their way to the old handle
        return made.handle

    async def _create(
        self, tag: int, mode: int, tail_bytes: int, patience_s: float = LOCK_S
    ) -> Created:
        nbytes, replace = self.journal.identity.bytes, self.options.replace
        until = time.monotonic() + patience_s
        while True:
            try:
                flags = lib.CAREFUL_BLOCK_SEED if self.seeded else 0
                flags |= lib.CAREFUL_BLOCK_SPARSE if self.sparse else 0
                return await self.remote.create(
                    self.target, nbytes, mode, replace, tag, tail_bytes, flags
                )
            except CarefulError as error:
                if error.errno != errno.EBUSY:
                    raise
                if time.monotonic() >= until:
                    raise busy(self.remote.name(shown(self.target))) from None
            await asyncio.sleep(0.05)

    async def _read_journal(self, made: Created) -> Journal | None:
        size, what = made.attr.bytes, self.remote.name(shown(self.target))
        if size < FOOTER_BYTES:
            return None
        footer = await self.remote.read(made.handle, size - FOOTER_BYTES, FOOTER_BYTES, what)
        nbytes = Journal.bytes_of_tail(footer, size)
        if not 0 < nbytes <= TAIL_MAX:
            return None
        return Journal.parse(await self.remote.read(made.handle, size - nbytes, nbytes, what), size)

    def _open_tail(self) -> None:
        self._fd = os.memfd_create("careful-journal", os.MFD_CLOEXEC)
        os.pwrite(self._fd, self.journal.tail, 0)

    async def _begin(self) -> None:
        self._open_tail()
        await self._store(0, self.journal.tail_bytes)

    def mark(self, index: int, digest: int) -> None:
        if self._kept:
            self._note(self.journal.mark(index, digest))

    def _note(self, change: tuple[int, bytes]) -> None:
        os.pwrite(self._fd, change[1], change[0])
        self._dirty.append(change)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Writes journal changes to the peer; a failure shows in the blocks themselves."""
        while self._dirty:
            changes, self._dirty = self._dirty, []
            first = min(at for at, _ in changes)
            end = max(at + len(entry) for at, entry in changes)
            self._written = False
            with suppress(CarefulError):
                self._written = await self._store(first, end - first)

    async def _store(self, at: int, nbytes: int) -> bool:
        if self._file < 0:
            self._file = await self.remote.add_file(self._fd)
        offset = self.journal.identity.bytes + at
        for _ in range(20):
            answer = await self.remote.move(
                lib.CAREFUL_IPC_STORE, self.handle, offset, nbytes, self._file, True, at
            )
            if answer.status not in (-errno.ECONNRESET, -errno.EBADMSG):
                return answer.status >= 0
            self.remote.retried()
        return False

    async def _end_journal(self, write: bool) -> None:
        if self._writer is not None:
            if not write:
                self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
            self._writer = None
        if self._file >= 0:
            await self.remote.remove_file(self._file)
            self._file = -1

    def _close_tail(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def commit(self, mode: int, mtime_ns: int = 0) -> None:
        """Syncs the file and gives it its name and time; 0: unchanged."""
        options = self.options
        ways = mode, options.replace, options.sync, mtime_ns
        await self._end_journal(write=False)
        try:
            await self.remote.commit(self.handle, self.target, *ways, exact=options.preserve)
        except CarefulError as error:
            if error.errno != errno.EBADF or not self._kept:
                self._refused = error.errno not in FATAL
                raise
            await self.reopen()
            await self._end_journal(write=False)
            await self.remote.commit(self.handle, self.target, *ways, exact=options.preserve)
        self.handle = 0
        self._close_tail()

    async def give_up(self, keep: bool) -> int | None:
        """Ends the transfer early.

        Args:
            keep: whether the blocks in place help a later transfer.

        Returns:
            The bytes in place according to the peer's journal, 0 if unknown; None: nothing kept.
        """
        keep = keep and self._kept
        self._written = False
        if keep and self.handle and self._fd >= 0:
            self._note((0, self.journal.tail))  # commit() may have dropped changes under way
        await quietly(self._end_journal(write=keep))
        self._close_tail()
        if self.handle:
            await quietly(self.remote.close(self.handle, self.target, discard=not keep))
        if not (keep and self.handle):
            return None
        if self._refused and not self._written:
            return await self._left()
        return self.journal.bytes_in_place if self._written else 0

    async def _left(self) -> int | None:
        """Returns the bytes kept of a file that the peer closed; see give_up()."""
        name = f".careful-{self._way[0]:016x}.part"
        try:
            found = await self.remote.stat(posixpath.join(posixpath.dirname(self.target), name))
        except FileNotFoundError:
            return None
        except CarefulError:
            return 0
        is_whole = found.bytes == self.journal.identity.bytes + self.journal.tail_bytes
        return self.journal.bytes_in_place if is_whole else None
