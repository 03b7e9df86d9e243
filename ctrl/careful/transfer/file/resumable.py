"""Partial files with a journal, which stay if a transfer ends early: here, and at a peer."""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
import time
from contextlib import suppress

from careful._abi import lib
from careful.errors import FATAL, CarefulError, about, from_os, shown
from careful.transfer.file import partial_file
from careful.transfer.file.journal import Identity, Journal, continued, read_journal, tag_of
from careful.transfer.file.partial_file import Partial, allocate, temporary_name
from careful.transfer.file.resume import digests_of_own, digests_there, read_journal_there, trusted
from careful.transfer.lost_frames import LOST
from careful.transfer.options import Options
from careful.transfer.protocol.block import BlockClient, Created
from careful.transfer.tasks import quietly

#: How long a dead session may keep a file open, seconds: the peer's stall time (`up --stall`, 30 s)
#: and a margin.
_RELEASE_S = 35.0


class ResumablePartial(Partial):
    """A partial file here. Raises CarefulError: as of Partial; the source changed; another transfer
    has the file.

    Args:
        path: its final name.
        mode: permission bits; the umask is applied.
        journal: for a new partial file; an existing one has its own.
        tag: of the command, see tag_of().
        options: replace, restart, restart_changed and blake3 are used.
        sparse: whether to allocate no room.
        root: follow no symlink below it; None: no root.

    Attributes:
        journal: the blocks in place.
        resumed: whether the partial file existed.
    """

    def __init__(
        self,
        path: str,
        mode: int,
        journal: Journal,
        tag: int,
        options: Options,
        sparse: bool = False,
        root: str | None = None,
    ) -> None:
        self._prepare(path, mode, options.replace, root)
        self._sparse, self.journal = sparse, journal
        try:
            self.fd = self._open_locked(temporary_name(self.folder.name, tag))
            existing = continued(read_journal(self.fd), journal.identity, options)
            self.resumed = existing is not None
            self.journal = existing or journal
            if existing is None:
                self._begin()
        except CarefulError:
            if self.fd >= 0:
                self.close()
            self.folder.close()
            raise
        except OSError as error:
            self.discard()
            raise from_os(error, shown(path)) from None

    def _begin(self) -> None:
        size, tail = self.journal.identity.bytes, self.journal.tail
        os.ftruncate(self.fd, 0)
        allocate(self.fd, size + len(tail), self._sparse)
        os.pwrite(self.fd, tail, size)

    def mark(self, index: int, digest: int) -> None:
        self.note(self.journal.mark(index, digest))

    def note(self, change: tuple[int, bytes]) -> None:
        """Writes a change that the journal's mark() or unmark() returned."""
        os.pwrite(self.fd, change[1], self.journal.identity.bytes + change[0])

    def commit(self, sync: bool, mtime_ns: int | None = None, exact: bool = False) -> None:
        """Commits as Partial does, and removes the journal."""
        with about(shown(self.path)):
            if sync:  # first, while the journal exists: syncing is slow and may be interrupted
                os.fsync(self.fd)
            self._check_name()
            os.ftruncate(self.fd, self.journal.identity.bytes)
        try:
            super().commit(sync, mtime_ns, exact)
        except CarefulError:
            self._restore_journal()
            raise

    def _restore_journal(self) -> None:
        """Restores the journal; if that fails, no block counts as in place."""
        try:
            os.fchmod(self.fd, 0o600)
            os.pwrite(self.fd, self.journal.tail, self.journal.identity.bytes)
        except OSError:
            self.journal = Journal(self.journal.identity, self.journal.block_bytes)


class RemotePartial:
    """A file being written at a peer; it has a journal if it has several blocks.

    Args:
        remote: the peer's tree.
        target: the file's final name there.
        identity: of the source.
        mode: permission bits.
        options: how files move.
        sparse: whether parts are to be holes.

    Attributes:
        handle: its handle; 0 before open() and after commit().
        seeded: blocks that the replaced file has, with their digests. The caller sets them before
            open(), which empties them if it continues a partial file.
    """

    def __init__(
        self,
        remote: BlockClient,
        target: str,
        identity: Identity,
        mode: int,
        options: Options,
        sparse: bool,
    ) -> None:
        self.remote, self.target, self.options = remote, target, options
        self.name = remote.name(shown(target))
        self.handle = 0
        self.journal = Journal(identity, options.block_bytes)
        self.seeded: dict[int, int] = {}
        self._mode, self._sparse = mode, sparse
        self._tag = 0  # 0: a file of one block, which no later transfer can find
        self._file = -1
        self._fd = -1
        self._dirty: list[tuple[int, bytes]] = []
        self._writer: asyncio.Task[None] | None = None
        self._written = False
        self._refused = False  # whether the peer refused a commit, and so closed the file

    async def open(self, source: str, fd: int) -> dict[int, int]:
        """Creates the file, or opens an earlier transfer's partial file; returns the blocks that
        need not be sent, with their digests.

        source: absolute path. fd: the open source. Raises CarefulError: the file cannot be made;
        the source changed; another transfer has the file.
        """
        options, journal = self.options, self.journal
        if journal.identity.bytes <= options.block_bytes:
            self.seeded = {}  # its only block is sent, or the file is equal
            await self._create(time.monotonic())
            return {}
        self._tag = tag_of("put", os.uname().nodename, source, self.target)
        if not await self._open_existing():
            self._open_tail()
            await self._store(0, self.journal.tail_bytes)
            # Another program may have changed the replaced file since the comparison.
            self.seeded = await self._marked(self.seeded)
            return dict(self.seeded)
        self.seeded = {}
        self._open_tail()
        journal = self.journal
        unmarked = [index for index in range(journal.count) if journal.digest(index) is None]
        # Needed without options.digest, too: a crash may have lost blocks.
        known = await trusted(self.remote, self.handle, journal, fd, self.note, self.target)
        # Blocks may have been in place before the journal noted them.
        missing = unmarked[: 2 * options.blocks_in_flight + 1]
        return known | await self._marked(await digests_of_own(fd, journal, missing))

    async def _marked(self, blocks: dict[int, int]) -> dict[int, int]:
        """Marks the blocks that the peer has with these digests; returns them."""
        there = await digests_there(self.remote, self.handle, self.journal, blocks, self.target)
        matching = {index: digest for index, digest in there.items() if blocks[index] == digest}
        for index, digest in matching.items():
            self.mark(index, digest)
        return matching

    async def _open_existing(self) -> bool:
        """Opens the partial file of this command; reports whether to continue it."""
        while True:
            journal = self.journal
            created = await self._create(time.monotonic() + partial_file.LOCK_S)
            if not created.continued:
                return False
            stored = None
            if not self.options.restart:
                size = created.attr.bytes
                stored = await read_journal_there(self.remote, created.handle, size, self.target)
            try:
                stored = continued(stored, journal.identity, self.options)
            except CarefulError:
                await quietly(self.remote.close(created.handle, self.target))
                self.handle = 0
                raise
            if stored is not None and stored.tail_bytes == journal.tail_bytes:
                self.journal = stored
                return True
            # A file of another block size is opened again as it is; any other is discarded.
            other_size = stored is not None and stored.block_bytes != journal.block_bytes
            await self.remote.close(created.handle, self.target, discard=not other_size)
            self.handle = 0
            if stored is not None and other_size:
                self.journal = Journal(journal.identity, stored.block_bytes)

    async def reopen(self) -> int:
        """Opens the file again after the peer lost its handle; returns the new handle."""
        if not self._tag:
            text = "the connection was lost; send the file again"
            raise CarefulError(errno.ECONNRESET, text, self.name)
        created = await self._create(time.monotonic() + _RELEASE_S)
        if not created.continued:
            text = "its partial file is gone from the other host"
            raise CarefulError(errno.ESTALE, text, self.name)
        self.note((0, self.journal.tail))  # repeats changes that were sent to the old handle
        return created.handle

    async def _create(self, until_s: float) -> Created:
        """Opens the file at the peer; waits for another transfer's lock until a time."""
        nbytes, replace = self.journal.identity.bytes, self.options.replace
        tail_bytes = self.journal.tail_bytes if self._tag else 0
        flags = lib.CAREFUL_BLOCK_SEED if self.seeded else 0
        flags |= lib.CAREFUL_BLOCK_SPARSE if self._sparse else 0
        settings = nbytes, self._mode, replace, self._tag, tail_bytes, flags
        while True:
            try:
                created = await self.remote.create(self.target, *settings)
                self.handle = created.handle
                return created
            except CarefulError as error:
                if error.errno != errno.EBUSY or not self._tag:
                    raise
                if time.monotonic() >= until_s:
                    raise partial_file.busy_error(self.name) from None
            await asyncio.sleep(0.05)

    def _open_tail(self) -> None:
        self._fd = os.memfd_create("careful-journal", os.MFD_CLOEXEC)
        os.pwrite(self._fd, self.journal.tail, 0)

    def mark(self, index: int, digest: int) -> None:
        if self._tag:
            self.note(self.journal.mark(index, digest))

    def note(self, change: tuple[int, bytes]) -> None:
        """Writes a change that the journal's mark() or unmark() returned."""
        os.pwrite(self._fd, change[1], change[0])
        self._dirty.append(change)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Writes journal changes to the peer; if this fails, moving blocks fails, too."""
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
            if answer.status not in LOST:
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

    async def commit(self, mtime_ns: int = 0) -> None:
        """Syncs the file and gives it its name and time; 0: unchanged."""
        try:
            await self._commit(mtime_ns)
        except CarefulError as error:
            if error.errno != errno.EBADF or not self._tag:
                self._refused = error.errno not in FATAL
                raise
            await self.reopen()
            await self._commit(mtime_ns)
        self.handle = 0
        self._close_tail()

    async def _commit(self, mtime_ns: int) -> None:
        await self._end_journal(write=False)
        options = self.options
        settings = self._mode, options.replace, options.sync, mtime_ns
        await self.remote.commit(self.handle, self.target, *settings, exact=options.preserve)

    async def give_up(self, keep: bool) -> int | None:
        """Ends the transfer early; returns the bytes in place according to the peer's journal, 0 if
        unknown, None if nothing is kept.

        keep: whether the blocks in place help a later transfer.
        """
        keep = keep and self._tag != 0
        self._written = False
        if keep and self.handle and self._fd >= 0:
            self.note((0, self.journal.tail))  # commit() may have dropped changes under way
        await quietly(self._end_journal(write=keep))
        self._close_tail()
        if self.handle:
            await quietly(self.remote.close(self.handle, self.target, discard=not keep))
        if not (keep and self.handle):
            return None
        if self._refused and not self._written:
            return await self._bytes_left()
        return self.journal.bytes_in_place if self._written else 0

    async def _bytes_left(self) -> int | None:
        """Returns the bytes kept of a file that the peer closed, as give_up() does."""
        name = f".careful-{self._tag:016x}.part"
        try:
            attr = await self.remote.stat(posixpath.join(posixpath.dirname(self.target), name))
        except FileNotFoundError:
            return None
        except CarefulError:
            return 0
        is_whole = attr.bytes == self.journal.identity.bytes + self.journal.tail_bytes
        return self.journal.bytes_in_place if is_whole else None
