"""Requests, stores and gets that are on their way, and how they ended."""

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

#: Meanings of the statuses that libcareful itself answers with; all others are the handler's.
_REQUEST_ERRORS = {errno.ENOSYS: "has no handler of that number"}
TOO_LARGE = "the payload is too large for one frame (payload_bytes); store or get it"
_MOVE_ERRORS = {
    errno.ENOENT: "has no such region for this host",
    errno.EACCES: "its region does not allow that",
    errno.ERANGE: "the range ends beyond its region",
    errno.ENOSYS: "has no handler of that number; the bytes are in place",
    errno.ENODATA: "the source ended early: a file shrank",
}


@dataclass(frozen=True)
class Result:
    """How an operation ended.

    Attributes:
        args: four words of a reply.
        payload: of a reply.
        nbytes: length of the payload, or bytes that a store or get moved.
        digest: XXH3 of the bytes that a store or get moved; 0 without a digest.
    """

    args: tuple[int, ...]
    payload: bytes
    nbytes: int
    digest: int


class RemoteError(CarefulError):
    """A handler at the peer failed a request: it raised, or returned a Reply with a status.

    `errno` is the status: the errno of an OSError, EIO for any other exception.

    Attributes:
        reply: the reply; after an exception, its payload is the class and text in UTF-8.
    """

    reply: Result


class AskedPeer(Protocol):
    """The part of a peer that its operations use (peer.Peer).

    Attributes:
        lost_operation: set if an operation failed with the peer.
    """

    lost_operation: bool

    @property
    def name(self) -> str:
        pass

    @property
    def state(self) -> str:
        pass

    @property
    def error(self) -> int:
        pass


class Operation:
    """A request, store or get on its way: `await` it, or call result().

    The methods are those of concurrent.futures.Future, but only the thread that opened the node may
    call them. Each operation ends once, inside a poll of its node, even if the program dropped this
    object: a peer that is silent for stall_ms counts as gone.
    """

    def __init__(self, engine: Engine, peer: AskedPeer, span: Span | None = None) -> None:
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
        return self._result is not None or self._error is not None

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """Returns False: the peer has the request, and its memory is in use.

        A task that awaits the operation can be cancelled; the operation continues.
        """
        return False

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> Result:
        """Polls until the operation has ended; returns its result.

        Args:
            timeout: the longest wait, seconds; None: no limit.

        Raises:
            CarefulError: the operation failed; or the time is over (ETIMEDOUT, a TimeoutError), and
                the operation continues.
            RemoteError: a handler at the peer failed the request.
            RuntimeError: called by a handler before the operation has ended.
        """
        error = self.exception(timeout)
        if error is not None:
            # Raises a copy: frames of the traceback may hold this operation, and the cycle would
            # keep all buffers alive.
            raise copy.copy(error)
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> CarefulError | None:
        """Waits as result() does, but returns its exception; None: success."""
        if not self.done() and not self._engine.wait_until(self.done, timeout):
            raise CarefulError(errno.ETIMEDOUT, "", self._peer.name)
        return self._error

    def add_done_callback(self, function: Callable[[Operation], object]) -> None:
        """Calls a function with this operation in the poll that ends it, or now if it has ended.

        Exceptions of the function go to Node.on_error.
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
        self._engine.count_event()
        payload = bytes(ffi.buffer(raw.payload, raw.bytes)) if raw.payload else b""
        result = Result(tuple(raw.args), payload, int(raw.bytes), int(raw.digest))
        if not raw.status:
            self._end(result)
            return
        number = -int(raw.status)
        if self._peer.state == "failed":
            self._peer.lost_operation = True
            if number == errno.ECONNRESET:
                number = self._peer.error or number  # the errno that reset the session
        if raw.payload and number not in _REQUEST_ERRORS:
            self._end(self._remote_error(number, result))
        else:
            self.fail(number)

    def _remote_error(self, number: int, reply: Result) -> RemoteError:
        text = shown(reply.payload.decode(errors="backslashreplace")) or meaning(number)
        error = RemoteError(number, f"its handler failed: {text}", self._peer.name)
        error.reply = reply
        return error

    def fail(self, number: int, text: str = "") -> None:
        """Ends the operation with an errno; `text` explains it."""
        request_errors = _REQUEST_ERRORS | {
            errno.EMSGSIZE: TOO_LARGE
        }  # EMSGSIZE: the request was not sent
        meanings = request_errors if self._span is None else _MOVE_ERRORS
        self._end(CarefulError(number, text or meanings.get(number, ""), self._peer.name))

    def drop(self) -> None:
        """Releases the memory; C no longer has a handle to the operation."""
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
            self._engine.report_failure(error, f"callback of an operation of {self._peer.name}")
