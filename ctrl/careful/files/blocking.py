"""A host's files, for any thread: calls run in the event loop of a thread, and return when done."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import wraps
from itertools import chain
from typing import Concatenate, Generic, ParamSpec, TypeVar

from careful.closing import Closing
from careful.errors import CarefulError
from careful.files.file import AsyncFile, Mode
from careful.files.host import AsyncHost, Path
from careful.files.options import Progress, Watcher
from careful.transfer.protocol.entries import Attr, Entry

_A = TypeVar("_A", bound=AsyncFile | AsyncHost)
_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Thread:
    """An event loop in a thread of its own; `process` is the process that owns the thread.

    end: awaited in the loop before the loop ends.
    """

    def __init__(self, name: str, end: Callable[[], Coroutine[object, None, None]]) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self.process = os.getpid()
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(_until_stopped(started, end),), name=name, daemon=True
        )
        self._thread.start()
        self._loop, self._stop = started.result()

    def run(self, work: Coroutine[object, None, _T], mailbox: _Mailbox | None = None) -> _T:
        """Returns the result of a coroutine that runs in the loop; `mailbox` receives its progress.

        An interrupt, or an exception of the watcher, cancels the coroutine and is raised after the
        coroutine has ended.
        """
        mailbox = mailbox or _Mailbox()
        task: list[asyncio.Task[_T]] = []

        def begin() -> None:
            task.append(asyncio.ensure_future(work))
            task[0].add_done_callback(lambda _: mailbox.end())

        self._post(begin, work)
        try:
            mailbox.pass_on()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: task[0].cancel())
            mailbox.watcher = None
            mailbox.pass_on()
            raise
        try:
            return task[0].result()
        except asyncio.CancelledError:
            raise CarefulError(errno.ECONNABORTED, "was closed") from None
        finally:
            task.clear()  # breaks the cycle of failure and frame

    def _post(self, begin: Callable[[], None], work: Coroutine[object, None, object]) -> None:
        try:
            if self.process != os.getpid():
                raise RuntimeError("the connection belongs to the process that made it")
            if threading.current_thread() is self._thread:
                raise RuntimeError("the connection's own thread cannot wait: use another thread")
            with self._lock:
                if self._stopped:
                    raise CarefulError(errno.EBADF, "is closed")
                self._loop.call_soon_threadsafe(begin)
        except BaseException:
            work.close()
            raise

    def stop(self) -> None:
        """Ends the loop, once; cancels what runs in it."""
        if self.process != os.getpid():
            return
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()


async def _until_stopped(
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
    end: Callable[[], Coroutine[object, None, None]],
) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
    await end()  # closes a connection that the program dropped


class _Mailbox:
    """Passes the latest progress, and the end, from the loop's thread to the caller's.

    watcher: called in the caller's thread; of several steps, it sees only the latest.
    """

    def __init__(self, watcher: Watcher | None = None) -> None:
        self.watcher = watcher
        self._latest: deque[Progress] = deque(maxlen=1)
        self._has_ended = False
        self._event = threading.Event()

    def put(self, progress: Progress) -> None:
        self._latest.append(progress)
        self._event.set()

    def end(self) -> None:
        self._has_ended = True
        self._event.set()

    def pass_on(self) -> None:
        """Calls the watcher with progress until the end."""
        has_ended = False
        while not has_ended:
            self._event.wait()
            self._event.clear()
            has_ended = self._has_ended
            if self._latest and self.watcher is not None:
                self.watcher(self._latest.pop())


class _Blocking(Closing, Generic[_A]):
    """Lets any thread call the methods of an awaited object."""

    def __init__(self, thread: _Thread, awaited: _A) -> None:
        self._thread, self._awaited = thread, awaited

    def __repr__(self) -> str:
        return repr(self._awaited).replace("<Async", "<", 1)

    @property
    def name(self) -> str:
        """Returns HOST:PATH of a file, the name in errors of a host."""
        return self._awaited.name


def _blocking(
    method: Callable[Concatenate[_A, _P], Coroutine[object, None, _T]],
) -> Callable[Concatenate[_Blocking[_A], _P], _T]:
    """Returns a method that awaits another in the loop; progress goes to the calling thread."""

    @wraps(method)
    def call(self: _Blocking[_A], /, *args: _P.args, **named: _P.kwargs) -> _T:
        mailbox = _Mailbox(named.get("progress"))  # type: ignore[arg-type]
        if mailbox.watcher is not None:
            named["progress"] = mailbox.put
        return self._thread.run(method(self._awaited, *args, **named), mailbox)

    return call


class File(_Blocking[AsyncFile]):
    """An open file or block device of a host, for any thread; made by Host.open().

    Reads and writes name an offset, and several threads may run some at once. Written bytes are in
    the file at once, and on its disk after sync() or close(). If another program replaces the file,
    this object keeps the file that it opened.

    The host stays connected while this object exists.
    """

    def __init__(self, host: Host, opened: AsyncFile) -> None:
        super().__init__(host._thread, opened)
        self._host = host

    @property
    def attr(self) -> Attr:
        """Returns the attributes at the time of opening."""
        return self._awaited.attr

    @property
    def nbytes(self) -> int:
        """Returns the size at opening, or after writes through this object."""
        return self._awaited.nbytes

    read_at = _blocking(AsyncFile.read_at)
    read_ranges = _blocking(AsyncFile.read_ranges)
    readinto = _blocking(AsyncFile.readinto)
    write_at = _blocking(AsyncFile.write_at)
    sync = _blocking(AsyncFile.sync)

    def close(self) -> None:
        """Closes the file and makes writes durable; does nothing in a child of fork()."""
        if self._thread.process == os.getpid() and not self._awaited.needs_no_close:
            self._thread.run(self._awaited.close())


class Host(_Blocking[AsyncHost]):
    """A host's files, for any number of threads; made by careful.files.connect().

    A call returns when it is done. `progress` is called in the thread that waits for the transfer;
    its exception ends the transfer, as Ctrl-C does, and the same call resumes it. `with` closes the
    connection at the end. A child of fork() needs a connection of its own.
    """

    def __init__(self, host: AsyncHost) -> None:
        super().__init__(_Thread("careful.files", host.close), host)
        self._closing = threading.Lock()
        self._finalizer = weakref.finalize(self, self._thread.stop)
        try:
            self._thread.run(host.connected())
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """Closes the connection; calls under way raise ConnectionAbortedError."""
        if self._thread.process != os.getpid():  # the parent still uses it
            return
        with self._closing:
            if self._finalizer.alive:
                self._thread.run(self._awaited.close())
                self._finalizer()

    stat = _blocking(AsyncHost.stat)
    read = _blocking(AsyncHost.read)
    readinto = _blocking(AsyncHost.readinto)
    write = _blocking(AsyncHost.write)
    append = _blocking(AsyncHost.append)
    rename = _blocking(AsyncHost.rename)
    mkdir = _blocking(AsyncHost.mkdir)
    remove = _blocking(AsyncHost.remove)
    verify = _blocking(AsyncHost.verify)
    get = _blocking(AsyncHost.get)
    put = _blocking(AsyncHost.put)

    def open(self, path: Path, mode: Mode = "r", *, sync: bool = True) -> File:
        opened = self._awaited.open(path, mode, sync=sync).opened()
        return File(self, self._thread.run(opened))

    def ls(self, path: Path = ".", *, recursive: bool = False) -> Iterator[Entry]:
        pages = self._awaited.pages(path, recursive)

        async def following() -> list[Entry] | None:
            return await anext(pages, None)

        first = self._thread.run(following())  # raises here, not when the first entry is read
        rest = iter(lambda: self._thread.run(following()), None)
        return chain.from_iterable(chain([first or []], rest))


Host.open.__doc__, Host.ls.__doc__ = AsyncHost.open.__doc__, AsyncHost.ls.__doc__
