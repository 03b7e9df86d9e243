"""One instance of libcareful and the single thread that may use it.

C cannot carry a callback's exception: the engine passes the exception to a hook, or, if it is an
interrupt, raises it from the call that ran the callback.
"""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import select
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from careful._abi import CData, ffi, lib
from careful.errors import CarefulError, check
from careful.node.loop import Driver
from careful.node.opening import open_instance

#: Longest wait inside C, milliseconds. Python handles a signal (Ctrl-C) between two waits.
_SLICE_MS = 50
#: After this long without a poll, seconds, the engine first receives what is queued: a peer may
#: have ended the session meanwhile.
_UNPOLLED_S = 1.0
#: Catching up ends after this long without a frame, or at the latest, seconds: a session's end
#: counts a few ticks after it arrives.
_QUIET_S, _CATCH_UP_MAX_S = 0.003, 0.1
_FDS_MAX = 16
#: How long a thread has to end its instance at exit, seconds: usually, and in C or in a handler.
_EXIT_S, _EXIT_MAX_S = 5 * _SLICE_MS / 1000, 2.0

_log = logging.getLogger("careful.node")

#: Type of Node.on_error: receives an exception and the name of the callback that raised it.
ErrorHook = Callable[[Exception, str], object]

#: A function that starts an operation, and one that receives the errno if a later start fails.
_Waiting = tuple[Callable[[], int], Callable[[int], object]]


@dataclass(frozen=True)
class Answers:
    """Key of the queue of answers to a peer; answers leave before requests do."""

    peer: object


_open: weakref.WeakSet[Engine] = weakref.WeakSet()
#: Exceptions, usually interrupts, that cffi caught around a callback.
_callback_exceptions: list[BaseException] = []


def _keep_exception(_kind: object, value: BaseException, _traceback: object) -> None:
    _callback_exceptions.append(value)


@ffi.def_extern(onerror=_keep_exception)
def on_message(message: CData, user: CData) -> None:
    """Delivers a request, or a store that is complete."""
    ffi.from_handle(user)._on_message(message)


@ffi.def_extern(onerror=_keep_exception)
def on_done(result: CData, user: CData) -> None:
    """Delivers the end of an operation."""
    ffi.from_handle(user)._on_done(result)


@ffi.def_extern(onerror=_keep_exception)
def on_peer(_instance: CData, peer: int, state: int, user: CData) -> None:
    """Delivers a change of a peer's state."""
    ffi.from_handle(user)._on_peer(peer, state)


class BeingBuilt(Protocol):
    """A message that is being built in a send buffer (outgoing.Outgoing)."""

    def release_views(self) -> None:
        """Releases the view of the buffer."""


class Pending(Protocol):
    """An operation that has not ended (operation.Operation)."""

    def fail(self, number: int, text: str = "") -> None:
        """Ends the operation with an errno."""

    def drop(self) -> None:
        """Releases the operation's memory; C no longer has a handle to it."""


class Engine:
    """An open instance. Raises CarefulError: the instance cannot be opened; the text says what to
    do.

    Args:
        options: fields of struct careful_options, including ifname; or fields of struct
            careful_attach_options, including path.
        name: in errors; the interface by default.

    Attributes:
        attached: whether the queue belongs to a carefuld.
        operations: operations that have not ended; C has handles to them.
        owner: handle of the object whose callbacks C runs; lives as long as the engine.
        on_error: receives exceptions that callbacks raise.
        driver: polls the engine in an event loop, or None.
        outgoing: messages that are being built in send buffers.
        unsent: send buffers of messages that will not be sent.
    """

    def __init__(self, options: dict[str, object], name: str = "") -> None:
        self.name = name or str(options["ifname"])
        self._pointer: CData = None
        self._inside = False
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._errors: list[BaseException] = []
        self.operations: set[Pending] = set()
        self.owner: object = None
        self.on_error: ErrorHook = self._log_error
        self.driver: Driver | None = None
        self.outgoing: weakref.WeakSet[BeingBuilt] = weakref.WeakSet()
        self.unsent: list[object] = []
        self._views: Counter[int] = Counter()
        self._backlog: dict[object, deque[_Waiting]] = {}
        self._events = 0
        self._end_requested: threading.Event | None = None
        self._polled_s = time.monotonic()
        self.attached = "path" in options
        if not self.attached and any(other.name == self.name for other in _open):
            gc.collect()  # frees an instance that was dropped without close()
        self._pointer = open_instance(options, self.name)
        _open.add(self)

    def __del__(self) -> None:
        if self._pointer is not None:
            text = f"careful on {self.name} was not closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
            self.end()
            self.release_buffers()

    @property
    def closed(self) -> bool:
        return self._pointer is None

    @property
    def inside(self) -> bool:
        """Reports whether C is running a callback. A callback cannot wait."""
        return self._inside

    @property
    def pointer(self) -> CData:
        """Returns the C instance. Raises CarefulError: the instance is closed. Raises RuntimeError:
        another thread or process opened it.
        """
        if self._process != os.getpid():
            raise RuntimeError(f"careful on {self.name} belongs to the process that opened it")
        if self._pointer is None:
            raise CarefulError(errno.EBADF, "is closed", self.name)
        if self._thread != threading.get_ident():
            raise RuntimeError(f"careful on {self.name} belongs to the thread that opened it")
        return self._pointer

    def run(self, function: Callable[..., int], *args: object) -> int:
        """Calls a C function that may run callbacks, then raises interrupts from them. Raises
        RuntimeError: called by a callback. Raises SystemExit: the program is ending, and this is
        not its main thread.
        """
        if self._end_requested is not None:
            self._end_in_thread(self._end_requested)
        pointer = self.pointer
        self.refuse_inside()
        self._inside = True
        self._events = 0
        try:
            rc = function(pointer, *args)
        finally:
            self._inside = False
        self._polled_s = time.monotonic()
        if self._backlog:
            self._begin_queued()
        self.raise_errors()
        return rc

    def refuse_inside(self, action: str = "wait") -> None:
        """Raises RuntimeError if a callback is the caller; C would return EDEADLK."""
        if self._inside:
            raise RuntimeError(f"a handler cannot {action}: it runs inside poll()")

    def in_loop(self) -> Driver:
        """Returns the driver that polls this engine in an event loop. Raises RuntimeError: there is
        none.
        """
        if self.driver is None:
            raise RuntimeError("to await, open the node with `async with careful.open(...)`")
        return self.driver

    def begin(self, queue: object, start: Callable[[], int], fail: Callable[[int], object]) -> int:
        """Starts an operation, at once or as soon as C has room for it; returns 0, or -errno if
        starting at once failed.

        Without an event loop, and outside callbacks, the call waits for room; if a callback raises
        meanwhile, the operation has started or never will. Otherwise operations of a queue start
        later, in order.

        Args:
            queue: operations with the same key start in order.
            start: returns 0 or -errno; -EAGAIN means no room.
            fail: receives the errno if a later start fails.
        """
        if queue not in self._backlog:
            rc = start()
            if self.driver is not None:
                self.driver.wake()
            if rc != -errno.EAGAIN:
                return rc
        operation = (start, fail)
        waiting = self._backlog.setdefault(queue, deque())
        waiting.append(operation)
        if self.driver is None and not self._inside:
            try:
                self.wait_until(lambda: operation not in waiting, None)
            except BaseException:  # of any callback; an operation that has not started never will
                if operation in waiting:
                    waiting.remove(operation)
                if not waiting and self._backlog.get(queue) is waiting:
                    del self._backlog[queue]
                raise
        return 0

    def waiting(self, queue: object) -> int:
        return len(self._backlog.get(queue, ()))

    def _begin_queued(self) -> None:
        """Starts queued operations while C has room."""
        queues = list(self._backlog.items())
        for queue, waiting in sorted(queues, key=lambda one: not isinstance(one[0], Answers)):
            while waiting:
                start, fail = operation = waiting.popleft()  # an interrupt must not start it twice
                rc = start()
                if rc == -errno.EAGAIN:
                    waiting.appendleft(operation)
                    break
                self._events += 1
                if rc < 0:
                    fail(-rc)
            else:
                self._backlog.pop(queue, None)

    def count_event(self) -> None:
        self._events += 1

    def report_failure(self, error: BaseException, where: str) -> None:
        """Passes a callback's exception to the hook; keeps an interrupt for the poll to raise."""
        if isinstance(error, Exception):
            try:
                self.on_error(error, where)
                return
            except BaseException as hook_error:
                error = hook_error
        self._errors.append(error)

    def _log_error(self, error: Exception, where: str) -> None:
        _log.error("careful on %s: %s failed", self.name, where, exc_info=error)

    def raise_errors(self) -> None:
        """Raises what callbacks raised since the last call: one exception, or a group."""
        errors = [*self._errors, *_callback_exceptions]
        self._errors.clear()
        _callback_exceptions.clear()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"careful on {self.name}: callbacks failed", errors)

    def poll(self) -> int:
        """Receives, sends and runs callbacks once; returns the number of frames received."""
        return check(self.run(lib.careful_poll), self.name)

    def round(self) -> int:
        """Polls without waiting; returns more than 0 after frames or callbacks, or -errno."""
        rc = self.run(lib.careful_wait, 0, -1)
        return rc if rc < 0 else rc + self._events

    def wait(self, timeout_s: float | None, fd: int = -1) -> int:
        """Polls until a frame arrives, a callback runs, `fd` is readable or the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_ms = _SLICE_MS if deadline is None else (deadline - time.monotonic()) * 1000
            slice_ms = int(max(0.0, min(_SLICE_MS, left_ms)))
            frames = check(self.run(lib.careful_wait, slice_ms, fd), self.name)
            if frames or self._events or left_ms <= slice_ms or _readable([fd]):
                return frames

    def wait_fds(self) -> tuple[list[int], float]:
        """Returns the descriptors to wait for, and the longest wait in seconds."""
        fds, timeout_ms = ffi.new("int[]", _FDS_MAX), ffi.new("int *")
        count = lib.careful_wait_fds(self.pointer, fds, _FDS_MAX, timeout_ms)
        return [int(fd) for fd in fds[0:count]], timeout_ms[0] / 1000

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits until callbacks make a condition true; returns False if the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.refuse_inside()
        while not condition():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self.wait(_SLICE_MS / 1000 if left_s is None else min(left_s, _SLICE_MS / 1000))
        return True

    def catch_up(self) -> None:
        """Receives what is queued if nothing has polled for _UNPOLLED_S."""
        now = time.monotonic()
        if self._inside or now - self._polled_s < _UNPOLLED_S:
            return
        fds, deadline, quiet_until = self.wait_fds()[0], now + _CATCH_UP_MAX_S, now
        while now < deadline:
            if _readable(fds):
                quiet_until = now + _QUIET_S
            if now >= quiet_until:
                return
            check(self.run(lib.careful_wait, 0, -1), self.name)
            now = time.monotonic()

    def end(self) -> None:
        """Closes the C side, if it is open; runs no callback. In a child of fork() this closes only
        the child's descriptors.
        """
        pointer, self._pointer = self._pointer, None
        _open.discard(self)
        if pointer is not None:
            lib.careful_close(pointer)

    def release_buffers(self) -> None:
        """Releases the buffers that C had, after an instance that was not closed: the garbage
        collector must not collect a memoryview in a cycle while its buffer is exported.
        """
        for operation in list(self.operations):
            operation.drop()
        if self.owner is not None:
            ffi.from_handle(self.owner).release_buffers()

    def end_at_exit(self) -> None:
        """Ends the instance at exit.

        Nothing may be closed under running C, so a thread that polls ends its own instance. If the
        thread does not return in time, the end of the process ends the instance.
        """
        threads = [thread for thread in threading.enumerate() if thread.ident == self._thread]
        if threads and threads[0] is not threading.current_thread():
            self._end_requested = ended = threading.Event()
            if ended.wait(_EXIT_S) or (self._inside and (ended.wait(_EXIT_MAX_S) or self._inside)):
                threads[0].join(_EXIT_S)
                return
        self.end()
        self.release_buffers()

    def _end_in_thread(self, ended: threading.Event) -> None:
        self.end()
        self.release_buffers()
        ended.set()
        raise SystemExit  # ends a thread silently

    def end_in_child(self) -> None:
        """Ends the instance in a child of fork(), unless the child returns into running C."""
        if not (self._inside and self._thread == threading.get_ident()):
            self.end()

    def view_of(self, raw: CData, nbytes: int) -> memoryview:
        """Returns a view of a send buffer; slices and arrays of the view count as views, too."""
        address = int(ffi.cast("uintptr_t", raw))
        self._views[address] += 1
        owner = ffi.gc(ffi.cast("uint8_t *", raw), lambda _: self._views.subtract((address,)))
        return memoryview(ffi.buffer(owner, nbytes)).cast("B")

    def has_views(self, raw: CData) -> bool:
        return self._views[int(ffi.cast("uintptr_t", raw))] > 0

    def free_unsent(self) -> None:
        viewed = [raw for raw in self.unsent if self.has_views(raw)]
        for raw in self.unsent:
            if not self.has_views(raw):
                lib.careful_free(self.pointer, raw)
        self.unsent = viewed

    def close(self) -> None:
        """Closes the instance. Raises RuntimeError: called by a callback, or in another thread.
        Raises BufferError: a view of a message's payload exists.
        """
        if self._pointer is not None and self._process == os.getpid():
            self.refuse_inside("close the node")
            _ = self.pointer
            for message in list(self.outgoing):
                message.release_views()
            if self._views.total():
                raise BufferError("a view of a message's payload exists: release it first")
        if self.driver is not None:
            self.driver.end(CarefulError(errno.EBADF, "is closed", self.name))
        self._backlog.clear()
        self.end()


def _readable(fds: list[int]) -> bool:
    """Reports whether a descriptor is readable; uses poll(), since select() fails above fd 1023."""
    poller = select.poll()
    for fd in fds:
        if fd >= 0:
            poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _end_all_in_child() -> None:
    """Ends the parent's instances in a child, so that the child does not keep a queue busy."""
    for engine in list(_open):
        engine.end_in_child()


os.register_at_fork(after_in_child=_end_all_in_child)


@atexit.register
def _close_all() -> None:
    """Ends open instances at exit, so that no pin and no session remains."""
    for engine in list(_open):
        engine.end_at_exit()
