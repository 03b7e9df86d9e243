"""One curve of a signature (P4): what bursts with the same computation between requests took.

Owns the bursts, which regimes the curve has, and how far its slopes may be believed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from careful.measure.estimators.logp_regimes import Regimes, find_regimes, regimes_with_compute
from careful.measure.statistics.line import Array
from careful.measure.statistics.sample import (
    Bursts,
    Figure,
    figure,
    locations,
    undisturbed,
)

#: The share of round trips that are shorter than any reply of a burst may be.
_SOON = 0.1
#: Of a slope: what is no difference, and what the replies may leave open of a steady one.
_ALIKE, _OPEN = 0.005, 0.04
#: Bursts so much longer than their parts, most of which nothing disturbed.
_DISTURBED = 0.1
#: Messages under way that take less than so many round trips may all wait for the first reply.
_STALLS = 1.25
#: Messages of bursts that show os alone: the shorter they are, the fewer are disturbed.
_SENDS = 8


class Curve:
    """The signature at one D: compute_us, its bursts, and its regimes.

    trips_us: round trips, shape (n,): no reply comes earlier than the shortest ones; capacity:
    messages under way at most.
    """

    def __init__(self, compute_us: float, bursts: Bursts, trips_us: Array, capacity: int) -> None:
        self.compute_us, self.bursts = compute_us, bursts
        self._trips_us, self._capacity = trips_us, capacity
        self._sends_us: Array = np.empty(0)
        self._seen()

    def add(self, bursts: Bursts) -> None:
        """Further bursts of the same kind."""
        self.bursts = self.bursts + bursts
        self._seen()

    def send_marks(self) -> list[int]:
        """The marks of bursts for add_sends(): they end before the first reply."""
        marks = self.bursts.marks[: self.regimes.send_end + 1]
        return [int(mark) for mark in marks if mark <= _SENDS]

    def add_sends(self, bursts: Bursts) -> None:
        """Further bursts of which os alone is read."""
        slopes = _slopes(bursts.marks, bursts.elapsed_us - bursts.computed_us, 0, -1)
        self._sends_us = np.concatenate([self._sends_us, slopes])

    def _seen(self) -> None:
        marks, soon_us = self.bursts.marks, float(np.quantile(self._trips_us, _SOON))
        if self.compute_us:
            self.regimes = regimes_with_compute(marks, self.bursts.elapsed_us, soon_us)
        else:
            self.regimes = find_regimes(marks, self._issuing(), soon_us, self._capacity)
        self.disturbed = self._disturbed()
        self.open_us = self._open_us()
        steady = self._steady_slope().estimate
        wide = steady and self.open_us > _OPEN * (steady.value + self.compute_us)
        if wide or self.disturbed:
            self.regimes = Regimes(self.regimes.send_end, None)

    def _disturbed(self) -> bool:
        """Reports whether other work came between in most bursts: the rest tells no gap."""
        elapsed = self.bursts.elapsed_us
        whole = locations(elapsed[:, -1] - elapsed[:, 0])[0][0]
        parts = undisturbed(np.diff(elapsed, axis=1)).sum(axis=1)
        return bool(whole > (1 + _DISTURBED) * locations(parts)[0][0])

    def _open_us(self) -> float:
        """How far the steady slope may be from the gap, for all that the replies tell, µs.

        Until the last reply M gaps have passed where the sender is the bottleneck, else M - 1
        and a trip. A slope below the two is of messages that pile up, one above of a pile that
        shrinks, however straight the curve, and the gap is between them. With the sender's own
        pace, or with no more under way than a trip takes, messages go in waves: the curve has
        to be long beside a trip.
        """
        steady, messages = self._steady_slope().estimate, float(self.bursts.marks[-1])
        if not steady:
            return 0.0
        done, trip = (float(locations(one)[0][0]) for one in (self.bursts.done_us, self._trips_us))
        slope = steady.value + self.compute_us
        least, most = (done - trip) / (messages - 1), done / messages
        if self.compute_us:
            return max(least - slope, 0.0)  # the sender is slow enough, or messages pile up
        unsure = max(steady.half, _ALIKE * slope)
        if abs(slope - least) <= unsure and slope * self._capacity > _STALLS * trip:
            return max(abs(slope - least), _ALIKE * slope)
        return max(most - slope, slope - least)

    def _steady_slope(self) -> Figure:
        begin = self.regimes.steady_begin
        if begin is None:
            last = int(self.bursts.marks[-1])
            reason = f"no steady regime within {last} messages"
            if self.disturbed:
                reason = f"other work came between in most bursts of {last} messages"
            return Figure(None, self.samples_count, 0, last, last, reason)
        return self._slope(begin, len(self.bursts.marks) - 1)

    def _issuing(self) -> Array:
        """Time without computation: what is left is the layer's, also where D took longer."""
        return self.bursts.elapsed_us - self.bursts.computed_us

    @property
    def samples_count(self) -> int:
        """Bursts."""
        return len(self.bursts.done_us)

    @property
    def send_messages(self) -> int:
        """Messages until the first reply."""
        return int(self.bursts.marks[self.regimes.send_end])

    @property
    def steady_messages(self) -> int | None:
        """Messages from which on the slope does not change; None: not reached."""
        begin = self.regimes.steady_begin
        return None if begin is None else int(self.bursts.marks[begin])

    def costs(self) -> tuple[Array, Array]:
        """Message cost with D, µs, and its standard error at each mark, as in P4's figures."""
        means, errors, _ = locations(self._issuing() / self.bursts.marks)
        return means + self.compute_us, errors

    def overhead(self) -> Figure:
        """Slope of the send-only regime: os."""
        end, marks = self.regimes.send_end, self.bursts.marks
        slopes = _slopes(marks, self._issuing(), 0, end)
        samples = np.concatenate([slopes, self._sends_us])
        return figure(samples, int(marks[0]), int(marks[end]))

    def steady(self) -> Figure:
        """Slope of the steady regime without D: g, or os + or.

        The interval of g has what its replies leave open.
        """
        found = self._steady_slope()
        if self.compute_us or not found.estimate:
            return found
        one = replace(found.estimate, slack=self.open_us)
        return replace(found, estimate=one)

    def _slope(self, first: int, last: int) -> Figure:
        marks = self.bursts.marks
        slopes = _slopes(marks, self._issuing(), first, last)
        return figure(slopes, int(marks[first]), int(marks[last]))


def _slopes(marks: Array, times: Array, first: int, last: int) -> Array:
    """Returns each burst's slope between two marks, µs."""
    low, high = marks[first], marks[last]
    if low == high:  # the first reply came before the second message
        slopes: Array = times[:, last] / high
        return slopes
    found: Array = (times[:, last] - times[:, first]) / (high - low)
    return found
