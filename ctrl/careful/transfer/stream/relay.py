"""Copies a file of a peer to a peer: `carefulctl cp`.

If both are one peer, it copies the file itself. Otherwise the bytes pass through a pipe of this
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
from careful.errors import CarefulError, shown
from careful.transfer.file.holes import has_holes
from careful.transfer.file.partial_file import digest_of_blocks
from careful.transfer.file.source import check_same
from careful.transfer.lost_frames import Lost
from careful.transfer.options import FileResult, Options, Progress, Silent
from careful.transfer.protocol.block import Attr, BlockClient, relative
from careful.transfer.result import Result
from careful.transfer.stream.ends import gone, opened_again
from careful.transfer.stream.ring import Held, receive, send
from careful.transfer.tasks import all_of, quietly
from careful.transfer.tree.direction import There
from careful.transfer.tree.mkpath import make_path


async def copy(
    source: BlockClient,
    target: BlockClient,
    paths: tuple[str, str],
    options: Options,
    progress: Progress,
) -> Result:
    """Copies one file; a directory as target takes it under its own name.

    Args:
        source: the peer that has the file.
        target: the peer that gets it; the same object if it is the same peer.
        paths: of the file and of the target.
        options: how it moves.
        progress: receives each step.

    Raises:
        CarefulError: nothing was copied.
    """
    began = time.monotonic()
    peers = [source] if source is target else [source, target]
    watched = [await one.watch(options.fail_on_loss, progress.retried) for one in peers]
    async with _opened(source, relative(paths[0])) as (held, attr):
        there = await _place(target, paths[1], posixpath.basename(relative(paths[0])))
        names = source.name(shown(relative(paths[0]))), target.name(shown(there))
        result = FileResult(*names, attr.bytes, None, 0)
        if not options.dry_run:
            await make_path(There(target), posixpath.dirname(there), options)
            progress.expect(1, attr.bytes)
            result = await _copied((source, held), (target, there), attr, names, options, progress)
            progress.finished(names[0])
    for losses in watched:
        losses.check_end()
    lost = [await losses.so_far() for losses in watched]
    total = Lost(*map(sum, zip(*lost, strict=True)))
    return Result(singles=[result], seconds=time.monotonic() - began, lost=total)


@asynccontextmanager
async def _opened(source: BlockClient, path: str) -> AsyncIterator[tuple[Held, Attr]]:
    name = source.name(shown(path))
    try:
        handle, attr = await source.open(path)
    except CarefulError as error:
        if error.errno == errno.EISDIR:
            error.add("cp copies single files, `get -r` and `put -r` copy trees")
        raise
    held = Held(handle, opened_again(source, partial(source.open, path), attr, name))
    try:
        if not attr.is_file:
            raise CarefulError(errno.EINVAL, "is not a regular file", name)
        yield held, attr
    finally:
        if held.handle:
            await quietly(source.close(held.handle, path))


async def _place(target: BlockClient, given: str, name: str) -> str:
    """Returns the path of the copy."""
    path = relative(given)
    there = await There(target).stat(path, follow=True)
    if there is not None and there.is_dir:
        return posixpath.join(path, name) if path != "." else name
    if given.endswith("/"):
        raise CarefulError(errno.ENOTDIR, "is not a directory", target.name(shown(path)))
    return path


async def _copied(
    end: tuple[BlockClient, Held],
    place: tuple[BlockClient, str],
    attr: Attr,
    names: tuple[str, str],
    options: Options,
    progress: Progress,
) -> FileResult:
    (source, held), (target, path) = end, place
    mode, is_one = stat.S_IMODE(attr.mode) & 0o777, source is target
    made = await target.create(
        path,
        attr.bytes,
        mode,
        options.replace,
        flags=lib.CAREFUL_BLOCK_SPARSE if is_one and has_holes(attr) else 0,
        source=held.handle if is_one else 0,
    )
    try:
        if is_one:
            progress.moved(attr.bytes)
            to = Held(made.handle)
            result = await _compared(source, held, to, attr.bytes, names, options)
        else:
            to = Held(made.handle, partial(gone, names[1]))
            result = await _piped(end, (target, to), attr.bytes, names, options, progress)
        after = await held.end(lambda handle: source.close(handle, names[0]))
        held.handle = 0
        now = after.bytes, after.mtime_ns
        check_same((attr.bytes, attr.mtime_ns), now, names[0])
        mtime_ns = attr.mtime_ns if options.preserve else 0
        ways = mode, options.replace, options.fsync != "none"
        await target.commit(made.handle, path, *ways, mtime_ns, exact=options.preserve)
    except BaseException:
        await quietly(target.close(made.handle, path, discard=True))
        raise
    return result


async def _compared(
    peer: BlockClient, held: Held, to: Held, nbytes: int, names: tuple[str, str], options: Options
) -> FileResult:
    """Compares a copy with its source by their blocks' digests, which the peer computes."""
    digests: list[list[int]] = []
    for end, name in zip((held, to), names, strict=True):
        path = name.removeprefix(peer.name(""))
        of_all = partial(
            peer.digests, offset=0, nbytes=nbytes, block_bytes=options.block_bytes, path=path
        )
        digests.append(await end.end(of_all))
    if digests[0] != digests[1]:
        raise CarefulError(errno.EBADMSG, "the copy differs", names[1])
    return FileResult(*names, nbytes, digest_of_blocks(digests[0]), 0)


async def _piped(
    end: tuple[BlockClient, Held],
    to: tuple[BlockClient, Held],
    nbytes: int,
    names: tuple[str, str],
    options: Options,
    progress: Progress,
) -> FileResult:
    """Fetches the bytes and sends them on at the same time; compares what both ends digested."""
    span, results = (0, nbytes), list[FileResult]()
    out, into = os.pipe()

    async def fetch() -> None:
        free = replace(options, limit=None)  # the limit counts once
        results.append(await receive(*end, span, into, names, free, Silent()))

    async def store() -> None:
        results.append(await send(*to, span, out, names, options, progress))

    try:
        await all_of(fetch(), store())
    finally:
        os.close(out)
        os.close(into)
    if results[0].digest != results[1].digest:
        raise CarefulError(errno.EBADMSG, "the copy differs", names[1])
    return results[1]
