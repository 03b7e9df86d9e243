"""The regimes of a LogP signature (P4 Figure 4): send only, transition, steady.

Owns where they begin and end on one curve, the time to issue M messages over M. Its first line
has the slope os, its last one the gap; each ends where the points ahead leave it together, as
Netgauge's look-ahead rule has it, once from the left and once from the right. The noise of a
difference comes from the bursts themselves, and lines may be two points long, for a short path
answers before the third message: that is why this is not `fit_piecewise`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from careful.measure.line import Array
from careful.measure.sample import locations

#: Points that leave a line together before it ends.
LOOK_AHEAD = 3
#: A point leaves at so many standard errors ...
_LEAVES = 2.5
#: ... and so much of the line's slope, in messages, and for each message since.
_APART, _SHARE = 0.25, 0.08
#: Points of the shortest line: to send only, and steady.
_SEND_POINTS, _STEADY_POINTS = 2, 4


@dataclass(frozen=True)
class Regimes:
    """Indices of a curve's points.

    send_end: last one of the send-only regime; steady_begin: first one of the steady regime,
    None where the curve does not reach it. Between them is the transition, which may be empty.
    """

    send_end: int
    steady_begin: int | None


def find_regimes(messages: Array, times_us: Array) -> Regimes:
    """The regimes of one curve.

    messages: shape (n,), ascending; times_us: shape (bursts, n), of the same bursts throughout.
    With too few bursts for an interval nothing leaves any line.
    """
    send_end = _first_line(messages, times_us, _SEND_POINTS)
    # Seen from the right, the steady line is the first one.
    back = _first_line(-messages[::-1], -times_us[:, ::-1], _STEADY_POINTS)
    begin = len(messages) - 1 - back
    if begin == 0 or back == 0:
        return Regimes(len(messages) - 1, None)  # one line from end to end
    if begin <= send_end:  # the lines meet: the points near the bend are on both
        begin, send_end = max(begin, send_end - 1), min(begin, send_end)
    # The bend lies between two points: the nearest to it may belong to neither line.
    if send_end > LOOK_AHEAD:
        send_end -= 1
    begin += 1
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
