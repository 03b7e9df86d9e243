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

from careful._abi import Buffer, CData, ffi, lib, unpack
from careful.closing import Closing
from careful.control.instance.memory_hosts import Hosts, access_of
from careful.errors import CarefulError
from careful.memory.client import Client, Remote, checked, move

_PAGE_BYTES = 4096

#: A part of a piece: its offset, and the buffer that it is read into or written from.
Part = tuple[int, Buffer]


@dataclass(frozen=True)
class Info:
    """A piece as its host describes it.

    Attributes:
        name: of the piece.
        nbytes: its size.
        access: "r" or "rw": what this host may do.
        owner: the name of the host that made it, or else its address or key.
        mine: whether this host made it.
        number: newer pieces of the lending host have larger numbers.
        page_bytes: size of its pages at the lending host.
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
    fields = unpack("careful_memory_piece", raw)
    return Info(
        name,
        fields["bytes"],
        access_of(fields["access"]),
        hosts.name(fields["owner.by"], bytes(fields["owner.id"])),
        bool(fields["owner.access"]),
        fields["number"],
        fields["page_bytes"],
    )


def _flush(remote: CData) -> int:
    """Writes the map back, if there is one; returns 0 or -errno."""
    rc = int(lib.careful_memory_flush(remote))
    return 0 if rc == -errno.ENOENT else rc


def _end(
    client: Client, remote: CData, name: str, views: list[object], calls: list[object]
) -> None:
    """Closes a piece that a program closed, dropped or left open. Writes its map back."""
    del client  # the argument kept it alive
    if _flush(remote) not in (0, -errno.ECHILD):
        text = f"{name}: its map was not closed, and changed pages were not written back"
        warnings.warn(text, ResourceWarning, stacklevel=1)
    if not views:
        lib.careful_memory_unmap(remote)
    if not calls:  # a thread that outlives the program may be in a call
        lib.careful_memory_close(remote)


class Piece(Closing):
    """An open piece of a host's memory; made by Host.create() and Host.open().

    Any thread may call its methods; close() waits for the others. If the session ends, the next
    call opens the piece again. `with` closes the piece at the end; the host keeps the memory.

    Attributes:
        info: the host's description.
    """

    def __init__(self, client: Client, remote: CData, info: Info, host: Remote, ask: bytes) -> None:
        self._client, self._remote, self.info = client, remote, info
        self._host, self._ask = host, ask
        self._is_open, self._idle = True, threading.Condition()
        #: This piece, once for each call under way.
        self._calls: list[object] = []
        #: This piece, while a view of its map exists.
        self._views: list[object] = []
        shared = self._views, self._calls
        self._end = weakref.finalize(self, _end, client, remote, self.name, *shared)

    def __repr__(self) -> str:
        state = "" if self._is_open else ", closed"
        return f"<Piece {self.name} of {self.nbytes} bytes{state}>"

    @property
    def name(self) -> str:
        """Returns HOST:NAME."""
        return self._host.subject

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
                raise BufferError(f"{self.name}: views of its map exist: release them first")
            self._is_open = False
            self._idle.wait_for(lambda: not self._calls)
            rc = 0 if discard else _flush(self._remote)
            self._is_open = rc != 0
            checked(rc, self.name)
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
        """Maps the piece: its pages are fetched when they are touched.

        A child of fork() does not have the memory. If a page cannot be fetched, the thread that
        touches it gets SIGBUS.

        Args:
            writable: whether the map can be written; by default, if the piece can be.
            offset: start of the map in the piece, a multiple of 4096.
            nbytes: its size; 0: to the end of the piece.
            local_bytes: limit of its memory here; 0: none.
            timeout_s: longest wait for a touched page, seconds.

        Raises:
            PermissionError: this process may not use userfaultfd.
            ValueError: offset is not a multiple of 4096, or local_bytes is below 4096 but not 0.
            CarefulError: the piece has a map already (EBUSY): open it again for another.
        """
        if offset % _PAGE_BYTES or 0 < local_bytes < _PAGE_BYTES:
            raise ValueError("offset: a multiple of 4096; local_bytes: 0, or 4096 or more")
        options = ffi.new("struct careful_memory_map_options *")
        options.uffd, options.offset, options.bytes = -1, offset, nbytes
        options.local_bytes, options.patience_ms = local_bytes, int(timeout_s * 1000)
        options.writable = "w" in self.info.access if writable is None else writable
        base = ffi.new("void **")
        with self._used() as remote:
            checked(lib.careful_memory_map(remote, options, base), self.name)
        buffer = ffi.buffer(base[0], nbytes or self.nbytes - offset)
        self._views.append(self)
        weakref.finalize(buffer, self._views.clear).atexit = False
        view = memoryview(buffer).cast("B")
        return view if options.writable else view.toreadonly()

    def serve(self, uffd: int, base: int, offset: int, nbytes: int) -> None:
        """Serves the faults of another process's memory, until close().

        Args:
            uffd: that process's userfaultfd, with the memory registered.
            base: address of the memory in that process.
            offset: in the piece.
            nbytes: its size.

        Raises:
            CarefulError: the range ends beyond the piece (ERANGE).
        """
        fields = {"uffd": uffd, "base": base, "offset": offset, "bytes": nbytes}
        options = ffi.new("struct careful_memory_map_options *", fields)
        options.patience_ms = 30_000
        with self._used() as remote:
            checked(lib.careful_memory_map(remote, options, ffi.new("void **")), self.name)

    def flush(self) -> None:
        """Writes changed pages of the map back to the piece.

        Raises:
            ConnectionError: the host does not answer. The pages stay changed.
        """
        with self._used() as remote:
            checked(lib.careful_memory_flush(remote), self.name)

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Begins to fetch a range of the map, and returns without waiting for it."""
        with self._used() as remote:
            checked(lib.careful_memory_prefetch(remote, offset, nbytes), self.name)

    @contextmanager
    def _used(self) -> Iterator[CData]:
        """Keeps the piece open during a call."""
        with self._idle:
            if not self._is_open:
                raise CarefulError(errno.EBADF, "is closed", self.name)
            self._calls.append(self)
        try:
            yield self._remote
        finally:
            with self._idle:
                self._calls.pop()
                self._idle.notify_all()

    def _move(self, parts: Sequence[Part], flags: int) -> int:
        with self._used() as remote:
            return move(remote, parts, flags, self.name)

    def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        """Reads as many bytes as a buffer holds; returns their number.

        Args:
            buffer: writable and contiguous.
            offset: in the piece, bytes.

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
        """Writes a buffer into the piece; returns the bytes written, then in place at the host.

        Args:
            data: contiguous.
            offset: in the piece, bytes.
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
            seen: the number that an earlier call returned; -1: do not wait.
            timeout_s: the longest wait, seconds; then the result is `seen`.

        Raises:
            ConnectionError: the host does not answer.
            FileNotFoundError: the piece is gone.
        """
        until = time.monotonic() + (timeout_s if seen >= 0 else 0)
        while True:
            wait_s = max(0.0, min(self._client.wait_s, until - time.monotonic()))
            words = (max(seen, 0), int(wait_s * 1000))
            answer = self._client.ask(self._host, lib.CAREFUL_MEMORY_WAIT, self._ask, words)
            if answer.args[0] != seen or time.monotonic() >= until:
                return answer.args[0]
