"""Moves the blocks of one file, several at a time; retries those that were lost or damaged."""

from __future__ import annotations

import asyncio
import errno
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

from careful._abi import lib
from careful.daemon.client import Answer
from careful.errors import CarefulError
from careful.transfer.file.holes import Ranges, punch_zeros
from careful.transfer.file.partial_file import digest_of_blocks, digest_of_range
from careful.transfer.lost_frames import LOST
from careful.transfer.options import Options, Progress
from careful.transfer.pace import Pace
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import all_of, in_thread

_T = TypeVar("_T")
#: The most times to replace a handle that the peer no longer knows.
_REOPENS_MAX = 16


class Mover:
    """Moves byte ranges of one file between the peer's file and a registered file of ours.

    Args:
        remote: the peer's tree.
        op: CAREFUL_IPC_GET or CAREFUL_IPC_STORE.
        ends: handle of the peer's file, descriptor of ours, and carefuld's index of ours.
        name: the file's name in errors.
        options: how files move.
        progress: receives each step.
        block_bytes: size of a block.

    Attributes:
        handle: of the peer's file, or its replacement.
        reopen: opens the peer's file again in a new session; raises if it finds another file.
            None: a lost handle ends the transfer.
        ranges: the parts that hold data; both ends already have zeros elsewhere. None: all.
        hole_bytes: bytes not sent because they are holes.
    """

    def __init__(
        self,
        remote: BlockClient,
        op: int,
        ends: tuple[int, int, int],
        name: str,
        options: Options,
        progress: Progress,
        block_bytes: int,
    ) -> None:
        self.remote = remote
        self.op = op
        self.handle, self.fd, self.file = ends
        self.name = name
        self.options = options
        self.progress = progress
        self.block_bytes = block_bytes
        self.pace = Pace(block_bytes, options.blocks_in_flight, remote.piece_bytes_min)
        self._limit = options.limit
        self.reopen: Callable[[], Awaitable[int]] | None = None
        self._reopens = 0
        self._reopening = asyncio.Lock()
        self.ranges: Ranges | None = None
        self.hole_bytes = 0
        self._zero_digests: dict[int, int] = {}

    async def run(
        self,
        nbytes: int,
        known: Mapping[int, int] | None = None,
        on_block: Callable[[int, int], None] | None = None,
    ) -> int | None:
        """Moves a file; returns its digest, or None without digests.

        known: blocks already in place, with their digests. on_block: called with each block moved
        and its digest, but not for the further blocks of a hole.
        """
        step = self.block_bytes
        count = -(-nbytes // step)
        known = known or {}
        digests = array("Q", bytes(8 * count))  # compact: the peer chose the count
        for index, digest in known.items():
            digests[index] = digest
        todo = self._runs(nbytes, known)
        missing = count - len(known)

        async def worker() -> None:
            for index, hole_blocks in todo:
                offset = index * step
                size = min(step, nbytes - offset)
                async with self._limit.block(size) if self._limit else nullcontext():
                    digest = await self._move_data(offset, size)
                digests[index : index + 1 + hole_blocks] = array("Q", [digest]) * (1 + hole_blocks)
                if hole_blocks:
                    self._count_holes(hole_blocks * step)
                if on_block is not None:
                    on_block(index, digest)

        workers = min(missing, self.options.blocks_in_flight)
        if workers == 1:
            await worker()
        elif workers:
            await all_of(*(worker() for _ in range(workers)))
        if not self.options.digest:
            return None
        return digest_of_blocks(digests)

    def _runs(self, nbytes: int, known: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yields missing blocks, each with the count of whole blocks of the same hole behind it. A
        peer may announce a hole of any size, so a hole must not need a step for each block.
        """
        step, index = self.block_bytes, 0
        while index * step < nbytes:
            end = index
            if self.ranges is not None:
                end = self.ranges.hole_end(index * step, nbytes) // step
            last = index + 1
            if index not in known:
                last = max(last, end)
                if known:
                    last = next(
                        (
                            known_index
                            for known_index in range(index + 1, last)
                            if known_index in known
                        ),
                        last,
                    )
                yield index, last - index - 1
            index = last

    def _count_holes(self, nbytes: int) -> None:
        self.hole_bytes += nbytes
        self.progress.present(nbytes)

    async def _move_data(self, offset: int, nbytes: int) -> int:
        """Moves the data of a block; returns its digest."""
        whole = [(offset, nbytes)]
        parts = whole if self.ranges is None else self.ranges(offset, nbytes)
        if parts == whole:
            digest = await self.block(offset, nbytes)
        else:
            for at, size in parts:
                await self.block(at, size)
            self._count_holes(nbytes - sum(size for _, size in parts))
            digest = await self._digest_with_holes(offset, nbytes, not parts)
        if self.options.sparse and self.op == lib.CAREFUL_IPC_GET:
            await in_thread(partial(punch_zeros, self.fd, offset, nbytes))
        return digest

    async def _digest_with_holes(self, offset: int, nbytes: int, all_hole: bool) -> int:
        """Returns the digest of a block with holes; reads holes of one size only once."""
        await asyncio.sleep(0)  # lets Ctrl-C in, however many holes there are
        if not self.options.digest:
            return 0
        if all_hole and nbytes in self._zero_digests:
            return self._zero_digests[nbytes]
        digest = await in_thread(partial(digest_of_range, self.fd, offset, nbytes))
        if all_hole:
            self._zero_digests[nbytes] = digest
        return digest

    async def block(self, offset: int, nbytes: int, base: int | None = None) -> int:
        """Moves one block; returns its digest. base: offset in our file; None: as at the peer."""
        base = offset if base is None else base
        todo = deque([(offset, nbytes)])
        whole = await self._piece(todo, base - offset)
        if not todo:
            return whole.digest
        if whole.status:  # several at once, so that the next loss shows early
            workers = range(self.options.blocks_in_flight)
            await all_of(*(self._pieces(todo, base - offset) for _ in workers))
        else:
            await self._pieces(todo, base - offset)
        # Pieces have digests of their own, so the block's is computed here.
        if not self.options.digest:
            return 0
        return await in_thread(partial(digest_of_range, self.fd, base, nbytes))

    async def _pieces(self, todo: deque[tuple[int, int]], shift: int) -> None:
        while todo:
            await self._piece(todo, shift)

    async def _piece(self, todo: deque[tuple[int, int]], shift: int) -> Answer:
        """Moves the first range of `todo`; puts it back if it was lost.

        todo: ranges of the peer's file. shift: added to get offsets in our file, bytes.
        """
        at, size = todo.popleft()
        piece = min(size, self.pace.piece_bytes)
        if self._limit is not None:
            piece = min(piece, self._limit.piece_bytes)
        if piece < size:
            todo.appendleft((at + piece, size - piece))
        if self._limit is not None:
            await self._limit.take(piece)
        async with self.pace.slot() as started:
            handle = self.handle
            answer = await self.remote.move(
                self.op, handle, at, piece, self.file, self.options.digest, at + shift
            )
        if answer.status == -errno.ENOENT and await self._reopened(handle):
            self.pace.retries += 1
            self.progress.retried()
            todo.appendleft((at, piece))
            return answer
        if answer.status == -errno.ENOENT:  # the handle is gone, not the file
            raise CarefulError(errno.ECONNRESET, "", self.name)
        if answer.status in LOST and self.pace.failed(started):
            self.progress.retried()
            todo.appendleft((at, piece))
            await asyncio.sleep(self.pace.delay_s())
            return answer
        answer.check(self.name)
        if self.op == lib.CAREFUL_IPC_GET and answer.nbytes != piece:
            raise CarefulError(errno.ESTALE, "the source shrank while it was being read", self.name)
        self.pace.succeeded()
        self.progress.moved(piece)
        return answer

    async def ask(self, query: Callable[[int], Awaitable[_T]]) -> _T:
        """Runs query(handle) on the peer's file; opens the file again if the handle is lost."""
        while True:
            handle = self.handle
            try:
                return await query(handle)
            except CarefulError as error:
                if error.errno != errno.EBADF:
                    raise
                if not await self._reopened(handle):
                    raise CarefulError(errno.ECONNRESET, "", self.name) from None

    async def _reopened(self, lost: int) -> bool:
        """Replaces a handle that the peer does not know; reports whether there is a new one."""
        async with self._reopening:  # many pieces fail at once
            if self.handle == lost and self.reopen is not None and self._reopens < _REOPENS_MAX:
                self._reopens += 1
                self.handle = await self.reopen()
            return self.handle != lost
