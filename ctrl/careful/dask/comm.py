"""A comm of distributed between two programs: messages in order, made of frames.

Small frames travel in requests (CHUNKs). A large frame stays at its sender until the receiver reads
the message. The receiver then asks for pieces, at most _DEPTH at once, which the sender stores into
the receiver's memory. So unread frames use no memory of the receiver, and no frame becomes a Python
object: each side copies it once. Every request may arrive twice, so a renewed session breaks no
comm.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import struct
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distributed.comm.core import Comm, CommClosedError
from distributed.comm.utils import from_frames, to_frames
from distributed.protocol.utils import host_array
from distributed.utils import ensure_memoryview

from careful.dask.hub import ASK, PIECE_BYTES, Hub, Piece
from careful.dask.link import Kind, Link
from careful.errors import CarefulError
from careful.node import Operation, Reply

if TYPE_CHECKING:
    from careful.node import Peer

#: The receiver fetches frames of at least _FETCHED_BYTES. If the smaller frames of a message exceed
#: _INLINE_MAX together, the receiver fetches all of its frames.
_FETCHED_BYTES = 4096
_INLINE_MAX = 32 << 10
#: Pieces, and chunks, of a message that are under way at a time.
_DEPTH = 4
_CHUNKS = 16
#: A word of a message's head: the number of frames, or the bytes of a frame with bit 63 set if the
#: receiver fetches the frame.
_WORD = struct.Struct(">Q")
_FETCHED = 1 << 63
_NUMBERS = 1 << 32
#: Bytes of messages that may wait behind the message on its way; write() waits for room.
_OUTBOX_BYTES = 64 << 20
#: Bytes of small unread messages that are kept; the sender then waits.
_INBOX_BYTES = 16 << 20
#: How long close() waits for the other end to receive all messages, seconds.
_CLOSE_S = 30.0

Frame = bytes | memoryview


class _Message:
    """A message on its way out."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        views = [ensure_memoryview(frame) for frame in frames]
        inline_bytes = sum(view.nbytes for view in views if view.nbytes < _FETCHED_BYTES)
        fetched_min_bytes = _FETCHED_BYTES if inline_bytes <= _INLINE_MAX else 1

        def is_fetched(view: memoryview) -> bool:
            return view.nbytes >= fetched_min_bytes

        words = [view.nbytes | (_FETCHED if is_fetched(view) else 0) for view in views]
        inline = b"".join(view for view in views if not is_fetched(view))
        self.head = struct.pack(f">{len(words) + 1}Q", len(words), *words) + inline
        self.fetched_frames = [view for view in views if is_fetched(view)]
        self.nbytes = sum(view.nbytes for view in views)


def _split(head: memoryview) -> tuple[list[memoryview | None], list[int]]:
    """Returns the frames in a message's head, None for fetched ones, and the fetched sizes."""
    (count,) = _WORD.unpack_from(head)
    words = struct.unpack_from(f">{count}Q", head, _WORD.size)
    frames: list[memoryview | None] = []
    at = (count + 1) * _WORD.size
    for word in words:
        if word & _FETCHED:
            frames.append(None)
        else:
            frames.append(head[at : at + word])
            at += word
    return frames, [word & ~_FETCHED for word in words if word & _FETCHED]


class CarefulComm(Comm):
    """One end of a comm.

    Args:
        hub: of the event loop; the comm is one of its users until closed.
        deserialize: see distributed.comm.Comm.

    Attributes:
        number: the other end's name for this comm.
    """

    def __init__(self, hub: Hub, deserialize: bool = True) -> None:
        super().__init__(deserialize=deserialize)
        self._local_addr = self._peer_addr = ""  # distributed reads them
        self._hub = hub
        self._link: Link | None = None
        self._remote_number = 0
        self._closed = False
        self._other_is_closed = False
        self._chunks_in = self._chunks_out = 0
        self._chunks_ahead: dict[int, tuple[bool, bytes]] = {}
        self._parts: list[bytes] = []
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._messages_in = self._messages_out = 0
        self._reader: asyncio.Future[None] | None = None
        self._outbox: deque[_Message] = deque()
        self._outbox_bytes = self._inbox_bytes = 0
        self._writers: set[asyncio.Future[None]] = set()
        self._sender: asyncio.Task[None] | None = None
        self._serving: tuple[int, list[memoryview]] | None = None
        self._delivered: asyncio.Future[None] | None = None
        self.number = hub.add(self)
        self._finalizer: weakref.finalize[..., CarefulComm] | None = None

    def attach(self, link: Link, remote_number: int) -> None:
        self._link, self._remote_number = link, remote_number
        link.add(self.number)
        finalizer = weakref.finalize(
            self, _close_dropped, self._hub, link, self.number, remote_number
        )
        finalizer.atexit = False
        self._finalizer = finalizer

    def set_addresses(self, local: str, peer: str) -> None:
        self._local_addr, self._peer_addr = local, peer

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def peer_ip(self) -> str:
        return self._open_link().peer.address.ip

    def is_with(self, peer: Peer) -> bool:
        """Reports whether requests of a peer may concern this comm."""
        return self._link is None or self._link.peer is peer

    def closed(self) -> bool:
        return self._closed

    # Incoming messages.

    def on_chunk(self, number: int, last: bool, payload: bytes) -> bool:
        """Accepts a part of a message; parts may come in any order and twice.

        Returns False if too much is unread: the other end then asks again. Ignores a part that is
        _CHUNKS ahead, which an honest sender never sends.
        """
        if (number - self._chunks_in) % _NUMBERS >= _CHUNKS:
            return True
        if self._inbox_bytes >= _INBOX_BYTES:
            return False
        self._chunks_ahead[number] = last, payload
        while self._chunks_in in self._chunks_ahead:
            last, payload = self._chunks_ahead.pop(self._chunks_in)
            self._chunks_in = (self._chunks_in + 1) % _NUMBERS
            self._parts.append(payload)
            if last:
                self._inbox.append((self._messages_in, b"".join(self._parts)))
                self._inbox_bytes += len(self._inbox[-1][1])
                self._messages_in = (self._messages_in + 1) % _NUMBERS
                self._parts.clear()
                self._wake()
        return True

    def on_close(self) -> None:
        """Marks the other end closed; messages that arrived before can still be read."""
        self._other_is_closed = True
        if not self._inbox:
            self._end()
        self._wake()

    def on_lost(self) -> None:
        self._other_is_closed = True
        if not self._inbox:
            self._end()
        if self._delivered is not None and not self._delivered.done():
            self._delivered.set_exception(CommClosedError(f"{self!r}: the other end is gone"))
            self._delivered.exception()  # marks the exception as retrieved
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def read(self, deserializers: object = None) -> object:
        """Returns the next message. Raises CommClosedError: an end is closed, or the other gone."""
        while not self._inbox:
            if self._closed or self._other_is_closed:
                self._end()
                raise CommClosedError(f"in {self!r}: closed")
            self._reader = self._hub.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        number, head = self._inbox.popleft()
        self._inbox_bytes -= len(head)
        try:
            frames = await self._all_frames(number, head)
            message = await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except (CarefulError, EOFError, struct.error) as error:
            self.abort()
            raise CommClosedError(f"in {self!r}: {error}") from error
        except BaseException:
            self.abort()  # a half-read message cannot be continued
            raise
        if self._other_is_closed and not self._inbox:
            self._end()
        return message

    async def _all_frames(self, number: int, head: bytes) -> list[memoryview]:
        frames, sizes = _split(memoryview(bytearray(head)))
        if not sizes:
            return [frame for frame in frames if frame is not None]
        fetched_frames = [host_array(nbytes) for nbytes in sizes]
        await self._fetch(number, fetched_frames)
        fetched = iter(fetched_frames)
        return [next(fetched) if frame is None else frame for frame in frames]

    async def _fetch(self, number: int, fetched_frames: list[memoryview]) -> None:
        """Makes the other end store frames into pieces of memory, and copies them out."""
        link = self._open_link()
        under_way: deque[tuple[Operation, Piece, bytes, memoryview]] = deque()
        try:
            for index, frame in enumerate(fetched_frames):
                for at in range(0, frame.nbytes, PIECE_BYTES):
                    part = frame[at : at + PIECE_BYTES]
                    while len(under_way) == _DEPTH:
                        await self._finish_fetch(number, under_way)
                    while (piece := self._hub.try_piece()) is None and under_way:
                        await self._finish_fetch(number, under_way)
                    piece = piece or await self._hub.piece()
                    request = ASK.pack(index, at, part.nbytes, 0, piece.handle)
                    try:
                        operation = link.begin(
                            Kind.ASK, self._remote_number, number, payload=request
                        )
                    except CarefulError:
                        self._hub.release_piece(piece)
                        raise
                    under_way.append((operation, piece, request, part))
            while under_way:
                await self._finish_fetch(number, under_way)
        finally:
            for _, piece, _, _ in under_way:
                self._hub.release_piece(piece, is_idle=False)
        await link.ask(Kind.TAKEN, self._remote_number, number)

    async def _finish_fetch(
        self, number: int, under_way: deque[tuple[Operation, Piece, bytes, memoryview]]
    ) -> None:
        """Waits for the oldest piece; asks again if fetching it failed."""
        operation, piece, request, part = under_way[0]
        try:
            await operation
        except CarefulError:
            # The failed request may still be carried out: revoke its target.
            while not piece.renew():
                await asyncio.sleep(0.001)
            index, at, nbytes, _, _ = ASK.unpack(request)
            request = ASK.pack(index, at, nbytes, 0, piece.handle)
            await self._open_link().ask(Kind.ASK, self._remote_number, number, payload=request)
        under_way.popleft()
        part[:] = piece.memory[: part.nbytes]
        self._hub.release_piece(piece)

    # Outgoing messages.

    async def write(
        self, msg: object, serializers: object = None, on_error: str = "message"
    ) -> int:
        """Queues a message for sending; returns its bytes. Waits while more than _OUTBOX_BYTES are
        queued, so a slow reader slows its writer. Raises CommClosedError as read() does.
        """
        if self._closed or self._other_is_closed:
            raise CommClosedError(f"in {self!r}: closed")
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
        )
        if self._closed or self._other_is_closed:
            raise CommClosedError(f"in {self!r}: closed")
        message = _Message(frames)
        self._outbox.append(message)
        self._outbox_bytes += message.nbytes
        if self._sender is None:
            self._sender = self._hub.loop.create_task(self._send_all())
        while self._outbox_bytes > _OUTBOX_BYTES and not self._closed:
            waiter = self._hub.loop.create_future()
            self._writers.add(waiter)
            try:
                await waiter
            finally:
                self._writers.discard(waiter)
        return message.nbytes

    async def _send_all(self) -> None:
        try:
            while self._outbox:
                message = self._outbox.popleft()
                self._outbox_bytes -= message.nbytes
                self._wake_writers()
                await self._send(message)
        except (CarefulError, CommClosedError):
            self.abort()
        finally:
            self._sender = None

    def _wake_writers(self) -> None:
        for waiter in self._writers:
            if not waiter.done():
                waiter.set_result(None)

    async def _send(self, message: _Message) -> None:
        number = self._messages_out
        self._messages_out = (number + 1) % _NUMBERS
        if message.fetched_frames:
            self._serving = number, message.fetched_frames
            self._delivered = self._hub.loop.create_future()
        try:
            await self._send_head(message.head)
            if self._delivered is not None:
                await self._delivered
        finally:
            self._serving = self._delivered = None

    async def _send_head(self, head: bytes) -> None:
        link = self._open_link()
        under_way: deque[tuple[Operation, tuple[int, int, bytes]]] = deque()
        for at in range(0, len(head), link.payload_bytes):
            part = head[at : at + link.payload_bytes]
            words = self._chunks_out, int(at + link.payload_bytes >= len(head)), part
            self._chunks_out = (self._chunks_out + 1) % _NUMBERS
            if len(under_way) == _CHUNKS:
                await self._finish_chunk(link, under_way)
            under_way.append((link.begin(Kind.CHUNK, self._remote_number, *words), words))
        while under_way:
            await self._finish_chunk(link, under_way)

    async def _finish_chunk(
        self, link: Link, under_way: deque[tuple[Operation, tuple[int, int, bytes]]]
    ) -> None:
        operation, words = under_way.popleft()
        await link.ask(Kind.CHUNK, self._remote_number, *words, operation=operation)

    async def serve(self, number: int, request: bytes) -> Reply | None:
        """Stores a piece of a frame into the memory that the other end names."""
        index, at, nbytes, offset, handle = ASK.unpack(request)
        if self._serving is None or self._serving[0] != number:
            return Reply(status=errno.ENOENT)
        frame = self._serving[1][index]
        region = self._open_link().peer.region(handle)
        try:
            await region.store(frame[at : at + nbytes], offset)
        except CarefulError as error:
            return Reply(status=error.errno or errno.EIO)
        return None

    def on_taken(self, number: int) -> None:
        delivered = self._delivered
        if (
            delivered is not None
            and not delivered.done()
            and self._serving
            and self._serving[0] == number
        ):
            delivered.set_result(None)

    def _open_link(self) -> Link:
        if self._link is None or self._closed:
            raise CommClosedError(f"in {self!r}: closed")
        return self._link

    # Closing.

    async def close(self) -> None:
        if self._sender is not None and not self._other_is_closed:
            await asyncio.wait([self._sender], timeout=_CLOSE_S)
        self.abort()

    def abort(self) -> None:
        link, has_ended = self._link, self._closed or self._other_is_closed
        self._end()
        if link is not None and not has_ended:
            _close(self._hub, link, self._remote_number)

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        self._hub.comms.pop(self.number, None)
        if self._sender is not None and self._sender is not asyncio.current_task(self._hub.loop):
            self._sender.cancel()
        self._outbox.clear()
        self._wake()
        self._wake_writers()
        if self._link is not None:
            self._link.drop(self.number)
        self._hub.release()


def _close(hub: Hub, link: Link, remote_number: int) -> None:

    async def request_close() -> None:
        with contextlib.suppress(CarefulError):
            await link.ask(Kind.CLOSE, remote_number)

    hub.task(request_close())


def _close_dropped(hub: Hub, link: Link, number: int, remote_number: int) -> None:
    """Closes a comm that was dropped without close(); runs in any thread."""

    def close() -> None:
        _close(hub, link, remote_number)
        link.drop(number)
        hub.release()

    with contextlib.suppress(RuntimeError):  # the loop is closed
        hub.loop.call_soon_threadsafe(close)
