"""Sends one file: it appears at the peer complete, or not at all.

Owns the reading of the source.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from itertools import chain

from careful._abi import lib
from careful.errors import CarefulError, from_os, shown
from careful.transfer.file.blake3 import agreed
from careful.transfer.file.compare import block_sizes, equal_blocks, is_all_equal
from careful.transfer.file.holes import (
    Ranges,
    has_holes,
    local_extents,
    merged,
    remote_extents,
    without_zeros,
)
from careful.transfer.file.journal import Identity
from careful.transfer.file.kept import is_worth_keeping, tell_kept, tell_lost
from careful.transfer.file.local import settled
from careful.transfer.file.mover import Mover
from careful.transfer.file.resume import RemotePartial
from careful.transfer.file.source import check_source
from careful.transfer.folder import open_file
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import local_attr
from careful.transfer.tasks import SLICE_BYTES, in_slices, in_thread, quietly


def _open_source(path: str, root: str | None) -> tuple[int, os.stat_result]:
    try:
        fd = open_file(path, root)
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
    remote: BlockClient,
    source: str,
    target: str,
    options: Options,
    progress: Progress,
    root: str | None = None,
) -> FileResult | None:
    """Sends one file; returns None if options.checksum is set and the peer's file is equal.

    `target` is a path in the peer's tree. No symlink is followed below `root`.

    Raises:
        CarefulError: the transfer failed; at most a partial file remains at the peer.
    """
    name = remote.name(shown(target))
    fd, attr = await in_thread(
        partial(_open_source, source, root), lambda opened: os.close(opened[0])
    )
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
                # Data of an earlier transfer or the old file may lie in the source's holes.
                left = await remote_extents(remote, part.handle, attr.st_size, target)
                mover.ranges = Ranges(merged(here, left))
            digest = await mover.run(attr.st_size, known, part.mark)
            if options.blake3:
                digest = await agreed(mover, remote, attr.st_size, target)
        size = attr.st_size
        is_equal = partial(
            is_all_equal, remote, part.handle, size, fd, part.journal.block_bytes, target
        )
        before, after = local_attr(attr), local_attr(os.fstat(fd))
        await check_source(before, after, is_equal, shown(source), progress)
        await part.commit(mode, before.mtime_ns if options.keeps_times else 0)
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
    """Returns where the source holds data; with options.sparse, zeros are holes."""
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
    """Returns the blocks that the peer's file already has, and whether the files are equal."""
    try:
        handle, attr = await remote.open(target, wait=True)
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
