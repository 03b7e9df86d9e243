"""One curve of a signature (P4): bursts with the same computation between requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from careful.measure.endpoints.regimes import Regimes, find_regimes, regimes_with_compute
from careful.measure.statistics.line import Array
from careful.measure.statistics.sample import Bursts, Figure, figure, locations, undisturbed

#: Quantile of the round trips that counts as the earliest reply of a burst.
_SOON = 0.1
#: Shares of a slope: a difference below _ALIKE is none; with an error above _OPEN it is not steady.
_ALIKE, _OPEN = 0.005, 0.04
#: Most bursts were disturbed if whole bursts take this share longer than their undisturbed parts.
_DISTURBED = 0.1
#: If a full network takes less than this many round trips, all messages may wait for one reply.
_STALLS = 1.25
#: Most messages of the bursts for os: short bursts are seldom disturbed.
_SENDS = 8


class Curve:
    """The signature at one D: compute_us, its bursts, and its regimes.

    trips_us: round trips, shape (n,); capacity: most messages under way.
    """

    def __init__(self, compute_us: float, bursts: Bursts, trips_us: Array, capacity: int) -> None:
        self.compute_us, self.bursts = compute_us, bursts
        self._trips_us, self._capacity = trips_us, capacity
        self._send_slopes_us: Array = np.empty(0)
        self._find_regimes()

    def add(self, bursts: Bursts) -> None:
        self.bursts = self.bursts + bursts
        self._find_regimes()

    def send_marks(self) -> list[int]:
        """Returns the marks of bursts for add_sends(), all before the first reply."""
        marks = self.bursts.marks[: self.regimes.send_end + 1]
        return [int(mark) for mark in marks if mark <= _SENDS]

    def add_sends(self, bursts: Bursts) -> None:
        slopes = _slopes(bursts.marks, bursts.elapsed_us - bursts.computed_us, 0, -1)
        self._send_slopes_us = np.concatenate([self._send_slopes_us, slopes])

    def _find_regimes(self) -> None:
        marks, soon_us = self.bursts.marks, float(np.quantile(self._trips_us, _SOON))
        if self.compute_us:
            self.regimes = regimes_with_compute(marks, self.bursts.elapsed_us, soon_us)
        else:
            self.regimes = find_regimes(marks, self._without_compute(), soon_us, self._capacity)
        self.disturbed = self._disturbed()
        self.open_us = self._open_us()
        steady = self._steady_slope().estimate
        wide = steady and self.open_us > _OPEN * (steady.value + self.compute_us)
        if wide or self.disturbed:
            self.regimes = Regimes(self.regimes.send_end, None)

    def _disturbed(self) -> bool:
        """Reports whether other work disturbed most bursts, so that there is no gap."""
        elapsed = self.bursts.elapsed_us
        whole = locations(elapsed[:, -1] - elapsed[:, 0])[0][0]
        parts = undisturbed(np.diff(elapsed, axis=1)).sum(axis=1)
        return bool(whole > (1 + _DISTURBED) * locations(parts)[0][0])

    def _open_us(self) -> float:
        """Returns how far the steady slope may be from the gap according to the replies, µs.

        At the last reply, M gaps have passed if the sender is the bottleneck, else M - 1 gaps and a
        round trip. So the gap is between two bounds. A slope below both means that messages pile
        up; a slope above both, that the pile shrinks. If the slope is the sender's own pace, or at
        most a round trip's worth is under way, messages go in waves: the curve must then be long.
        """
        steady, messages = self._steady_slope().estimate, float(self.bursts.marks[-1])
        if not steady:
            return 0.0
        done, trip = (
            float(locations(times)[0][0]) for times in (self.bursts.done_us, self._trips_us)
        )
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
                reason = f"other work disturbed most bursts of {last} messages"
            return Figure(None, self.samples_count, 0, last, last, reason)
        return self._slope(begin, len(self.bursts.marks) - 1)

    def _without_compute(self) -> Array:
        """Returns the layer's own time, without the computation as it was timed."""
        return self.bursts.elapsed_us - self.bursts.computed_us

    @property
    def samples_count(self) -> int:
        return len(self.bursts.done_us)

    @property
    def send_messages(self) -> int:
        return int(self.bursts.marks[self.regimes.send_end])

    @property
    def steady_messages(self) -> int | None:
        """Number of messages from which the slope is constant; None: not reached."""
        begin = self.regimes.steady_begin
        return None if begin is None else int(self.bursts.marks[begin])

    def costs(self) -> tuple[Array, Array]:
        """Returns the time of a message, with D, and its standard error at each mark, µs."""
        means, errors, _ = locations(self._without_compute() / self.bursts.marks)
        return means + self.compute_us, errors

    def overhead(self) -> Figure:
        end, marks = self.regimes.send_end, self.bursts.marks
        slopes = _slopes(marks, self._without_compute(), 0, end)
        samples = np.concatenate([slopes, self._send_slopes_us])
        return figure(samples, int(marks[0]), int(marks[end]))

    def steady(self) -> Figure:
        """Returns the slope of the steady regime without D: g, or os + or.

        The interval of g includes the uncertainty from the replies.
        """
        slope = self._steady_slope()
        if self.compute_us or not slope.estimate:
            return slope
        estimate = replace(slope.estimate, slack=self.open_us)
        return replace(slope, estimate=estimate)

    def _slope(self, first: int, last: int) -> Figure:
        marks = self.bursts.marks
        slopes = _slopes(marks, self._without_compute(), first, last)
        return figure(slopes, int(marks[first]), int(marks[last]))


def _slopes(marks: Array, times: Array, first: int, last: int) -> Array:
    low, high = marks[first], marks[last]
    if low == high:  # the first reply came before the second message
        slopes: Array = times[:, last] / high
        return slopes
    regression: Array = (times[:, last] - times[:, first]) / (high - low)
    return regression
