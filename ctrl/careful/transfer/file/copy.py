"""One file across: get and put, complete and under its name or not at all.

Owns what the two ends are, and when a partial file is continued, kept or thrown away. A source
that changes meanwhile is source.py's, trees and the command's arguments are targets.py's.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from functools import partial
from itertools import chain

from careful._abi import lib
from careful.errors import CarefulError, from_os
from careful.transfer.file.blake3 import agreed
from careful.transfer.file.compare import (
    block_sizes,
    copy_into,
    equal_blocks,
    is_all_equal,
    open_old,
)
from careful.transfer.file.holes import (
    has_holes,
    local_extents,
    merged,
    ranges_of,
    remote_extents,
    without_zeros,
)
from careful.transfer.file.journal import Identity, Journal, KeptPartial, tag_of
from careful.transfer.file.local import Partial, settled, shown
from careful.transfer.file.mover import Mover
from careful.transfer.file.resume import RemotePartial, take_digests, verify_local, verify_source
from careful.transfer.file.source import check_source, may_hold
from careful.transfer.options import FileResult, Options, Progress, Silent
from careful.transfer.protocol.block import Attr, BlockClient
from careful.transfer.tasks import SLICE_BYTES, all_of, in_slices, in_thread, quietly
from careful.transfer.tree.scan import local_attr
from careful.units import shown_bytes

__all__ = [
    "FileResult",
    "Options",
    "Progress",
    "Silent",
    "all_of",
    "get_file",
    "in_thread",
    "put_file",
]


#: What to do after an interruption.
RESUME = "run the same command to resume"


@dataclass
class _Fetch:
    """One file on its way here."""

    remote: BlockClient
    source: str
    target: str
    options: Options
    progress: Progress
    _old_bytes: int = -1

    async def run(self, handle: int, attr: Attr) -> FileResult | None:
        """Fetch what is open; its partial file is kept or gone if that fails. None: it is here."""
        name = self.remote.name(shown(self.source))
        identity = Identity(name, attr.bytes, attr.mtime_ns, attr.ctime_ns, attr.inode)
        sparse = self.options.sparse or has_holes(attr)
        mode = stat.S_IMODE(attr.mode)
        part = await in_thread(partial(self._part, identity, mode, sparse), self._let_go)
        kept = part if isinstance(part, KeptPartial) else None
        block_bytes = kept.journal.block_bytes if kept else self.options.block_bytes
        try:
            known = await self._known(kept, handle, identity) if kept is not None else {}
            resumed = kept.journal.bytes_in_place if kept is not None and known else 0
            matched = 0
            if self.options.checksum and not known:
                known = await self._matched(part, handle, attr, block_bytes)
                sizes = block_sizes(attr.bytes, block_bytes)
                matched = sum(sizes[index] for index in known)
                if matched == attr.bytes == self._old_bytes:
                    part.discard()
                    await self.remote.close(handle, self.source)
                    return None
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
            await in_thread(partial(part.commit, self.options.sync, mtime_ns))
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
        """Move what is not here yet; the file's digest."""
        handle, file_bytes = mover.handle, attr.bytes
        note = None
        if kept is not None:
            journal = kept.journal
            note = lambda index, digest: kept.note(journal.mark(index, digest))  # noqa: E731
        try:
            if has_holes(attr):
                extents = await remote_extents(self.remote, handle, file_bytes, self.source)
                # What an earlier transfer or the old file left is no hole until it is one.
                there = await in_thread(partial(local_extents, mover.fd, file_bytes))
                mover.ranges = ranges_of(merged(extents, there))
            digest = await mover.run(file_bytes, known, note)
            if self.options.blake3:
                digest = await agreed(mover, self.remote, file_bytes, self.source)
            return digest
        except BaseException:
            if mover.handle != handle:
                await quietly(self.remote.close(mover.handle, self.source))
            raise

    async def _reopened(self, attr: Attr, name: str) -> int:
        """The source opened again; its handle."""
        handle, now = await self.remote.open(self.source)
        if not may_hold(now, attr):
            await quietly(self.remote.close(handle, self.source))
            raise CarefulError(errno.ESTALE, "changed while it was being transferred", name)
        return handle

    async def _is_equal(self, attr: Attr, after: Attr, part: Partial) -> bool:
        """Whether the source, which changed, holds what is here."""
        try:
            handle, now = await self.remote.open(self.source)
        except CarefulError as error:
            # Removed meanwhile: what was open stayed readable, and nobody wrote to it.
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
        """The source's attributes now that all of it is here; its handle ends."""
        try:
            return await self.remote.close(mover.handle, self.source)
        except CarefulError as error:
            if error.errno != errno.EBADF or mover.reopen is None:
                raise
            return await self.remote.close(await mover.reopen(), self.source)

    async def _matched(
        self, part: Partial, handle: int, attr: Attr, block_bytes: int
    ) -> dict[int, int]:
        """The blocks that the file which is replaced has already; they are copied."""
        old = open_old(self.target)
        if old < 0:
            return {}
        try:
            name = shown(self.target)
            self._old_bytes = os.fstat(old).st_size
            sizes = attr.bytes, self._old_bytes
            same = await equal_blocks(self.remote, handle, sizes, old, block_bytes, self.source)
            if same:
                nbytes = min(sizes)
                await copy_into(old, part.fd, nbytes, name)
        finally:
            os.close(old)
        if isinstance(part, KeptPartial):
            for index, digest in same.items():
                part.note(part.journal.mark(index, digest))
        return same

    def _part(self, identity: Identity, mode: int, sparse: bool) -> Partial:
        """Where the file is written; one with a journal if it has more than one block."""
        options = self.options
        if identity.bytes <= options.block_bytes:
            return Partial(self.target, identity.bytes, mode, options.replace, sparse)
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
        )

    async def _known(self, kept: KeptPartial, handle: int, now: Identity) -> dict[int, int]:
        """The blocks that need not come, with their digests."""
        if not kept.resumed:
            return {}
        await verify_local(kept)
        if self.options.digest:
            journal, fd = kept.journal, kept.fd
            await take_digests(self.remote, handle, journal, fd, kept.note, self.source)
        if kept.journal.identity.is_doubtful(now):
            await verify_source(self.remote, handle, kept.journal, kept.note, self.source)
        return {index: kept.journal.digest(index) or 0 for index in kept.journal.in_place}

    def _let_go(self, part: Partial) -> None:
        """Leave a partial file as it was found; a new one goes."""
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


def is_worth_keeping(journal: Journal, error: BaseException) -> bool:
    """Whether what came across serves a later transfer."""
    changed = isinstance(error, CarefulError) and error.errno in (errno.ESTALE, errno.ENODATA)
    return bool(journal.in_place) and not changed


def tell_kept(kept: tuple[int, int], name: str, error: BaseException, progress: Progress) -> None:
    """Say that a partial file stays: in the error's line, if there will be one.

    Args:
        kept: how much is in place, 0 if that is not known, and of how much.
        name: of the file.
        error: what ended its transfer.
        progress: told if the error is nobody's line.
    """
    done, all_bytes = kept
    what = f"{done} of {all_bytes} bytes are kept" if done else "what arrived is kept"
    text = f"{what}; {RESUME}"
    if isinstance(error, CarefulError):
        error.reason += f"; {text}"
    else:
        progress.note(f"{name}: {text}")


def tell_lost(name: str, block_bytes: int, error: BaseException, progress: Progress) -> None:
    """Say that an interrupted transfer leaves nothing; of one that failed, the error says enough.

    Args:
        name: of the file.
        block_bytes: size of a block.
        error: what ended its transfer.
        progress: told.
    """
    if not isinstance(error, CarefulError):
        block = shown_bytes(block_bytes)
        text = f"nothing is kept (no block of {block} was complete); the next run starts over"
        progress.note(f"{name}: {text}")


async def get_file(
    remote: BlockClient, source: str, target: str, options: Options, progress: Progress
) -> FileResult | None:
    """Fetch one file; None: with options.checksum, what is here is equal.

    Args:
        remote: the peer's tree.
        source: path in it.
        target: local path; seen only when complete.
        options: how.
        progress: told of each piece.

    Raises:
        CarefulError: it failed; at most a partial file is left of it.
    """
    handle, attr = await remote.open(source)
    try:
        if not attr.is_file:
            raise CarefulError(errno.EINVAL, "is not a regular file", remote.name(shown(source)))
        return await _Fetch(remote, source, target, options, progress).run(handle, attr)
    except BaseException:
        await quietly(remote.close(handle, source))
        raise


def _open_source(path: str) -> tuple[int, os.stat_result]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise from_os(error, shown(path)) from None
    try:
        attr = os.fstat(fd)
        if not stat.S_ISREG(attr.st_mode):
            raise CarefulError(errno.EINVAL, "is not a regular file", shown(path))
        fd = settled(fd, shown(path))
        return fd, os.fstat(fd)
    except BaseException:
        os.close(fd)
        raise


async def put_file(
    remote: BlockClient, source: str, target: str, options: Options, progress: Progress
) -> FileResult | None:
    """Send one file; None: with options.checksum, what is there is equal.

    Args:
        remote: the peer's tree.
        source: local path.
        target: path in the peer's tree; seen there only when complete.
        options: how.
        progress: told of each piece.

    Raises:
        CarefulError: it failed; at most a partial file is left of it at the other end.
    """
    name = remote.name(shown(target))
    fd, attr = await in_thread(partial(_open_source, source), lambda opened: os.close(opened[0]))
    part = RemotePartial(remote, target, options)
    matched: dict[int, int] = {}
    try:
        if options.checksum:
            matched, equal = await _matched_there(remote, target, fd, attr.st_size, options)
            if equal:
                return None
        part.seeded = matched
        part.sparse = options.sparse or has_holes(local_attr(attr))
        mode = stat.S_IMODE(attr.st_mode) & 0o777
        identity = Identity(
            shown(source), attr.st_size, attr.st_mtime_ns, attr.st_ctime_ns, attr.st_ino
        )
        known = await part.open(identity, os.path.abspath(source), fd, mode)
        there = part.journal.bytes_in_place if known else 0
        resumed, seeded = (0, there) if part.seeded else (there, 0)
        progress.present(there)
        async with remote.registered(fd) as file:
            mover = Mover(
                remote,
                lib.CAREFUL_IPC_STORE,
                part.handle,
                fd,
                file,
                name,
                options,
                progress,
                part.journal.block_bytes,
            )
            mover.reopen = part.reopen
            if part.sparse:
                here = await _extents_here(fd, attr.st_size, source, options)
                # What an earlier transfer or the old file left is no hole until it is one.
                left = await remote_extents(remote, part.handle, attr.st_size, target)
                mover.ranges = ranges_of(merged(here, left))
            digest = await mover.run(attr.st_size, known, part.mark)
            if options.blake3:
                digest = await agreed(mover, remote, attr.st_size, target)
        size = attr.st_size
        is_equal = partial(
            is_all_equal, remote, part.handle, size, fd, part.journal.block_bytes, target
        )
        before, after = local_attr(attr), local_attr(os.fstat(fd))
        await check_source(before, after, is_equal, shown(source), progress)
        await part.commit(mode, attr.st_mtime_ns if options.keeps_times else 0)
    except BaseException as error:
        kept = await part.give_up(is_worth_keeping(part.journal, error))
        if kept is not None:
            tell_kept((kept, attr.st_size), name, error, progress)
        elif attr.st_size > part.journal.block_bytes:
            tell_lost(name, part.journal.block_bytes, error, progress)
        raise
    finally:
        os.close(fd)
    retries = mover.pace.retries
    return FileResult(
        shown(source),
        name,
        attr.st_size,
        digest,
        retries,
        resumed,
        seeded,
        options.blake3,
        mover.hole_bytes,
    )


async def _extents_here(
    fd: int, nbytes: int, source: str, options: Options
) -> list[tuple[int, int]]:
    """Where our source holds data; with options.sparse, zeros are none."""
    extents = await in_thread(partial(local_extents, fd, nbytes))
    if not options.sparse:
        return extents
    pieces = [
        (at, min(SLICE_BYTES, begin + size - at))
        for begin, size in extents
        for at in range(begin, begin + size, SLICE_BYTES)
    ]
    look = lambda piece: without_zeros(fd, [piece], source)  # noqa: E731
    return list(chain.from_iterable(await in_slices(look, pieces, SLICE_BYTES)))


async def _matched_there(
    remote: BlockClient, target: str, fd: int, nbytes: int, options: Options
) -> tuple[dict[int, int], bool]:
    """The blocks that the peer's file has already, and whether those are all of both."""
    try:
        handle, attr = await remote.open(target)
    except CarefulError as error:
        if error.errno in (errno.ENOENT, errno.ENOTSUP, errno.EISDIR):
            return {}, False
        raise
    try:
        sizes = attr.bytes, nbytes
        same = await equal_blocks(remote, handle, sizes, fd, options.block_bytes, target)
    finally:
        await quietly(remote.close(handle, target))
    equal = attr.bytes == nbytes and len(same) == len(block_sizes(nbytes, options.block_bytes))
    return same, equal
