"""A node's part in a group: sends and receives fragments and messages.

Waits in slices, so that Ctrl-C works. Arrays are copied straight between their memory and frames.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from careful._abi import Buffer, CData, ffi, lib
from careful.errors import CarefulError, check, meaning
from careful.event.unfinished import Incoming, Outgoing, no_room_text
from careful.node import Node, Peer
from careful.node.arguments import payload_of

#: Longest wait inside C, milliseconds: Python handles signals only between two waits.
_SLICE_MS = 50
#: Messages of the smallest class of plans are one fragment, bytes.
_SMALL_BYTES = int(lib.CAREFUL_CLASS0_BYTES)
_NOT_READY = (-errno.EAGAIN, -errno.ETIMEDOUT)
#: As source: any node. As destination: all other nodes.
ANY = None

_TEXTS = {
    errno.EILSEQ: "events go in ascending order, one message to its end before the next",
    errno.EINVAL: "fragments of one event have the same flags, and all but the last are large",
    errno.ENOENT: "no such node, or CAREFUL_EVENT_TRACE names no directory",
    errno.ENOMSG: "all messages of this event have arrived",
    errno.EPIPE: "that node has left",
    errno.EMSGSIZE: "a fragment is at most fragment_bytes; send() cuts a message",
    errno.ENOBUFS: "messages that were not received fill all the room to copy out: receive, then "
    "send again, or open the node with more rx_buffers",
    errno.EPROTO: "it broke the rules of events, or belongs to another group",
    errno.EBADMSG: "part of another message was sent there in this event, with another length "
    "or crowd: send the rest of that message first",
    errno.EBUSY: "the node takes part in a group already, or a program has the group's handler",
    errno.ECANCELED: "it ended in the middle of an event",
}
#: Reasons why broadcasts are replicated.
_REPLICATED = {
    errno.ENOTSUP: "fewer than three nodes, the traditional protocol, sealed frames, or an "
    "interface without multicast",
    errno.EHOSTUNREACH: "frames to all do not reach every node: is a router on the way, or are "
    "some addresses IPv4 and some IPv6?",
    errno.EEXIST: "two groups have the same cookie",
    errno.EPIPE: "a node has left",
}
#: Errors whose text in _TEXTS also describes a failure of the whole group.
_FAILURES = {errno.EPROTO, errno.ECANCELED, errno.ENOBUFS, errno.EILSEQ}


class Status(enum.IntEnum):
    """The rest after a fragment: more of its message, more of the event, or nothing."""

    MORE = int(lib.CAREFUL_EVENT_MORE)
    NODE_DONE = int(lib.CAREFUL_EVENT_NODE_DONE)
    EVENT_DONE = int(lib.CAREFUL_EVENT_EVENT_DONE)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A received fragment.

    Attributes:
        source: rank of the sender.
        status: what follows the fragment.
        offset: position in the message, bytes.
        nbytes: size of the fragment.
        data: the fragment, or the buffer into which it was received.
    """

    source: int
    status: Status
    offset: int
    nbytes: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received whole.

    Attributes:
        source: rank of the sender.
        event_done: the event has no further messages.
        nbytes: size of the message.
        data: the message, or the buffer into which it was received.
    """

    source: int
    event_done: bool
    nbytes: int
    data: Buffer


class Events:
    """A node's part in a group, from join(). `with` ends it. If an exception leaves the block,
    every other node learns that this node has failed.

    Attributes:
        rank: this node's rank.
        nodes: P, the number of nodes.
    """

    def __init__(
        self,
        node: Node,
        peers: Sequence[Peer | None],
        rank: int,
        group: int,
        attached: bool = False,
    ) -> None:
        self._engine = node._engine
        self._names = [peer.name if peer else node.instance for peer in peers]
        self.rank, self.nodes = rank, len(peers)
        indices = ffi.new("uint32_t[]", [peer.in_use() if peer else 0 for peer in peers])
        options = ffi.new("struct careful_events_options *")
        options.group, options.nodes, options.rank = group, len(peers), rank
        options.peers = indices
        options.requests = self._requests = attached or self._engine.attached
        handle = ffi.new("struct careful_events **")
        rc = lib.careful_events_open(self._engine.pointer, options, handle)
        check(rc, node.ifname, _TEXTS.get(-rc, ""))
        self._events: CData = handle[0]
        self._fragment = ffi.new("struct careful_event_fragment *")
        self._outgoing = Outgoing()
        self._incoming: list[Incoming] = []

    def __repr__(self) -> str:
        return f"<Events, rank {self.rank} of {self.nodes}>"

    def __enter__(self) -> Events:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        number = error.errno if isinstance(error, OSError) else None
        self.close(0 if kind is None else number or errno.ECANCELED)

    def close(self, status: int = 0, timeout_s: float = 5.0) -> None:
        """Ends this node's part; polls until the other nodes know.

        Args:
            status: 0: done; a positive errno: this node, and so the group, has failed.
            timeout_s: longest wait, seconds. A node that gets no message finds out by itself.
        """
        events, self._events = self._events, None
        if events is None or self._engine.closed:
            return
        milliseconds = int(timeout_s * 1000)
        self._engine.run(lambda _: lib.careful_events_close(events, -status, milliseconds))

    @property
    def broadcasts(self) -> str:
        """Returns how messages to all are sent: "one frame", "replicated: " and the reason, or
        "replicated for now: " until all nodes confirm frames to all (this node must poll).
        """
        rc = lib.careful_events_broadcast(self._open_group())
        if rc == 0:
            return "one frame"
        if rc == -errno.EAGAIN:
            return "replicated for now: not every node has confirmed that frames to all reach it"
        if self._requests:
            return "replicated: the group has programs that share a queue with carefuld"
        return f"replicated: {_REPLICATED.get(-rc) or meaning(-rc)}"

    @property
    def fragment_bytes(self) -> int:
        """Returns the largest payload of a fragment. Raises CarefulError: the session with some
        node has ended (EAGAIN).
        """
        return check(lib.careful_event_bytes(self._open_group()), self._names[self.rank])

    def send_fragment(
        self,
        data: Buffer,
        event: int,
        to: int | None = ANY,
        *,
        last: bool = True,
        crowd: bool = False,
        large: bool | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a fragment; returns when the data is in a frame, not when it was received.

        The frame leaves with the last frame of its message, or when this node polls. Raises
        CarefulError: no room in time (ETIMEDOUT); messages that were not received take all room
        here (ENOBUFS); wrong order or flags (EILSEQ, EINVAL); the group has failed.

        Args:
            data: any contiguous buffer (bytes, a NumPy array ...) of at most fragment_bytes.
            event: number of the event, 0 to 2^64 - 1.
            to: a rank; None: all others.
            last: this is the last fragment of this node's message.
            crowd: all nodes send to the destination in this event (P2: BCAST_Event).
            large: the event has several fragments; the same for all of them. Default: `not last`.
            timeout_s: longest wait for room, seconds; None: no limit.
        """
        buffer = payload_of(data)
        flags = _flags(last, crowd, (not last) if large is None else large)
        if self._outgoing.mixes_messages(event, to):
            self._check(-errno.EILSEQ, to)
        args = (_rank(to), event, buffer, len(buffer), flags)
        self._wait(lib.careful_event_send, to, _deadline(timeout_s), bool, *args)

    def send(
        self,
        data: Buffer,
        event: int,
        to: int | None = ANY,
        *,
        crowd: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a message in as many fragments as needed; see send_fragment().

        If send() raises, some fragments may have left. Send the same message again, and it
        continues after them. A message of another length is refused (EBADMSG).
        """
        buffer, deadline = payload_of(data), _deadline(timeout_s)
        for args, note_sent in self._fragments_to_send(buffer, event, to, crowd):
            self._wait(lib.careful_event_send, to, deadline, note_sent, *args)

    async def asend(
        self, data: Buffer, event: int, to: int | None = ANY, *, crowd: bool = False
    ) -> None:
        """Does the same as send(), in an event loop. Only one task at a time may send. After a
        cancellation the call may be repeated.
        """
        for args, note_sent in self._fragments_to_send(payload_of(data), event, to, crowd):
            await self._in_loop(lib.careful_event_send, to, note_sent, *args)

    def receive_fragment(
        self,
        event: int,
        source: int | None = ANY,
        *,
        into: Buffer = None,
        timeout_s: float | None = None,
    ) -> Fragment:
        """Receives a fragment of an event. Raises ValueError: the fragment does not fit in `into`,
        and is lost. Raises CarefulError: none in time (ETIMEDOUT); none will come (ENOMSG); wrong
        order (EILSEQ); the group has failed.

        Args:
            event: number of the event; the previous event must be done.
            source: a rank; None: any node.
            into: a contiguous, writable buffer for the whole message; the fragment is copied to its
                offset. None: a new bytearray.
            timeout_s: longest wait, seconds; None: no limit.
        """
        args = (_rank(source), event, self._fragment)
        self._wait(lib.careful_event_receive, source, _deadline(timeout_s), bool, *args)
        return self._copy_out(into)

    def receive(
        self,
        event: int,
        source: int | None = ANY,
        *,
        into: Buffer = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Receives a whole message; see receive_fragment().

        If receive() raises, the fragments received so far are kept, even if `into` is too small.
        Receive the same event again, into the same buffer or another.
        """
        deadline, incoming = _deadline(timeout_s), self._resume(event, source)
        for sender, args, add in self._fragments_to_receive(incoming, source, into):
            self._wait(lib.careful_event_receive, sender, deadline, add, *args)
        return self._complete(incoming)

    async def areceive(
        self, event: int, source: int | None = ANY, *, into: Buffer = None
    ) -> Message:
        """Does the same as receive(), in an event loop. Only one task at a time may receive. After
        a cancellation the call may be repeated.
        """
        incoming = self._resume(event, source)
        for sender, args, add in self._fragments_to_receive(incoming, source, into):
            await self._in_loop(lib.careful_event_receive, sender, add, *args)
        return self._complete(incoming)

    def _resume(self, event: int, source: int | None) -> Incoming:
        """Returns the message that an earlier call left unfinished, or a new one."""
        unfinished = (
            one for one in self._incoming if one.event == event and source in (ANY, one.source)
        )
        return next(unfinished, None) or Incoming(event)

    def _fragments_to_receive(
        self, incoming: Incoming, source: int | None, into: Buffer
    ) -> Iterator[tuple[int | None, tuple[object, ...], Callable[[], None]]]:
        """Moves the message to `into`. Yields, for each fragment that must arrive, its sender, the
        arguments for C, and a function to call when the fragment has arrived.
        """
        incoming.move(into)
        while not incoming.is_whole:
            sender = source if incoming.source is None else incoming.source
            args = (_rank(sender), incoming.event, self._fragment)
            yield sender, args, partial(self._add_fragment, incoming)
            incoming.move(into)  # the fragment may not have fitted

    def _add_fragment(self, incoming: Incoming) -> None:
        incoming.add(self._fragment)
        if incoming not in self._incoming:
            self._incoming = [one for one in self._incoming if one.event == incoming.event]
            self._incoming.append(incoming)

    def _complete(self, incoming: Incoming) -> Message:
        assert incoming.source is not None
        self._incoming.remove(incoming)
        return Message(incoming.source, incoming.event_done, incoming.nbytes, incoming.data)

    def _open_group(self) -> CData:
        _ = self._engine.pointer  # checks that the engine is open and belongs to this thread
        if self._events is None:
            raise CarefulError(errno.EBADF, "the group was closed", self._names[self.rank])
        return self._events

    def _fragments_to_send(
        self, buffer: Buffer, event: int, to: int | None, crowd: bool
    ) -> Iterator[tuple[tuple[object, ...], Callable[[], None]]]:
        """Yields, for each fragment still to be sent, the arguments for C and a function to call
        when the fragment has left. A large message is announced first, so that a receiver with a
        reserve can grant buffers.
        """
        nbytes, rank = len(buffer), _rank(to)
        at = self._outgoing.begin(event, to, nbytes, crowd)
        self._check(at, to)
        if not at and nbytes > _SMALL_BYTES:
            self._check(lib.careful_event_ahead(self._open_group(), rank, nbytes), to)
        large = at > 0 or nbytes > self._next_bytes(rank)
        while at < max(nbytes, 1):
            end = min(at + self._next_bytes(rank), nbytes)
            flags = _flags(end == nbytes, crowd, large)
            note_sent = partial(self._outgoing.note, event, to, max(end, 1), nbytes, crowd)
            yield (rank, event, ffi.cast("char *", buffer) + at, end - at, flags), note_sent
            at = max(end, 1)
        self._outgoing.forget_sent()

    def _next_bytes(self, rank: int) -> int:
        """Returns the bytes of the next fragment; raises the group's failure if a session ended."""
        rc = lib.careful_event_next(self._open_group(), rank)
        self._check(0 if rc > 0 else lib.careful_events_failed(self._events, ffi.NULL) or rc, ANY)
        return int(rc) if self.nodes > 1 else 1 << 30

    def _wait(
        self,
        function: Callable[..., int],
        rank: int | None,
        deadline: float | None,
        done: Callable[[], object],
        *args: object,
    ) -> None:
        """Calls a function that waits, in slices; calls done() as soon as the function succeeds."""

        def call(_: CData, milliseconds: int) -> int:
            rc = function(self._events, *args, milliseconds)
            if rc >= 0:
                done()  # not later: the engine's run may raise an exception of a callback
            return rc

        while True:
            events = self._open_group()
            left_ms = _SLICE_MS if deadline is None else (deadline - time.monotonic()) * 1000
            rc = self._engine.run(call, int(max(0.0, min(_SLICE_MS, left_ms))))
            if rc not in _NOT_READY or left_ms <= 0 or lib.careful_events_failed(events, ffi.NULL):
                self._check(-errno.ETIMEDOUT if rc == -errno.EAGAIN else rc, rank)
                return

    async def _in_loop(
        self,
        function: Callable[..., int],
        rank: int | None,
        done: Callable[[], object],
        *args: object,
    ) -> None:
        """Calls a function until it need not wait; calls done() as soon as it succeeds."""
        driver = self._engine.in_loop()
        result = [-errno.EAGAIN]

        def try_once() -> bool:
            result[0] = function(self._open_group(), *args, 0)
            if result[0] >= 0:
                done()  # not later: this task may be cancelled first
            return result[0] != -errno.EAGAIN

        if not try_once():
            await driver.until(try_once)
        elif (task := asyncio.current_task()) and task.cancelling():
            await asyncio.sleep(0)  # raises: at the coroutine's end the call would be forgotten
        driver.wake()
        self._check(result[0], rank)

    def _check(self, rc: int, rank: int | None) -> None:
        """Raises the failure of the group, or else the failure of the call."""
        if rc >= 0:
            return
        failed_rank = ffi.new("uint32_t *")
        failed = lib.careful_events_failed(self._events, failed_rank)
        if failed:
            name = f"node {failed_rank[0]} ({self._names[failed_rank[0]]})"
            reason = _TEXTS[-failed] if -failed in _FAILURES else meaning(-failed)
            raise CarefulError(-failed, f"failed, and the group with it: {reason}", name)
        name = self._names[rank] if rank is not None and 0 <= rank < self.nodes else "the group"
        raise CarefulError(-rc, _TEXTS.get(-rc, ""), name)

    def _copy_out(self, into: Buffer) -> Fragment:
        """Copies the fragment from C to its destination; there is no other copy."""
        raw = self._fragment
        offset, nbytes = int(raw.offset), int(raw.bytes)
        self._incoming = [one for one in self._incoming if one.source != raw.source]
        if into is None:
            data: Buffer = bytearray(nbytes)
            ffi.memmove(data, raw.data, nbytes)
        else:
            data = into
            with ffi.from_buffer("char[]", into, require_writable=True) as target:
                if offset + nbytes > len(target):
                    raise ValueError(no_room_text(offset + nbytes, len(target)))
                ffi.memmove(target + offset, raw.data, nbytes)
        return Fragment(int(raw.source), Status(raw.status), offset, nbytes, data)


def _rank(node: int | None) -> int:
    if node is not None and not 0 <= node < 0xFFFFFFFF:
        raise CarefulError(errno.ENOENT, _TEXTS[errno.ENOENT], f"node {node}")
    return int(lib.CAREFUL_EVENT_ALL) & 0xFFFFFFFF if node is None else node


def _flags(last: bool, crowd: bool, large: bool) -> int:
    return (
        (int(lib.CAREFUL_EVENT_F_LAST) if last else 0)
        | (int(lib.CAREFUL_EVENT_F_CROWD) if crowd else 0)
        | (int(lib.CAREFUL_EVENT_F_LARGE) if large else 0)
    )


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
