"""Memory that carefuld moves bytes in and out of, for a program's reads and writes.

Owns its parts, and that a part whose reader gave up is used again only when carefuld has let go
of it. What is read and written is file.py's; it calls protocol/block.py.
"""

from __future__ import annotations

import asyncio
import mmap
import os

from careful._abi import lib
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import all_of

#: Of one operation, and how many are under way of all reads and writes of a connection.
PART_BYTES = 1 << 20
_PARTS = 8


class Memory:
    """What one connection to carefuld reads and writes through."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for part in range(_PARTS):
            self._free.put_nowait(part)
        self._adding = asyncio.Lock()
        self._file = -1
        self._fd = os.memfd_create("careful-files", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _PARTS * PART_BYTES)
        self._mapped = mmap.mmap(self._fd, _PARTS * PART_BYTES)
        self._view = memoryview(self._mapped)

    def close(self) -> None:
        """Give it back, once the connection has ended."""
        self._view.release()
        self._mapped.close()
        os.close(self._fd)

    async def read(
        self, remote: BlockClient, handle: int, offset: int, into: memoryview, what: str
    ) -> None:
        """Read a range of a peer's file.

        Args:
            remote: the peer's tree.
            handle: of the file.
            offset: where to begin.
            into: as many bytes as are read.
            what: what errors are about.

        Raises:
            CarefulError: ENOENT: the peer has no such handle.
        """
        await self._all(remote, lib.CAREFUL_IPC_GET, handle, offset, into, what)

    async def write(
        self, remote: BlockClient, handle: int, offset: int, data: memoryview, what: str
    ) -> None:
        """Write a range of a peer's file; see read()."""
        await self._all(remote, lib.CAREFUL_IPC_STORE, handle, offset, data, what)

    async def _all(
        self, remote: BlockClient, op: int, handle: int, offset: int, data: memoryview, what: str
    ) -> None:
        async with self._adding:
            if self._file < 0:
                self._file = await remote.add_file(self._fd)
        todo = iter(range(0, len(data), PART_BYTES))

        async def worker() -> None:
            for at in todo:
                piece = data[at : at + PART_BYTES]
                await self._piece(remote, op, handle, offset + at, piece, what)

        await all_of(*(worker() for _ in range(min(_PARTS, -(-len(data) // PART_BYTES)))))

    async def _piece(
        self, remote: BlockClient, op: int, handle: int, offset: int, data: memoryview, what: str
    ) -> None:
        part = await self._free.get()
        at, size = part * PART_BYTES, len(data)
        if op == lib.CAREFUL_IPC_STORE:
            self._view[at : at + size] = data
        moving = asyncio.ensure_future(
            remote.move_whole(op, handle, size, self._file, what, offset, at)
        )
        try:
            await asyncio.shield(moving)
            if op == lib.CAREFUL_IPC_GET:
                data[:] = self._view[at : at + size]
        finally:
            # Where the caller gave up, carefuld still moves.
            moving.add_done_callback(lambda ended: self._ended(part, ended))

    def _ended(self, part: int, moving: asyncio.Future[None]) -> None:
        self._free.put_nowait(part)
        if not moving.cancelled():
            moving.exception()  # seen
