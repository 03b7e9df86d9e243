"""Time of a stage that gathers frames into pulses (P3 section 3): the receiver's store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

#: A message of more frames is simulated as this many bunches.
_FRAMES_MAX = 128


def pulsed_us(
    totals_bytes: Sequence[float],
    arrived_us: Sequence[float],
    pulse_bytes: float,
    g_us: float,
    G_us_per_byte: float,
) -> float:
    """Returns the time at which the last pulse ends, µs.

    totals_bytes, arrived_us: cumulative bytes and their arrival times, ascending. A pulse begins
    when the stage is idle and at least pulse_bytes, or the tail, are buffered; it takes all that is
    buffered. With pulse_bytes 0 a pulse begins as soon as anything is buffered.
    """
    now_us, taken, last = 0.0, 0.0, len(totals_bytes) - 1
    while taken < totals_bytes[last]:
        first = bisect_right(totals_bytes, taken)  # index of the first arrival beyond `taken`
        due = min(max(bisect_left(totals_bytes, taken + pulse_bytes), first), last)
        now_us = max(now_us, arrived_us[due])
        ready = totals_bytes[bisect_right(arrived_us, now_us) - 1]
        now_us += g_us + G_us_per_byte * (ready - taken)
        taken = ready
    return now_us


def written_us(
    message_bytes: float,
    frames_count: int,
    came_us: float,
    pulse_bytes: float,
    g_us: float,
    G_us_per_byte: float,
) -> float:
    """Returns the time from a message's first frame until all is written, µs.

    came_us: time from the first frame to the last; frames arrive evenly in between.
    """
    count = min(frames_count, _FRAMES_MAX)
    totals_bytes = [message_bytes * (k + 1) / count for k in range(count)]
    arrived_us = [came_us * k / max(1, count - 1) for k in range(count)]
    return pulsed_us(totals_bytes, arrived_us, pulse_bytes, g_us, G_us_per_byte)
