"""Limits how long a peer may leave requests unanswered.

A peer is silent if its server answers nothing and sends no frame. A slow disk is no silence: after
half of the limit, a request that needs no disk asks whether the server still answers. A server
that answers only such requests gets several times as long.
"""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress

from careful._abi import Value, ffi, lib, sizeof
from careful.daemon.client import Answer, AsyncClient
from careful.errors import CarefulError, SilenceError, shown
from careful.units import shown_time

#: Ticks of the clock in the longest silence.
_TICKS = 8
#: The clock runs slower by this factor while the link is stalled: carefuld then ends the session.
_STALLED_SLOWER = 6
#: How many limits a server may work on a request, if it answers probes.
_WORK_LIMITS = 12
#: The same for requests whose work grows with the file.
_FILE_WORK_LIMITS = 60
_FILE_HANDLERS = (
    lib.CAREFUL_BLOCK_OPEN,
    lib.CAREFUL_BLOCK_COMMIT,
    lib.CAREFUL_BLOCK_DIGEST,
)
#: A handle that no server returns.
_NO_HANDLE = (1 << 32) - 1
_PATH_AT = {
    lib.CAREFUL_BLOCK_LIST: 0,
    lib.CAREFUL_BLOCK_STAT: 0,
    lib.CAREFUL_BLOCK_OPEN: sizeof("careful_block_open"),
    lib.CAREFUL_BLOCK_MKDIR: sizeof("careful_block_open"),
}
_NAMES = {
    value: name.removeprefix("CAREFUL_BLOCK_").lower()
    for value, name in ffi.typeof("enum careful_block_handler").elements.items()
}
_MOVES = {lib.CAREFUL_IPC_STORE: "write"}

_Request = tuple[int, int, bytes, asyncio.Timeout]


class Silence:
    """Sends requests to a peer, and ends them if the peer is silent for `limit_s` seconds."""

    def __init__(self, ipc: AsyncClient, peer: int, host: str, limit_s: float) -> None:
        self._ipc, self._peer, self._host, self._limit_s = ipc, peer, host, limit_s
        self._requests: dict[int, _Request] = {}
        self._last_number = 0
        self._watcher: asyncio.Task[None] | None = None
        self._prober: asyncio.Task[None] | None = None
        self._error: SilenceError | None = None
        self._answers = self._answers_before = 0
        self._probes = 0  # answers to probes since the last other answer or data
        self._frames = self._frames_before = -1  # received from the peer: now, and at that answer
        self._silent_s = self._works_s = 0.0
        self._is_probed = False

    async def ask(self, op: int, payload: bytes = b"", **fields: Value) -> Answer:
        """Returns the answer to a request, whatever its status. Raises SilenceError."""
        if self._error is not None:
            raise self._error
        self._last_number += 1
        number = self._last_number
        try:
            async with asyncio.timeout(None) as timeout:
                self._requests[number] = op, fields.get("handler", 0), payload, timeout
                if self._watcher is None or self._watcher.done():
                    self._watcher = asyncio.create_task(self._watch())
                answer = await self._ipc.ask(op, payload, peer=self._peer, **fields)
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            del self._requests[number]
        self._answers += 1
        return answer

    async def _watch(self) -> None:
        """Ends all requests if the peer is silent; returns when no request is under way."""
        self._answers_before, self._frames = self._answers, -1
        self._count_as_working()
        while True:
            await asyncio.sleep(self._limit_s / _TICKS)
            if not self._requests:
                return
            if self._answers != self._answers_before:
                self._answers_before = self._answers
                self._count_as_working()
                continue
            await self._check_frames()
            if self._requests and self._answers == self._answers_before and self._is_over():
                self._end()
                return
            if self._silent_s >= self._limit_s / 2 and not self._is_probed:
                self._is_probed = True
                self._prober = asyncio.create_task(self._probe())

    def _count_as_heard(self) -> None:
        self._silent_s, self._is_probed = 0.0, False

    def _count_as_working(self) -> None:
        self._works_s, self._probes, self._frames_before = 0.0, 0, self._frames
        self._count_as_heard()

    async def _check_frames(self) -> None:
        """Counts a tick without an answer, unless frames came."""
        tick_s = self._limit_s / _TICKS
        is_stalled, frames = True, self._frames
        with suppress(CarefulError, TimeoutError):
            async with asyncio.timeout(tick_s):
                answer = await self._ipc.ask(lib.CAREFUL_IPC_PEER_INFO, peer=self._peer)
            is_stalled = False
            if not answer.status:
                info = ffi.from_buffer("struct careful_ipc_peer *", answer.payload).info
                is_stalled, frames = info.state == lib.CAREFUL_PEER_STALLED, info.rx_frames
        if frames != self._frames:
            self._frames = frames
            self._count_as_heard()
        if frames - self._frames_before > 2 * (self._probes + 1):  # more than probes cause
            self._count_as_working()
        self._silent_s += tick_s / (_STALLED_SLOWER if is_stalled else 1)
        self._works_s += 0 if is_stalled else tick_s

    def _work_limit_s(self) -> float:
        """Returns how long the server may work on the requests under way, seconds."""
        handlers = {handler for _, handler, _, _ in self._requests.values()}
        return self._limit_s * (
            _FILE_WORK_LIMITS if handlers.intersection(_FILE_HANDLERS) else _WORK_LIMITS
        )

    def _is_over(self) -> bool:
        return self._silent_s >= self._limit_s or self._works_s >= self._work_limit_s()

    async def _probe(self) -> None:
        """Asks the server to close a handle that it never returned: it answers if it is there."""
        words = [_NO_HANDLE, 0, 0, 0]
        handler = lib.CAREFUL_BLOCK_CLOSE
        with suppress(CarefulError):
            answer = await self._ipc.ask(
                lib.CAREFUL_IPC_REQUEST, peer=self._peer, handler=handler, args=words
            )
            if answer.status != -errno.ECONNRESET:
                self._probes += 1
                self._count_as_heard()

    def _end(self) -> None:
        """Ends all requests; the error names the oldest."""
        op, handler, payload, _ = next(iter(self._requests.values()))
        name = _MOVES.get(op, "read")
        if op == lib.CAREFUL_IPC_REQUEST:
            path = payload[_PATH_AT[handler] :] if handler in _PATH_AT else b""
            name = f"{_NAMES.get(handler, 'request')} {shown(os.fsdecode(path))}".strip()
        limit_s, why = self._limit_s, " (--timeout)"
        if self._silent_s < limit_s:
            times, limit_s = self._work_limit_s() / limit_s, self._work_limit_s()
            why = f", though the server answers that it is there ({times:g} * --timeout)"
        text = f"no answer to '{name}' in {shown_time(limit_s * 1e6)}{why}"
        self._error = SilenceError(errno.ETIMEDOUT, text, self._host)
        now = asyncio.get_running_loop().time()
        for _, _, _, timeout in self._requests.values():
            timeout.reschedule(now)
