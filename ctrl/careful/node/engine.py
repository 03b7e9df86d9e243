"""One instance of libcareful and the one thread that may use it.

Owns the C pointer from careful_open() to careful_close(), the waiting, and the way
of an exception out of a callback: C cannot carry it, so it is raised by the call
that C ran the callback in. What callbacks mean is node.py's and operation.py's.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import select
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from careful._abi import ffi, lib
from careful.errors import CarefulError, check

if TYPE_CHECKING:
    from careful.node.operation import Operation

#: Longest wait inside C: Python sees a signal (Ctrl-C) only between two of them, milliseconds.
_SLICE_MS = 50

_open: weakref.WeakSet[Engine] = weakref.WeakSet()
#: What was raised between C and the code that guards a callback: an interrupt, if anything.
_strays: list[BaseException] = []


def _stray(_kind: object, value: BaseException, _traceback: object) -> None:
    _strays.append(value)


@ffi.def_extern(onerror=_stray)
def on_message(message: Any, user: Any) -> None:
    """A request, or a store that has come in."""
    ffi.from_handle(user)._on_message(message)


@ffi.def_extern(onerror=_stray)
def on_done(result: Any, user: Any) -> None:
    """The end of an operation."""
    ffi.from_handle(user)._on_done(result)


@ffi.def_extern(onerror=_stray)
def on_peer(_instance: Any, peer: int, state: int, user: Any) -> None:
    """A peer's state has changed."""
    ffi.from_handle(user)._on_peer(peer, state)


def _in_python(text: str) -> str:
    """What C says, with the options as open() names them."""
    text = re.sub(r"--([a-z][a-z-]+)", lambda option: option[1].replace("-", "_"), text)
    return text.replace(f"process {os.getpid()}; end it", "this program itself; close() it")


class Engine:
    """An open instance.

    Args:
        options: fields of struct careful_options; ifname is one.

    Attributes:
        operations: that have not ended; C has handles of them.
        owner: handle of the object whose callbacks C runs; it lives as long as this.

    Raises:
        CarefulError: it cannot be opened; the text says what to do.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.what = str(options["ifname"])
        self._pointer: Any = None
        self._inside = False
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._errors: list[BaseException] = []
        self.operations: set[Operation] = set()
        self.owner: Any = None
        self._news = 0
        raw, texts = ffi.new("struct careful_options *"), []
        for name, value in options.items():
            if isinstance(value, str):
                texts.append(ffi.new("char[]", os.fsencode(value)))
                value = texts[-1]
            setattr(raw, name, value)
        if any(other.what == self.what for other in _open):
            gc.collect()  # one that was dropped without close() is in nobody's way
        found, error = ffi.new("struct careful **"), ffi.new("struct careful_error *")
        rc = lib.careful_open(raw, found, error)
        said = _in_python(ffi.string(error.text).decode(errors="replace"))
        check(rc, "" if self.what in said else self.what, said)
        self._pointer = found[0]
        _open.add(self)

    def __del__(self) -> None:
        if self._pointer is not None:
            text = f"careful on {self.what} was not closed"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=1)
            self.end()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._pointer is None

    @property
    def inside(self) -> bool:
        """Whether C is running a callback, in which nothing can be waited for."""
        return self._inside

    @property
    def pointer(self) -> Any:
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

    def run(self, function: Callable[..., int], *args: Any) -> int:
        """Call a function of C that may run callbacks; what they raised is raised here.

        Raises:
            RuntimeError: called by a callback.
        """
        pointer = self.pointer
        self._refuse_inside()
        self._inside = True
        self._news = 0
        try:
            rc = function(pointer, *args)
        finally:
            self._inside = False
        self.raise_errors()
        return rc

    def _refuse_inside(self) -> None:
        if self._inside:
            raise RuntimeError("a handler cannot wait: it runs inside poll()")

    def heard(self) -> None:
        """Note that a callback runs."""
        self._news += 1

    def failed(self, error: BaseException) -> None:
        """Note what a callback raised."""
        self._errors.append(error)

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

    def wait(self, timeout_s: float | None, fd: int = -1) -> int:
        """Poll until frames came, a callback ran, `fd` is readable or the time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _SLICE_MS if end is None else (end - time.monotonic()) * 1000
            slice_ms = int(max(0.0, min(_SLICE_MS, left)))
            frames = check(self.run(lib.careful_wait, slice_ms, fd), self.what)
            if frames or self._news or left <= slice_ms or _readable(fd):
                return frames

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition holds that callbacks bring about; False: time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        self._refuse_inside()
        while not condition():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.wait(_SLICE_MS / 1000 if left is None else min(left, _SLICE_MS / 1000))
        return True

    def end(self) -> None:
        """Close the C side, if it is open; no callback runs.

        In a child of fork() this closes the child's descriptors alone.
        """
        pointer, self._pointer = self._pointer, None
        _open.discard(self)
        if pointer is not None:
            lib.careful_close(pointer)

    def forked(self) -> None:
        """Let go in a child of fork(), unless it is to return into C that is running."""
        if not (self._inside and self._thread == threading.get_ident()):
            self.end()

    def close(self) -> None:
        """Close, from where the instance may be used.

        Raises:
            RuntimeError: called by a callback, or in another thread.
        """
        if self._pointer is not None and self._process == os.getpid():
            self._refuse_inside()
            _ = self.pointer
        self.end()


def _readable(fd: int) -> bool:
    return fd >= 0 and bool(select.select([fd], [], [], 0)[0])


def _forked() -> None:
    """A child that lives on keeps no queue busy after its parent's end."""
    for engine in list(_open):
        engine.forked()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    """A program that ends takes its pins and its session with it, closed or not."""
    for engine in list(_open):
        engine.end()
