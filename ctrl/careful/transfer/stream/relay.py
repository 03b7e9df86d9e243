"""Copies a file of a peer to a peer: `carefulctl cp`.

If both are one peer, that peer copies the file. Otherwise the bytes pass through a pipe of this
process, from a get to a put. An interrupted copy leaves nothing behind.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from careful._abi import lib
from careful.closing import descriptor
from careful.errors import CarefulError, shown
from careful.transfer.file.holes import has_holes
from careful.transfer.file.partial_file import digest_of_blocks
from careful.transfer.file.source import check_same
from careful.transfer.lost_frames import Lost
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr, relative
from careful.transfer.result import Result
from careful.transfer.stream.ends import no_reopen, reopener
from careful.transfer.stream.ring import PeerFile, Stream, receive, send
from careful.transfer.tasks import all_of, quietly
from careful.transfer.tree.direction import RemoteEnd, make_path


async def copy(
    source: BlockClient,
    target: BlockClient,
    paths: tuple[str, str],
    options: Options,
    progress: Progress,
) -> Result:
    """Copies one file; if the target is a directory, into it, under the file's name.

    Args:
        source: the peer that has the file.
        target: the peer that gets it; the same object for the same peer.
        paths: of the file and of the target.
        options: how it moves.
        progress: receives each step.
    """
    began = time.monotonic()
    peers = [source] if source is target else [source, target]
    peer_losses = [await one.watch(options.fail_on_loss, progress.retried) for one in peers]
    async with _open(source, relative(paths[0])) as (file, attr):
        target_path = await _target_path(target, paths[1], posixpath.basename(relative(paths[0])))
        names = source.name(shown(relative(paths[0]))), target.name(shown(target_path))
        result = FileResult(*names, attr.bytes, None, 0)
        if not options.dry_run:
            await make_path(RemoteEnd(target), posixpath.dirname(target_path), options)
            progress.expect(1, attr.bytes)
            stream = Stream(source, names, options, progress)
            result = await _copy(stream, file, target, target_path, attr)
            progress.finished(names[0])
    for one in peer_losses:
        one.check_end()
    lost = [await one.so_far() for one in peer_losses]
    total = Lost(*map(sum, zip(*lost, strict=True)))
    return Result(singles=[result], seconds=time.monotonic() - began, lost=total)


@asynccontextmanager
async def _open(source: BlockClient, path: str) -> AsyncIterator[tuple[PeerFile, Attr]]:
    name = source.name(shown(path))
    try:
        handle, attr = await source.open(path)
    except CarefulError as error:
        if error.errno == errno.EISDIR:
            error.add("cp copies single files, `get -r` and `put -r` copy trees")
        raise
    file = PeerFile(handle, reopener(source, partial(source.open, path), attr, name))
    try:
        if not attr.is_file:
            raise CarefulError(errno.EINVAL, "is not a regular file", name)
        yield file, attr
    finally:
        if file.handle:
            await quietly(source.close(file.handle, path))


async def _target_path(target: BlockClient, path: str, name: str) -> str:
    """Returns the path of the copy."""
    relative_path = relative(path)
    existing = await RemoteEnd(target).stat(relative_path, follow=True)
    if existing is not None and existing.is_dir:
        return posixpath.join(relative_path, name) if relative_path != "." else name
    if path.endswith("/"):
        raise CarefulError(errno.ENOTDIR, "is not a directory", target.name(shown(relative_path)))
    return relative_path


async def _copy(
    stream: Stream, file: PeerFile, target: BlockClient, path: str, attr: Attr
) -> FileResult:
    source, names, options = stream.remote, stream.names, stream.options
    mode, is_one_peer = stat.S_IMODE(attr.mode) & 0o777, source is target
    made = await target.create(
        path,
        attr.bytes,
        mode,
        options.replace,
        flags=lib.CAREFUL_BLOCK_SPARSE if is_one_peer and has_holes(attr) else 0,
        source=file.handle if is_one_peer else 0,
    )
    try:
        if is_one_peer:
            stream.progress.moved(attr.bytes)
            result = await _compare(stream, file, PeerFile(made.handle), attr.bytes)
        else:
            copy_file = PeerFile(made.handle, partial(no_reopen, names[1]))
            result = await _pipe(stream, file, target, copy_file, attr.bytes)
        after = await file.finish(lambda handle: source.close(handle, names[0]))
        file.handle = 0
        now = after.bytes, after.mtime_ns
        check_same((attr.bytes, attr.mtime_ns), now, names[0])
        mtime_ns = attr.mtime_ns if options.preserve else 0
        settings = mode, options.replace, options.fsync != "none"
        await target.commit(made.handle, path, *settings, mtime_ns, exact=options.preserve)
    except BaseException:
        await quietly(target.close(made.handle, path, discard=True))
        raise
    return result


async def _compare(stream: Stream, file: PeerFile, copy_file: PeerFile, nbytes: int) -> FileResult:
    """Compares a copy with its source by their blocks' digests, which the peer computes."""
    peer, block_bytes = stream.remote, stream.options.block_bytes
    digests: list[list[int]] = []
    for peer_file, name in zip((file, copy_file), stream.names, strict=True):
        path = name.removeprefix(peer.name(""))
        digests_of = partial(
            peer.digests, offset=0, nbytes=nbytes, block_bytes=block_bytes, path=path
        )
        digests.append(await peer_file.finish(digests_of))
    if digests[0] != digests[1]:
        raise CarefulError(errno.EBADMSG, "the copy differs from the source", stream.names[1])
    return FileResult(*stream.names, nbytes, digest_of_blocks(digests[0]), 0)


async def _pipe(
    stream: Stream, file: PeerFile, target: BlockClient, copy_file: PeerFile, nbytes: int
) -> FileResult:
    """Fetches the bytes and sends them on at the same time; compares the digests of both ends."""
    unlimited = replace(stream.options, limit=None)  # the limit counts once
    quiet = replace(stream, options=unlimited, progress=Progress())
    read_end, write_end = os.pipe()
    with descriptor(read_end), descriptor(write_end):
        received, sent = await all_of(
            receive(quiet, file, (0, nbytes), write_end),
            send(replace(stream, remote=target), copy_file, (0, nbytes), read_end),
        )
    if received.digest != sent.digest:
        raise CarefulError(errno.EBADMSG, "the copy differs from the source", stream.names[1])
    return sent
