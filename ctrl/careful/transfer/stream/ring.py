"""Moves one file's bytes in order: to and from a descriptor, a device, a range, or nothing.

Several blocks are in flight in a ring in memory while others are read and written in order. An
interrupted stream cannot be resumed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from careful._abi import lib
from careful.errors import CarefulError, about
from careful.transfer.file.blake3 import StreamDigest
from careful.transfer.file.mover import Mover
from careful.transfer.file.partial_file import digest_of_blocks
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import quietly

#: A size that no file has: "to the end".
ENDLESS = (1 << 63) - 1
_T = TypeVar("_T")


async def in_daemon_thread(work: Callable[..., _T], *fds: int) -> _T:
    """Runs work(*fds), which may block for ever, in a thread that does not keep the program alive.

    The thread has copies of the descriptors, so a caller that gives up may close its own.
    """
    copies = [os.dup(fd) for fd in fds]
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(set_outcome: Callable[[], None]) -> None:
        if not future.done():
            set_outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, work(*copies))
        except BaseException as error:
            outcome = partial(future.set_exception, error)
        finally:
            for fd in copies:
                os.close(fd)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=run, daemon=True).start()
    return await future


@dataclass
class PeerFile:
    """An open file of a peer.

    Attributes:
        handle: of the file, or its replacement; 0: none.
        open_again: opens the file again after its handle was lost; raises if it finds another
            file. None: not possible.
    """

    handle: int = 0
    open_again: Callable[[], Awaitable[int]] | None = None

    async def reopen(self) -> int:
        assert self.open_again is not None
        self.handle = await self.open_again()
        return self.handle

    async def finish(self, use: Callable[[int], Awaitable[_T]]) -> _T:
        """Ends the handle by use(handle); opens the file again first if the handle is lost."""
        try:
            return await use(self.handle)
        except CarefulError as error:
            if error.errno != errno.EBADF or self.open_again is None:
                raise
            return await use(await self.reopen())


@dataclass(frozen=True)
class Stream:
    """One file that is moved in order.

    Attributes:
        remote: the peer's tree.
        names: of source and target, as messages show them.
        options: how it moves.
        progress: receives each step.
    """

    remote: BlockClient
    names: tuple[str, str]
    options: Options
    progress: Progress


class Ring:
    """Blocks in memory, which carefuld sees as one file; use it in `async with`."""

    def __init__(self, stream: Stream, op: int, file: PeerFile) -> None:
        options, remote = stream.options, stream.remote
        self.block_bytes, self.count = options.block_bytes, options.blocks_in_flight
        self.fd = os.memfd_create("careful-ring", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.block_bytes * self.count)
        self._stream = stream
        name = stream.names[op == lib.CAREFUL_IPC_STORE]
        ends = file.handle, self.fd, -1
        self.mover = Mover(remote, op, ends, name, options, stream.progress, self.block_bytes)
        self.mover.reopen = file.reopen if file.open_again is not None else None
        self._tasks: deque[tuple[asyncio.Task[int], int, int]] = deque()
        self.digests: list[int] = []
        path = name.removeprefix(remote.name(""))
        self.blake3 = StreamDigest(self.mover, path) if options.blake3 else None

    async def __aenter__(self) -> Self:
        try:
            self.mover.file = await self._stream.remote.add_file(self.fd)
        except BaseException:
            os.close(self.fd)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [one[0] for one in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await quietly(self._stream.remote.remove_file(self.mover.file))
        os.close(self.fd)

    @property
    def is_full(self) -> bool:
        return len(self._tasks) == self.count

    @property
    def next_base(self) -> int:
        """Returns the offset of the next block in the ring, bytes."""
        return (len(self.digests) + len(self._tasks)) % self.count * self.block_bytes

    def begin(self, offset: int, nbytes: int) -> None:
        base = self.next_base
        move = self.mover.block if self.blake3 is None else self.blake3.block
        job = move(offset, nbytes, base)
        self._tasks.append((asyncio.create_task(job), base, nbytes))

    async def end(self, consume: Callable[[int, int], Awaitable[None]] | None = None) -> None:
        """Waits for the oldest block, and runs consume(base, bytes) on it."""
        task, base, nbytes = self._tasks[0]
        digest = await task
        if consume is not None:
            await consume(base, nbytes)
        self._tasks.popleft()
        self.digests.append(digest)

    async def drain(self, consume: Callable[[int, int], Awaitable[None]] | None = None) -> None:
        while self._tasks:
            await self.end(consume)

    async def result(self, nbytes: int, block_digests: dict[int, int] | None) -> FileResult:
        """Returns the result for `nbytes`; `block_digests` receives each block's, by number."""
        if block_digests is not None:
            block_digests |= enumerate(self.digests)
        digest = digest_of_blocks(self.digests) if self._stream.options.digest else None
        if self.blake3 is not None:
            digest = await self.blake3.end(nbytes)
        retries = self.mover.pace.retries
        is_blake3 = self.blake3 is not None
        return FileResult(*self._stream.names, nbytes, digest, retries, is_blake3=is_blake3)


def _write_out(base: int, nbytes: int, name: str, ring: int, sink: int) -> None:
    with about(name):
        done = 0
        while done < nbytes:
            done += os.write(sink, os.pread(ring, min(nbytes - done, 1 << 20), base + done))


def _read_in(base: int, nbytes: int, name: str, ring: int, source: int) -> int:
    with about(name):
        done = 0
        while done < nbytes and (piece := os.read(source, min(nbytes - done, 1 << 20))):
            done += os.pwrite(ring, piece, base + done)
    return done


async def receive(
    stream: Stream,
    file: PeerFile,
    span: tuple[int, int],
    sink: int | None,
    block_digests: dict[int, int] | None = None,
) -> FileResult:
    """Fetches a range in order.

    span: offset and bytes in the peer's file. sink: a descriptor; None drops the bytes.
    block_digests: receives the XXH3 of each block, by number.
    """
    offset, nbytes = span
    async with Ring(stream, lib.CAREFUL_IPC_GET, file) as ring:

        async def write(base: int, size: int) -> None:
            if sink is not None:
                job = partial(_write_out, base, size, stream.names[1])
                await in_daemon_thread(job, ring.fd, sink)

        if ring.blake3 is not None:
            ring.blake3.is_one_block = nbytes <= ring.block_bytes
        for at in range(0, nbytes, ring.block_bytes):
            if ring.is_full:
                await ring.end(write)
            ring.begin(offset + at, min(ring.block_bytes, nbytes - at))
        await ring.drain(write)
        return await ring.result(nbytes, block_digests)


async def send(
    stream: Stream,
    file: PeerFile,
    span: tuple[int, int],
    source: int | None,
    block_digests: dict[int, int] | None = None,
) -> FileResult:
    """Sends the bytes of a descriptor, to its end.

    span: offset and most bytes in the peer's file. source: a descriptor; None: zeros.
    block_digests: receives the XXH3 of each block, by number.
    """
    offset, bytes_max = span
    sent = 0
    async with Ring(stream, lib.CAREFUL_IPC_STORE, file) as ring:
        while sent < bytes_max:
            if ring.is_full:
                await ring.end()
            size = min(ring.block_bytes, bytes_max - sent)
            if source is not None:
                read = partial(_read_in, ring.next_base, size, stream.names[0])
                size = await in_daemon_thread(read, ring.fd, source)
            if not size:
                break
            ring.begin(offset + sent, size)
            sent += size
        await ring.drain()
        return await ring.result(sent, block_digests)


def required_length(nbytes: int | None) -> int:
    """Returns the length of an endless source. Raises CarefulError: the user gave no length."""
    if nbytes is None:
        raise CarefulError(errno.EINVAL, "is endless: give --bytes", "null")
    return nbytes
