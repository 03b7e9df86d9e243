"""Transfers whose ends are not plain files: standard input and output, null:, devices, ranges.

Owns the opening of the peer's end, and refuses options that such ends do not support.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Awaitable, Callable
from functools import partial

from careful.errors import CarefulError, LossError, Option, shown
from careful.transfer.file.compare import still_holds
from careful.transfer.file.partial_file import special_there
from careful.transfer.file.source import check_same, check_source, may_hold
from careful.transfer.options import FileResult, Options, Progress, Silent
from careful.transfer.protocol.block import Attr, BlockClient, relative
from careful.transfer.protocol.entries import NOTHING
from careful.transfer.result import Result
from careful.transfer.stream.inplace import Own, Side, bytes_from, move_differing
from careful.transfer.stream.local_end import NULL, STDIO, Sink, Span, is_device, open_source
from careful.transfer.stream.ring import ENDLESS, Held, apart, need_length, receive, send
from careful.transfer.tasks import quietly
from careful.transfer.tree.direction import Here, There
from careful.transfer.tree.mkpath import make_path

#: Errors after which nothing was written, or after which a retry makes no sense.
_BEFORE = {
    errno.EACCES,
    errno.EBUSY,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


async def _kind_there(remote: BlockClient, path: str) -> Attr:
    """Returns a peer's attributes of a path; all 0 if it is missing or opening it will fail."""
    try:
        return await remote.stat(path)
    except LossError:
        raise
    except CarefulError:
        return NOTHING


async def _is_remote_device(remote: BlockClient, path: str) -> bool:
    return (await _kind_there(remote, path)).is_device


async def is_special(
    remote: BlockClient, source: str, target: str, span: Span, is_get: bool
) -> bool:
    """Reports whether this module handles a transfer.

    `is_get` is true if the source is the remote end. Both ends lack the host.
    """
    if not span.is_whole or NULL in (source, target):
        return True
    local, there = (target, source) if is_get else (source, target)
    return local == STDIO or is_device(local) or await _is_remote_device(remote, relative(there))


def opened_again(
    remote: BlockClient,
    opened: Callable[[], Awaitable[tuple[int, Attr]]],
    attr: Attr,
    name: str,
    is_written: bool = False,
) -> Callable[[], Awaitable[int]]:
    """Returns a function that opens a peer's file again and checks that it is the same.

    `attr` is from the first opening; `is_written` is true if we change the file meanwhile.
    """

    async def again() -> int:
        handle, now = await opened()
        is_same = now.inode == attr.inode if is_written else may_hold(now, attr)
        if not is_same:
            await quietly(remote.close(handle, name))
            raise CarefulError(errno.ESTALE, "changed while it was being transferred", name)
        return handle

    return again


async def gone(name: str) -> int:
    """Opens a new file again: raises, because the peer has removed it."""
    raise CarefulError(errno.ECONNRESET, "the connection to it was lost; send it again", name)


async def _get(
    remote: BlockClient, source: str, target: str, span: Span, options: Options, progress: Progress
) -> FileResult:
    mode = 0o666
    if source == NULL:
        end = span.offset + need_length(span.nbytes)
        held = Held(await remote.open_null(end), partial(remote.open_null, end))
        name = remote.name(NULL)
    else:
        handle, attr = await remote.open(source)
        name, end = remote.name(shown(source)), attr.bytes
        held = Held(handle, opened_again(remote, partial(remote.open, source), attr, name))
        mode = stat.S_IMODE(attr.mode) if attr.is_file else mode
    try:
        nbytes = max(0, end - span.offset)
        if span.nbytes is not None and span.nbytes > nbytes:
            raise CarefulError(
                errno.ENODATA, f"only {nbytes} bytes follow byte {span.offset}", name
            )
        nbytes = nbytes if span.nbytes is None else span.nbytes
        names = name, shown(target)
        if options.dry_run:
            await remote.close(held.handle, source)
            return FileResult(*names, nbytes, None, 0)
        progress.expect(1, nbytes)
        if target not in (NULL, STDIO) and span.at is None and not is_device(target):
            await make_path(Here(), os.path.dirname(target), options)
        sink = Sink(target, span, mode, options)
        done = False
        try:

            async def fetch(at: int, size: int, seen: dict[int, int]) -> FileResult:
                part = span.offset + at, size
                return await receive(remote, held, part, sink.fd, names, options, progress, seen)

            async def fetch_at(at: int, size: int, seen: dict[int, int]) -> FileResult:
                if sink.fd is not None:
                    os.lseek(sink.fd, (span.at or 0) + at, os.SEEK_SET)
                return await fetch(at, size, seen)

            came: dict[int, int] = {}
            if options.checksum and sink.fd is not None:
                place = span.at or 0
                mine = Side(sink.fd, place, bytes_from(sink.fd, place, target), target)
                sides = Side(held.handle, span.offset, nbytes, source), mine
                result = await move_differing(
                    remote, sides, nbytes, names, options, progress, fetch_at
                )
            else:
                result = await fetch(0, nbytes, came)
            after = await held.end(lambda handle: remote.close(handle, source))
            if source != NULL and after.is_device:
                check_same((attr.bytes, attr.mtime_ns), (end, after.mtime_ns), name)
            elif source != NULL:
                step = options.block_bytes if options.digest else 0
                holds = partial(
                    still_holds, remote, source, attr, (span.offset, nbytes), came, step
                )
                listener = progress if span.nbytes is None else Silent()
                await check_source(attr, after, holds, name, listener)
            done = True
        finally:
            sink.end(done)
    except BaseException:
        await quietly(remote.close(held.handle, source))
        raise
    progress.finished(name)
    return result


async def _put(
    remote: BlockClient, source: str, target: str, span: Span, options: Options, progress: Progress
) -> FileResult:
    most = ENDLESS if span.nbytes is None and source != NULL else need_length(span.nbytes)
    # Opening a fifo waits for its writer.
    fd, mode = await apart(partial(open_source, source, span.offset))
    names = shown(source), remote.name(NULL if target == NULL else shown(target))
    held, at, there = Held(), span.at or 0, 0
    try:
        before = Own.of(fd)
        if options.dry_run:
            known = 0
            if fd is not None and source != STDIO:
                known = bytes_from(fd, span.offset, source)
            return FileResult(*names, min(most, known) if fd is not None else most, None, 0)
        kind = await _kind_there(remote, target)
        if target == NULL:
            held = Held(await remote.open_null(ENDLESS), partial(remote.open_null, ENDLESS))
        elif span.at is not None or kind.is_device:
            if not options.replace:
                text = ("exists; ", Option.REPLACE, " overwrites it")
                raise CarefulError(errno.EEXIST, text, names[1])
            handle, device = await remote.open_inplace(target)
            again = partial(remote.open_inplace, target)
            held = Held(handle, opened_again(remote, again, device, names[1], is_written=True))
            there = max(0, device.bytes - at)
            if device.is_device:
                most = min(most, there)
        elif kind.is_special:
            raise special_there(names[1])
        else:
            await make_path(There(remote), os.path.dirname(target), options)
            held = Held(
                await remote.create_stream(target, mode, options.replace), partial(gone, names[1])
            )

        async def move(offset: int, size: int, seen: dict[int, int] | None = None) -> FileResult:
            if seen is not None and fd is not None:
                os.lseek(fd, span.offset + offset, os.SEEK_SET)
            part = at + offset, size
            return await send(remote, held, part, fd, names, options, progress, seen)

        if options.checksum and fd is not None:
            mine = Side(fd, span.offset, bytes_from(fd, span.offset, source), source)
            nbytes = min(most, mine.bytes)
            progress.expect(1, nbytes)
            sides = Side(held.handle, at, there, target), mine
            result = await move_differing(remote, sides, nbytes, names, options, progress, move)
            os.lseek(fd, span.offset + nbytes, os.SEEK_SET)
        else:
            progress.expect(1, 0 if most == ENDLESS else most)
            result = await move(0, most)
        await _check_all_fitted(fd, result.bytes, most, span, names[1])
        if target == NULL:
            await held.end(lambda handle: remote.close(handle, target))
        else:
            if before is not None:
                sent = Side(held.handle, at, result.bytes, target)
                listener = progress if span.nbytes is None else Silent()
                await before.check(remote, sent, names[0], options.block_bytes, listener)
            replace, sync = options.replace, options.fsync != "none"
            ways = target, mode, replace, sync
            await held.end(lambda handle: remote.commit(handle, *ways, nbytes=result.bytes))
    except BaseException:
        if held.handle:
            await quietly(remote.close(held.handle, target, discard=True))
        raise
    finally:
        if fd is not None:
            os.close(fd)
    progress.finished(names[0])
    return result


async def _check_all_fitted(fd: int | None, sent: int, most: int, span: Span, name: str) -> None:
    """Raises if the source ended before the range, or has more bytes than the device."""
    if fd is None or sent < most or span.nbytes is not None or most == ENDLESS:
        if span.nbytes is not None and sent < span.nbytes:
            raise CarefulError(errno.ENODATA, f"the source ended after {sent} bytes", name)
        return
    if await apart(lambda own: os.read(own, 1), fd):
        raise CarefulError(errno.ENOSPC, f"full after {sent} bytes", name)


def _refuse(source: str, target: str, span: Span, in_place: bool, options: Options) -> None:
    """Refuses options that apply only to whole files, by a CarefulError."""
    ends = source, target
    if options.update:
        if not span.is_whole or STDIO in ends or NULL in ends:
            raise CarefulError(errno.EINVAL, "works only on whole files", "-u")
        text = "a device has no time to compare" + ("; -c compares contents" if in_place else "")
        raise CarefulError(errno.EINVAL, text, shown(target if in_place else source))
    if options.checksum and (not in_place or STDIO in ends or NULL in ends):
        text = "needs a target that is written in place, like a device"
        raise CarefulError(errno.EINVAL, text, "-c")
    if options.blake3 and (options.checksum or span.offset or span.at or NULL in ends):
        text = "works on a whole file, stream or device: not with --offset, --at, -c or null:"
        raise CarefulError(errno.EINVAL, text, "--digest blake3")


async def transfer(
    remote: BlockClient,
    is_get: bool,
    source: str,
    target: str,
    span: Span,
    options: Options,
    progress: Progress,
) -> Result:
    """Moves one file whose ends are special.

    `is_get` is true if the source is the remote end. Both ends lack the host.

    Raises:
        CarefulError: the transfer failed; a device or file written in place may have changed.
    """
    began = time.monotonic()
    there = source if is_get else target
    path = there if there == NULL else relative(there)
    in_place = span.at is not None or (
        is_device(target) if is_get else await _is_remote_device(remote, path)
    )
    _refuse(source, target, span, in_place, options)
    try:
        if is_get:
            result = await _get(remote, path, target, span, options, progress)
        else:
            result = await _put(remote, source, path, span, options, progress)
    except CarefulError as error:
        if error.errno == errno.EISDIR:
            text = "is a directory; -, null:, devices and parts of files need a single file"
            error.reason, error.parts = text, (text,)
        if in_place and options.replace and error.errno not in _BEFORE:
            error.add(Option.CHECKSUM, " resumes with the blocks that differ")
        raise
    is_equal = result.bytes == result.matched_bytes > 0
    report = Result(singles=[] if is_equal else [result])
    if is_equal:
        report.equal.append((result.source, result.bytes))
    report.seconds = time.monotonic() - began
    return report
