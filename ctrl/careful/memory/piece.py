"""A piece of another host's memory: its description, and its bytes."""

from __future__ import annotations

import errno
import math
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from careful._abi import Buffer, CData, ffi, lib, unpack
from careful.control.memory_hosts import Hosts, access_of
from careful.errors import CarefulError
from careful.memory.client import Client, Remote, checked, move

#: A part of a piece: its offset, and the buffer that it is read into or written from.
Part = tuple[int, Buffer]


@dataclass(frozen=True)
class Info:
    """A piece as its host describes it.

    Attributes:
        name: of the piece.
        nbytes: its size.
        access: "r" or "rw": what this host may do.
        owner: the host that made it, by name if it has one here.
        mine: whether this host made it.
        number: ascends with each piece of the host.
        page_bytes: size of its pages there.
    """

    name: str
    nbytes: int
    access: str
    owner: str
    mine: bool
    number: int
    page_bytes: int


def info_of(raw: bytes, name: str, hosts: Hosts) -> Info:
    """Returns the description in a struct careful_memory_piece."""
    said = unpack("careful_memory_piece", raw)
    return Info(
        name,
        said["bytes"],
        access_of(said["access"]),
        hosts.name(said["owner.by"], bytes(said["owner.id"])),
        bool(said["owner.access"]),
        said["number"],
        said["page_bytes"],
    )


def _flushed(remote: CData) -> int:
    """Writes a map back; returns 0 or -errno. No map is no failure."""
    rc = int(lib.careful_memory_flush(remote))
    return 0 if rc == -errno.ENOENT else rc


def _end(
    client: Client, remote: CData, what: str, views: list[object], calls: list[object]
) -> None:
    """Closes a piece that a program closed, dropped or left open. Writes its map back."""
    del client  # it was kept until now
    if _flushed(remote) not in (0, -errno.ECHILD):
        text = f"{what}: its map was not closed, and changed pages were not written back"
        warnings.warn(text, ResourceWarning, stacklevel=1)
    if not views:
        lib.careful_memory_unmap(remote)
    if not calls:  # of threads that the end of the program cuts short
        lib.careful_memory_close(remote)


class Piece:
    """An open piece of a host's memory; made by Host.create() and Host.open().

    Any thread may call its methods, several at a time; close() waits for the others. If the session
    ends, the next call opens the piece again. `with` closes it at the end; the memory stays at its
    host.

    Attributes:
        info: the host's description.
    """

    def __init__(self, client: Client, remote: CData, info: Info, host: Remote, ask: bytes) -> None:
        self._client, self._remote, self.info = client, remote, info
        self._host, self._ask, self._what = host, ask, host.what
        self._is_open, self._idle = True, threading.Condition()
        #: This piece, once for each call under way.
        self._calls: list[object] = []
        #: This piece, while a view of its map exists: the view keeps it.
        self._views: list[object] = []
        held = self._views, self._calls
        self._end = weakref.finalize(self, _end, client, remote, self._what, *held)

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"<Piece {self._what} of {self.nbytes} bytes{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Returns HOST:NAME."""
        return self._what

    @property
    def nbytes(self) -> int:
        """Returns its size."""
        return self.info.nbytes

    def close(self, *, discard: bool = False) -> None:
        """Writes changed pages back, unmaps the piece and closes it. The host keeps its memory.

        Args:
            discard: whether to drop changed pages instead.

        Raises:
            ConnectionError: the host does not answer; the map stays, with its changed pages.
            BufferError: a view of the map exists.
        """
        with self._idle:
            if not self._is_open:
                return
            if self._views:
                raise BufferError(f"{self._what}: release the views of its map first")
            self._is_open = False
            self._idle.wait_for(lambda: not self._calls)
            rc = 0 if discard else _flushed(self._remote)
            self._is_open = rc != 0
            checked(rc, self._what)
            lib.careful_memory_unmap(self._remote)
        self._end()

    def map(
        self,
        *,
        writable: bool | None = None,
        offset: int = 0,
        nbytes: int = 0,
        local_bytes: int = 0,
        timeout_s: float = 30.0,
    ) -> memoryview:
        """Returns memory whose pages come from the piece when they are touched.

        A child of fork() does not have the memory. If a page is unavailable, the thread that
        touches it gets SIGBUS.

        Args:
            writable: whether the map can be written; by default, if the piece can be.
            offset: where in the piece it begins, a multiple of 4096.
            nbytes: its size; 0: to the end of the piece.
            local_bytes: the most memory that it uses here; 0: all of its size.
            timeout_s: longest wait for a touched page, seconds.

        Raises:
            PermissionError: this process may not use userfaultfd.
            CarefulError: the piece has a map already (EBUSY); it can be opened again.
        """
        options = ffi.new("struct careful_memory_map_options *")
        options.uffd, options.offset, options.bytes = -1, offset, nbytes
        options.local_bytes, options.patience_ms = local_bytes, int(timeout_s * 1000)
        options.writable = "w" in self.info.access if writable is None else writable
        base = ffi.new("void **")
        with self._used() as remote:
            checked(lib.careful_memory_map(remote, options, base), self._what)
        buffer = ffi.buffer(base[0], nbytes or self.nbytes - offset)
        self._views.append(self)
        weakref.finalize(buffer, self._views.clear).atexit = False
        view = memoryview(buffer).cast("B")
        return view if options.writable else view.toreadonly()

    def serve(self, uffd: int, base: int, offset: int, nbytes: int) -> None:
        """Serves the faults of another process's memory, until close().

        Args:
            uffd: that process's userfaultfd, with the memory registered.
            base: address of the memory there.
            offset: where in the piece it begins.
            nbytes: its size.

        Raises:
            CarefulError: the range ends beyond the piece (ERANGE).
        """
        fields = {"uffd": uffd, "base": base, "offset": offset, "bytes": nbytes}
        options = ffi.new("struct careful_memory_map_options *", fields)
        options.patience_ms = 30_000
        with self._used() as remote:
            checked(lib.careful_memory_map(remote, options, ffi.new("void **")), self._what)

    def flush(self) -> None:
        """Writes changed pages of the map back to the piece.

        Raises:
            ConnectionError: the host does not answer. The pages stay changed.
        """
        with self._used() as remote:
            checked(lib.careful_memory_flush(remote), self._what)

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Begins to fetch a range of the map, and does not wait for it."""
        with self._used() as remote:
            checked(lib.careful_memory_prefetch(remote, offset, nbytes), self._what)

    @contextmanager
    def _used(self) -> Iterator[CData]:
        """Keeps the piece open during a call."""
        with self._idle:
            if not self._is_open:
                raise CarefulError(errno.EBADF, "is closed", self._what)
            self._calls.append(self)
        try:
            yield self._remote
        finally:
            with self._idle:
                self._calls.pop()
                self._idle.notify_all()

    def _move(self, parts: Sequence[Part], flags: int) -> int:
        with self._used() as remote:
            return move(remote, parts, flags, self._what)

    def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        """Reads as many bytes as a buffer holds; returns their number.

        Args:
            buffer: writable and contiguous.
            offset: where in the piece, bytes.

        Raises:
            ConnectionError: the host does not answer.
            CarefulError: the range ends beyond the piece (ERANGE), or the piece is gone (ESTALE).
        """
        return self.readv([(offset, buffer)])

    def read(self, offset: int, nbytes: int) -> bytes:
        """Returns bytes of the piece; raises as read_into()."""
        buffer = bytearray(nbytes)
        self.read_into(buffer, offset)
        return bytes(buffer)

    def write(self, data: Buffer, offset: int = 0, *, notify: bool = False) -> int:
        """Writes a buffer into the piece; returns its bytes. They are in place at the host then.

        Args:
            data: contiguous.
            offset: where in the piece, bytes.
            notify: whether to end each wait() for the piece, on any host.

        Raises as read_into(); PermissionError if the piece is read-only here.
        """
        return self.writev([(offset, data)], notify=notify)

    def readv(self, parts: Sequence[Part], *, ordered: bool = False) -> int:
        """Reads several parts at once; returns the number of bytes.

        Args:
            parts: offsets in the piece, and the buffers that they are read into.
            ordered: whether each part is complete before the next begins; else they arrive in any
                order, which is faster.

        Raises as read_into(). After a failure, any part may have been read.
        """
        return self._move(parts, lib.CAREFUL_MEMORY_ORDERED if ordered else 0)

    def writev(self, parts: Sequence[Part], *, ordered: bool = False, notify: bool = False) -> int:
        """Writes several parts at once; arguments and errors are those of readv() and write()."""
        flags = lib.CAREFUL_MEMORY_ORDERED if ordered else 0
        written = self._move(parts, flags | lib.CAREFUL_MEMORY_STORE)
        if notify:
            self._client.ask(self._host, lib.CAREFUL_MEMORY_NOTIFY, self._ask)
        return written

    def wait(self, seen: int = -1, timeout_s: float = math.inf) -> int:
        """Waits until a writer notifies; returns the number of notifications since create().

        Args:
            seen: the number that the caller knows; -1: do not wait.
            timeout_s: the longest wait, seconds; then the result is `seen`.

        Raises:
            ConnectionError: the host does not answer.
            FileNotFoundError: the piece is gone.
        """
        until = time.monotonic() + (timeout_s if seen >= 0 else 0)
        while True:
            left_s = max(0.0, min(self._client.wait_s, until - time.monotonic()))
            words = (max(seen, 0), int(left_s * 1000))
            found = self._client.ask(self._host, lib.CAREFUL_MEMORY_WAIT, self._ask, words).args[0]
            if found != seen or time.monotonic() >= until:
                return found
