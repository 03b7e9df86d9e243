"""Messages that a call left unfinished between fragments: it timed out, failed or was cancelled.

The next call for such a message continues where the last one ended.
"""

from __future__ import annotations

import errno

from careful._abi import Buffer, CData, ffi, lib

_MORE, _EVENT_DONE = int(lib.CAREFUL_EVENT_MORE), int(lib.CAREFUL_EVENT_EVENT_DONE)


class Outgoing:
    """Messages whose call has not returned although some or all of their fragments have left."""

    def __init__(self) -> None:
        #: (event, destination) -> (where the call continues, bytes in all, is a crowd event)
        self._messages: dict[tuple[int, int | None], tuple[int, int, bool]] = {}

    def begin(self, event: int, to: int | None, nbytes: int, crowd: bool) -> int:
        """Returns the offset at which a message continues, or -errno if another was started."""
        if self.mixes_messages(event, to) and (event, to) not in self._messages:
            return -errno.EILSEQ
        at, *started = self._messages.get((event, to), (0, nbytes, crowd))
        return at if started == [nbytes, crowd] else -errno.EBADMSG

    def mixes_messages(self, event: int, to: int | None) -> bool:
        """Reports whether C would add another fragment to an unfinished message."""
        unfinished = (key for key, (at, nbytes, _) in self._messages.items() if at < nbytes)
        return any(
            event_ == event and (None in (to, rank) or to == rank) for event_, rank in unfinished
        )

    def note(self, event: int, to: int | None, at: int, nbytes: int, crowd: bool) -> None:
        self._messages[event, to] = (at, nbytes, crowd)

    def forget_sent(self) -> None:
        """Forgets the messages that have left: their calls need not be repeated."""
        self._messages = {key: one for key, one in self._messages.items() if one[0] < one[1]}


class Incoming:
    """A message that is being received.

    Attributes:
        event: number of the event.
        source: rank of the sender; None: nothing has arrived.
        is_whole: whether the whole message has arrived.
        event_done: whether the event has no further messages.
        nbytes: bytes received.
        data: the received bytes, in a bytearray of our own or in the caller's buffer.
    """

    def __init__(self, event: int) -> None:
        self.event = event
        self.source: int | None = None
        self.is_whole = self.event_done = False
        self.nbytes = 0
        self.data: Buffer = bytearray()
        self._is_own = True

    def move(self, buffer: Buffer) -> None:
        """Moves the message, with the bytes received so far, into a buffer; None: a bytearray.
        Raises ValueError: the buffer is too small; the message stays where it is.
        """
        if self._is_own if buffer is None else self.data is buffer:
            return
        data = bytearray(self.nbytes) if buffer is None else buffer
        with (
            ffi.from_buffer("char[]", self.data) as source,
            ffi.from_buffer("char[]", data, require_writable=True) as target,
        ):
            if self.nbytes > len(target):
                raise ValueError(no_room_text(self.nbytes, len(target)))
            ffi.memmove(target, source, self.nbytes)
        self.data, self._is_own = data, buffer is None

    def add(self, raw: CData) -> None:
        """Copies a fragment from C; if the buffer is too small, moves all to a bytearray."""
        offset, nbytes = int(raw.offset), int(raw.bytes)
        if not self._is_own:
            with ffi.from_buffer("char[]", self.data, require_writable=True) as target:
                fits = offset + nbytes <= len(target)
                if fits:
                    ffi.memmove(target + offset, raw.data, nbytes)
            if not fits:
                self.move(None)
        if self._is_own:
            # receive_fragment() returned the bytes of a gap.
            self.data += bytes(max(offset - len(self.data), 0))
            self.data += ffi.buffer(raw.data, nbytes)
        self.nbytes, self.source = offset + nbytes, int(raw.source)
        self.is_whole = raw.status != _MORE
        self.event_done = raw.status == _EVENT_DONE


def no_room_text(nbytes: int, buffer_bytes: int) -> str:
    """Returns why a message was not received into a buffer."""
    return f"a message of {nbytes} bytes does not fit into a buffer of {buffer_bytes}"
