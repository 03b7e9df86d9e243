"""Memory that carefuld moves bytes in and out of, for a program's reads and writes.

If a reader gives up, its part of the memory is free only after carefuld has finished with it.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence

from careful._abi import lib
from careful.transfer.protocol.block import BlockClient

#: Bytes of one operation, and operations under way for one connection.
PART_BYTES = 1 << 20
_PARTS = 8


class OwnBytes:
    """Bytes that are read into an object of their own, without another copy; at most PART_BYTES."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes, self.data = nbytes, b""

    def __len__(self) -> int:
        return self._nbytes

    def __setitem__(self, _: slice, data: memoryview) -> None:
        self.data = bytes(data)


#: Offset in the peer's file, and memory here; at most PART_BYTES.
Piece = tuple[int, memoryview]
#: Bytes to read, into memory or a new object.
ReadPiece = tuple[int, memoryview | OwnBytes]


class Memory:
    """The memory through which one connection to carefuld reads and writes."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for part in range(_PARTS):
            self._free.put_nowait(part)
        self._adding = asyncio.Lock()
        self._file = -1
        self._fd = os.memfd_create("careful-files", os.MFD_CLOEXEC)
        self._closing = weakref.finalize(self, os.close, self._fd)  # if close() is not called
        self._closing.atexit = False
        os.ftruncate(self._fd, _PARTS * PART_BYTES)
        self._mapped = mmap.mmap(self._fd, _PARTS * PART_BYTES)
        self._view = memoryview(self._mapped)

    def close(self) -> None:
        self._view.release()
        self._mapped.close()
        self._closing()

    async def read(
        self, remote: BlockClient, handle: int, pieces: Sequence[ReadPiece], name: str
    ) -> None:
        """Reads ranges of a peer's file, several at once. Raises CarefulError: ENOENT: the peer
        has no such handle.
        """
        await self._move_all(remote, lib.CAREFUL_IPC_GET, handle, pieces, name)

    async def write(
        self, remote: BlockClient, handle: int, pieces: Sequence[Piece], name: str
    ) -> None:
        await self._move_all(remote, lib.CAREFUL_IPC_STORE, handle, pieces, name)

    async def _move_all(
        self, remote: BlockClient, op: int, handle: int, pieces: Sequence[ReadPiece], name: str
    ) -> None:
        if not pieces:
            return
        async with self._adding:
            if self._file < 0:
                self._file = await remote.add_file(self._fd)
        todo, is_wanted = iter(list(_groups(pieces, op == lib.CAREFUL_IPC_GET))), True

        async def move_each(pieces: Sequence[ReadPiece], at: int) -> None:
            for offset, data in pieces:
                size = len(data)
                if isinstance(data, memoryview) and op == lib.CAREFUL_IPC_STORE:
                    self._view[at : at + size] = data
                await remote.move_whole(op, handle, size, self._file, name, offset, at)
                if op == lib.CAREFUL_IPC_GET and is_wanted:
                    data[:] = self._view[at : at + size]

        async def read_group(pieces: Sequence[ReadPiece], at: int) -> bool:
            """Reads all pieces by one request; returns False if each piece needs a request."""
            ranges = []
            for offset, data in pieces:
                ranges.append((offset, at, len(data)))
                at += len(data)
            if (await remote.get_ranges(handle, self._file, ranges)).status:
                return False
            for (_, data), (_, at, size) in zip(pieces, ranges, strict=True):
                if is_wanted:
                    data[:] = self._view[at : at + size]
            return True

        async def worker() -> None:
            for group in todo:
                part = await self._free.get()
                try:
                    if not is_wanted:
                        return
                    at = part * PART_BYTES
                    if len(group) == 1 or not await read_group(group, at):
                        await move_each(group, at)
                finally:
                    self._free.put_nowait(part)

        workers = [asyncio.ensure_future(worker()) for _ in range(min(_PARTS, len(pieces)))]
        try:  # if one fails or the caller gives up, carefuld still moves the others
            await asyncio.shield(asyncio.gather(*workers))
        finally:
            is_wanted = False


def _groups(pieces: Sequence[ReadPiece], can_join: bool) -> Iterator[Sequence[ReadPiece]]:
    """Yields groups of pieces that one request can move, each at most a part of the memory."""
    first = nbytes = 0
    for number, (_, data) in enumerate(pieces):
        is_full = nbytes + len(data) > PART_BYTES or number - first == lib.CAREFUL_IPC_RANGES
        if number > first and (is_full or not can_join):
            yield pieces[first:number]
            first, nbytes = number, 0
        nbytes += len(data)
    yield pieces[first:]


def cut(offset: int, data: memoryview) -> Iterator[Piece]:
    """Cuts a range into parts."""
    for at in range(0, len(data), PART_BYTES):
        yield offset + at, data[at : at + PART_BYTES]
