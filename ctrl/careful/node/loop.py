"""A node inside an asyncio event loop: no thread, no blocking call.

The node is polled after each request, while frames arrive, and for spin_us after the last frame.
Then it is polled when a descriptor is readable or a timer is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

from careful.errors import CarefulError


class Polled(Protocol):
    """The part of an instance that its driver uses (engine.Engine)."""

    name: str

    @property
    def closed(self) -> bool:
        pass

    def round(self) -> int:
        """Polls once; returns the number of frames and callbacks, or -errno."""

    def wait_fds(self) -> tuple[list[int], float]:
        """Returns the descriptors to wait for, and the longest wait in seconds."""


class Driver:
    """Polls an engine in the running loop until stop().

    spin_s: how long to poll after a frame arrived, seconds; inf: always.
    """

    def __init__(self, engine: Polled, spin_s: float) -> None:
        self._engine = engine
        self._spin_s = spin_s
        self._loop = asyncio.get_running_loop()
        self._busy_at = self._loop.time()
        self._fds: set[int] = set()
        self._next: asyncio.Handle | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: CarefulError | None = None
        self._stopped = False
        self.wake()

    def wake(self) -> None:
        if not self._stopped:
            self._replace_next(self._loop.call_soon(self._step))

    def future(self) -> asyncio.Future[None]:
        """Returns a future of this loop. Raises RuntimeError: another loop is running. Raises
        CarefulError: the interface is gone, and nothing polls any longer.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"careful on {self._engine.name} belongs to another event loop")
        if self._failure is not None:
            raise self._failure
        return self._loop.create_future()

    def task(self, work: Coroutine[object, None, None]) -> None:
        """Runs a coroutine as a task; stop() cancels it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until callbacks make a condition true; returns False if the time is over. Raises
        CarefulError: the interface is gone.
        """
        wait = condition, self.future()
        self._waiting.append(wait)
        self.wake()
        try:
            await asyncio.wait([wait[1]], timeout=timeout_s)
            if not wait[1].done():
                return False
            wait[1].result()
            return True
        finally:
            self._waiting.remove(wait)
            if not wait[1].cancel() and not wait[1].cancelled():
                wait[1].exception()  # marks it as retrieved: a cancelled caller does not see it

    def end(self, error: CarefulError) -> None:
        """Stops polling and fails all present and future waits with `error`."""
        self._failure = self._failure or error
        self.stop()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(self._failure)

    def stop(self) -> None:
        """Stops polling; the engine stays open."""
        self._stopped = True
        self._replace_next(None)
        for fd in self._fds:
            self._loop.remove_reader(fd)
        self._fds.clear()
        for task in self._tasks:
            task.cancel()

    def _replace_next(self, handle: asyncio.Handle | None) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = handle

    def _step(self) -> None:
        progress = 1  # if an interrupt ends this round, another round follows
        try:
            progress = self._engine.round()
        finally:
            if progress < 0:
                self.end(CarefulError(-progress, "", self._engine.name))
            elif not self._stopped and not self._engine.closed:
                self._plan(progress > 0)
        self._complete_waits()

    def _plan(self, progress: bool) -> None:
        now = self._loop.time()
        if progress:
            self._busy_at = now
        if now - self._busy_at <= self._spin_s:
            self.wake()
            return
        fds, timeout_s = self._engine.wait_fds()
        for fd in self._fds.difference(fds):
            self._loop.remove_reader(fd)
        for fd in set(fds) - self._fds:
            self._loop.add_reader(fd, self._step)
        self._fds = set(fds)
        self._replace_next(self._loop.call_later(timeout_s, self._step))

    def _complete_waits(self) -> None:
        """Completes each wait whose condition holds; what a condition raises, its wait raises."""
        for condition, future in list(self._waiting):
            if future.done():
                continue
            try:
                if condition():
                    future.set_result(None)
            except Exception as error:
                future.set_exception(error)
