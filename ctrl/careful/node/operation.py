"""What was asked of a peer: requests, stores and gets on their way, and how they ended."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from careful._abi import ffi
from careful.errors import CarefulError
from careful.node.engine import Engine
from careful.node.memory import Span

if TYPE_CHECKING:
    from careful.node.peer import Peer

#: What a status means that libcareful itself answers with; any other is the handler's.
_REQUEST = {errno.ENOSYS: "has no handler of that number"}
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


class Operation:
    """A request, store or get on its way (Peer.request(), store(), get()).

    It ends once, inside a poll of its node, whether somebody holds this object or not.
    """

    def __init__(
        self,
        engine: Engine,
        peer: Peer,
        span: Span | None = None,
        then: Callable[[Operation], object] | None = None,
    ) -> None:
        self._engine = engine
        self._peer = peer
        self._span = span
        self._then = then
        self._result: Result | None = None
        self._error: CarefulError | None = None
        self._handle = ffi.new_handle(self)

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self._result else "on its way"
        return f"<Operation of {self._peer.name}, {state}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._result is not None or self._error is not None

    def result(self) -> Result:
        """How it ended.

        Raises:
            CarefulError: it failed, or has not ended (EINPROGRESS).
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise CarefulError(errno.EINPROGRESS, "has not ended", self._peer.name)
        return self._result

    def wait(self, timeout_s: float | None = None) -> Result:
        """Poll until it has ended; then as result().

        It ends in any case: a peer that is silent counts as gone after stall_ms.

        Raises:
            CarefulError: it failed; or the time is over (ETIMEDOUT), and it goes on.
        """
        if not self.done and not self._engine.wait_until(lambda: self.done, timeout_s):
            raise CarefulError(errno.ETIMEDOUT, "", self._peer.name)
        return self.result()

    def _on_done(self, raw: Any) -> None:
        """Take the end from C."""
        self._engine.heard()
        if raw.status:
            number = -int(raw.status)
            if number == errno.ECONNRESET and self._peer.state == "failed":
                number = self._peer.error or number  # what the session was reset by
            self._fail(number)
            return
        payload = bytes(ffi.buffer(raw.payload, raw.bytes)) if raw.payload else b""
        self._end(Result(tuple(raw.args), payload, int(raw.bytes), int(raw.digest)))

    def _fail(self, number: int, text: str = "") -> None:
        """End with an error, of which the text says more."""
        meanings = _REQUEST if self._span is None else _MOVE
        self._end(CarefulError(number, text or meanings.get(number, ""), self._peer.name))

    def _drop(self) -> None:
        """Let go of memory; C has no handle of this any more."""
        if self._span is not None:
            self._span.release()
        self._engine.operations.discard(self)
        self._handle = None

    def _end(self, outcome: Result | CarefulError) -> None:
        """Note the end, and tell whoever wants to know."""
        if isinstance(outcome, Result):
            self._result = outcome
        else:
            self._error = outcome
        self._drop()
        try:
            if self._then is not None:
                self._then(self)
        except BaseException as error:
            self._engine.failed(error)
