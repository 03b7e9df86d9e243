"""Bursts for LogP that leave a path nearly idle: each is followed by a pause 99 times as long.

Owns the pauses, and whether what a signature needs fits into the time that is given. A burst
itself still fills the path while it lasts; what others send then waits behind at most a window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from careful.errors import InputError
from careful.measure.estimators.logp import Layer
from careful.measure.statistics.sample import SAMPLES_MIN, Bursts

#: Of the path's time.
SHARE = 0.01
#: Bursts of a signature, at least, in units of its longest without computation: those of four
#: curves, and those by which the model is tried.
_BURSTS = (4 + 1.5) * (SAMPLES_MIN + 2)
#: Of the first ones, of which the shortest tells what the others take: one may be disturbed.
_FIRST = 3


class Background:
    """A layer of which bursts take at most SHARE of the time.

    Args:
        layer: whose bursts they are.
        seconds: what is given to a signature.
        sleep: seconds.
    """

    def __init__(
        self, layer: Layer, seconds: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.name, self.capacity = layer.name, layer.capacity
        self._layer, self._seconds, self._sleep = layer, seconds, sleep
        self._longest = 1

    def bursts(self, marks: Sequence[int], compute_us: float, count: int, /) -> Bursts:
        """One burst, and the pause that it costs; ValueError where there is no time for more."""
        longer = not compute_us and marks[-1] > self._longest
        found = self._layer.bursts(marks, compute_us, min(count, _FIRST if longer else 1))
        if longer:
            self._longest = marks[-1]
            self._afford(float(found.done_us.min()) / 1e6)
        self._sleep(float(found.done_us.sum()) / 1e6 * (1 / SHARE - 1))
        return found

    def _afford(self, burst_s: float) -> None:
        needed_s = _BURSTS * burst_s / SHARE
        if needed_s > self._seconds:
            raise InputError(
                f"in the background the bursts take about {needed_s:.0f} s on this path: "
                f"--time {math.ceil(1.2 * needed_s)}"
            )
