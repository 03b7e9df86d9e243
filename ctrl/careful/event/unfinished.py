"""Messages that a call left unfinished: it timed out, was refused or cancelled between fragments.

Owns where the next call for such a message goes on. group.py asks C for each fragment.
"""

from __future__ import annotations

import errno

from careful._abi import Buffer, CData, ffi, lib

_MORE, _EVENT_DONE = int(lib.CAREFUL_EVENT_MORE), int(lib.CAREFUL_EVENT_EVENT_DONE)


class Leaving:
    """Messages of which fragments have left, but not the last one."""

    def __init__(self) -> None:
        #: Of an event and a destination: bytes that have left, of how many, whether of a crowd.
        self._messages: dict[tuple[int, int | None], tuple[int, int, bool]] = {}

    def begin(self, event: int, to: int | None, nbytes: int, crowd: bool) -> int:
        """Where a message begins, or goes on; or -errno, if it is not the one that had begun."""
        if self.between(event, to) and (event, to) not in self._messages:
            return -errno.EILSEQ
        at, *begun = self._messages.get((event, to), (0, nbytes, crowd))
        return at if begun == [nbytes, crowd] else -errno.EBADMSG

    def between(self, event: int, to: int | None) -> bool:
        """Reports whether a fragment would be taken for a part of one of them."""
        return any(one == event and (None in (to, who) or to == who) for one, who in self._messages)

    def note(self, event: int, to: int | None, at: int, nbytes: int, crowd: bool) -> None:
        """So much of a message has left."""
        if at < nbytes:
            self._messages[event, to] = (at, nbytes, crowd)
        else:
            self._messages.pop((event, to), None)


class Coming:
    """A message that is being received.

    Attributes:
        event: of it.
        source: rank of the node that sends it; None: nothing has come.
        over: whether all has come;
        event_done: and nothing more of the event comes.
        nbytes: that came.
        data: they; a bytearray of its own, or what it is received into.
    """

    def __init__(self, event: int) -> None:
        self.event = event
        self.source: int | None = None
        self.over = self.event_done = False
        self.nbytes = 0
        self.data: Buffer = bytearray()
        self._own = True

    def move(self, into: Buffer) -> None:
        """Have it in this buffer, with what came; None: in a bytearray of its own.

        Raises:
            ValueError: what came has no room there; it stays where it is.
        """
        if self._own if into is None else self.data is into:
            return
        data = bytearray(self.nbytes) if into is None else into
        with (
            ffi.from_buffer("char[]", self.data) as source,
            ffi.from_buffer("char[]", data, require_writable=True) as target,
        ):
            if self.nbytes > len(target):
                raise ValueError(no_room(self.nbytes, len(target)))
            ffi.memmove(target, source, self.nbytes)
        self.data, self._own = data, into is None

    def add(self, raw: CData) -> None:
        """Copy a fragment that C gave; what has no room goes to a bytearray with all of it."""
        offset, nbytes = int(raw.offset), int(raw.bytes)
        if not self._own:
            with ffi.from_buffer("char[]", self.data, require_writable=True) as target:
                fits = offset + nbytes <= len(target)
                if fits:
                    ffi.memmove(target + offset, raw.data, nbytes)
            if not fits:
                self.move(None)
        if self._own:
            self.data += bytes(max(offset - len(self.data), 0))  # receive_fragment() took these
            self.data += ffi.buffer(raw.data, nbytes)
        self.nbytes, self.source = offset + nbytes, int(raw.source)
        self.over = raw.status != _MORE
        self.event_done = raw.status == _EVENT_DONE


def no_room(nbytes: int, room: int) -> str:
    """Why a message was not received into a buffer."""
    return f"{nbytes} bytes of a message, and room for {room}"
