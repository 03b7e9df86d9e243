"""Adapts the size of the pieces under way to losses.

When an epoch ends, every operation under way fails. So pieces shrink until some get through, and
grow again afterwards. Their number stays: a lost frame is found only when the next one arrives.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: The smallest piece if the size of a frame is unknown, bytes.
PIECE_BYTES_MIN = 2048
#: The most bytes of one file under way, or two pieces if these are larger: data that the disk has
#: not accepted waits in memory.
IN_FLIGHT_BYTES = 8 << 20
#: A transfer gives up after this many epochs in a row without progress.
FAILURES_MAX = 100
#: Pieces grow after this many successes in a row.
_GROW_AFTER = 16


class RateLimit:
    """Keeps the pieces of a transfer together below a rate.

    Args:
        bytes_per_s: the rate, at least 1.
    """

    def __init__(self, bytes_per_s: int) -> None:
        assert bytes_per_s > 0
        self.bytes_per_s = bytes_per_s
        #: Bytes of a tenth of a second: more at once would be a burst.
        self.piece_bytes = max(PIECE_BYTES_MIN, bytes_per_s // 10 & ~4095)
        self._free_at = 0.0
        self._begun_bytes = 0
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()

    async def take(self, nbytes: int) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        starts_at = max(now, self._free_at)
        self._free_at = starts_at + nbytes / self.bytes_per_s
        if starts_at > now:
            await asyncio.sleep(starts_at - now)

    @asynccontextmanager
    async def block(self, nbytes: int) -> AsyncIterator[None]:
        """Waits until a block may start. If several are under way, they need at most a second in
        all: if many advanced together, an interruption would find none complete.
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
        in_flight: most pieces at a time; large pieces are limited to IN_FLIGHT_BYTES, or two.
        piece_bytes_min: smallest piece: about one frame, so that some survive heavy loss.
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
        self._ended = asyncio.Event()
        self._round = 0
        self._successes = 0
        self._failures = 0

    @property
    def _limit(self) -> int:
        return min(self._in_flight, max(2, IN_FLIGHT_BYTES // self.piece_bytes))

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Waits for a free place and holds it; yields the argument for failed()."""
        while self._active >= self._limit:
            self._ended.clear()
            await self._ended.wait()
        self._active += 1
        try:
            yield self._round
        finally:
            self._active -= 1
            self._ended.set()

    def succeeded(self) -> None:
        self._failures = 0
        self._successes += 1
        if self._successes >= _GROW_AFTER and self.piece_bytes < self._block_bytes:
            self._successes = 0
            self.piece_bytes = min(self._block_bytes, self.piece_bytes * 2)

    def failed(self, started: int) -> bool:
        """Counts a lost or damaged piece; reports whether to try again.

        started: from slot(). One loss ends many pieces and counts once.
        """
        self.retries += 1
        self._successes = 0
        if started == self._round:
            self._failures += 1
            self._round += 1
            self.piece_bytes = max(
                min(self._piece_bytes_min, self._block_bytes), self.piece_bytes // 2
            )
        return self._failures < FAILURES_MAX

    def delay_s(self) -> float:
        """Returns how long to wait before the next try, seconds."""
        return 0.0 if self._failures < 8 else min(0.2, 0.001 * self._failures)
