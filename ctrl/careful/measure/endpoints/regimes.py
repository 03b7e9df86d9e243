"""The regimes of a LogP signature (P4 Figure 4): send only, transition, steady.

Finds their limits on a curve: the time to issue M messages, over M. The first line has the slope
os, the last line the gap. A line ends before the first point from which several points in a row
leave it (Netgauge's look-ahead rule). The rule is applied from the left and from the right. The
bursts themselves give the noise of a difference. A line may have only two points, because a short
path answers before the third message; `fit_piecewise` does not allow that.

A change of slope may be too small to see, or be seen late. So P4's model gives bounds, too: no
reply is taken before a round trip has passed, at most the capacity is under way, and a steady
network answers as many messages as it gets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.line import Array
from careful.measure.statistics.sample import locations

#: Points that must all leave a line before it ends.
LOOK_AHEAD = 3
#: A point leaves a line if it is this many standard errors away, plus these shares of the slope: a
#: fixed share, and a share for each message since the line's last point.
_LEAVES = 2.5
_APART, _SHARE = 0.25, 0.08
#: Points of the shortest line: send only, and steady.
_SEND_POINTS, _STEADY_POINTS = 2, 4
#: Share of bursts that must be within a time; the others may have been disturbed.
_MOST = 0.75


@dataclass(frozen=True)
class Regimes:
    """Indices of a curve's points.

    send_end: last point of the send-only regime; steady_begin: first point of the steady regime,
    None if the curve does not reach it. The transition in between may be empty.
    """

    send_end: int
    steady_begin: int | None


def find_regimes(messages: Array, times_us: Array, trip_us: float, capacity: int) -> Regimes:
    """Finds the regimes of a curve without computation.

    messages: shape (n,), ascending; times_us: shape (bursts, n), each row one burst; trip_us: the
    shortest round trip; capacity: most messages under way. With too few bursts for an interval, no
    point leaves a line.
    """
    send_end = _first_line(messages, times_us, _SEND_POINTS)
    unanswered = (np.quantile(times_us, _MOST, axis=0) <= trip_us) & (messages <= capacity)
    send_end = min(send_end, max(int(unanswered.sum()) - 1, 0))
    # From the right, the steady line is the first one.
    back = _first_line(-messages[::-1], -times_us[:, ::-1], _STEADY_POINTS)
    begin = len(messages) - 1 - back
    if begin > 0:
        begin += 1  # the bend is between two points, so the nearest may be on neither line
    begin = max(begin, int(np.searchsorted(messages, capacity, side="right")), send_end + 1)
    return Regimes(send_end, begin if len(messages) - begin >= _STEADY_POINTS else None)


def regimes_with_compute(messages: Array, times_us: Array, trip_us: float) -> Regimes:
    """Finds the regimes of a curve whose computation makes the sender the bottleneck.

    times_us: with the computation. No queue must fill first, so the steady regime begins two round
    trips after the first reply; earlier replies belong to the faster send-only regime.
    """
    times = np.quantile(times_us, _MOST, axis=0)
    send_end = max(int((times <= trip_us).sum()) - 1, 0)
    begin = max(int(np.searchsorted(times, 3 * trip_us)), send_end + 1)
    return Regimes(send_end, begin if len(messages) - begin >= _STEADY_POINTS else None)


def _first_line(x: Array, times: Array, points_min: int) -> int:
    """Returns the index of the last point on the line that begins at the first point."""
    for end in range(points_min, len(x)):
        run = float(x[end - 1] - x[0])
        slopes = (times[:, end - 1] - times[:, 0]) / run
        away = x[end : end + LOOK_AHEAD] - x[end - 1]
        off = times[:, end : end + LOOK_AHEAD] - times[:, [end - 1]] - slopes[:, None] * away
        means, errors, _ = locations(off)
        slope = abs(float(np.median(slopes)))
        least = _LEAVES * errors + slope * (_APART + _SHARE * away)
        if (means > least).all() or (means < -least).all():
            return end - 1
    return len(x) - 1
