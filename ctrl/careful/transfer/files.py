"""One file across: get and put, in blocks, several of them in flight.

Owns which byte ranges move, what becomes of one that was lost or damaged, and
that a source which changed meanwhile is an error. Trees and the command's
arguments are trees.py's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from careful._abi import lib
from careful.errors import CarefulError, from_os
from careful.transfer.block import Attr, BlockClient
from careful.transfer.local import Partial, digest_of_blocks, digest_of_range, shown
from careful.transfer.pace import Pace

#: What a lost or a damaged block is answered with: it is asked for again.
_AGAIN = (-errno.ECONNRESET, -errno.EBADMSG)
_CLEANUP_S = 2.0


@dataclass(frozen=True)
class Options:
    """How files move.

    Attributes:
        block_bytes: payload of one operation; at most 1 GiB.
        blocks_in_flight: of one file.
        files_in_flight: of a tree.
        replace: whether existing files may be replaced.
        digest: whether each block carries its XXH3, checked where it was written.
        sync: whether a file is synced before it gets its name.
    """

    block_bytes: int = 4 << 20
    blocks_in_flight: int = 8
    files_in_flight: int = 16
    replace: bool = False
    digest: bool = True
    sync: bool = True


class Progress(Protocol):
    """What a transfer tells whoever watches it."""

    def expect(self, files: int, nbytes: int) -> None:
        """So many files and bytes are to come, in addition."""

    def moved(self, nbytes: int) -> None:
        """So many bytes are in place."""

    def finished(self, name: str) -> None:
        """A file is complete, or failed."""

    def note(self, text: str) -> None:
        """Something a person should know."""


class Silent:
    """A Progress that nobody watches."""

    def expect(self, files: int, nbytes: int) -> None: ...
    def moved(self, nbytes: int) -> None: ...
    def finished(self, name: str) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class FileResult:
    """A file that was transferred.

    Attributes:
        source: where from.
        destination: where to.
        bytes: its size.
        digest: XXH3 over its blocks' digests; None where they were switched off.
        retries: pieces that were asked for again.
    """

    source: str
    destination: str
    bytes: int
    digest: int | None
    retries: int


class _Mover:
    """Moves all byte ranges of one file between a region and a registered file."""

    def __init__(
        self,
        remote: BlockClient,
        op: int,
        handle: int,
        fd: int,
        file: int,
        name: str,
        options: Options,
        moved: Callable[[int], None],
    ) -> None:
        self.remote = remote
        self.op = op
        self.handle = handle
        self.fd = fd
        self.file = file
        self.name = name
        self.options = options
        self.moved = moved
        self.pace = Pace(options.block_bytes, options.blocks_in_flight)

    async def run(self, nbytes: int) -> int | None:
        """Move a file of nbytes; its digest."""
        step = self.options.block_bytes
        count = -(-nbytes // step)
        digests = [0] * count
        todo = iter(range(count))

        async def worker() -> None:
            for index in todo:
                offset = index * step
                digests[index] = await self._block(offset, min(step, nbytes - offset))

        workers = min(count, self.options.blocks_in_flight)
        if workers == 1:
            await worker()
        elif workers:
            await all_of(*(worker() for _ in range(workers)))
        return digest_of_blocks(digests) if self.options.digest else None

    async def _block(self, offset: int, nbytes: int) -> int:
        """Move one block; its digest."""
        todo = deque([(offset, nbytes)])
        while todo:
            at, size = todo.popleft()
            piece = min(size, self.pace.piece_bytes)
            if piece < size:
                todo.appendleft((at + piece, size - piece))
            async with self.pace.slot() as started:
                answer = await self.remote.move(
                    self.op, self.handle, at, piece, self.file, self.options.digest
                )
            if answer.status in _AGAIN and self.pace.failed(started):
                todo.appendleft((at, piece))
                await asyncio.sleep(self.pace.delay_s())
                continue
            answer.check(self.name)
            if self.op == lib.CAREFUL_IPC_GET and answer.nbytes != piece:
                raise CarefulError(errno.EIO, "the source became shorter", self.name)
            self.pace.succeeded()
            self.moved(piece)
            if piece == nbytes:
                return answer.digest
        # In pieces, each with its own digest: the block's is computed here.
        return digest_of_range(self.fd, offset, nbytes) if self.options.digest else 0


async def all_of(*jobs: Coroutine[Any, Any, None]) -> None:
    """Await all; the first failure ends the others, and is raised when they have ended."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _quietly(job: Coroutine[Any, Any, object]) -> None:
    """Await a clean-up that must not hide what made it necessary, for a bounded time."""
    with suppress(CarefulError, TimeoutError):
        await asyncio.wait_for(job, _CLEANUP_S)


async def in_thread(work: Callable[[], None]) -> None:
    """Run what blocks in a thread; a cancellation takes effect when it has ended."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        with suppress(OSError):
            await future
        raise


async def get_file(
    remote: BlockClient, source: str, target: str, options: Options, progress: Progress
) -> FileResult:
    """Fetch one file.

    Args:
        remote: the peer's tree.
        source: path in it.
        target: local path; seen only when complete.
        options: how.
        progress: told of each piece.

    Raises:
        CarefulError: it failed; nothing is left of it.
    """
    name = remote.name(shown(source))
    handle, attr = await remote.open(source)
    part: Partial | None = None
    opened = True
    try:
        if not attr.is_file:
            raise CarefulError(errno.EINVAL, "is no regular file", name)
        part = Partial(target, attr.bytes, stat.S_IMODE(attr.mode), options.replace)
        file = await remote.add_file(part.fd)
        mover = _Mover(
            remote, lib.CAREFUL_IPC_GET, handle, part.fd, file, name, options, progress.moved
        )
        try:
            digest = await mover.run(attr.bytes)
        except BaseException:
            await _quietly(remote.remove_file(file))
            raise
        await remote.remove_file(file)
        opened = False
        _same(attr, await remote.close(handle, source), name)
        await in_thread(partial(part.commit, options.sync))
    except BaseException:
        if part is not None:
            part.discard()
        if opened:
            await _quietly(remote.close(handle, source))
        raise
    return FileResult(name, target, attr.bytes, digest, mover.pace.retries)


def _same(before: Attr, after: Attr, name: str) -> None:
    if (before.bytes, before.mtime_ns) != (after.bytes, after.mtime_ns):
        raise CarefulError(errno.ESTALE, "changed while it was being transferred", name)


def _open_source(path: str) -> tuple[int, os.stat_result]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        attr = os.fstat(fd)
    except OSError as error:
        raise from_os(error, shown(path)) from None
    if not stat.S_ISREG(attr.st_mode):
        os.close(fd)
        raise CarefulError(errno.EINVAL, "is no regular file", shown(path))
    return fd, attr


async def put_file(
    remote: BlockClient, source: str, target: str, options: Options, progress: Progress
) -> FileResult:
    """Send one file.

    Args:
        remote: the peer's tree.
        source: local path.
        target: path in the peer's tree; seen there only when complete.
        options: how.
        progress: told of each piece.

    Raises:
        CarefulError: it failed; nothing is left of it at the other end.
    """
    name = remote.name(shown(target))
    fd, attr = _open_source(source)
    handle: int | None = None
    try:
        mode = stat.S_IMODE(attr.st_mode) & 0o777
        handle = await remote.create(target, attr.st_size, mode, options.replace)
        file = await remote.add_file(fd)
        mover = _Mover(
            remote, lib.CAREFUL_IPC_STORE, handle, fd, file, name, options, progress.moved
        )
        try:
            digest = await mover.run(attr.st_size)
        except BaseException:
            await _quietly(remote.remove_file(file))
            raise
        await remote.remove_file(file)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (attr.st_size, attr.st_mtime_ns):
            text = "changed while it was being transferred"
            raise CarefulError(errno.ESTALE, text, shown(source))
        await remote.commit(handle, target, mode, options.replace, options.sync)
    except BaseException:
        if handle is not None:
            await _quietly(remote.close(handle, target))
        raise
    finally:
        os.close(fd)
    return FileResult(shown(source), name, attr.st_size, digest, mover.pace.retries)
