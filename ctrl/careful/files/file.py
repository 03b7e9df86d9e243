"""An open file of a host: its ranges are read, and written in place."""

from __future__ import annotations

import asyncio
import errno
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Self, TypeVar

from careful.errors import CarefulError
from careful.files.connection import Connections, Shared, run_detached
from careful.files.memory import PART_BYTES, OwnBytes, ReadPiece, cut
from careful.files.names import Data as Data
from careful.transfer.file.source import version
from careful.transfer.protocol.entries import Attr
from careful.transfer.tasks import quietly

Mode = Literal["r", "r+"]

#: Errors for a handle that the host does not know.
_LOST = (errno.ENOENT, errno.EBADF)
_REOPENS_MAX = 4
_T = TypeVar("_T")


class AsyncFile:
    """An open file or block device of a host; made by AsyncHost.open().

    Reads and writes name an offset, and any number may run at once. Written bytes are in the file
    at once, and on its disk after sync() or close(). If another program replaces the file, this
    object keeps the file that it opened. If the session ended, the file is opened again.

    Args:
        connections: to the host.
        path: of the host.
        mode: "r": to read; "r+": to read and write in place.
        sync: whether close() makes writes durable.
        waits: whether to wait for a free handle; not for a caller that already holds one.

    Attributes:
        attr: attributes at the time of opening.
    """

    attr: Attr

    def __init__(
        self,
        connections: Connections,
        path: str,
        mode: Mode,
        sync: bool = True,
        waits: bool = False,
    ) -> None:
        self._handle = -1
        if mode not in ("r", "r+"):
            raise ValueError(f'mode {mode!r} must be "r" or "r+"')
        self.path, self.mode = path, mode
        self._connections, self._sync, self._waits = connections, sync, waits
        self._shared: Shared | None = None
        self._opening = asyncio.Lock()
        self._users, self._idle = 0, asyncio.Condition()
        self._nbytes = 0
        self._is_written = self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __del__(self) -> None:
        if self._handle < 0 or self._shared is None:
            return
        if not self._is_closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, self)
        remote, handle, path = self._shared.remote, self._handle, self.path
        self._connections.run_later(lambda: remote.close(handle, path))

    def __await__(self) -> Generator[object, None, Self]:
        return self.opened().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def opened(self) -> Self:
        """Opens the file, as any call does; returns this object."""
        await self._with_handle(None)
        return self

    @property
    def name(self) -> str:
        """Returns HOST:PATH."""
        return f"{self._connections.host}:{self.path}"

    @property
    def nbytes(self) -> int:
        """Returns the size at opening, or after writes through this object."""
        return self._nbytes

    async def read_at(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Reads bytes, checked by their digest; returns fewer at the end of the file.

        Args:
            offset: where to begin, bytes.
            nbytes: how many; None: to the end.
        """
        (data,) = await self.read_ranges([(offset, nbytes)])
        return data

    async def read_ranges(self, ranges: Sequence[tuple[int, int | None]]) -> list[bytes]:
        """Reads several ranges at once; returns the bytes of each, like read_at().

        Args:
            ranges: offset and size of each, bytes; size None: to the end.
        """
        for offset, nbytes in ranges:
            check_range(offset, nbytes)
        await self.opened()
        sizes = [self._bytes_within(*one) for one in ranges]
        buffers = [OwnBytes(size) if size <= PART_BYTES else bytearray(size) for size in sizes]
        pieces: list[ReadPiece] = []
        for (at, _), data in zip(ranges, buffers, strict=True):
            if isinstance(data, bytearray):
                pieces += cut(at, memoryview(data))
            elif len(data):
                pieces.append((at, data))
        await self._read(pieces)
        return [data.data if isinstance(data, OwnBytes) else bytes(data) for data in buffers]

    async def readinto(self, buffer: bytearray | memoryview, offset: int = 0) -> int:
        """Reads bytes into memory; returns their number, fewer at the end of the file.

        Args:
            buffer: receives as many bytes as it has.
            offset: where to begin, bytes.
        """
        check_range(offset)
        await self.opened()
        with memoryview(buffer) as whole, whole.cast("B") as view:
            count = self._bytes_within(offset, len(view))
            await self._read(list(cut(offset, view[:count])))
        return count

    def _bytes_within(self, offset: int, nbytes: int | None) -> int:
        rest_bytes = max(0, self._nbytes - offset)
        return rest_bytes if nbytes is None else min(rest_bytes, nbytes)

    async def _read(self, pieces: Sequence[ReadPiece]) -> None:
        async def work(shared: Shared, handle: int) -> None:
            await shared.memory.read(shared.remote, handle, pieces, self.name)

        await self._with_handle(work)

    async def write_at(self, data: Data, offset: int = 0) -> int:
        """Writes bytes in place, checked by their digest; returns their number.

        The file grows if they reach beyond its end. After a failure, some may have been written.

        Args:
            data: the bytes.
            offset: where to write them, bytes.
        """
        check_range(offset)
        if self.mode != "r+":
            raise CarefulError(errno.EBADF, 'mode "r" is read-only', self.name)
        with memoryview(data) as whole, whole.cast("B") as view:

            async def work(shared: Shared, handle: int) -> None:
                self._is_written = True
                pieces = list(cut(offset, view))
                await shared.memory.write(shared.remote, handle, pieces, self.name)

            await self._with_handle(work)
            self._nbytes = max(self._nbytes, offset + len(view))
            return len(view)

    async def sync(self) -> None:
        """Makes written bytes durable at the host."""
        if self._is_written:
            await self._exclusively(self._synced)

    @property
    def needs_no_close(self) -> bool:
        """Reports whether close() has nothing to do: the file or the connection was closed."""
        unsaved = self._is_written and self._sync
        return self._is_closed or (self._connections.closed and not unsaved)

    async def close(self) -> None:
        """Closes the file, once; makes written bytes durable."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_written and self._sync:
            await self._exclusively(self._commit)
            return
        async with self._opening, self._idle:
            await self._idle.wait_for(lambda: not self._users)
            handle, self._handle = self._handle, -1
            if handle >= 0 and self._shared is not None:
                await quietly(self._shared.remote.close(handle, self.path))

    async def _synced(self, shared: Shared) -> None:
        await self._commit(shared)
        await self._current_handle(shared)  # at once: the file may be renamed later

    async def _commit(self, shared: Shared) -> None:
        for _ in range(_REOPENS_MAX):
            handle, self._handle = await self._current_handle(shared), -1
            try:
                await shared.remote.commit(handle, self.path, 0, True, True)
            except CarefulError as error:
                if error.errno not in _LOST:
                    raise
                continue
            self._is_written = False
            return
        raise CarefulError(errno.ECONNRESET, "", self.name)

    async def _exclusively(self, work: Callable[[Shared], Awaitable[None]]) -> None:
        """Runs work that ends the handle, while nothing uses the handle; later users wait."""
        async with self._connections.shared() as shared, self._opening, self._idle:
            await self._idle.wait_for(lambda: not self._users)
            await work(shared)

    async def _with_handle(self, work: Callable[[Shared, int], Awaitable[None]] | None) -> None:
        """Opens the file and runs work, if any; opens it again if the host lost the handle."""
        async with self._connections.shared() as shared:
            for _ in range(_REOPENS_MAX):
                async with self._using_handle(shared) as handle:
                    try:
                        if work is not None:
                            await work(shared, handle)
                        return
                    except CarefulError as error:
                        if error.errno not in _LOST:
                            raise
                        if self._handle == handle:
                            self._handle = -1
            raise CarefulError(errno.ECONNRESET, "", self.name)

    @asynccontextmanager
    async def _using_handle(self, shared: Shared) -> AsyncIterator[int]:
        """Yields the handle; it is not ended meanwhile."""
        async with self._opening:
            if self._is_closed:
                raise CarefulError(errno.EBADF, "is closed", self.name)
            handle = await self._current_handle(shared)
            self._users += 1
        try:
            yield handle
        finally:
            self._users -= 1
            async with self._idle:
                self._idle.notify_all()

    async def _current_handle(self, shared: Shared) -> int:
        """Returns the handle in this session; opens the file again in a new session."""
        if self._handle < 0 or self._shared is not shared:
            remote, is_first = shared.remote, self._shared is None
            open_ = remote.open if self.mode == "r" else remote.open_inplace
            opening = open_(self.path, self._waits)
            undo = lambda opened: remote.close(opened[0], self.path)  # noqa: E731
            handle, attr = await undone_if_cancelled(opening, undo)
            if not is_first and not self._is_same(attr):
                await quietly(remote.close(handle, self.path))
                raise CarefulError(errno.ESTALE, "has been replaced by another file", self.name)
            if is_first:
                self.attr, self._nbytes = attr, attr.bytes
            self._handle, self._shared = handle, shared
        return self._handle

    def _is_same(self, now: Attr) -> bool:
        if self.mode == "r":
            return version(now) == version(self.attr)
        return (now.device, now.inode) == (self.attr.device, self.attr.inode)


async def undone_if_cancelled(
    opening: Coroutine[object, None, _T],
    undo: Callable[[_T], Coroutine[object, None, object]] | None = None,
) -> _T:
    """Awaits an opening. If the caller is cancelled, the opening finishes and is undone."""
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: _undo(done, undo))
        raise


def _undo(
    done: asyncio.Future[_T], undo: Callable[[_T], Coroutine[object, None, object]] | None
) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        run_detached(quietly(undo(done.result())))


async def write_whole(
    shared: Shared, path: str, data: Data, mode: int, replace: bool, sync: bool
) -> None:
    """Makes a file of these bytes; it appears under its name complete, or not at all."""
    remote, name = shared.remote, shared.remote.name(path)

    def discard(handle: int) -> Coroutine[object, None, object]:
        return remote.close(handle, path, discard=True)

    with memoryview(data) as whole, whole.cast("B") as view:
        for _ in range(_REOPENS_MAX):
            creation = remote.create(path, len(view), mode, replace)
            created = await undone_if_cancelled(creation, lambda created: discard(created.handle))
            try:
                await shared.memory.write(remote, created.handle, list(cut(0, view)), name)
                await remote.commit(created.handle, path, mode, replace, sync)
                return
            except BaseException as error:
                await quietly(discard(created.handle))
                if not isinstance(error, CarefulError) or error.errno not in _LOST:
                    raise
    raise CarefulError(errno.ECONNRESET, "", name)


def check_range(offset: int, nbytes: int | None = None) -> None:
    """Raises ValueError unless offset and size are valid."""
    if not 0 <= offset < 1 << 63 or (nbytes is not None and nbytes < 0):
        raise ValueError(f"offset {offset}, nbytes {nbytes}: must be 0 or more")
