"""A link to another program: sends requests to it and notices its end.

Each program keeps one request open at the other, which the other answers when their last comm
is closed. If a program ends, its carefuld fails the open request, so the other notices at once,
as over TCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from careful._abi import Buffer
from careful.errors import CarefulError

if TYPE_CHECKING:
    from careful.node import LateReply, Operation, Peer, Reply, Result

#: Errors that do not mean that the other program ended: the session is new, or a side is busy.
_RETRY = (errno.ECONNRESET, errno.EBUSY, errno.ETIMEDOUT)
_PAUSE_S, _PAUSE_MAX_S = 0.001, 1.0
#: How often the other program may answer that it does not know this one before the link ends.
_UNKNOWN_MAX = 10
#: The most payload bytes in a ring (ipc.h).
_PAYLOAD_MAX = 4096
WATCH = struct.Struct(">QQ")


class Kind(IntEnum):
    """The first word of a request; the others are a comm number and two more."""

    OPEN = 1  # service
    CHUNK = 2  # comm, chunk number, 1 at the end of a message
    ASK = 3  # comm, message number
    TAKEN = 4  # comm, number of a message that arrived whole
    CLOSE = 5  # comm
    WATCH = 6  # answered after the last comm is closed


class Comm(Protocol):
    """The methods of a comm that requests of the other end call."""

    def is_with(self, peer: Peer) -> bool: ...
    def on_chunk(self, number: int, last: bool, payload: bytes) -> bool: ...
    async def serve(self, number: int, request: bytes) -> Reply | None: ...
    def on_taken(self, number: int) -> None: ...
    def on_close(self) -> None: ...
    def on_lost(self) -> None: ...


class Hub(Protocol):
    """The part of a hub that its links use."""

    program: int
    loop: asyncio.AbstractEventLoop
    comms: WeakValueDictionary[int, Comm]
    links: dict[int, Link]


class Link:
    """Another program that this program has comms with.

    Attributes:
        peer: its host.
        handler: the handler number of its hub.
        program: its random identity.
        payload_bytes: the most that a request can carry.
        has_ended: whether it has ended.
    """

    def __init__(self, hub: Hub, peer: Peer, handler: int, program: int) -> None:
        self.peer = peer
        self.handler = handler
        self.program = program
        self.payload_bytes = min(peer.payload_bytes, _PAYLOAD_MAX)
        self.has_ended = False
        self._hub = hub
        self._comms: set[int] = set()
        self._open_watch: LateReply | None = None
        self._watch = hub.loop.create_task(self._keep_watching())

    def add(self, number: int) -> None:
        self._comms.add(number)

    def drop(self, number: int) -> None:
        """Forgets a comm; ends the link after the last one."""
        self._comms.discard(number)
        if not self._comms:
            self.end()

    def end(self) -> None:
        """Ends the link and its comms."""
        if self.has_ended:
            return
        self.has_ended = True
        self._watch.cancel()
        self._hub.links.pop(self.program, None)
        for number in list(self._comms):
            comm = self._hub.comms.get(number)
            if comm is not None:
                comm.on_lost()
        if self._open_watch is not None:
            _answer(self._open_watch)

    def keep_watch(self, reply: LateReply) -> None:
        """Holds the request that will notify the other program of our end; answers the last one."""
        if self._open_watch is not None:
            _answer(self._open_watch)
        self._open_watch = reply

    def begin(
        self, kind: int, comm: int, first: int = 0, second: int = 0, payload: Buffer = b""
    ) -> Operation:
        """Begins a request. Raises CarefulError: the program has ended, or its host is gone."""
        if self.has_ended:
            raise CarefulError(errno.ENOTCONN, "has ended", self.peer.name)
        return self.peer.request(self.handler, payload, (kind, comm, first, second))

    async def ask(
        self,
        kind: int,
        comm: int,
        first: int = 0,
        second: int = 0,
        payload: Buffer = b"",
        operation: Operation | None = None,
    ) -> Result:
        """Sends a request that may safely arrive twice; returns the answer.

        operation: the request, if already begun. Raises CarefulError: the program has ended, its
        host is gone, or it refused.
        """
        pause_s = _PAUSE_S
        while True:
            try:
                return await (operation or self.begin(kind, comm, first, second, payload))
            except CarefulError as error:
                if error.errno not in _RETRY or self.peer.failed:
                    raise
            operation = None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _keep_watching(self) -> None:
        unknown = 0
        payload = WATCH.pack(self.program, self._hub.program)
        with contextlib.suppress(asyncio.CancelledError):
            while unknown < _UNKNOWN_MAX:
                try:
                    await self.ask(Kind.WATCH, 0, payload=payload)
                    unknown = 0
                except CarefulError as error:
                    if error.errno != errno.ENOENT:
                        break
                unknown += 1  # one side's comms close a little before the other's
                await asyncio.sleep(0.02 * unknown)
            self.end()


def _answer(reply: LateReply) -> None:
    with contextlib.suppress(CarefulError, RuntimeError):
        reply.send()
