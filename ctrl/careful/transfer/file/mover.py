"""The blocks of one file across, several of them in flight.

Owns which byte ranges move, and what becomes of one that was lost or damaged. What
the two ends are is get.py's and put.py's.
"""

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
from careful.transfer.file.local import digest_of_blocks, digest_of_range
from careful.transfer.options import Options, Progress
from careful.transfer.pace import Pace
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import all_of, in_thread

_T = TypeVar("_T")
#: What a lost or a damaged block is answered with: it is asked for again.
_AGAIN = (-errno.ECONNRESET, -errno.EBADMSG)
#: How often a handle that the peer does not know any more is replaced.
_REOPENS_MAX = 16


class Mover:
    """Moves byte ranges of one file between a region and a registered file.

    Args:
        remote: the peer's tree.
        op: CAREFUL_IPC_GET or CAREFUL_IPC_STORE.
        handle: of the peer's file.
        fd: of ours.
        file: the same, as carefuld knows it.
        name: what errors call the file.
        options: how.
        progress: told of each piece.
        block_bytes: size of a block.

    Attributes:
        handle: as above, or the one that took its place.
        reopen: opens the peer's file again, for a handle that a session with another address
            of ours had; raises if it is another file by now. None: that ends the transfer.
        ranges: of a byte range, the parts that hold data; None: all of it does. The rest is
            zero at both ends already.
        hole_bytes: of what moved, what did not have to: ranges had none.
    """

    def __init__(
        self,
        remote: BlockClient,
        op: int,
        handle: int,
        fd: int,
        file: int,
        name: str,
        options: Options,
        progress: Progress,
        block_bytes: int,
    ) -> None:
        self.remote = remote
        self.op = op
        self.handle = handle
        self.fd = fd
        self.file = file
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
        done: Callable[[int, int], None] | None = None,
    ) -> int | None:
        """Move a file.

        Args:
            nbytes: its size.
            known: blocks that are in place already, with their digests.
            done: called with each block that has come into place, and its digest.

        Returns:
            The file's digest; None where digests are switched off.
        """
        step = self.block_bytes
        count = -(-nbytes // step)
        known = known or {}
        digests = array("Q", bytes(8 * count))  # the peer says how many
        for index, digest in known.items():
            digests[index] = digest
        todo = self._runs(nbytes, known)
        missing = count - len(known)

        async def worker() -> None:
            for index, more in todo:
                offset = index * step
                size = min(step, nbytes - offset)
                async with self._limit.block(size) if self._limit else nullcontext():
                    digest = await self._data(offset, size)
                digests[index : index + 1 + more] = array("Q", [digest]) * (1 + more)
                if more:
                    self._count_holes(more * step)
                if done is not None:
                    done(index, digest)

        workers = min(missing, self.options.blocks_in_flight)
        if workers == 1:
            await worker()
        elif workers:
            await all_of(*(worker() for _ in range(workers)))
        if not self.options.digest:
            return None
        return digest_of_blocks(digests)

    def _runs(self, nbytes: int, known: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Blocks that are missing: each, and how many behind it are whole blocks of its hole.

        A peer may announce a hole of any size, so a hole must not cost a step for each block.
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
                    last = next((one for one in range(index + 1, last) if one in known), last)
                yield index, last - index - 1
            index = last

    def _count_holes(self, nbytes: int) -> None:
        self.hole_bytes += nbytes
        self.progress.present(nbytes)

    async def _data(self, offset: int, nbytes: int) -> int:
        """Move what a block holds; its digest."""
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
        """Returns the digest of a block that came in part; holes of one size are read once."""
        await asyncio.sleep(0)  # however many holes there are, Ctrl-C is looked at
        if not self.options.digest:
            return 0
        if all_hole and nbytes in self._zero_digests:
            return self._zero_digests[nbytes]
        digest = await in_thread(partial(digest_of_range, self.fd, offset, nbytes))
        if all_hole:
            self._zero_digests[nbytes] = digest
        return digest

    async def block(self, offset: int, nbytes: int, base: int | None = None) -> int:
        """Move one block; its digest.

        Args:
            offset: in the peer's file.
            nbytes: of the block.
            base: in ours; None: the same.
        """
        base = offset if base is None else base
        todo = deque([(offset, nbytes)])
        whole = await self._piece(todo, base - offset)
        if not todo:
            return whole.digest
        if whole.status:  # several at a time, so that the next loss is found at once
            many = range(self.options.blocks_in_flight)
            await all_of(*(self._pieces(todo, base - offset) for _ in many))
        else:
            await self._pieces(todo, base - offset)
        # In pieces, each with its own digest: the block's is computed here.
        if not self.options.digest:
            return 0
        return await in_thread(partial(digest_of_range, self.fd, base, nbytes))

    async def _pieces(self, todo: deque[tuple[int, int]], shift: int) -> None:
        while todo:
            await self._piece(todo, shift)

    async def _piece(self, todo: deque[tuple[int, int]], shift: int) -> Answer:
        """Move the first piece of what is to do; if it was lost, it is to do again.

        Args:
            todo: ranges of the peer's file.
            shift: from these to ours, bytes.
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
        if answer.status == -errno.ENOENT:  # the handle is missing, not the file
            raise CarefulError(errno.ECONNRESET, "", self.name)
        if answer.status in _AGAIN and self.pace.failed(started):
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

    async def ask(self, about: Callable[[int], Awaitable[_T]]) -> _T:
        """Ask about(handle) of the peer's file; if that is lost, of the one opened again."""
        while True:
            handle = self.handle
            try:
                return await about(handle)
            except CarefulError as error:
                if error.errno != errno.EBADF:
                    raise
                if not await self._reopened(handle):
                    raise CarefulError(errno.ECONNRESET, "", self.name) from None

    async def _reopened(self, lost: int) -> bool:
        """Replace a handle that the peer does not know; whether there is another one now."""
        async with self._reopening:  # many pieces find it at once
            if self.handle == lost and self.reopen is not None and self._reopens < _REOPENS_MAX:
                self._reopens += 1
                self.handle = await self.reopen()
            return self.handle != lost
