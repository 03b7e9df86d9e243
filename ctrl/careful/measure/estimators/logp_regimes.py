"""The regimes of a LogP signature (P4 Figure 4): send only, transition, steady.

Owns where they begin and end on one curve, the time to issue M messages over M. Its first line
has the slope os, its last one the gap; each ends where the points ahead leave it together, as
Netgauge's look-ahead rule has it, once from the left and once from the right. The noise of a
difference comes from the bursts themselves, and lines may be two points long, for a short path
answers before the third message: that is why this is not `fit_piecewise`.

A change of slope may be too small to be seen (or beside os where the sender is the bottleneck),
or not have come yet. So what P4 knows of the regimes bounds them: no reply is taken before a
round trip has passed, at most the capacity is under way, and a steady network answers as many
messages as it is given. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.line import Array
from careful.measure.statistics.sample import locations

#: Points that leave a line together before it ends.
LOOK_AHEAD = 3
#: A point leaves at so many standard errors ...
_LEAVES = 2.5
#: ... and so much of the line's slope, in messages, and for each message since.
_APART, _SHARE = 0.25, 0.08
#: Points of the shortest line: to send only, and steady.
_SEND_POINTS, _STEADY_POINTS = 2, 4

#: The share of bursts that shall be within a time; the others may have been disturbed.
_MOST = 0.75


@dataclass(frozen=True)
class Regimes:
    """Indices of a curve's points.

    send_end: last one of the send-only regime; steady_begin: first one of the steady regime,
    None where the curve does not reach it. Between them is the transition, which may be empty.
    """

    send_end: int
    steady_begin: int | None


def find_regimes(messages: Array, times_us: Array, trip_us: float, capacity: int) -> Regimes:
    """The regimes of a curve without computation.

    messages: shape (n,), ascending; times_us: shape (bursts, n), of the same bursts throughout;
    trip_us: the shortest round trip; capacity: messages under way at most. With too few bursts
    for an interval nothing leaves any line.
    """
    send_end = _first_line(messages, times_us, _SEND_POINTS)
    unanswered = (np.quantile(times_us, _MOST, axis=0) <= trip_us) & (messages <= capacity)
    send_end = min(send_end, max(int(unanswered.sum()) - 1, 0))
    # Seen from the right, the steady line is the first one.
    back = _first_line(-messages[::-1], -times_us[:, ::-1], _STEADY_POINTS)
    begin = len(messages) - 1 - back
    if begin > 0:
        begin += 1  # the bend lies between two points: the nearest may be on neither line
    begin = max(begin, int(np.searchsorted(messages, capacity, side="right")), send_end + 1)
    return Regimes(send_end, begin if len(messages) - begin >= _STEADY_POINTS else None)


def regimes_with_compute(messages: Array, times_us: Array, trip_us: float) -> Regimes:
    """The regimes of a curve whose computation makes the sender the bottleneck.

    times_us: computation included. Nothing has to fill up: steady is what comes after the
    first reply, and two round trips later, for replies to the send-only regime come too fast.
    """
    times = np.quantile(times_us, _MOST, axis=0)
    send_end = max(int((times <= trip_us).sum()) - 1, 0)
    begin = max(int(np.searchsorted(times, 3 * trip_us)), send_end + 1)
    return Regimes(send_end, begin if len(messages) - begin >= _STEADY_POINTS else None)


def _first_line(x: Array, times: Array, points_min: int) -> int:
    """Index of the last point on the line that begins at the first one."""
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
