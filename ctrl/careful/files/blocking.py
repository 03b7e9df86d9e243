"""A host's files, for any thread: calls that return when they are done.

Owns the thread in which an AsyncHost's event loop runs, and how calls get there and back. What
they do is host.py's.
"""

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
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from careful.errors import CarefulError
from careful.files.file import AsyncFile, Mode
from careful.files.host import AsyncHost, Path
from careful.files.options import Progress, Watcher
from careful.transfer.protocol.entries import Attr, Entry

_A = TypeVar("_A")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Thread:
    """An event loop in a thread of its own.

    Args:
        name: of the thread.
        end: what is awaited there before the loop ends.

    Attributes:
        process: whose it is.
    """

    def __init__(self, name: str, end: Callable[[], Coroutine[object, None, None]]) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self.process = os.getpid()
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(_until_stopped(begun, end),), name=name, daemon=True
        )
        self._thread.start()
        self._loop, self._stop = begun.result()

    def run(self, work: Coroutine[object, None, _T], news: _News | None = None) -> _T:
        """Run a coroutine there, and return what it returns.

        An interrupt, or what the watcher raises, cancels it, and is raised when it has ended.

        Args:
            work: what to run.
            news: what it tells its progress to.
        """
        news = news or _News()
        outcome: list[asyncio.Task[_T]] = []

        def begin() -> None:
            outcome.append(asyncio.ensure_future(work))
            outcome[0].add_done_callback(lambda _: news.end())

        self._post(begin, work)
        try:
            news.follow()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: outcome[0].cancel())
            news.watcher = None
            news.follow()
            raise
        try:
            return outcome[0].result()
        except asyncio.CancelledError:
            raise CarefulError(errno.ECONNABORTED, "was closed") from None
        finally:
            outcome.clear()  # no circle of its failure and this frame

    def _post(self, begin: Callable[[], None], work: Coroutine[object, None, object]) -> None:
        try:
            if self.process != os.getpid():
                raise RuntimeError("the connection belongs to the process that made it")
            if threading.current_thread() is self._thread:
                raise RuntimeError("cannot wait here: this is the connection's own thread")
            with self._lock:
                if self._stopped:
                    raise CarefulError(errno.EBADF, "is closed")
                self._loop.call_soon_threadsafe(begin)
        except BaseException:
            work.close()
            raise

    def stop(self) -> None:
        """End the loop, once; what runs in it is cancelled."""
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
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
    end: Callable[[], Coroutine[object, None, None]],
) -> None:
    stop = asyncio.Event()
    begun.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
    await end()  # of a connection that nobody has any more; else it is closed by now


class _News:
    """From the loop's thread to the caller's: the latest progress, and the end.

    Args:
        watcher: called in the caller's thread; steps that came meanwhile are left out.
    """

    def __init__(self, watcher: Watcher | None = None) -> None:
        self.watcher = watcher
        self._latest: deque[Progress] = deque(maxlen=1)
        self._ended = False
        self._event = threading.Event()

    def tell(self, progress: Progress) -> None:
        """There is progress."""
        self._latest.append(progress)
        self._event.set()

    def end(self) -> None:
        """Nothing follows."""
        self._ended = True
        self._event.set()

    def follow(self) -> None:
        """Tell the watcher, until the end."""
        ended = False
        while not ended:
            self._event.wait()
            self._event.clear()
            ended = self._ended
            if self._latest and self.watcher is not None:
                self.watcher(self._latest.pop())


class _Blocking(Generic[_A]):
    """What has the methods of something awaited, for any thread.

    Args:
        thread: in which they run.
        awaited: what has them.
    """

    def __init__(self, thread: _Thread, awaited: _A) -> None:
        self._thread, self._awaited = thread, awaited

    def __repr__(self) -> str:
        return repr(self._awaited).replace("<Async", "<", 1)


def _blocking(
    method: Callable[Concatenate[_A, _P], Coroutine[object, None, _T]],
) -> Callable[Concatenate[_Blocking[_A], _P], _T]:
    """The same as a method, awaited elsewhere; its progress is told to the calling thread."""

    @wraps(method)
    def call(self: _Blocking[_A], /, *args: _P.args, **named: _P.kwargs) -> _T:
        news = _News(named.get("progress"))  # type: ignore[arg-type]
        if news.watcher is not None:
            named["progress"] = news.tell
        return self._thread.run(method(self._awaited, *args, **named), news)

    return call


class File(_Blocking[AsyncFile]):
    """An open file or block device of a host, for any thread; made by Host.open().

    Reads and writes have an offset, and several threads may have some under way at once. What is
    written is in the file at once, and on its disk after sync() or close(). A file that somebody
    replaces meanwhile stays the one that was opened.

    Args:
        host: it stays connected as long as somebody has this.
        opened: not used otherwise.
    """

    def __init__(self, host: Host, opened: AsyncFile) -> None:
        super().__init__(host._thread, opened)
        self._host = host

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """HOST:PATH."""
        return self._awaited.name

    @property
    def attr(self) -> Attr:
        """What stat said when it was opened."""
        return self._awaited.attr

    @property
    def nbytes(self) -> int:
        """Its size: when it was opened, or after what was written here since."""
        return self._awaited.nbytes

    read = _blocking(AsyncFile.read)
    read_ranges = _blocking(AsyncFile.read_ranges)
    readinto = _blocking(AsyncFile.readinto)
    write = _blocking(AsyncFile.write)
    sync = _blocking(AsyncFile.sync)

    def close(self) -> None:
        """End it, once; what was written is made durable. In a child of fork(): nothing."""
        if self._thread.process == os.getpid() and not self._awaited.is_over:
            self._thread.run(self._awaited.close())


class Host(_Blocking[AsyncHost]):
    """A host's files, for any thread, and several at a time; made by careful.files.connect().

    A call returns when it is done. What the program calls as `progress` is called in the thread
    that waits for the transfer; what it raises ends the transfer, as Ctrl-C does: the same call
    resumes it. `with` closes it at the end. A child of fork() has no part in
    it, and connects by itself.

    Args:
        host: not used otherwise.
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

    @property
    def name(self) -> str:
        """The host, as errors call it."""
        return self._awaited.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls under way raise ConnectionAbortedError."""
        if self._thread.process != os.getpid():  # the parent goes on with it
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
        """Open a file or block device to read ranges of it, or to write in its place.

        Args:
            path: of the host.
            mode: "r": to read; "r+": to read and write; it is there already.
            sync: whether what was written is durable there when it is closed.

        Raises:
            FileNotFoundError: there is no such file.
        """
        opened = self._awaited.open(path, mode, sync=sync).opened()
        return File(self, self._thread.run(opened))

    def ls(self, path: Path = ".", *, recursive: bool = False) -> Iterator[Entry]:
        """Entries of a directory, or the one that a file is.

        Args:
            path: of the host; by default, all that it exports.
            recursive: whether all that is below is listed, directories before what they hold.

        Raises:
            FileNotFoundError: there is no such path.
        """
        pages = self._awaited.pages(path, recursive)

        async def following() -> list[Entry] | None:
            return await anext(pages, None)

        while (page := self._thread.run(following())) is not None:
            yield from page
