"""How much to ask for at a time, given that operations may be lost with a session.

A network that keeps its promise never needs this. On one that does not, a loss
ends every operation under way, so pieces shrink until some get through between two
losses, and grow again afterwards. Their number stays: a lost frame is found when
the next one arrives, and there has to be a next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Smallest piece where the size of a frame is not known, bytes.
PIECE_BYTES_MIN = 2048
#: Of one file under way at a time, bytes, where two pieces are less: what a disk does not take
#: waits in memory, and that has a bound.
IN_FLIGHT_BYTES = 8 << 20
#: Epochs in a row that brought nothing, after which a transfer gives up.
FAILURES_MAX = 100
#: Successes in a row after which pieces grow.
_GROW_AFTER = 16


class RateLimit:
    """Keeps all of a transfer's pieces together below a rate.

    Args:
        bytes_per_s: the rate, at least 1.
    """

    def __init__(self, bytes_per_s: int) -> None:
        assert bytes_per_s > 0
        self.bytes_per_s = bytes_per_s
        #: What moves in about a tenth of a second: more at once would come as a burst.
        self.piece_bytes = max(PIECE_BYTES_MIN, bytes_per_s // 10 & ~4095)
        self._free_at = 0.0
        self._begun_bytes = 0
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()

    async def take(self, nbytes: int) -> None:
        """Wait until so many bytes may be asked for."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        begins = max(now, self._free_at)
        self._free_at = begins + nbytes / self.bytes_per_s
        if begins > now:
            await asyncio.sleep(begins - now)

    @asynccontextmanager
    async def block(self, nbytes: int) -> AsyncIterator[None]:
        """Hold a place among the blocks under way: as many as move within a second, or one.

        Were there more, all would advance side by side, and an interruption would find none
        complete, to be kept.
        """
        async with self._turn:
            while self._begun_bytes and self._begun_bytes + nbytes > self.bytes_per_s:
                self._ended.clear()
                await self._ended.wait()
            self._begun_bytes += nbytes
        try:
            yield
        finally:
            self._begun_bytes -= nbytes
            self._ended.set()


class Pace:
    """Size and number of the pieces that one transfer has under way.

    Args:
        block_bytes: largest piece.
        in_flight: most pieces at a time; of large ones, as many as IN_FLIGHT_BYTES are, or two.
        piece_bytes_min: smallest piece: about one frame, so that even heavy loss lets some
            through.
    """

    def __init__(
        self, block_bytes: int, in_flight: int, piece_bytes_min: int = PIECE_BYTES_MIN
    ) -> None:
        self.piece_bytes = block_bytes
        self.retries = 0
        self._block_bytes = block_bytes
        self._piece_bytes_min = piece_bytes_min
        self._in_flight = in_flight
        self._active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._round = 0
        self._good = 0
        self._bad = 0

    @property
    def _limit(self) -> int:
        return min(self._in_flight, max(2, IN_FLIGHT_BYTES // self.piece_bytes))

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold one of the places; yields what failed() wants to know."""
        while self._active >= self._limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()  # it may have been our turn
                raise
        self._active += 1
        try:
            yield self._round
        finally:
            self._active -= 1
            self._wake()

    def _wake(self) -> None:
        free = self._limit - self._active
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def succeeded(self) -> None:
        """A piece arrived whole."""
        self._bad = 0
        self._good += 1
        if self._good >= _GROW_AFTER and self.piece_bytes < self._block_bytes:
            self._good = 0
            self.piece_bytes = min(self._block_bytes, self.piece_bytes * 2)

    def failed(self, started: int) -> bool:
        """A piece was lost or damaged.

        Args:
            started: what slot() gave: one loss ends many pieces, and counts once.

        Returns:
            Whether to try again.
        """
        self.retries += 1
        self._good = 0
        if started == self._round:
            self._bad += 1
            self._round += 1
            self.piece_bytes = max(
                min(self._piece_bytes_min, self._block_bytes), self.piece_bytes // 2
            )
        return self._bad < FAILURES_MAX

    def delay_s(self) -> float:
        """How long to wait before trying again, seconds."""
        return 0.0 if self._bad < 8 else min(0.2, 0.001 * self._bad)
