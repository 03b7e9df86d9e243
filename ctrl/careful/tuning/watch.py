"""Whether live messages take as long as they did: windows of each class against a reference.

Owns when a shift counts: in two windows running, beyond what windows differ by anyway. Short
windows see a large shift soon, long ones a small one. What a shift means (another path, other
load, other messages) it cannot tell. Pure. Calls nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from careful.tuning.verify import Counts

#: A window closes after so many messages and so long, seconds, whichever is later: short, long.
WINDOWS = ((8, 0.18), (24, 0.55))
#: Windows that make a reference; fewer than the least say nothing.
REFERENCE_WINDOWS = 16
REFERENCE_WINDOWS_MIN = 3
#: A shift is as large as this share of the reference, and as so many of its errors.
SHIFT_MIN = 0.15
SHIFT_SIGMAS = 4.0
#: Windows in turn that agree on a shift.
AGREEING = 2


@dataclass
class _Windows:
    """One class's windows of one length."""

    least: tuple[int, float]  # messages and seconds of a window
    began: float
    window: Counts = field(default_factory=Counts)
    reference: list[Counts] = field(default_factory=list)
    agreeing: int = 0  # windows in turn above (> 0) or below (< 0) the reference

    def add(self, block: Counts, now: float) -> bool:
        """Whether the class has shifted, now that these messages came."""
        self.window += block
        if self.window.count < self.least[0] or now - self.began < self.least[1]:
            return False
        window, self.window, self.began = self.window, Counts(), now
        way = self._way(window)
        if way:
            self.agreeing = self.agreeing + way if self.agreeing * way > 0 else way
        else:
            self.agreeing = 0
            if len(self.reference) < REFERENCE_WINDOWS:
                self.reference.append(window)
        return abs(self.agreeing) >= AGREEING

    def _way(self, window: Counts) -> int:
        """1: longer than the reference, -1: shorter, 0: neither, or nothing to compare with."""
        if len(self.reference) < REFERENCE_WINDOWS_MIN:
            return 0
        means = [one.mean_us for one in self.reference]
        mean = sum(means) / len(means)
        between = sum((one - mean) ** 2 for one in means) / (len(means) - 1)
        # Few windows may look alike by chance: messages differ at least as they do inside one.
        inside = max(window.variance_us2, self._variance_us2()) / window.count
        error = math.sqrt(max(between, inside) * (1 + 1 / len(means)))
        shift = window.mean_us - mean
        if abs(shift) <= max(SHIFT_MIN * mean, SHIFT_SIGMAS * error):
            return 0
        return 1 if shift > 0 else -1

    def _variance_us2(self) -> float:
        """Of single messages, in the reference's windows."""
        return sum(one.variance_us2 for one in self.reference) / len(self.reference)


class Watch:
    """The live latencies of one path."""

    def __init__(self) -> None:
        self._seen: dict[int, Counts] = {}
        self._classes: dict[int, list[_Windows]] = {}

    def reset(self) -> None:
        """What comes from now on is the reference: something has changed that we know of."""
        self._classes.clear()
        self._seen.clear()

    def skip(self, totals: Mapping[int, Counts]) -> None:
        """Messages since the last look tell nothing: what they met will not be met again."""
        for index, total in totals.items():
            if index in self._seen:
                self._seen[index] = total
                for one in self._classes[index]:
                    one.window = Counts()

    def look(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        """Classes that shifted.

        totals: what was counted so far, by class; now: seconds.
        """
        shifted = []
        for index, total in totals.items():
            if index not in self._seen:
                self._seen[index] = total
                self._classes[index] = [_Windows(least, now) for least in WINDOWS]
                continue
            block = total.since(self._seen[index])
            self._seen[index] = total
            # Every length takes the block, whatever another one says of it.
            if not block.count:
                continue
            said = [one.add(block, now) for one in self._classes[index]]
            if any(said):
                shifted.append(index)
        return shifted
