"""What was asked of a peer: requests, stores and gets on their way, and how they ended.

Owns an operation's end and whoever waits for it. When it begins is peer.py's, what polls
until then engine.py's or, in an event loop, loop.py's.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from careful._abi import CData, ffi
from careful.errors import CarefulError, meaning, shown
from careful.node.engine import Engine
from careful.node.memory import Span

#: What a status means that libcareful itself answers with; any other is the handler's.
_REQUEST = {errno.ENOSYS: "has no handler of that number"}
TOO_LARGE = "the payload is too large for one frame (payload_bytes); store or get it"
_MOVE = {
    errno.ENOENT: "has no such region for us",
    errno.EACCES: "its region does not allow that",
    errno.ERANGE: "that is beyond its region's end",
    errno.ENOSYS: "has no handler of that number; the bytes are in place",
    errno.ENODATA: "the source ended early: a file shrank",
}


@dataclass(frozen=True)
class Result:
    """How an operation ended.

    Attributes:
        args: four words of a reply.
        payload: of a reply.
        nbytes: of the payload, or moved by a store or get.
        digest: XXH3 of what a store or get moved; 0 where it went without.
    """

    args: tuple[int, ...]
    payload: bytes
    nbytes: int
    digest: int


class RemoteError(CarefulError):
    """A handler there failed a request: it raised, or returned a Reply with a status.

    `errno` is the status: of an OSError its errno, of any other exception EIO.

    Attributes:
        reply: what came; of an exception the payload is its class and text, in UTF-8.
    """

    reply: Result


class Asked(Protocol):
    """A peer as its operations see it (peer.Peer).

    Attributes:
        lost_operation: set where an operation failed with the peer.
    """

    lost_operation: bool

    @property
    def name(self) -> str:
        """The name that errors call the peer by."""

    @property
    def state(self) -> str:
        """Returns "failed" after the session has ended."""

    @property
    def error(self) -> int:
        """The errno that the session was reset by; 0 if none is known."""


class Operation:
    """A request, store or get on its way: `await` it, or ask for its result().

    Its methods are those of concurrent.futures.Future, but for use by the thread that
    opened the node. It ends once, inside a poll of its node, whether somebody holds this
    object or not, and in any case: a peer that is silent counts as gone after stall_ms.
    """

    def __init__(self, engine: Engine, peer: Asked, span: Span | None = None) -> None:
        self._engine = engine
        self._peer = peer
        self._span = span
        self._callbacks: list[Callable[[Operation], object]] = []
        self._result: Result | None = None
        self._error: CarefulError | None = None
        self.handle = ffi.new_handle(self)

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self._result else "on its way"
        return f"<Operation of {self._peer.name}, {state}>"

    def done(self) -> bool:
        """Reports whether it has ended."""
        return self._result is not None or self._error is not None

    def running(self) -> bool:
        """Reports whether it has not ended."""
        return not self.done()

    def cancel(self) -> bool:
        """False: what was asked of a peer cannot be taken back, and its memory is in use.

        A task that awaits it may be cancelled: the operation goes on.
        """
        return False

    def cancelled(self) -> bool:
        """False: see cancel()."""
        return False

    def result(self, timeout: float | None = None) -> Result:
        """Poll until it has ended; how it did.

        Args:
            timeout: how long to wait at most, seconds; None: until it has ended.

        Raises:
            CarefulError: it failed; or the time is over (ETIMEDOUT, a TimeoutError),
                and it goes on.
            RemoteError: a handler there failed the request.
            RuntimeError: called by a handler, and it has not ended.
        """
        error = self.exception(timeout)
        if error is not None:
            # A copy: whoever is in its traceback may hold this operation, and a cycle would hold
            # the buffers of all of them.
            raise copy.copy(error)
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> CarefulError | None:
        """As result(), but what it would raise is returned; None: it succeeded."""
        if not self.done() and not self._engine.wait_until(self.done, timeout):
            raise CarefulError(errno.ETIMEDOUT, "", self._peer.name)
        return self._error

    def add_done_callback(self, function: Callable[[Operation], object]) -> None:
        """Call a function with this once it has ended, in the poll that ends it; or now.

        What it raises goes to Node.on_error.
        """
        if self.done():
            self._call(function)
        else:
            self._callbacks.append(function)

    def __await__(self) -> Generator[object, None, Result]:
        if not self.done():
            ended = self._engine.in_loop().future()
            self.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
            yield from ended.__await__()
        return self.result()

    def _on_done(self, raw: CData) -> None:
        self._engine.heard()
        payload = bytes(ffi.buffer(raw.payload, raw.bytes)) if raw.payload else b""
        result = Result(tuple(raw.args), payload, int(raw.bytes), int(raw.digest))
        if not raw.status:
            self._end(result)
            return
        number = -int(raw.status)
        if self._peer.state == "failed":
            self._peer.lost_operation = True
            if number == errno.ECONNRESET:
                number = self._peer.error or number  # what the session was reset by
        if raw.payload and number not in _REQUEST:
            self._end(self._remote_error(number, result))
        else:
            self.fail(number)

    def _remote_error(self, number: int, reply: Result) -> RemoteError:
        text = shown(reply.payload.decode(errors="backslashreplace")) or meaning(number)
        error = RemoteError(number, f"its handler failed: {text}", self._peer.name)
        error.reply = reply
        return error

    def fail(self, number: int, text: str = "") -> None:
        """End it here, with an errno of which the text says more."""
        of_request = _REQUEST | {errno.EMSGSIZE: TOO_LARGE}  # it did not leave
        meanings = of_request if self._span is None else _MOVE
        self._end(CarefulError(number, text or meanings.get(number, ""), self._peer.name))

    def drop(self) -> None:
        """Let go of memory; C has no handle of this any more."""
        if self._span is not None:
            self._span.release()
        self._engine.operations.discard(self)
        self.handle = None

    def _end(self, outcome: Result | CarefulError) -> None:
        if isinstance(outcome, Result):
            self._result = outcome
        else:
            self._error = outcome
        self.drop()
        callbacks, self._callbacks = self._callbacks, []
        for function in callbacks:
            self._call(function)

    def _call(self, function: Callable[[Operation], object]) -> None:
        try:
            function(self)
        except BaseException as error:
            self._engine.failed(error, f"callback of an operation of {self._peer.name}")
