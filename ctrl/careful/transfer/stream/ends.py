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

from careful._abi import lib
from careful.errors import CarefulError, LossError, Option, shown
from careful.transfer.file.compare import Side, still_holds
from careful.transfer.file.partial_file import special_file_error
from careful.transfer.file.source import check_same, check_source, may_hold
from careful.transfer.folder import exists_error
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING, Attr, relative
from careful.transfer.result import Result
from careful.transfer.stream.inplace import SentFile, bytes_from, move_differing
from careful.transfer.stream.local_end import NULL, STDIO, Sink, Span, is_device, open_source
from careful.transfer.stream.ring import (
    ENDLESS,
    PeerFile,
    Stream,
    in_daemon_thread,
    receive,
    required_length,
    send,
)
from careful.transfer.tasks import quietly
from careful.transfer.tree.direction import LocalEnd, RemoteEnd, make_path

#: Errors after which nothing was written, or after which a retry makes no sense.
_NOT_RESUMABLE = {
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


async def _remote_attr(remote: BlockClient, path: str) -> Attr:
    """Returns a peer's attributes of a path; all 0 if it is missing or cannot be opened."""
    try:
        return await remote.stat(path)
    except LossError:
        raise
    except CarefulError:
        return NOTHING


async def _is_remote_device(remote: BlockClient, path: str) -> bool:
    return (await _remote_attr(remote, path)).is_device


async def is_special(
    remote: BlockClient, source: str, target: str, span: Span, is_get: bool
) -> bool:
    """Reports whether this module handles a transfer. Both paths lack the host."""
    if not span.is_whole or NULL in (source, target):
        return True
    local, remote_path = (target, source) if is_get else (source, target)
    return (
        local == STDIO or is_device(local) or await _is_remote_device(remote, relative(remote_path))
    )


def reopener(
    remote: BlockClient,
    reopen: Callable[[], Awaitable[tuple[int, Attr]]],
    attr: Attr,
    name: str,
    is_written: bool = False,
) -> Callable[[], Awaitable[int]]:
    """Returns a function that opens a peer's file again and checks that it is the same.

    attr: from the first opening. is_written: whether this transfer changes the file.
    """

    async def checked_reopen() -> int:
        handle, now = await reopen()
        is_same = now.inode == attr.inode if is_written else may_hold(now, attr)
        if not is_same:
            await quietly(remote.close(handle, name))
            raise CarefulError(errno.ESTALE, "changed while it was being transferred", name)
        return handle

    return checked_reopen


async def no_reopen(name: str) -> int:
    """Fails to open a new file again, because the peer has removed it."""
    raise CarefulError(errno.ECONNRESET, "the connection was lost; send the file again", name)


async def _open_remote_source(
    remote: BlockClient, source: str, span: Span
) -> tuple[PeerFile, Attr]:
    """Opens the peer's end of a get; the attributes of null: have only a size."""
    if source == NULL:
        end = span.offset + required_length(span.nbytes)
        reopen = partial(remote.open_null, end)
        return PeerFile(await reopen(), reopen), NOTHING._replace(bytes=end)
    open_again = partial(remote.open, source)
    handle, attr = await open_again()
    name = remote.name(shown(source))
    return PeerFile(handle, reopener(remote, open_again, attr, name)), attr


async def _get(stream: Stream, source: str, target: str, span: Span) -> FileResult:
    remote, names, options = stream.remote, stream.names, stream.options
    file, attr = await _open_remote_source(remote, source, span)
    try:
        nbytes = max(0, attr.bytes - span.offset)
        if span.nbytes is not None:
            if span.nbytes > nbytes:
                text = f"only {nbytes} bytes follow byte {span.offset}"
                raise CarefulError(errno.ENODATA, text, names[0])
            nbytes = span.nbytes
        if options.dry_run:
            await remote.close(file.handle, source)
            return FileResult(*names, nbytes, None, 0)
        stream.progress.expect(1, nbytes)
        if target not in (NULL, STDIO) and span.at is None and not is_device(target):
            await make_path(LocalEnd(), os.path.dirname(target), options)
        mode = stat.S_IMODE(attr.mode) if attr.is_file else 0o666
        sink = Sink(target, span, mode, options)
        is_complete = False
        try:

            async def fetch(at: int, size: int, digests: dict[int, int]) -> FileResult:
                part = span.offset + at, size
                return await receive(stream, file, part, sink.fd, digests)

            async def fetch_at(at: int, size: int, digests: dict[int, int]) -> FileResult:
                if sink.fd is not None:
                    os.lseek(sink.fd, (span.at or 0) + at, os.SEEK_SET)
                return await fetch(at, size, digests)

            received: dict[int, int] = {}
            if options.checksum and sink.fd is not None:
                start = span.at or 0
                there = Side(file.handle, nbytes, source, span.offset)
                here = Side(sink.fd, bytes_from(sink.fd, start, target), target, start)
                result = await move_differing(stream, there, here, nbytes, fetch_at)
            else:
                result = await fetch(0, nbytes, received)
            after = await file.finish(lambda handle: remote.close(handle, source))
            if source != NULL and after.is_device:
                now = attr.bytes, after.mtime_ns  # only the time counts
                check_same((attr.bytes, attr.mtime_ns), now, names[0])
            elif source != NULL:
                step = options.block_bytes if options.digest else 0
                fetched = span.offset, nbytes
                is_equal = partial(still_holds, remote, source, attr, fetched, received, step)
                listener = stream.progress if span.nbytes is None else Progress()
                await check_source(attr, after, is_equal, names[0], listener)
            is_complete = True
        finally:
            sink.finish(is_complete)
    except BaseException:
        await quietly(remote.close(file.handle, source))
        raise
    stream.progress.finished(names[0])
    return result


async def _open_remote_target(
    remote: BlockClient, target: str, span: Span, mode: int, options: Options
) -> tuple[PeerFile, int, int]:
    """Opens the peer's end of a put.

    Returns:
        The file, its bytes from the range's start on, and the most bytes that fit there.
    """
    if target == NULL:
        reopen = partial(remote.open_null, ENDLESS)
        return PeerFile(await reopen(), reopen), 0, ENDLESS
    existing, name = await _remote_attr(remote, target), remote.name(shown(target))
    if span.at is None and not existing.is_device:
        if existing.is_special:
            raise special_file_error(name)
        await make_path(RemoteEnd(remote), os.path.dirname(target), options)
        stream = lib.CAREFUL_BLOCK_STREAM  # commit() sets the size
        made = await remote.create(target, 0, mode, options.replace, flags=stream)
        return PeerFile(made.handle, partial(no_reopen, name)), 0, ENDLESS
    if not options.replace:
        raise exists_error(name, "overwrites")
    open_again = partial(remote.open_inplace, target)
    handle, attr = await open_again()
    file = PeerFile(handle, reopener(remote, open_again, attr, name, is_written=True))
    nbytes = max(0, attr.bytes - (span.at or 0))
    return file, nbytes, nbytes if attr.is_device else ENDLESS


async def _put(stream: Stream, source: str, target: str, span: Span) -> FileResult:
    remote, names, options = stream.remote, stream.names, stream.options
    bytes_max = ENDLESS if span.nbytes is None and source != NULL else required_length(span.nbytes)
    # Opening a fifo waits for its writer.
    fd, mode = await in_daemon_thread(partial(open_source, source, span.offset))
    file, at = PeerFile(), span.at or 0
    try:
        before = SentFile.record(fd)
        if options.dry_run:
            if fd is not None:
                known = bytes_from(fd, span.offset, source) if source != STDIO else 0
                bytes_max = min(bytes_max, known)
            return FileResult(*names, bytes_max, None, 0)
        file, target_bytes, room_bytes = await _open_remote_target(
            remote, target, span, mode, options
        )
        bytes_max = min(bytes_max, room_bytes)

        async def move(offset: int, size: int, digests: dict[int, int] | None = None) -> FileResult:
            if digests is not None and fd is not None:
                os.lseek(fd, span.offset + offset, os.SEEK_SET)
            part = at + offset, size
            return await send(stream, file, part, fd, digests)

        if options.checksum and fd is not None:
            here = Side(fd, bytes_from(fd, span.offset, source), source, span.offset)
            nbytes = min(bytes_max, here.bytes)
            stream.progress.expect(1, nbytes)
            there = Side(file.handle, target_bytes, target, at)
            result = await move_differing(stream, there, here, nbytes, move)
            os.lseek(fd, span.offset + nbytes, os.SEEK_SET)
        else:
            stream.progress.expect(1, 0 if bytes_max == ENDLESS else bytes_max)
            result = await move(0, bytes_max)
        await _check_all_fitted(fd, result.bytes, bytes_max, span, names[1])
        if target == NULL:
            await file.finish(lambda handle: remote.close(handle, target))
        else:
            if before is not None:
                sent = Side(file.handle, result.bytes, target, at)
                listener = stream.progress if span.nbytes is None else Progress()
                await before.check(remote, sent, names[0], options.block_bytes, listener)
            settings = target, mode, options.replace, options.fsync != "none"
            await file.finish(lambda handle: remote.commit(handle, *settings, nbytes=result.bytes))
    except BaseException:
        if file.handle:
            await quietly(remote.close(file.handle, target, discard=True))
        raise
    finally:
        if fd is not None:
            os.close(fd)
    stream.progress.finished(names[0])
    return result


async def _check_all_fitted(
    fd: int | None, sent: int, bytes_max: int, span: Span, name: str
) -> None:
    """Raises CarefulError if the source is shorter than the range, or does not fit the device."""
    if span.nbytes is not None:
        if sent < span.nbytes:
            raise CarefulError(errno.ENODATA, f"the source ended after {sent} bytes", name)
    elif fd is None or sent < bytes_max or bytes_max == ENDLESS:
        return
    elif await in_daemon_thread(lambda own: os.read(own, 1), fd):
        raise CarefulError(errno.ENOSPC, f"full after {sent} bytes", name)


def _check_options(source: str, target: str, span: Span, in_place: bool, options: Options) -> None:
    """Raises CarefulError if -u, -c or --digest blake3 does not fit these ends."""
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
        text = "needs a whole file, stream or device; omit --offset, --at, -c and null:"
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
    """Moves one file whose ends are special; both paths lack the host. Raises CarefulError: the
    transfer failed; a device or file written in place may have changed.
    """
    began = time.monotonic()
    remote_path = source if is_get else target
    path = remote_path if remote_path == NULL else relative(remote_path)
    in_place = span.at is not None or (
        is_device(target) if is_get else await _is_remote_device(remote, path)
    )
    _check_options(source, target, span, in_place, options)
    there = remote.name(shown(path))
    names = (there, shown(target)) if is_get else (shown(source), there)
    stream = Stream(remote, names, options, progress)
    try:
        if is_get:
            result = await _get(stream, path, target, span)
        else:
            result = await _put(stream, source, path, span)
    except CarefulError as error:
        if error.errno == errno.EISDIR:
            text = "is a directory; -, null:, devices and parts of files need a single file"
            error.reason, error.parts = text, (text,)
        if in_place and options.replace and error.errno not in _NOT_RESUMABLE:
            error.add(Option.CHECKSUM, " resumes with the blocks that differ")
        raise
    is_equal = result.bytes == result.matched_bytes > 0
    report = Result(singles=[] if is_equal else [result])
    if is_equal:
        report.equal.append((result.source, result.bytes))
    report.seconds = time.monotonic() - began
    return report
