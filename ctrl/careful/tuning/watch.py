"""Whether live messages take as long as they did: windows of each class against a reference.

Owns when a shift counts: over the last windows, beyond what windows differ by anyway. Few of them
see a large shift soon, more of them a small one, or one of messages that scatter. What a shift
means (another path, other load, other messages) it cannot tell. Pure. Calls nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from careful.tuning.verify import Counts

#: A window closes after so many messages and so long, seconds, whichever is later.
WINDOW = (8, 0.18)
#: Windows that make a reference; fewer than the least say nothing.
REFERENCE_WINDOWS = 16
REFERENCE_WINDOWS_MIN = 3
#: The last windows that are compared with it.
SPANS = (2, 4, 8)
#: A shift is as large as this share of the reference, and as so many of its errors.
SHIFT_MIN = 0.15
SHIFT_SIGMAS = 5.0
#: The share of a span's windows that are beyond half of the least shift, to one side: one
#: that met a burst of other work is no shift.
AGREEING = 0.75
#: So many windows that are all beyond every one of a whole reference are a shift, too: by chance
#: they are so once in 120,000 times. Of messages that a stream holds up, now less and now more, the
#: reference scatters too much for the errors to tell.
BEYOND_ALL = 7


@dataclass
class _Windows:
    """One class's windows: the first make the reference, the last are compared with it."""

    began: float
    window: Counts = field(default_factory=Counts)
    kept: list[Counts] = field(default_factory=list)

    def add(self, block: Counts, now: float) -> bool:
        """Reports whether the class has shifted, now that these messages came."""
        self.window += block
        if self.window.count < WINDOW[0] or now - self.began < WINDOW[1]:
            return False
        self.kept.append(self.window)
        self.window, self.began = Counts(), now
        if len(self.kept) > REFERENCE_WINDOWS + SPANS[-1]:
            del self.kept[REFERENCE_WINDOWS]
        if any(self._shifted(span) for span in SPANS):
            return True
        return self._is_beyond_all()

    def _shifted(self, span: int) -> bool:
        reference = self.kept[:-span][:REFERENCE_WINDOWS]
        if len(reference) < max(REFERENCE_WINDOWS_MIN, span // 2):
            return False
        last = self.kept[-span:]
        means = [one.mean_us for one in reference]
        mean = sum(means) / len(means)
        shifts = [one.mean_us - mean for one in last]
        shift = sum(shifts) / span
        if abs(shift) <= SHIFT_MIN * mean:
            return False
        beyond = sum(math.copysign(1, shift) * one > SHIFT_MIN / 2 * mean for one in shifts)
        if beyond < AGREEING * span:
            return False
        between = sum((one - mean) ** 2 for one in means) / (len(means) - 1)
        # Few windows may look alike by chance: messages differ at least as they do inside one.
        inside = max(_inside_us2(reference), _inside_us2(last))
        error = math.sqrt(max(between, inside) * (1 / span + 1 / len(means)))
        return abs(shift) > SHIFT_SIGMAS * error

    def _is_beyond_all(self) -> bool:
        known = [one.mean_us for one in self.kept[:-BEYOND_ALL][:REFERENCE_WINDOWS]]
        if len(known) < REFERENCE_WINDOWS:
            return False
        last = [one.mean_us for one in self.kept[-BEYOND_ALL:]]
        if min(known) <= max(last) and min(last) <= max(known):
            return False
        mean = sum(known) / len(known)
        return abs(sum(last) / len(last) - mean) > SHIFT_MIN * mean


def _inside_us2(windows: Sequence[Counts]) -> float:
    return sum(one.variance_us2 / one.count for one in windows) / len(windows)


class Watch:
    """The live latencies of one path."""

    def __init__(self) -> None:
        self._seen: dict[int, Counts] = {}
        self._classes: dict[int, _Windows] = {}

    def reset(self) -> None:
        """Makes what comes from now on the reference: something known has changed."""
        self._classes.clear()
        self._seen.clear()

    def skip(self, totals: Mapping[int, Counts]) -> None:
        """Messages since the last look tell nothing: what they met will not be met again."""
        for index, total in totals.items():
            if index in self._seen:
                self._seen[index] = total
                self._classes[index].window = Counts()

    def look(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        """Classes that shifted.

        totals: what was counted so far, by class; now: seconds.
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
