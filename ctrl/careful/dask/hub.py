"""The node, handlers and memory that the comms of an event loop share.

The hub passes requests of peers to the comm that they name. Peers store frames into its pieces of
memory.

A port has two parts: port % 128 is the handler, which belongs to one program of a host; port // 128
is the listener in the program.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import secrets
import struct
import sys
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import careful
from careful.dask.link import WATCH, Comm, Kind, Link
from careful.errors import CarefulError

if TYPE_CHECKING:
    from careful.node import Message, Node, Region, Reply

#: A port is handler + HANDLERS_PER_SERVICE * service.
HANDLERS_PER_SERVICE = 128
#: Handlers of programs that let the hub choose a port; programs that name one use lower ones.
_HANDLERS = range(32, 64)
#: Services of such ports. The ports start at 1024 and end below Linux's ephemeral ports.
_SERVICES = range(8, 256)
#: A frame travels in pieces of this size; all comms together receive this many at a time.
PIECE_BYTES = 1 << 20
PIECES_MAX = 16
#: Pieces, and room for outgoing data, which carefuld's library copies here.
_MEMORY_BYTES = (PIECES_MAX + 24) * PIECE_BYTES

#: OPEN: handler, port, comm and program of the caller. Its answer: comm, program, then our address.
OPEN = struct.Struct(">IIIQ")
OPENED = struct.Struct(">IQ")
#: ASK: frame, offset and bytes in it, offset in the region, the region's handle.
ASK = struct.Struct(">IQIQ16s")


#: Makes the comm that a peer opens, from link, number and port at the peer; returns our number.
Accept = Callable[[Link, int, int], int]


class Piece:
    """Memory of PIECE_BYTES, into which a peer stores a part of a frame."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.memory = node.memory(PIECE_BYTES)
        self._region: Region | None = None
        self.renew()

    @property
    def handle(self) -> bytes:
        assert self._region is not None
        return self._region.handle

    def renew(self) -> bool:
        """Registers the memory again, so that old handles are void; False: a store is running."""
        if self._region is not None and not self._region.try_remove():
            return False
        self._region = self._node.register(self.memory, "w")
        return True


class Hub:
    """This program's share of a carefuld, for one event loop. Raises CarefulError: no carefuld
    runs, or it has no room for another program.

    Attributes:
        node: see careful.attach().
        program: a random number that identifies this program.
        comms: by number.
        services: listeners, by port.
    """

    def __init__(self, instance: str | None) -> None:
        self.program = secrets.randbits(64)
        self.comms: weakref.WeakValueDictionary[int, Comm] = weakref.WeakValueDictionary()
        self.services: dict[int, Accept] = {}
        self.links: dict[int, Link] = {}
        self._handlers: list[int] = []
        self._labels = itertools.cycle(_SERVICES)
        self._pieces: list[Piece] = []
        self._pieces_made = 0
        self._piece_waiters: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[object]] = set()
        self._users = 0
        self.loop = asyncio.get_running_loop()
        name = f"dask {Path(sys.argv[0] or 'python').name}"
        self.node = careful.attach(instance, name=name, memory_bytes=_MEMORY_BYTES)

    @classmethod
    async def acquire(cls, instance: str | None) -> Hub:
        """Returns the running loop's hub and counts a user, who ends with release()."""
        hubs = _hubs.setdefault(asyncio.get_running_loop(), {})
        hub = hubs.get(instance)
        if hub is None or not hub.is_alive:
            hub = cls(instance)
            await hub.node.__aenter__()
            hubs[instance] = hub
        hub._users += 1
        return hub

    def release(self) -> None:
        """Ends a use; after the last one, closes the node."""
        self._users -= 1
        self.loop.call_soon(self._close_unused)

    def _close_unused(self) -> None:
        hubs = _hubs.get(self.loop, {})
        if self._users == 0 and self.node is not None:
            for key in [key for key, hub in hubs.items() if hub is self]:
                del hubs[key]
            for link in list(self.links.values()):
                link.end()
            self.node.close()

    @property
    def is_alive(self) -> bool:
        try:
            self.node.info()
        except CarefulError:
            return False
        return True

    def task(self, work: Coroutine[object, None, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def own_handler(self) -> int:
        """Returns a handler of this program. Raises CarefulError: other programs have all."""
        if self._handlers:
            return self._handlers[0]
        count = len(_HANDLERS)
        for step in range(count):
            number = _HANDLERS[(os.getpid() + step) % count]
            if self._take_handler(number):
                return number
        raise CarefulError(errno.EADDRINUSE, "all handlers are taken", self.node.ifname)

    def _take_handler(self, number: int) -> bool:
        if number in self._handlers:
            return True
        try:
            self.node.handle(number, self._on_message)
        except CarefulError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        self._handlers.append(number)
        return True

    def free_ports(self) -> list[int]:
        """Returns the ports that a listener without a fixed port can use."""
        handler = self.own_handler()
        ports = (handler + HANDLERS_PER_SERVICE * service for service in _SERVICES)
        return [port for port in ports if port not in self.services]

    def bind(self, port: int, accept: Accept) -> None:
        """Calls accept() for each comm that a peer opens on a port. Raises CarefulError: another
        listener or program has the port (EADDRINUSE).
        """
        if port in self.services or not self._take_handler(port % HANDLERS_PER_SERVICE):
            text = f"port {port} is taken, or one that differs from it by a multiple of 128"
            raise CarefulError(errno.EADDRINUSE, text, self.node.ifname)
        self.services[port] = accept

    def label(self) -> int:
        """Returns a port that names an end without a listener."""
        ports = (self.own_handler() + HANDLERS_PER_SERVICE * service for service in self._labels)
        return next(port for port in ports if port not in self.services)

    def add(self, comm: Comm) -> int:
        number = secrets.randbits(32)
        while number in self.comms:
            number = secrets.randbits(32)
        self.comms[number] = comm
        return number

    def link(self, program: int, make: Callable[[], Link]) -> Link:
        """Returns the link to a program; make() makes the first one."""
        if program not in self.links:
            self.links[program] = make()
        return self.links[program]

    async def piece(self) -> Piece:
        """Waits for a piece of memory; release_piece() returns it."""
        while (piece := self.try_piece()) is None:
            waiter = self.loop.create_future()
            self._piece_waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if self._pieces:
                    self._wake_waiter()  # this waiter may have been woken
                raise
            finally:
                if waiter in self._piece_waiters:
                    self._piece_waiters.remove(waiter)
        return piece

    def try_piece(self) -> Piece | None:
        """Returns a piece of memory, or None if all are in use."""
        if self._pieces:
            return self._pieces.pop()
        if self._pieces_made == PIECES_MAX:
            return None
        piece = Piece(self.node)
        self._pieces_made += 1
        return piece

    def release_piece(self, piece: Piece, is_idle: bool = True) -> None:
        """Returns a piece; renews it first if not `is_idle`: a peer may still store into it."""
        try:
            if not is_idle and not piece.renew():
                self.loop.call_later(0.01, self.release_piece, piece, False)
                return
        except CarefulError as error:  # carefuld has ended, or the node is closed
            self._pieces_made -= 1  # later callers get the error, too
            waiters, self._piece_waiters = self._piece_waiters, deque()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        self._pieces.append(piece)
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        while self._piece_waiters:
            waiter = self._piece_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def _on_message(self, message: Message) -> object:
        kind, number, first, second = message.args
        if kind == Kind.OPEN:
            return self._open(message, number)
        if kind == Kind.WATCH:
            return self._watch(message)
        comm = self.comms.get(number)
        if comm is None or not comm.is_with(message.peer):
            return _error_reply(errno.ENOTCONN)
        if kind == Kind.CHUNK:
            is_taken = comm.on_chunk(first, bool(second), message.payload)
            return None if is_taken else _error_reply(errno.EBUSY)
        if kind == Kind.ASK:
            return comm.serve(first, message.payload)
        if kind == Kind.TAKEN:
            comm.on_taken(first)
        elif kind == Kind.CLOSE:
            comm.on_close()
        else:
            return _error_reply(errno.EPROTO)
        return None

    def _open(self, message: Message, service: int) -> object:
        port = message.handler + HANDLERS_PER_SERVICE * service
        accept = self.services.get(port)
        if accept is None:
            return _error_reply(errno.ECONNREFUSED)
        handler, label, remote_number, program = OPEN.unpack(message.payload)
        if handler >= HANDLERS_PER_SERVICE:
            return _error_reply(errno.EPROTO)
        link = self.link(program, lambda: Link(self, message.peer, handler, program))
        self._users += 1
        number = accept(link, remote_number, label)
        return OPENED.pack(number, self.program) + message.peer.address.ip.encode()

    def _watch(self, message: Message) -> object:
        own_program, remote_program = WATCH.unpack(message.payload)
        if own_program != self.program:
            return _error_reply(errno.ESTALE)
        link = self.links.get(remote_program)
        if link is None:
            return _error_reply(errno.ENOENT)
        link.keep_watch(message.later())
        return None


def _error_reply(number: int) -> Reply:
    return careful.Reply(status=number)


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str | None, Hub]] = (
    weakref.WeakKeyDictionary()
)
