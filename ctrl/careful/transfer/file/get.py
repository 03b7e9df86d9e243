"""Fetches one file: it appears under its name complete, or not at all.

Owns when the partial file is continued, kept or thrown away.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from functools import partial

from careful._abi import lib
from careful.errors import CarefulError, from_os, shown
from careful.transfer.file.blake3 import agreed
from careful.transfer.file.compare import (
    block_sizes,
    copy_into,
    equal_blocks,
    held,
    is_all_equal,
    open_old,
)
from careful.transfer.file.holes import Ranges, has_holes, local_extents, merged, remote_extents
from careful.transfer.file.journal import Identity, Journal, KeptPartial, check_fits, tag_of
from careful.transfer.file.kept import is_worth_keeping, tell_kept, tell_lost
from careful.transfer.file.local import Partial
from careful.transfer.file.mover import Mover
from careful.transfer.file.resume import take_digests, verify_here, verify_there
from careful.transfer.file.source import check_source, may_hold
from careful.transfer.folder import Folder
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import Attr, BlockClient
from careful.transfer.tasks import all_of, in_thread, quietly


@dataclass
class _Fetch:
    """One file on its way here."""

    remote: BlockClient
    source: str
    target: str
    options: Options
    progress: Progress
    root: str | None

    async def run(self, handle: int, attr: Attr) -> FileResult | None:
        """Fetches an open file; returns None if the local file is equal."""
        name = self.remote.name(shown(self.source))
        identity = Identity(name, attr.bytes, attr.mtime_ns, attr.ctime_ns, attr.inode)
        sparse = self.options.sparse or has_holes(attr)
        mode = stat.S_IMODE(attr.mode)
        part = await in_thread(partial(self._part, identity, mode, sparse), self._let_go)
        kept = part if isinstance(part, KeptPartial) else None
        block_bytes = kept.journal.block_bytes if kept else self.options.block_bytes
        try:
            known = await self._known(kept, handle) if kept is not None else {}
            resumed = kept.journal.bytes_in_place if kept is not None and known else 0
            matched = 0
            if self.options.checksum and not known:
                same = await self._matched(part, handle, attr, block_bytes)
                if same is None:
                    part.discard()
                    await self.remote.close(handle, self.source)
                    return None
                known, sizes = same, block_sizes(attr.bytes, block_bytes)
                matched = sum(sizes[index] for index in known)
            self.progress.present(resumed + matched)
            async with self.remote.registered(part.fd) as file:
                mover = Mover(
                    self.remote,
                    lib.CAREFUL_IPC_GET,
                    handle,
                    part.fd,
                    file,
                    name,
                    self.options,
                    self.progress,
                    block_bytes,
                )
                mover.reopen = partial(self._reopened, attr, name)
                digest = await self._fetch(mover, kept, known, attr)
            after = await self._closed(mover)
            is_equal = partial(self._is_equal, attr, after, part)
            await check_source(attr, after, is_equal, name, self.progress)
            mtime_ns = attr.mtime_ns if self.options.keeps_times else None
            exact = self.options.preserve
            await in_thread(partial(part.commit, self.options.sync, mtime_ns, exact))
        except BaseException as error:
            self._give_up(part, error)
            raise
        retries, options = mover.pace.retries, self.options
        return FileResult(
            name,
            self.target,
            attr.bytes,
            digest,
            retries,
            resumed,
            matched,
            options.blake3,
            mover.hole_bytes,
        )

    async def _fetch(
        self, mover: Mover, kept: KeptPartial | None, known: dict[int, int], attr: Attr
    ) -> int | None:
        """Moves the missing blocks; returns the file's digest."""
        handle, file_bytes = mover.handle, attr.bytes
        note = None
        if kept is not None:
            journal = kept.journal
            note = lambda index, digest: kept.note(journal.mark(index, digest))  # noqa: E731
        try:
            if has_holes(attr):
                extents = await remote_extents(self.remote, handle, file_bytes, self.source)
                # Data of an earlier transfer or the old file may lie in the source's holes.
                there = await in_thread(partial(local_extents, mover.fd, file_bytes))
                mover.ranges = Ranges(merged(extents, there))
            digest = await mover.run(file_bytes, known, note)
            if self.options.blake3:
                digest = await agreed(mover, self.remote, file_bytes, self.source)
            return digest
        except BaseException:
            if mover.handle != handle:
                await quietly(self.remote.close(mover.handle, self.source))
            raise

    async def _reopened(self, attr: Attr, name: str) -> int:
        handle, now = await self.remote.open(self.source)
        if not may_hold(now, attr):
            await quietly(self.remote.close(handle, self.source))
            raise CarefulError(errno.ESTALE, "changed while it was being transferred", name)
        return handle

    async def _is_equal(self, attr: Attr, after: Attr, part: Partial) -> bool:
        """Reports whether the changed source still holds the fetched bytes."""
        try:
            handle, now = await self.remote.open(self.source)
        except CarefulError as error:
            # Removed: the open file stayed readable, and nothing wrote to it.
            if error.errno == errno.ENOENT and after.mtime_ns == attr.mtime_ns:
                return True
            raise
        try:
            if not may_hold(now, attr):
                return False
            step = self.options.block_bytes
            return await is_all_equal(self.remote, handle, attr.bytes, part.fd, step, self.source)
        finally:
            await quietly(self.remote.close(handle, self.source))

    async def _closed(self, mover: Mover) -> Attr:
        try:
            return await self.remote.close(mover.handle, self.source)
        except CarefulError as error:
            if error.errno != errno.EBADF or mover.reopen is None:
                raise
            return await self.remote.close(await mover.reopen(), self.source)

    async def _matched(
        self, part: Partial, handle: int, attr: Attr, block_bytes: int
    ) -> dict[int, int] | None:
        """Copies the blocks that the replaced file already has; returns None if it is equal."""
        old = open_old(part.folder.name, part.folder.fd)
        if old < 0:
            return {}
        blocks = block_sizes(attr.bytes, block_bytes)
        try:
            sizes = attr.bytes, os.fstat(old).st_size
            same = await equal_blocks(self.remote, handle, sizes, old, block_bytes, self.source)
            if sizes[0] == sizes[1] and len(same) == len(blocks):
                return None
            if same:
                await copy_into(old, part.fd, min(sizes), shown(self.target))
        finally:
            os.close(old)
        # Another program may have written to it since the comparison: check the copied blocks.
        same = await held(part.fd, same, blocks, block_bytes)
        if isinstance(part, KeptPartial):
            for index, digest in same.items():
                part.note(part.journal.mark(index, digest))
        return same

    def _part(self, identity: Identity, mode: int, sparse: bool) -> Partial:
        options = self.options
        if identity.bytes <= options.block_bytes:
            return Partial(self.target, identity.bytes, mode, options.replace, sparse, self.root)
        try:
            with Folder(self.target, self.root) as folder:
                name, step = shown(self.target), options.block_bytes
                check_fits(folder, identity.bytes, step, sparse, name)
        except OSError as error:
            raise from_os(error, shown(self.target)) from None
        tag = tag_of("get", identity.source, os.path.basename(self.target))
        journal = Journal(identity, options.block_bytes)
        return KeptPartial(
            self.target,
            mode,
            options.replace,
            journal,
            tag,
            options.restart,
            sparse,
            options.blake3,
            options.restart_changed,
            self.root,
        )

    async def _known(self, kept: KeptPartial, handle: int) -> dict[int, int]:
        """Returns the blocks that need not be fetched, with their digests."""
        if not kept.resumed:
            return {}
        journal, fd = kept.journal, kept.fd
        await take_digests(self.remote, handle, journal, fd, kept.note, self.source)
        await all_of(
            verify_here(fd, journal, kept.note),
            verify_there(self.remote, handle, journal, kept.note, self.source),
        )
        return {index: kept.journal.digest(index) or 0 for index in kept.journal.in_place}

    def _let_go(self, part: Partial) -> None:
        """Closes a resumed partial file; removes a new one."""
        if isinstance(part, KeptPartial) and part.resumed:
            part.close()
        else:
            part.discard()

    def _give_up(self, part: Partial, error: BaseException) -> None:
        if part.fd < 0:
            return
        if isinstance(part, KeptPartial) and is_worth_keeping(part.journal, error):
            kept = part.journal.bytes_in_place, part.journal.identity.bytes
            tell_kept(kept, shown(self.target), error, self.progress)
            part.close()
        else:
            part.discard()
            if isinstance(part, KeptPartial):
                block_bytes = part.journal.block_bytes
                tell_lost(shown(self.target), block_bytes, error, self.progress)


async def get_file(
    remote: BlockClient,
    source: str,
    target: str,
    options: Options,
    progress: Progress,
    root: str | None = None,
) -> FileResult | None:
    """Fetches one file; returns None if options.checksum is set and the local file is equal.

    `target` appears only when complete. No symlink is followed below `root`.

    Raises:
        CarefulError: the transfer failed; at most a partial file remains.
    """
    handle, attr = await remote.open(source, wait=True)
    try:
        if not attr.is_file:
            raise CarefulError(errno.EINVAL, "is not a regular file", remote.name(shown(source)))
        return await _Fetch(remote, source, target, options, progress, root).run(handle, attr)
    except BaseException:
        await quietly(remote.close(handle, source))
        raise
