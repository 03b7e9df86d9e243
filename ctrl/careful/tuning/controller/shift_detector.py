"""Detects shifts in the latency of live messages. Compares windows of each class with a reference.

A window is a few messages of a class. A shift is a difference of the last windows that is larger
than windows usually differ. A few windows show a large shift soon; more windows show a small shift,
or a shift of messages that vary. The cause (path, load or messages) remains unknown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from careful.tuning.verify import Counts

#: A window closes after this many messages and seconds, whichever is later.
WINDOW = (8, 0.18)
#: Windows of a full reference, and of the smallest that is used.
REFERENCE_WINDOWS = 16
REFERENCE_WINDOWS_MIN = 3
#: Numbers of last windows that are compared with the reference.
SPANS = (2, 4, 8)
#: Least shift, as a share of the reference and in standard errors.
SHIFT_MIN = 0.15
SHIFT_SIGMAS = 5.0
#: Share of a span's windows that must differ by half of SHIFT_MIN or more, all in one direction: a
#: single burst of other work is no shift.
AGREEING = 0.75
#: A second test, by ranks: a few messages that other work delays a hundredfold dominate a mean and
#: its error. Each of the last windows is compared with each of a full reference. Maps the number of
#: last windows to the most pairs that may contradict the shift; chance: 1 in 120,000 for each.
RANKS = {7: 0, 12: 9, 20: 30}


@dataclass
class _Windows:
    """The windows of a class. The first windows make the reference; the last are compared."""

    began: float
    window: Counts = field(default_factory=Counts)
    closed: list[Counts] = field(default_factory=list)

    def add(self, block: Counts, now: float) -> bool:
        self.window += block
        if self.window.count < WINDOW[0] or now - self.began < WINDOW[1]:
            return False
        self.closed.append(self.window)
        self.window, self.began = Counts(), now
        if len(self.closed) > REFERENCE_WINDOWS + max(*SPANS, *RANKS):
            del self.closed[REFERENCE_WINDOWS]
        if any(self._shifted(span) for span in SPANS):
            return True
        return any(self._ranks_apart(*test) for test in RANKS.items())

    def _shifted(self, span: int) -> bool:
        reference = self.closed[:-span][:REFERENCE_WINDOWS]
        if len(reference) < max(REFERENCE_WINDOWS_MIN, span // 2):
            return False
        last = self.closed[-span:]
        means = [window.mean_us for window in reference]
        mean = sum(means) / len(means)
        shifts = [window.mean_us - mean for window in last]
        shift = sum(shifts) / span
        if abs(shift) <= SHIFT_MIN * mean:
            return False
        beyond = sum(math.copysign(1, shift) * each > SHIFT_MIN / 2 * mean for each in shifts)
        if beyond < AGREEING * span:
            return False
        between = sum((mean_us - mean) ** 2 for mean_us in means) / (len(means) - 1)
        # A few windows can be alike by chance; the variance inside windows is a lower bound.
        inside = max(_inside_us2(reference), _inside_us2(last))
        error = math.sqrt(max(between, inside) * (1 / span + 1 / len(means)))
        return abs(shift) > SHIFT_SIGMAS * error

    def _ranks_apart(self, span: int, others_max: int) -> bool:
        known = [_usual_us(window) for window in self.closed[:-span][:REFERENCE_WINDOWS]]
        if len(known) < REFERENCE_WINDOWS:
            return False
        last = [_usual_us(window) for window in self.closed[-span:]]
        above = sum(one > each for one in last for each in known)
        if min(above, span * len(known) - above) > others_max:
            return False
        middle = statistics.median(known)
        return abs(statistics.median(last) - middle) > SHIFT_MIN * middle


def _usual_us(window: Counts) -> float:
    """Returns the mean less its standard error: the mean of the others if one message is late."""
    return window.mean_us - math.sqrt(window.variance_us2 / window.count)


def _inside_us2(windows: Sequence[Counts]) -> float:
    return sum(window.variance_us2 / window.count for window in windows) / len(windows)


class Watch:
    """Watches the live latencies of one path."""

    def __init__(self) -> None:
        self._seen: dict[int, Counts] = {}
        self._classes: dict[int, _Windows] = {}

    def reset(self) -> None:
        self._classes.clear()
        self._seen.clear()

    def skip(self, totals: Mapping[int, Counts]) -> None:
        """Ignores the messages since the last look: something disturbed them."""
        for index, total in totals.items():
            if index in self._seen:
                self._seen[index] = total
                self._classes[index].window = Counts()

    def look(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        """Returns the classes that shifted.

        totals: counted so far, by class; now: seconds.
        """
        shifted = []
        for index, total in totals.items():
            if index not in self._seen:
                self._seen[index] = total
                self._classes[index] = _Windows(now)
                continue
            block = total.since(self._seen[index])
            self._seen[index] = total
            if block.count and self._classes[index].add(block, now):
                shifted.append(index)
        return shifted
