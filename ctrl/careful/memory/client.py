"""The thread of libcareful that moves memory, through a carefuld or over a queue of its own.

Owns C's pointers. Python only starts calls and waits: no page passes through it.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from careful._abi import Buffer, CData, ffi, lib, sizeof
from careful.control.up_options import UpOptions
from careful.daemon.route import Route
from careful.errors import CarefulError, check
from careful.node.engine import open_instance
from careful.node.options import attach_fields, fields_of

#: Memory that a client shares with carefuld, bytes.
_SHARED_BYTES = 64 << 20
_PIECE_BYTES = sizeof("careful_memory_piece")
_BYTES, _PARTS = ffi.typeof("uint8_t[]"), ffi.typeof("struct careful_memory_part[]")
_TEXTS = {
    errno.ENOSYS: "it lends no memory: `carefulctl up IFACE --lend 4GiB` there",
    errno.ENOENT: "it has no such piece of memory for this host",
    errno.EEXIST: "this host has a piece of that name there",
    errno.EDQUOT: "that is more than it lends to one host (--lend-host of `up` there)",
    errno.ENOSPC: "it has not so much memory left to lend (--lend of `up` there)",
    errno.ENOMEM: "it has not so much memory free",
    errno.EMFILE: "this host has too many pieces open there",
    errno.ENOTUNIQ: "several hosts share a piece of that name: name its owner",
    errno.ESTALE: "the piece is gone: it was deleted, or its host has started again",
    errno.ECONNRESET: "the host does not answer",
    errno.EACCES: "it is shared with this host read-only",
    errno.ERANGE: "the range ends beyond the piece",
    errno.EPERM: "this process may not use userfaultfd: run it as root, let it open "
    "/dev/userfaultfd (a udev rule), or sysctl vm.unprivileged_userfaultfd=1",
    errno.EBUSY: "the piece is mapped already: open it again for another map",
    errno.EFAULT: "the buffer is a map's: copy it first, for example by bytes()",
    errno.ECHILD: "it belongs to the process that opened it",
}


def checked(rc: int, what: str) -> None:
    """Raises CarefulError about `what` if a call of the client failed."""
    check(rc, what, _TEXTS.get(-rc, ""))


@dataclass(frozen=True)
class Answer:
    """The answer to a request: its words and payload."""

    args: tuple[int, ...]
    payload: bytes


class Client:
    """An instance with a thread of its own; any thread may use it.

    Args:
        options: those of the instance, as for Engine.
        what: the instance in errors.
        timeout_s: limit of the silence of hosts, seconds.
    """

    def __init__(self, options: dict[str, object], what: str, timeout_s: float) -> None:
        instance, made = open_instance(options, what), ffi.new("struct careful_memory **")
        rc = lib.careful_memory_start(instance, int(timeout_s * 1000), made)
        if rc:
            lib.careful_close(instance)
        check(rc, what)
        self.pointer = made[0]
        #: The longest wait of a request: the host must answer in time.
        self.wait_s = timeout_s / 2
        self._end = weakref.finalize(self, lib.careful_memory_stop, made[0])

    def ask(
        self, host: Remote, handler: int, payload: bytes = b"", args: Sequence[int] = ()
    ) -> Answer:
        """Sends a request to a host, and returns its answer.

        Raises:
            CarefulError: it refused, or did not answer.
        """
        answer = ffi.new("struct careful_memory_answer *")
        words = ffi.new("uint32_t[4]", [*args, 0, 0, 0, 0][:4])
        rc = lib.careful_memory_ask(
            self.pointer, *host.c_address, handler, words, payload, len(payload), answer
        )
        checked(rc, host.what)
        return Answer(tuple(answer.args), bytes(ffi.buffer(answer.payload, answer.bytes)))

    def open(self, host: Remote, ask: bytes) -> tuple[bytes, CData]:
        """Opens a piece; returns what the host said about it, and C's pointer."""
        said, remote = (
            ffi.new("struct careful_memory_piece *"),
            ffi.new("struct careful_memory_remote **"),
        )
        rc = lib.careful_memory_open(self.pointer, *host.c_address, ask, len(ask), said, remote)
        checked(rc, host.what)
        return bytes(ffi.buffer(said, _PIECE_BYTES)), remote[0]


class Remote:
    """The address of a host, and its name in errors.

    Attributes:
        what: the subject of errors.
        c_address: the arguments of C's functions.
    """

    def __init__(self, address: bytes, what: str) -> None:
        self.what = what
        self._raw = ffi.from_buffer(address)
        self.c_address = (ffi.cast("struct sockaddr *", self._raw), len(address))
        self._address = address

    def about(self, what: str) -> Remote:
        """Returns the same address with another subject of errors."""
        return Remote(self._address, what)


def move(remote: CData, parts: Sequence[tuple[int, Buffer]], flags: int, what: str) -> int:
    """Moves bytes between a piece and buffers; returns their number.

    Args:
        remote: C's piece.
        parts: offsets in the piece, and buffers.
        flags: CAREFUL_MEMORY_STORE, CAREFUL_MEMORY_ORDERED.
        what: the subject of errors.

    Raises:
        CarefulError: the host refused, or did not answer.
        TypeError, BufferError: there is no such buffer.
    """
    reads = not flags & lib.CAREFUL_MEMORY_STORE
    held = [ffi.from_buffer(_BYTES, buffer, reads) for _, buffer in parts]
    rows = [(part[0], len(one), one) for part, one in zip(parts, held, strict=True)]
    try:
        checked(lib.careful_memory_move(remote, ffi.new(_PARTS, rows), len(rows), flags), what)
        return sum(map(len, held))
    except OverflowError:
        raise ValueError("an offset is negative, or larger than 64 bits") from None
    finally:
        del held, rows  # and with them the buffers


_clients: weakref.WeakValueDictionary[tuple[object, ...], Client] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _client(key: tuple[object, ...], make: Callable[[], Client]) -> Client:
    """Returns this process's client of a key."""
    key = os.getpid(), *key
    with _lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = make()
        return found


def attached(way: Route) -> Client:
    """Returns this process's client of a carefuld.

    Raises:
        CarefulError: it does not run, or refuses us.
    """
    what = f"carefuld of {way.instance}"
    fields = attach_fields(str(way.socket), what, memory_bytes=_SHARED_BYTES)
    return _client((way.socket, way.timeout_s), lambda: Client(fields, what, way.timeout_s))


def owning(ifname: str, instance: str, options: UpOptions, timeout_s: float) -> Client:
    """Returns this process's client that owns a queue; the first call opens it.

    Raises:
        CarefulError: as careful.open().
    """
    fields = fields_of(ifname, instance, options)
    return _client((ifname, instance), lambda: Client(fields, ifname, timeout_s))


def broken(what: str) -> CarefulError:
    """Returns the error for an answer that no carefuld gives."""
    return CarefulError(errno.EPROTO, "its answer is malformed", what)
