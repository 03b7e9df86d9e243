"""Moves byte ranges between a peer's open files and local files, through the local carefuld.

Owns the requests to carefuld, its registered files, and the counts of a transfer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from careful._abi import Value, ffi, lib
from careful.closing import descriptor
from careful.daemon.client import Answer, AsyncClient
from careful.errors import FATAL, CarefulError, shown
from careful.transfer.lost_frames import LOST, Losses
from careful.transfer.pace import FAILURES_MAX, PIECE_BYTES_MIN
from careful.transfer.protocol.silence import Silence

#: The most of a listing or a journal that one operation moves, bytes.
_STEP = 4 << 20


class LostError(CarefulError):
    """The peer does not know a handle: our session with the peer is a new one."""


class RangeClient:
    """Moves bytes from and to a peer.

    Args:
        ipc: the connection to the local carefuld.
        peer: index of the peer, from connect().
        host: the peer's name in errors.
        timeout_s: how long the peer may be silent, seconds.
        place: the peer's address, the same for each of its names; "": `host`.

    Attributes:
        losses: counts of the transfer, or None.
        retries: requests, and pieces of batches, listings and journals, that were repeated.
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
        """Returns a peer's path as messages show it; the export itself is "h2:/"."""
        return f"{self.host}:{'/' if path == '.' else shown(path)}"

    def _checked(self, answer: Answer, path: str) -> Answer:
        """Returns a successful answer; an error of the connection names the host, not the path."""
        fatal = -answer.status in FATAL
        return answer.check(self.host if fatal else self.name(path))

    def retried(self) -> None:
        self.retries += 1
        if self._on_retry is not None:
            self._on_retry()

    async def watch(self, fail: bool, on_retry: Callable[[], None] | None = None) -> Losses:
        """Counts losses from now on; on_retry() runs at each retry.

        fail: whether the first loss ends the transfer with LossError.
        """
        self._on_retry = on_retry
        self.losses = Losses(self.ipc, self.peer, self.host, fail)
        await self.losses.begin()
        return self.losses

    @property
    def piece_bytes_min(self) -> int:
        """Returns the smallest useful piece: the payload of one frame."""
        return (self.losses.payload_bytes if self.losses else 0) or PIECE_BYTES_MIN

    async def ask(self, op: int, payload: bytes = b"", **fields: Value) -> Answer:
        answer = await self._silence.ask(op, payload, **fields)
        if answer.status and self.losses is not None:
            await self.losses.check(answer.status)
        return answer

    async def add_file(self, fd: int) -> int:
        """Registers an open file with the local carefuld; returns its index."""
        answer = await self.ipc.ask(lib.CAREFUL_IPC_FILE_ADD, fd=fd, on_unheard=self._drop_file)
        return answer.check(self.ipc.client.name).file

    def _drop_file(self, answer: Answer) -> None:
        """Removes a file that was registered for a cancelled caller."""
        if not answer.status:
            self.ipc.tell(lib.CAREFUL_IPC_FILE_REMOVE, file=answer.file)

    async def remove_file(self, file: int) -> None:
        """Removes a registered file, once nothing uses it."""
        answer = await self.ipc.ask(lib.CAREFUL_IPC_FILE_REMOVE, file=file)
        answer.check(self.ipc.client.name)

    @asynccontextmanager
    async def registered(self, fd: int) -> AsyncIterator[int]:
        """Yields the index of an open file that is registered meanwhile."""
        file = await self.add_file(fd)
        try:
            yield file
        except BaseException:
            # Operations on the file may still run; carefuld waits for them, this task does not.
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
        """Runs GET or STORE of a byte range, by default at the same offset in both files."""
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
        """GETs at most CAREFUL_IPC_RANGES ranges by one request; if it fails, the caller asks for
        each. A range is the offset at the peer, the offset here and the bytes.
        """
        packed = ffi.new("struct careful_ipc_range[]", [(*one, 0) for one in ranges])
        payload = bytes(ffi.buffer(packed))
        return await self.ask(lib.CAREFUL_IPC_GETS, payload, region=handle, file=file)

    async def read(self, handle: int, offset: int, nbytes: int, what: str) -> bytes:
        with descriptor(os.memfd_create("careful-read", os.MFD_CLOEXEC)) as fd:
            os.ftruncate(fd, nbytes)
            await self.move_through(fd, lib.CAREFUL_IPC_GET, handle, offset, nbytes, what)
            return os.pread(fd, nbytes, 0)

    async def write(self, handle: int, offset: int, data: bytes, what: str) -> None:
        with descriptor(os.memfd_create("careful-write", os.MFD_CLOEXEC)) as fd:
            os.pwrite(fd, data, 0)
            await self.move_through(fd, lib.CAREFUL_IPC_STORE, handle, offset, len(data), what)

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
        """Runs GET or STORE of a range of a registered file; repeats lost pieces."""
        done, piece_bytes_max, failures = 0, _STEP, 0
        while done < nbytes:
            piece = min(piece_bytes_max, nbytes - done)
            answer = await self.move(
                op, handle, offset + done, piece, file, True, file_offset + done
            )
            if answer.status in LOST and failures < FAILURES_MAX:
                failures += 1
                self.retried()
                piece_bytes_max = max(self.piece_bytes_min, piece_bytes_max // 2)
                continue
            if answer.status == -errno.ENOENT:
                raise LostError(errno.ENOENT, "", what)
            answer.check(what)
            if op == lib.CAREFUL_IPC_GET and answer.nbytes != piece:
                raise CarefulError(errno.EPROTO, "the peer sent too few bytes", what)
            done, failures = done + piece, 0
