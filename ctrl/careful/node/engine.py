"""One instance of libcareful and the one thread that may use it.

Owns the C pointer from careful_open() to careful_close(), the waiting, what waits for
room, and where an exception of a callback goes, which C cannot carry: to a hook, or, of an
interrupt, out of the call that C ran the callback in. What callbacks mean is node.py's and
operation.py's.
"""

from __future__ import annotations

import atexit
import errno
import gc
import logging
import os
import re
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

#: Longest wait inside C: Python sees a signal (Ctrl-C) only between two of them, milliseconds.
_SLICE_MS = 50
#: Without a poll for so long, what came meanwhile is taken before anything is asked, seconds:
#: a peer may have given us up.
_AWAY_S = 1.0
#: How long that may take: the end of a session counts a few ticks after it came, seconds.
_SETTLE_S, _SETTLE_MAX_S = 0.003, 0.1
_FDS_MAX = 16
#: At the program's end, how long a thread that uses an instance has to end it, seconds; and how
#: long if it is in C, or in a handler.
_LEAVE_S, _LEAVE_MAX_S = 5 * _SLICE_MS / 1000, 2.0

_log = logging.getLogger("careful.node")

#: What Node.on_error may be: called with an exception, and what raised it.
ErrorHook = Callable[[Exception, str], object]

#: What starts something, and is told where that fails later.
_Waiting = tuple[Callable[[], int], Callable[[int], object]]


@dataclass(frozen=True)
class Answers:
    """The queue of answers that a peer waits for: they leave before requests do."""

    peer: object


_open: weakref.WeakSet[Engine] = weakref.WeakSet()
#: What was raised between C and the code that guards a callback: an interrupt, if anything.
_strays: list[BaseException] = []


def _stray(_kind: object, value: BaseException, _traceback: object) -> None:
    _strays.append(value)


@ffi.def_extern(onerror=_stray)
def on_message(message: CData, user: CData) -> None:
    """A request, or a store that has come in."""
    ffi.from_handle(user)._on_message(message)


@ffi.def_extern(onerror=_stray)
def on_done(result: CData, user: CData) -> None:
    """The end of an operation."""
    ffi.from_handle(user)._on_done(result)


@ffi.def_extern(onerror=_stray)
def on_peer(_instance: CData, peer: int, state: int, user: CData) -> None:
    """A peer's state has changed."""
    ffi.from_handle(user)._on_peer(peer, state)


def _in_python(text: str) -> str:
    """What C says, with the options as open() names them."""
    text = re.sub(r"--([a-z][a-z-]+)", lambda option: option[1].replace("-", "_"), text)
    return text.replace(f"process {os.getpid()}; end it", "this program itself; close() it")


class Unseeing(Protocol):
    """A message that is built in a send buffer (outgoing.Outgoing)."""

    def unsee(self) -> None:
        """Let go of the buffer's view."""


class Pending(Protocol):
    """An operation that has not ended (operation.Operation)."""

    def fail(self, number: int, text: str = "") -> None:
        """Ends the operation with an errno."""

    def drop(self) -> None:
        """Lets go of its memory: C no longer has a handle of it."""


class Engine:
    """An open instance.

    Args:
        options: fields of struct careful_options; ifname is one. Or of struct
            careful_attach_options, of which path is one.
        what: what errors call it; by default the interface.

    Attributes:
        attached: the queue is a carefuld's, not its own.
        operations: that have not ended; C has handles of them.
        owner: handle of the object whose callbacks C runs; it lives as long as this.
        on_error: what is told of exceptions in callbacks.
        driver: what polls in an event loop, or None.
        outgoing: messages that are built in send buffers;
        unsent: send buffers of those that nobody will send.

    Raises:
        CarefulError: it cannot be opened; the text says what to do.
    """

    def __init__(self, options: dict[str, object], what: str = "") -> None:
        self.what = what or str(options["ifname"])
        self._pointer: CData = None
        self._inside = False
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._errors: list[BaseException] = []
        self.operations: set[Pending] = set()
        self.owner: object = None
        self.on_error: ErrorHook = self._log_error
        self.driver: Driver | None = None
        self.outgoing: weakref.WeakSet[Unseeing] = weakref.WeakSet()
        self.unsent: list[object] = []
        self._seen: Counter[int] = Counter()
        self._backlog: dict[object, deque[_Waiting]] = {}
        self._news = 0
        self._leaving: threading.Event | None = None
        self._polled_s = time.monotonic()
        self.attached = "path" in options
        kind = "careful_attach_options" if self.attached else "careful_options"
        raw, texts = ffi.new(f"struct {kind} *"), []
        for name, value in options.items():
            if isinstance(value, str):
                texts.append(ffi.new("char[]", os.fsencode(value)))
                value = texts[-1]
            setattr(raw, name, value)
        if not self.attached and any(other.what == self.what for other in _open):
            gc.collect()  # one that was dropped without close() is in nobody's way
        found, error = ffi.new("struct careful **"), ffi.new("struct careful_error *")
        rc = (lib.careful_attach if self.attached else lib.careful_open)(raw, found, error)
        said = _in_python(ffi.string(error.text).decode(errors="replace"))
        check(rc, "" if self.what in said else self.what, said)
        self._pointer = found[0]
        _open.add(self)

    def __del__(self) -> None:
        if self._pointer is not None:
            text = f"careful on {self.what} was not closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
            self.end()
            self.let_go()

    @property
    def closed(self) -> bool:
        """Reports whether it has been closed."""
        return self._pointer is None

    @property
    def inside(self) -> bool:
        """Reports whether C is running a callback, in which nothing can be waited for."""
        return self._inside

    @property
    def pointer(self) -> CData:
        """The C instance.

        Raises:
            CarefulError: it is closed.
            RuntimeError: this is not the thread, or not the process, that opened it.
        """
        if self._process != os.getpid():
            raise RuntimeError(f"careful on {self.what} belongs to the process that opened it")
        if self._pointer is None:
            raise CarefulError(errno.EBADF, "is closed", self.what)
        if self._thread != threading.get_ident():
            raise RuntimeError(f"careful on {self.what} belongs to the thread that opened it")
        return self._pointer

    def run(self, function: Callable[..., int], *args: object) -> int:
        """Call a function of C that may run callbacks; interrupts in them are raised here.

        Raises:
            RuntimeError: called by a callback.
            SystemExit: the program ends, and this is a thread of it.
        """
        if self._leaving is not None:
            self._leave_here(self._leaving)
        pointer = self.pointer
        self.refuse_inside()
        self._inside = True
        self._news = 0
        try:
            rc = function(pointer, *args)
        finally:
            self._inside = False
        self._polled_s = time.monotonic()
        if self._backlog:
            self._begin_waiting()
        self.raise_errors()
        return rc

    def refuse_inside(self, what: str = "wait") -> None:
        """Raise RuntimeError if a callback calls, where C says EDEADLK."""
        if self._inside:
            raise RuntimeError(f"a handler cannot {what}: it runs inside poll()")

    def in_loop(self) -> Driver:
        """What polls this in an event loop.

        Raises:
            RuntimeError: nothing does.
        """
        if self.driver is None:
            raise RuntimeError("to await, open the node with `async with careful.open(...)`")
        return self.driver

    def begin(self, queue: object, start: Callable[[], int], fail: Callable[[int], object]) -> int:
        """Start something, or have it wait until C has room for it.

        A program without an event loop waits here, outside of callbacks; in others it is
        started later, in order.

        Args:
            queue: what waits for the same goes in order.
            start: returns 0 or -errno; -EAGAIN: there is no room.
            fail: told of an errno where it was started later.

        Returns:
            0, or -errno of what was started at once.

        Raises:
            Whatever any callback raised while this waited: it was started, or never will be.
        """
        if queue not in self._backlog:
            rc = start()
            if self.driver is not None:
                self.driver.wake()
            if rc != -errno.EAGAIN:
                return rc
        one = (start, fail)
        waiting = self._backlog.setdefault(queue, deque())
        waiting.append(one)
        if self.driver is None and not self._inside:
            try:
                self.wait_until(lambda: one not in waiting, None)
            except BaseException:  # of whatever callback; what was not started never is
                if one in waiting:
                    waiting.remove(one)
                if not waiting and self._backlog.get(queue) is waiting:
                    del self._backlog[queue]
                raise
        return 0

    def waiting(self, queue: object) -> int:
        """How many wait in a queue."""
        return len(self._backlog.get(queue, ()))

    def _begin_waiting(self) -> None:
        """Start what waited, as far as there is room now."""
        queues = list(self._backlog.items())
        for queue, waiting in sorted(queues, key=lambda one: not isinstance(one[0], Answers)):
            while waiting:
                start, fail = one = waiting.popleft()  # an interrupt must not start it twice
                rc = start()
                if rc == -errno.EAGAIN:
                    waiting.appendleft(one)
                    break
                self._news += 1
                if rc < 0:
                    fail(-rc)
            else:
                self._backlog.pop(queue, None)

    def heard(self) -> None:
        """Note that a callback runs."""
        self._news += 1

    def failed(self, error: BaseException, where: str) -> None:
        """Tell the hook what a callback raised; an interrupt is raised by the poll."""
        if isinstance(error, Exception):
            try:
                self.on_error(error, where)
                return
            except BaseException as second:
                error = second
        self._errors.append(error)

    def _log_error(self, error: Exception, where: str) -> None:
        _log.error("careful on %s: %s failed", self.what, where, exc_info=error)

    def raise_errors(self) -> None:
        """Raise what callbacks raised since the last time: alone, or as a group."""
        errors = [*self._errors, *_strays]
        self._errors.clear()
        _strays.clear()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"careful on {self.what}: callbacks failed", errors)

    def poll(self) -> int:
        """One round: receive, send, run callbacks; how many frames came."""
        return check(self.run(lib.careful_poll), self.what)

    def round(self) -> int:
        """A few rounds that do not wait; whether frames came or callbacks ran, or -errno."""
        rc = self.run(lib.careful_wait, 0, -1)
        return rc if rc < 0 else rc + self._news

    def wait(self, timeout_s: float | None, fd: int = -1) -> int:
        """Poll until frames came, a callback ran, `fd` is readable or the time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _SLICE_MS if end is None else (end - time.monotonic()) * 1000
            slice_ms = int(max(0.0, min(_SLICE_MS, left)))
            frames = check(self.run(lib.careful_wait, slice_ms, fd), self.what)
            if frames or self._news or left <= slice_ms or _readable([fd]):
                return frames

    def wait_fds(self) -> tuple[list[int], float]:
        """Descriptors that are readable when there is something to poll for; seconds at most."""
        fds, timeout_ms = ffi.new("int[]", _FDS_MAX), ffi.new("int *")
        count = lib.careful_wait_fds(self.pointer, fds, _FDS_MAX, timeout_ms)
        return [int(fd) for fd in fds[0:count]], timeout_ms[0] / 1000

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition holds that callbacks bring about; False: time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        self.refuse_inside()
        while not condition():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.wait(_SLICE_MS / 1000 if left is None else min(left, _SLICE_MS / 1000))
        return True

    def catch_up(self) -> None:
        """Where nothing polled for a while, take what came meanwhile."""
        now = time.monotonic()
        if self._inside or now - self._polled_s < _AWAY_S:
            return
        fds, end, settled = self.wait_fds()[0], now + _SETTLE_MAX_S, now
        while now < end:
            if _readable(fds):
                settled = now + _SETTLE_S
            if now >= settled:
                return
            check(self.run(lib.careful_wait, 0, -1), self.what)
            now = time.monotonic()

    def end(self) -> None:
        """Close the C side, if it is open; no callback runs.

        In a child of fork() this closes the child's descriptors alone.
        """
        pointer, self._pointer = self._pointer, None
        _open.discard(self)
        if pointer is not None:
            lib.careful_close(pointer)

    def let_go(self) -> None:
        """Release the buffers that C had, of an instance that nobody closed: a memoryview whose
        buffer somebody still has must not be collected as a part of a cycle.
        """
        for operation in list(self.operations):
            operation.drop()
        if self.owner is not None:
            ffi.from_handle(self.owner).let_go()

    def leave(self) -> None:
        """End it with the program. A thread that polls it does so itself: nothing may be closed
        under C that runs. Where it does not come out, the end of the process is the instance's.
        """
        threads = [one for one in threading.enumerate() if one.ident == self._thread]
        if threads and threads[0] is not threading.current_thread():
            self._leaving = left = threading.Event()
            if left.wait(_LEAVE_S) or (self._inside and (left.wait(_LEAVE_MAX_S) or self._inside)):
                threads[0].join(_LEAVE_S)
                return
        self.end()
        self.let_go()

    def _leave_here(self, left: threading.Event) -> None:
        self.end()
        self.let_go()
        left.set()
        raise SystemExit  # ends a thread without a word

    def forked(self) -> None:
        """Let go in a child of fork(), unless it is to return into C that is running."""
        if not (self._inside and self._thread == threading.get_ident()):
            self.end()

    def seen(self, raw: CData, nbytes: int) -> memoryview:
        """A view of a send buffer. What is made of it, parts and arrays, has it seen, too."""
        address = int(ffi.cast("uintptr_t", raw))
        self._seen[address] += 1
        held = ffi.gc(ffi.cast("uint8_t *", raw), lambda _: self._seen.subtract((address,)))
        return memoryview(ffi.buffer(held, nbytes)).cast("B")

    def is_seen(self, raw: CData) -> bool:
        """Reports whether there is any view of the buffer."""
        return self._seen[int(ffi.cast("uintptr_t", raw))] > 0

    def take_back(self) -> None:
        """Free the buffers that nobody will send, and nobody sees."""
        seen = [raw for raw in self.unsent if self.is_seen(raw)]
        for raw in self.unsent:
            if not self.is_seen(raw):
                lib.careful_free(self.pointer, raw)
        self.unsent = seen

    def close(self) -> None:
        """Close, from where the instance may be used.

        Raises:
            RuntimeError: called by a callback, or in another thread.
            BufferError: something sees the payload of a message that is being built.
        """
        if self._pointer is not None and self._process == os.getpid():
            self.refuse_inside("close the node")
            _ = self.pointer
            for message in list(self.outgoing):
                message.unsee()
            if self._seen.total():
                raise BufferError("something sees the payload of a message: let go of it first")
        if self.driver is not None:
            self.driver.end(CarefulError(errno.EBADF, "is closed", self.what))
        self._backlog.clear()
        self.end()


def _readable(fds: list[int]) -> bool:
    """Reports whether one of them is; select() knows none above 1023."""
    poller = select.poll()
    for fd in fds:
        if fd >= 0:
            poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _forked() -> None:
    """A child that lives on keeps no queue busy after its parent's end."""
    for engine in list(_open):
        engine.forked()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    """A program that ends takes its pins and its session with it, closed or not."""
    for engine in list(_open):
        engine.leave()
