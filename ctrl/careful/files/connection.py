"""The connections behind an AsyncHost: one for short questions, one for each transfer.

Owns when they are made, made anew and ended. A transfer has its own, so that all that it leaves
open, here and there, ends with it, however it ends. It calls transfer/session.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from careful.daemon.route import Route
from careful.errors import FATAL, CarefulError
from careful.transfer.file.blocks import in_thread
from careful.transfer.protocol.block import BlockClient
from careful.transfer.session import connected

#: Transfers under way; more wait. A carefuld takes 32 connections of all programs.
TRANSFERS_MAX = 4


class Connections:
    """Connections to one host, for use in one event loop.

    Args:
        find: the way there; may block.
    """

    def __init__(self, find: Callable[[], Route]) -> None:
        self._find = find
        self._way: Route | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._shared: BlockClient | None = None
        self._is_stale = False
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._transfers: set[BlockClient] = set()
        self._room = asyncio.Semaphore(TRANSFERS_MAX)
        self._calls = 0
        self._idle = asyncio.Condition()

    def __str__(self) -> str:
        host = self._way.host if self._way else "not connected"
        return f"{host}, closed" if self._closed else host

    def _check(self) -> None:
        """Raise unless it may be used here and now."""
        if self._process != os.getpid():
            raise RuntimeError(f"the connection to {self} belongs to the process that made it")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(f"the connection to {self} belongs to another event loop")
        if self._closed:
            raise CarefulError(errno.EBADF, "is closed", self._way.host if self._way else "")

    @asynccontextmanager
    async def _call(self) -> AsyncIterator[None]:
        """What close() waits for."""
        self._check()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._closed:
                async with self._idle:
                    self._idle.notify_all()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[BlockClient]:
        """The connection for short questions."""
        async with self._call():
            remote = await self._current()
            try:
                yield remote
            except CarefulError as error:
                if error.errno in FATAL and self._shared is remote:
                    self._is_stale = True
                raise

    async def _current(self) -> BlockClient:
        """The shared connection, made anew if it ended."""
        async with self._opening:
            self._check()
            if self._shared is None or self._shared.ipc.failed:
                await self._stack.aclose()
                self._shared = await self._stack.enter_async_context(self._connected())
            elif self._is_stale:  # the session with the host ended, carefuld is there
                way = await self._route()
                with _as_connection():
                    self._shared = await BlockClient.connect(
                        self._shared.ipc, way.address, way.host, way.timeout_s
                    )
            self._is_stale = False
            return self._shared

    @asynccontextmanager
    async def transfer(self) -> AsyncIterator[BlockClient]:
        """A connection of a transfer's own; its turn, if there are many."""
        async with self._call(), self._room:
            self._check()
            async with self._connected() as remote:
                self._transfers.add(remote)
                try:
                    yield remote
                finally:
                    self._transfers.discard(remote)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[BlockClient]:
        async with AsyncExitStack() as stack:
            known = self._way
            with _as_connection():
                try:
                    remote = await stack.enter_async_context(connected(await self._route()))
                except CarefulError:
                    self._way = None  # another carefuld may lead there by now
                    if known is None:
                        raise
                    remote = await stack.enter_async_context(connected(await self._route()))
            self._check()
            yield remote

    async def _route(self) -> Route:
        if self._way is None:
            self._way = await in_thread(self._find)
        return self._way

    async def close(self) -> None:
        """End them; what is under way fails, cleans up, and is waited for."""
        if self._process != os.getpid():  # the parent goes on with them
            return
        error = CarefulError(errno.ECONNABORTED, "was closed", str(self))
        self._closed = True
        for remote in {self._shared, *self._transfers}:
            if remote is not None:
                remote.ipc.fail(error)
        async with self._idle:
            await self._idle.wait_for(lambda: not self._calls)
        await self._stack.aclose()


@contextmanager
def _as_connection() -> Iterator[None]:
    """Where no carefuld runs, no file of the host's is missing: a ConnectionError says so."""
    try:
        yield
    except CarefulError as error:
        if error.errno != errno.ENOENT:
            raise
        raise CarefulError(errno.ENOTCONN, error.reason, error.what) from None
