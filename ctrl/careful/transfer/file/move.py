"""Moves one file: it appears under its name complete, or not at all.

Decides when a partial file is continued, kept or thrown away. Get and Put are the two directions:
they open the source and the file being written, and end both.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from functools import partial

from careful._abi import lib
from careful.closing import descriptor
from careful.errors import CarefulError, Option, about, shown, spelled
from careful.transfer.file.blake3 import agreed_digest
from careful.transfer.file.compare import (
    BlockSizes,
    Side,
    copy_into,
    equal_blocks,
    is_equal,
    matching_blocks,
    open_old,
)
from careful.transfer.file.holes import Ranges, has_holes, ranges
from careful.transfer.file.journal import Identity, Journal, check_fits, tag_of
from careful.transfer.file.mover import Mover
from careful.transfer.file.partial_file import Partial
from careful.transfer.file.resumable import RemotePartial, ResumablePartial
from careful.transfer.file.resume import trusted
from careful.transfer.file.source import check_source, may_hold, open_source
from careful.transfer.folder import Folder
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING, Attr, local_attr
from careful.transfer.tasks import in_thread, quietly
from careful.units import shown_bytes

#: Advice after an interruption.
RESUME = (Option.AGAIN, " to resume")


def report_nothing_kept(
    name: str, block_bytes: int, error: BaseException, progress: Progress
) -> None:
    """Reports that an interrupted transfer keeps nothing; a CarefulError needs no such note."""
    if not isinstance(error, CarefulError):
        block = shown_bytes(block_bytes)
        text = f"nothing is kept (no block of {block} was complete); the next run starts over"
        progress.note(f"{name}: {text}")


class Move(ABC):
    """The transfer of one file.

    Args:
        remote: the peer's tree.
        ends: the paths of source and target; the peer's is relative to its export.
        options: how files move.
        progress: receives each step.
        root: no symlink below it is followed here; None: no root.

    Attributes:
        names: of source and target, as messages show them.
        remote_path: the peer's path.
        attr: of the source, at the start.
        handle: of the peer's file; 0: none.
        fd: of our file; -1: none.
        block_bytes: size of a block.
        seeded: whether the blocks that need not move came from the replaced file.
    """

    op: int

    def __init__(
        self,
        remote: BlockClient,
        ends: tuple[str, str],
        options: Options,
        progress: Progress,
        root: str | None = None,
    ) -> None:
        self.remote, self.options, self.progress, self.root = remote, options, progress, root
        self.source, self.target = ends
        self.names, self.remote_path = ("", ""), ""
        self.attr = NOTHING
        self.handle, self.fd = 0, -1
        self.block_bytes = options.block_bytes
        self.seeded = False

    async def run(self) -> FileResult | None:
        """Moves the file; returns None if options.checksum is set and both ends are equal. Raises
        CarefulError: the transfer failed; at most a partial file remains at the target.
        """
        await self._open()
        try:
            known = await self._begin()
            return None if known is None else await self._moved(known)
        except BaseException as error:
            await self._give_up(error)
            raise

    @abstractmethod
    async def _open(self) -> None:
        """Opens the source."""

    @abstractmethod
    async def _begin(self) -> dict[int, int] | None:
        """Opens the file to write; returns the blocks that need not move, with their digests, or
        None if both ends are equal.
        """

    @abstractmethod
    async def _reopen(self) -> int:
        """Opens the peer's file again after its handle was lost; returns the new handle."""

    @abstractmethod
    async def _finish(self) -> None:
        """Checks the source, and gives the written file its name."""

    @abstractmethod
    async def _give_up(self, error: BaseException) -> None:
        """Ends the written file: keeps what helps a later transfer, removes the rest."""

    @abstractmethod
    def _mark(self, index: int, digest: int) -> None:
        """Marks a block as in place, if there is a journal."""

    async def _moved(self, known: dict[int, int]) -> FileResult:
        """Moves the missing blocks, and ends the file."""
        remote, options, nbytes = self.remote, self.options, self.attr.bytes
        sizes = BlockSizes(nbytes, self.block_bytes)
        known_bytes = sum(sizes[index] for index in known)
        self.progress.present(known_bytes)
        name = remote.name(shown(self.remote_path))
        async with remote.registered(self.fd) as file:
            ends = self.handle, self.fd, file
            mover = Mover(remote, self.op, ends, name, options, self.progress, self.block_bytes)
            mover.reopen = self._reopen
            mover.ranges = await self._ranges()
            digest = await mover.run(nbytes, known, self._mark)
            if options.blake3:
                digest = await agreed_digest(mover, nbytes, self.remote_path)
        await self._finish()
        resumed, matched = (0, known_bytes) if self.seeded else (known_bytes, 0)
        retries, is_blake3 = mover.pace.retries, options.blake3
        counts = retries, resumed, matched, is_blake3, mover.hole_bytes
        return FileResult(self.names[0], self.names[1], nbytes, digest, *counts)

    async def _ranges(self) -> Ranges | None:
        """Returns where data must move, if there are holes."""
        # A get makes holes in its target while blocks arrive.
        no_zeros = self.options.sparse and self.op == lib.CAREFUL_IPC_STORE
        if not (no_zeros or has_holes(self.attr)):
            return None
        ends = (self.handle, self.remote_path), (self.fd, self.source)
        return await ranges(self.remote, ends, self.attr.bytes, no_zeros)

    @property
    def _identity(self) -> Identity:
        attr = self.attr
        return Identity(self.names[0], attr.bytes, attr.mtime_ns, attr.ctime_ns, attr.inode)

    @property
    def _is_sparse(self) -> bool:
        return self.options.sparse or has_holes(self.attr)

    def _report_kept(self, kept: int | None, block_bytes: int, error: BaseException) -> None:
        """Reports what an interrupted transfer keeps; a CarefulError gets this text, too.

        kept: bytes in place, 0 if unknown; None: nothing.
        """
        name = shown(self.names[1])
        if kept is None:
            report_nothing_kept(name, block_bytes, error, self.progress)
            return
        text = f"{kept} of {self.attr.bytes} bytes are kept" if kept else "the part is kept"
        if isinstance(error, CarefulError):
            error.add(f"{text}; ", *RESUME)
        else:
            self.progress.note(f"{name}: {text}; {spelled(RESUME)}")


def _is_worth_keeping(journal: Journal, error: BaseException) -> bool:
    """Reports whether the blocks in place help a later transfer."""
    changed = isinstance(error, CarefulError) and error.errno in (errno.ESTALE, errno.ENODATA)
    return bool(journal.in_place) and not changed


class Get(Move):
    """A transfer of a file from the peer."""

    op = int(lib.CAREFUL_IPC_GET)
    part: Partial | None = None

    async def _open(self) -> None:
        self.names = self.remote.name(shown(self.source)), self.target
        self.remote_path = self.source
        self.handle, self.attr = await self.remote.open(self.source, wait=True)

    async def _begin(self) -> dict[int, int] | None:
        if not self.attr.is_file:
            raise CarefulError(errno.EINVAL, "is not a regular file", self.names[0])
        same: dict[int, int] = {}
        if self.options.checksum:  # before there is a partial file: an idle sync writes nothing
            same, equal = await self._matched()
            if equal:
                await self.remote.close(self.handle, self.source)
                self.handle = 0
                return None
        part = self.part = await in_thread(self._make_part, _release)
        self.fd = part.fd
        if isinstance(part, ResumablePartial):
            self.block_bytes = part.journal.block_bytes
            if part.resumed:
                journal, note = part.journal, part.note
                known = await trusted(self.remote, self.handle, journal, part.fd, note, self.source)
                if known or self.block_bytes != self.options.block_bytes:
                    return known
        self.seeded = bool(same)
        return await self._seed(part, same) if same else {}

    def _make_part(self) -> Partial:
        options, identity, mode = self.options, self._identity, stat.S_IMODE(self.attr.mode)
        sparse, step = self._is_sparse, options.block_bytes
        if identity.bytes <= step:
            return Partial(self.target, identity.bytes, mode, options.replace, sparse, self.root)
        with about(shown(self.target)), Folder(self.target, self.root) as folder:
            check_fits(folder, identity.bytes, step, sparse, shown(self.target))
        tag = tag_of("get", identity.source, os.path.basename(self.target))
        journal = Journal(identity, step)
        return ResumablePartial(self.target, mode, journal, tag, options, sparse, self.root)

    async def _matched(self) -> tuple[dict[int, int], bool]:
        """Returns the blocks that the file here already has, and whether the files are equal."""
        old = await in_thread(self._open_old, _close)
        if old < 0:
            return {}, False
        with descriptor(old):
            here = Side(old, os.fstat(old).st_size, self.target)
            there = Side(self.handle, self.attr.bytes, self.source)
            return await equal_blocks(self.remote, there, here, self.block_bytes)

    def _open_old(self) -> int:
        with about(shown(self.target)), Folder(self.target, self.root) as folder:
            return open_old(folder.name, folder.fd)

    async def _seed(self, part: Partial, same: dict[int, int]) -> dict[int, int]:
        """Copies the blocks that the replaced file already has; returns them."""
        old = open_old(part.folder.name, part.folder.fd)
        if old < 0:
            return {}
        nbytes = self.attr.bytes
        with descriptor(old):
            await copy_into(old, part.fd, min(nbytes, os.fstat(old).st_size), shown(self.target))
        # Another program may have written to the old file since the comparison.
        here = Side(part.fd, nbytes, self.target)
        same = await matching_blocks(here, same, self.block_bytes)
        for index, digest in same.items():
            self._mark(index, digest)
        return same

    def _mark(self, index: int, digest: int) -> None:
        if isinstance(self.part, ResumablePartial):
            self.part.mark(index, digest)

    async def _reopen(self) -> int:
        handle, now = await self.remote.open(self.source)
        if not may_hold(now, self.attr):
            await quietly(self.remote.close(handle, self.source))
            text = "changed while it was being transferred"
            raise CarefulError(errno.ESTALE, text, self.names[0])
        self.handle = handle
        return handle

    async def _finish(self) -> None:
        part, options = self.part, self.options
        assert part is not None
        after = await self._closed()
        self.handle = 0
        still_equal = partial(self._is_equal, after)
        await check_source(self.attr, after, still_equal, self.names[0], self.progress)
        mtime_ns = self.attr.mtime_ns if options.keeps_times else None
        await in_thread(partial(part.commit, options.sync, mtime_ns, options.preserve))

    async def _closed(self) -> Attr:
        try:
            return await self.remote.close(self.handle, self.source)
        except CarefulError as error:
            if error.errno != errno.EBADF:
                raise
            return await self.remote.close(await self._reopen(), self.source)

    async def _is_equal(self, after: Attr) -> bool:
        """Reports whether the changed source still holds the fetched bytes."""
        try:
            async with self.remote.opened(self.source) as (handle, now):
                if not may_hold(now, self.attr):
                    return False
                nbytes = self.attr.bytes
                sides = Side(handle, nbytes, self.source), Side(self.fd, nbytes, self.target)
                return await is_equal(self.remote, *sides, self.options.block_bytes)
        except CarefulError as error:
            # If the source was removed, its open file stayed readable, and nothing wrote to it.
            if error.errno == errno.ENOENT and after.mtime_ns == self.attr.mtime_ns:
                return True
            raise

    async def _give_up(self, error: BaseException) -> None:
        part = self.part
        if isinstance(part, ResumablePartial) and part.fd >= 0:
            kept = None
            if _is_worth_keeping(part.journal, error):
                kept = part.journal.bytes_in_place
                part.close()
            else:
                part.discard()
            self._report_kept(kept, self.block_bytes, error)
        elif part is not None:
            part.discard()
        if self.handle:
            await quietly(self.remote.close(self.handle, self.source))


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def _release(part: Partial) -> None:
    """Closes a resumed partial file; removes a new one."""
    if isinstance(part, ResumablePartial) and part.resumed:
        part.close()
    else:
        part.discard()


class Put(Move):
    """A transfer of a file to the peer."""

    op = int(lib.CAREFUL_IPC_STORE)
    part: RemotePartial

    async def run(self) -> FileResult | None:
        """Moves the file as Move.run() does; closes the source."""
        try:
            return await super().run()
        finally:
            if self.fd >= 0:
                os.close(self.fd)

    async def _open(self) -> None:
        self.names = shown(self.source), self.remote.name(shown(self.target))
        self.remote_path = self.target
        opened = partial(open_source, self.source, self.root)
        self.fd, self.attr = await in_thread(opened, lambda one: os.close(one[0]))
        mode = stat.S_IMODE(self.attr.mode) & 0o777
        settings = self._identity, mode, self.options, self._is_sparse
        self.part = RemotePartial(self.remote, self.target, *settings)

    async def _begin(self) -> dict[int, int] | None:
        part = self.part
        if self.options.checksum:
            part.seeded, equal = await self._matched()
            if equal:
                return None
        known = await part.open(os.path.abspath(self.source), self.fd)
        self.handle, self.block_bytes = part.handle, part.journal.block_bytes
        self.seeded = bool(part.seeded)
        return known

    async def _matched(self) -> tuple[dict[int, int], bool]:
        """Returns the blocks that the peer's file already has, and whether the files are equal."""
        here = Side(self.fd, self.attr.bytes, self.source)
        try:
            async with self.remote.opened(self.target, wait=True) as (handle, attr):
                there = Side(handle, attr.bytes, self.target)
                return await equal_blocks(self.remote, there, here, self.options.block_bytes)
        except CarefulError as error:
            if error.errno in (errno.ENOENT, errno.ENOTSUP, errno.EISDIR):
                return {}, False
            raise

    def _mark(self, index: int, digest: int) -> None:
        self.part.mark(index, digest)

    async def _reopen(self) -> int:
        return await self.part.reopen()

    async def _finish(self) -> None:
        part, before, after = self.part, self.attr, local_attr(os.fstat(self.fd))
        there = Side(part.handle, before.bytes, self.target)
        here = Side(self.fd, before.bytes, self.source)
        still_equal = partial(is_equal, self.remote, there, here, self.block_bytes)
        await check_source(before, after, still_equal, self.names[0], self.progress)
        await part.commit(before.mtime_ns if self.options.keeps_times else 0)

    async def _give_up(self, error: BaseException) -> None:
        part = self.part
        kept = await part.give_up(_is_worth_keeping(part.journal, error))
        if kept is not None or self.attr.bytes > part.journal.block_bytes:
            self._report_kept(kept, part.journal.block_bytes, error)
