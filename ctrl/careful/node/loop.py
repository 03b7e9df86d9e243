"""A node inside an asyncio event loop: no thread, no blocking call.

Owns when the node is polled. It is polled after each request, while frames arrive, and for spin_us
after the last frame. Then it is polled when a descriptor is readable or a timer is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

from careful.errors import CarefulError


class Polled(Protocol):
    """The part of an instance that its driver uses (engine.Engine)."""

    what: str

    @property
    def closed(self) -> bool:
        pass

    def round(self) -> int:
        """Polls once; returns the number of frames and callbacks, or -errno."""

    def wait_fds(self) -> tuple[list[int], float]:
        """Returns the descriptors to wait for, and the longest wait in seconds."""


class Driver:
    """Polls an engine in the running loop until stop().

    Args:
        engine: used by this thread alone.
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
            self._later(self._loop.call_soon(self._step))

    def future(self) -> asyncio.Future[None]:
        """Returns a future of this loop.

        Raises:
            RuntimeError: another loop is running.
            CarefulError: the interface is gone, and nothing polls any longer.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"careful on {self._engine.what} belongs to another event loop")
        if self._failure is not None:
            raise self._failure
        return self._loop.create_future()

    def task(self, work: Coroutine[object, None, None]) -> None:
        """Runs a coroutine as a task; stop() cancels it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until callbacks make a condition true; returns False if the time is over.

        Raises:
            CarefulError: the interface is gone.
        """
        one = condition, self.future()
        self._waiting.append(one)
        self.wake()
        try:
            await asyncio.wait([one[1]], timeout=timeout_s)
            if not one[1].done():
                return False
            one[1].result()
            return True
        finally:
            self._waiting.remove(one)
            if not one[1].cancel() and not one[1].cancelled():
                one[1].exception()  # retrieved: a cancelled caller does not see it

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
        self._later(None)
        for fd in self._fds:
            self._loop.remove_reader(fd)
        self._fds.clear()
        for task in self._tasks:
            task.cancel()

    def _later(self, following: asyncio.Handle | None) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = following

    def _step(self) -> None:
        moved = 1  # if an interrupt ends this round, another round follows
        try:
            moved = self._engine.round()
        finally:
            if moved < 0:
                self.end(CarefulError(-moved, "", self._engine.what))
            elif not self._stopped and not self._engine.closed:
                self._plan(moved > 0)
        self._tell()

    def _plan(self, moved: bool) -> None:
        now = self._loop.time()
        if moved:
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
        self._later(self._loop.call_later(timeout_s, self._step))

    def _tell(self) -> None:
        """Completes the waits whose condition holds; a wait gets the exception of its own
        condition.
        """
        for condition, future in list(self._waiting):
            if future.done():
                continue
            try:
                if condition():
                    future.set_result(None)
            except Exception as error:
                future.set_exception(error)
