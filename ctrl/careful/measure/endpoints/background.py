"""Bursts for LogP that leave a path nearly idle: after each burst, a pause of 99 times its length.

Checks that a signature fits in the given time. During a burst the path is full, so other traffic
can wait behind a window of frames.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from careful.errors import InputError
from careful.measure.endpoints.logp import Layer
from careful.measure.statistics.sample import SAMPLES_MIN, Bursts

#: Share of the path's time.
SHARE = 0.01
#: Least time of a signature, in units of the longest burst without computation: four curves, and
#: the bursts that test the model.
_BURSTS = (4 + 1.5) * (SAMPLES_MIN + 2)
#: Number of first bursts. The shortest of them gives the time: the others may be disturbed.
_FIRST = 3


class Background:
    """A layer whose bursts use at most SHARE of the time.

    layer: makes the bursts; seconds: time for a signature; sleep: called with seconds.
    """

    def __init__(
        self, layer: Layer, seconds: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.name, self.capacity = layer.name, layer.capacity
        self._layer, self._seconds, self._sleep = layer, seconds, sleep
        self._longest = 1

    def bursts(self, marks: Sequence[int], compute_us: float, count: int, /) -> Bursts:
        """Makes one burst and its pause; ValueError if there is no time for the signature."""
        is_longer = not compute_us and marks[-1] > self._longest
        result = self._layer.bursts(marks, compute_us, min(count, _FIRST if is_longer else 1))
        if is_longer:
            self._longest = marks[-1]
            self._check_time(float(result.done_us.min()) / 1e6)
        self._sleep(float(result.done_us.sum()) / 1e6 * (1 / SHARE - 1))
        return result

    def _check_time(self, burst_s: float) -> None:
        needed_s = _BURSTS * burst_s / SHARE
        if needed_s > self._seconds:
            raise InputError(
                f"in the background the bursts take about {needed_s:.0f} s on this path: "
                f"give --time {math.ceil(1.2 * needed_s)}"
            )
