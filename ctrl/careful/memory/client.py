"""The memory client of libcareful, over a carefuld or over a queue of its own.

Owns C's pointers. No page passes through Python.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from careful._abi import Buffer, CData, ffi, lib, sizeof
from careful.control.options.up_options import UpOptions
from careful.daemon.route import Route
from careful.errors import CarefulError, check
from careful.node.opening import open_instance
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
    errno.ENOSPC: "it does not have that much memory left to lend (--lend of `up` there)",
    errno.ENOMEM: "it does not have that much memory left to lend: too little is free there",
    errno.EMFILE: "this host has too many pieces open there",
    errno.ENOTUNIQ: "several hosts share a piece of that name: name its owner; or that address "
    "is this host's own",
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


def checked(rc: int, subject: str) -> None:
    """Raises CarefulError about the subject if a call of the client failed."""
    check(rc, subject, _TEXTS.get(-rc, ""))


@dataclass(frozen=True)
class Answer:
    """The answer to a request: its words and payload."""

    args: tuple[int, ...]
    payload: bytes


class Client:
    """An instance with a thread of its own, for any thread.

    Args:
        options: of the instance, as for Engine.
        subject: the instance in errors.
        timeout_s: how long calls wait for a silent host, seconds.
    """

    def __init__(self, options: dict[str, object], subject: str, timeout_s: float) -> None:
        instance, memory = open_instance(options, subject), ffi.new("struct careful_memory **")
        rc = lib.careful_memory_start(instance, int(timeout_s * 1000), memory)
        if rc:
            lib.careful_close(instance)
        check(rc, subject)
        self.pointer = memory[0]
        #: The longest WAIT, so that the host answers before timeout_s, seconds.
        self.wait_s = timeout_s / 2
        self._end = weakref.finalize(self, lib.careful_memory_stop, memory[0])

    def ask(
        self, host: Remote, handler: int, payload: bytes = b"", args: Sequence[int] = ()
    ) -> Answer:
        """Sends a request to a host, and returns the answer.

        Raises:
            CarefulError: the host refused, or did not answer.
        """
        answer = ffi.new("struct careful_memory_answer *")
        words = ffi.new("uint32_t[4]", [*args, 0, 0, 0, 0][:4])
        rc = lib.careful_memory_ask(
            self.pointer, *host.c_address, handler, words, payload, len(payload), answer
        )
        checked(rc, host.subject)
        return Answer(tuple(answer.args), bytes(ffi.buffer(answer.payload, answer.bytes)))

    def open(self, host: Remote, ask: bytes) -> tuple[bytes, CData]:
        """Opens a piece; returns the host's description, and C's pointer."""
        piece = ffi.new("struct careful_memory_piece *")
        remote = ffi.new("struct careful_memory_remote **")
        rc = lib.careful_memory_open(self.pointer, *host.c_address, ask, len(ask), piece, remote)
        checked(rc, host.subject)
        return bytes(ffi.buffer(piece, _PIECE_BYTES)), remote[0]


class Remote:
    """The address of a host.

    Attributes:
        subject: of errors.
        c_address: the arguments of C's functions.
    """

    def __init__(self, address: bytes, subject: str) -> None:
        self.subject = subject
        self._raw = ffi.from_buffer(address)
        self.c_address = (ffi.cast("struct sockaddr *", self._raw), len(address))
        self._address = address

    def about(self, subject: str) -> Remote:
        """Returns the same address with another subject of errors."""
        return Remote(self._address, subject)


def move(remote: CData, parts: Sequence[tuple[int, Buffer]], flags: int, subject: str) -> int:
    """Moves bytes between a piece and buffers; returns their number.

    Args:
        remote: C's piece.
        parts: offsets in the piece, and buffers.
        flags: CAREFUL_MEMORY_STORE, CAREFUL_MEMORY_ORDERED.
        subject: of errors.

    Raises:
        CarefulError: the host refused, or did not answer.
        TypeError, BufferError: a buffer does not fit.
    """
    is_read = not flags & lib.CAREFUL_MEMORY_STORE
    views = [ffi.from_buffer(_BYTES, buffer, is_read) for _, buffer in parts]
    rows = [(offset, len(view), view) for (offset, _), view in zip(parts, views, strict=True)]
    try:
        checked(lib.careful_memory_move(remote, ffi.new(_PARTS, rows), len(rows), flags), subject)
        return sum(map(len, views))
    except OverflowError:
        raise ValueError("an offset is negative, or larger than 64 bits") from None
    finally:
        del views, rows  # so that an exception's traceback keeps no buffer


_clients: weakref.WeakValueDictionary[tuple[object, ...], Client] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _client(key: tuple[object, ...], make: Callable[[], Client]) -> Client:
    """Returns this process's client of a key."""
    key = os.getpid(), *key
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = make()
        return client


def attached(route: Route) -> Client:
    """Returns this process's client of a carefuld.

    Raises:
        CarefulError: it does not run, or refuses us.
    """
    subject = f"carefuld of {route.instance}"
    fields = attach_fields(str(route.socket), subject, memory_bytes=_SHARED_BYTES)
    key = (route.socket, route.timeout_s)
    return _client(key, lambda: Client(fields, subject, route.timeout_s))


def owning(ifname: str, instance: str, options: UpOptions, timeout_s: float) -> Client:
    """Returns this process's client that owns a queue; the first call opens it.

    Raises:
        CarefulError: as careful.open().
    """
    fields = fields_of(ifname, instance, options)
    return _client((ifname, instance), lambda: Client(fields, ifname, timeout_s))


def malformed(subject: str) -> CarefulError:
    """Returns the error for an answer that no carefuld gives."""
    return CarefulError(errno.EPROTO, "its answer is malformed", subject)
