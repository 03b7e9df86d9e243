"""Byte ranges between a peer's open files and files of this machine, by way of our carefuld.

Owns what carefuld is asked for, its registered files, and what is counted of a transfer. What
is opened there, and requests to the block service, are block.py's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from careful._abi import Value, ffi, lib
from careful.daemon.client import Answer, AsyncClient
from careful.errors import FATAL, CarefulError, shown
from careful.transfer.losses import Losses
from careful.transfer.pace import FAILURES_MAX, PIECE_BYTES_MIN
from careful.transfer.protocol.silence import Silence

#: How much of a listing or a journal one operation moves, bytes.
_STEP = 4 << 20


class LostError(CarefulError):
    """The peer does not know a handle any more: our session with it is another one."""


class RangeClient:
    """What moves from and to a peer.

    Args:
        ipc: the connection to our own carefuld.
        peer: index of the peer, from connect().
        host: what errors call the peer.
        timeout_s: how long the peer may be silent, seconds.
        place: the peer's address, whatever errors call it; "": by default as they call it.

    Attributes:
        losses: of the transfer; None: nobody wants to know.
        retries: requests and pieces of batches, listings and journals that were asked for
            again.
    """

    def __init__(
        self, ipc: AsyncClient, peer: int, host: str, timeout_s: float = 5.0, place: str = ""
    ) -> None:
        self.ipc = ipc
        self.place = place or host
        self._silence = Silence(ipc, peer, host, timeout_s)
        self.peer = peer
        self.host = host
        self.losses: Losses | None = None
        self.retries = 0
        self._on_retry: Callable[[], None] | None = None

    def name(self, path: str) -> str:
        """What people are told of a path of the peer's; of the export itself, "h2:/"."""
        return f"{self.host}:{'/' if path == '.' else shown(path)}"

    def _checked(self, answer: Answer, path: str) -> Answer:
        """An answer that is no failure; one of the connection is no path's."""
        fatal = -answer.status in FATAL
        return answer.check(self.host if fatal else self.name(path))

    def retried(self) -> None:
        """Something is asked for again."""
        self.retries += 1
        if self._on_retry is not None:
            self._on_retry()

    async def watch(self, fail: bool, on_retry: Callable[[], None] | None = None) -> Losses:
        """Count what is lost from now on.

        Args:
            fail: whether the first loss ends it all, with LossError.
            on_retry: told of each of retries.
        """
        self._on_retry = on_retry
        self.losses = Losses(self.ipc, self.peer, self.host, fail)
        await self.losses.begin()
        return self.losses

    @property
    def piece_bytes_min(self) -> int:
        """The least that is worth asking for: what one frame carries."""
        return (self.losses.payload_bytes if self.losses else 0) or PIECE_BYTES_MIN

    async def ask(self, op: int, payload: bytes = b"", **fields: Value) -> Answer:
        answer = await self._silence.ask(op, payload, **fields)
        if answer.status and self.losses is not None:
            await self.losses.check(answer.status)
        return answer

    async def add_file(self, fd: int) -> int:
        """Register an open file with our carefuld; its index there."""
        answer = await self.ipc.ask(lib.CAREFUL_IPC_FILE_ADD, fd=fd, unheard=self._added)
        return answer.check(self.ipc.client.name).file

    def _added(self, answer: Answer) -> None:
        """A file was registered for one who has gone."""
        if not answer.status:
            self.ipc.tell(lib.CAREFUL_IPC_FILE_REMOVE, file=answer.file)

    async def remove_file(self, file: int) -> None:
        """Take a registered file back, once nothing uses it any more."""
        answer = await self.ipc.ask(lib.CAREFUL_IPC_FILE_REMOVE, file=file)
        answer.check(self.ipc.client.name)

    @asynccontextmanager
    async def registered(self, fd: int) -> AsyncIterator[int]:
        """An open file that carefuld knows, for as long as this lasts; its index there."""
        file = await self.add_file(fd)
        try:
            yield file
        except BaseException:
            # What uses it may go on for a while; carefuld waits for that, not we.
            self.ipc.tell(lib.CAREFUL_IPC_FILE_REMOVE, file=file)
            raise
        await self.remove_file(file)

    async def move(
        self,
        op: int,
        handle: int,
        offset: int,
        nbytes: int,
        file: int,
        digest: bool = True,
        file_offset: int | None = None,
    ) -> Answer:
        """GET or STORE a byte range, by default the same in both files."""
        return await self.ask(
            op,
            region=handle,
            region_off=offset,
            bytes=nbytes,
            file=file,
            file_off=offset if file_offset is None else file_offset,
            handler=lib.CAREFUL_HANDLERS,
            flags=0 if digest else lib.CAREFUL_NO_DIGEST,
        )

    async def get_ranges(
        self, handle: int, file: int, ranges: Sequence[tuple[int, int, int]]
    ) -> Answer:
        """GET several ranges by one question, to be asked for one by one if that fails.

        Args:
            handle: of the peer's file.
            file: the registered file.
            ranges: of each where it begins there, and here, and bytes; at most
                CAREFUL_IPC_RANGES.
        """
        packed = ffi.new("struct careful_ipc_range[]", [(*one, 0) for one in ranges])
        payload = bytes(ffi.buffer(packed))
        return await self.ask(lib.CAREFUL_IPC_GETS, payload, region=handle, file=file)

    async def read(self, handle: int, offset: int, nbytes: int, what: str) -> bytes:
        """A range of a region, as bytes."""
        fd = os.memfd_create("careful-read", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            await self.move_through(fd, lib.CAREFUL_IPC_GET, handle, offset, nbytes, what)
            return os.pread(fd, nbytes, 0)
        finally:
            os.close(fd)

    async def write(self, handle: int, offset: int, data: bytes, what: str) -> None:
        """Put bytes into a range of a region."""
        fd = os.memfd_create("careful-write", os.MFD_CLOEXEC)
        try:
            os.pwrite(fd, data, 0)
            await self.move_through(fd, lib.CAREFUL_IPC_STORE, handle, offset, len(data), what)
        finally:
            os.close(fd)

    async def move_through(
        self, fd: int, op: int, handle: int, offset: int, nbytes: int, what: str
    ) -> None:
        async with self.registered(fd) as file:
            await self.move_whole(op, handle, nbytes, file, what, offset)

    async def move_whole(
        self,
        op: int,
        handle: int,
        nbytes: int,
        file: int,
        what: str,
        offset: int = 0,
        file_offset: int = 0,
    ) -> None:
        """GET or STORE a range of a registered file, again where it was lost.

        Args:
            op: CAREFUL_IPC_GET or CAREFUL_IPC_STORE.
            handle: of the peer's file.
            nbytes: how much.
            file: the registered file.
            what: what errors are about.
            offset: in the peer's file.
            file_offset: in the registered file.
        """
        at, step, failures = 0, _STEP, 0
        while at < nbytes:
            piece = min(step, nbytes - at)
            answer = await self.move(op, handle, offset + at, piece, file, True, file_offset + at)
            if answer.status in (-errno.ECONNRESET, -errno.EBADMSG) and failures < FAILURES_MAX:
                failures += 1
                self.retried()
                step = max(self.piece_bytes_min, step // 2)
                continue
            if answer.status == -errno.ENOENT:
                raise LostError(errno.ENOENT, "", what)
            answer.check(what)
            if op == lib.CAREFUL_IPC_GET and answer.nbytes != piece:
                raise CarefulError(errno.EPROTO, "ended early", what)
            at, failures = at + piece, 0
