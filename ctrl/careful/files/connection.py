"""The connections behind an AsyncHost: one for short requests, one for each transfer.

Owns when connections are made, renewed and ended. The files that a transfer has open, here and at
the host, end with its connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import NamedTuple
from weakref import WeakSet

from careful.daemon.route import Route
from careful.errors import FATAL, CarefulError
from careful.files.memory import Memory
from careful.transfer.protocol.block import BlockClient
from careful.transfer.run.session import connected
from careful.transfer.tasks import in_thread, quietly

#: Transfers under way; more wait. A carefuld accepts 32 connections of all programs.
TRANSFERS_MAX = 4
#: Calls that hold a handle of the host; more wait. A program may have 64 handles at one host.
HANDLES_MAX = 32


class Shared(NamedTuple):
    """The connection for short requests: the host's tree, and memory for its bytes."""

    remote: BlockClient
    memory: Memory


class Connections:
    """Connections to one host, for use in one event loop.

    find_route: returns the route to the host, and may block.

    Attributes:
        host: the host's name in errors.
        closed: whether close() was called.
        handle_slots: limits the calls that hold a handle of the host.
    """

    def __init__(self, host: str, find_route: Callable[[], Route]) -> None:
        self.host = host
        self._find_route = find_route
        self._known_route: Route | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self._shared: Shared | None = None
        self._is_stale = False
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._transfers: set[BlockClient] = set()
        self._transfer_slots = asyncio.Semaphore(TRANSFERS_MAX)
        self.handle_slots = asyncio.Semaphore(HANDLES_MAX)
        self._calls = 0
        self._idle = asyncio.Condition()
        _all.add(self)

    def _check(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(f"the connection to {self.host} belongs to the process that made it")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError(f"the connection to {self.host} belongs to another event loop")
        if self.closed:
            raise CarefulError(errno.EBADF, "is closed", self.host)

    @asynccontextmanager
    async def _call(self) -> AsyncIterator[None]:
        self._check()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self.closed:
                async with self._idle:
                    self._idle.notify_all()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[Shared]:
        async with self._call():
            shared = await self._current()
            try:
                yield shared
            except CarefulError as error:
                has_ended = error.errno in FATAL or error.errno == errno.ECONNRESET
                if has_ended and self._shared is shared:
                    self._is_stale = True
                raise

    @asynccontextmanager
    async def with_handle(self) -> AsyncIterator[Shared]:
        """Waits for a slot; yields the shared connection to a call that holds handles."""
        async with self.handle_slots, self.shared() as shared:
            yield shared

    async def _current(self) -> Shared:
        """Returns the shared connection; renews it if it ended."""
        async with self._opening:
            self._check()
            if self._shared is None or self._shared.remote.ipc.failed:
                await self._stack.aclose()
                async with AsyncExitStack() as stack:
                    memory = stack.enter_context(closing(Memory()))
                    remote = await stack.enter_async_context(self._connected())
                    self._stack = stack.pop_all()
                self._shared = Shared(remote, memory)
            elif self._is_stale:  # the session ended, but carefuld still runs
                route, ipc = await self._route(), self._shared.remote.ipc
                remote = await BlockClient.connect(ipc, route.address, route.host, route.timeout_s)
                self._shared = self._shared._replace(remote=remote)
            self._is_stale = False
            return self._shared

    @asynccontextmanager
    async def transfer(self) -> AsyncIterator[BlockClient]:
        """Waits for a slot; yields a connection for one transfer."""
        async with self._call(), self._transfer_slots:
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
            old_route = self._known_route
            try:
                try:
                    remote = await stack.enter_async_context(connected(await self._route()))
                except CarefulError:
                    self._known_route = None  # the route may have changed
                    if old_route is None:
                        raise
                    remote = await stack.enter_async_context(connected(await self._route()))
            except CarefulError as error:
                if error.errno != errno.ENOENT:
                    raise  # no carefuld runs: that is no FileNotFoundError
                raise CarefulError(errno.ENOTCONN, error.reason, error.what) from None
            self._check()
            yield remote

    async def _route(self) -> Route:
        if self._known_route is None:
            self._known_route = await in_thread(self._find_route)
        return self._known_route

    async def close(self) -> None:
        """Ends the connections; calls under way fail and clean up first."""
        if self._process != os.getpid():  # the parent still uses them
            return
        error = CarefulError(errno.ECONNABORTED, "was closed", self.host)
        self.closed = True
        if self._shared is not None:
            self._shared.remote.ipc.fail(error)
        for remote in self._transfers:
            remote.ipc.fail(error)
        async with self._idle:
            await self._idle.wait_for(lambda: not self._calls)
        await self._stack.aclose()

    def run_later(self, work: Callable[[], Coroutine[object, None, object]]) -> None:
        """Runs a coroutine in the event loop, from any thread, unless close() was called."""
        loop = self._loop
        if loop is None or self.closed or self._process != os.getpid():
            return
        with suppress(RuntimeError):  # the loop, and so the connection, has ended
            loop.call_soon_threadsafe(lambda: run_detached(quietly(work())))

    def close_descriptors(self) -> None:
        """Closes descriptors in a child of fork() that keep the parent's connections open."""
        shared = [self._shared.remote] if self._shared is not None else []
        for remote in (*shared, *self._transfers):
            remote.ipc.client.close()


_all: WeakSet[Connections] = WeakSet()
#: Tasks without any other reference: the event loop does not keep them.
_tasks: set[asyncio.Task[None]] = set()


def _close_all_descriptors() -> None:
    for connections in list(_all):
        connections.close_descriptors()


os.register_at_fork(after_in_child=_close_all_descriptors)


def run_detached(work: Coroutine[object, None, None]) -> None:
    """Starts a coroutine in the running loop that no caller waits for."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
