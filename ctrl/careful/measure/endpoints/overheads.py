"""Checks os and or for consistency.

P4 assumes that os is the same in a burst and with computation after each request, and that each
overhead is below half of a round trip. These functions report data that contradict this.
"""

from __future__ import annotations

from dataclasses import replace

from careful.measure.statistics.sample import Figure

#: A request may take longer after a pause, by this share of `or`, without a note.
_SHARE = 0.2


def plausible(overhead: Figure, rtt: Figure, why: str) -> Figure:
    """Withholds an overhead that is more than half of a round trip, which is 2 (os + L + or).

    why: the likely reason, apart from other work.
    """
    cost, trip = overhead.estimate, rtt.estimate
    if not (cost and trip and (cost * 2 - trip).low > 0):
        return overhead
    reason = (
        f"2 × {cost.value:.3g} µs is more than the round trip of {trip.value:.3g}: "
        f"{why}, or other work disturbed it"
    )
    return replace(overhead, estimate=None, reason=reason)


def notes(os: Figure, or_: Figure, os_D: Figure) -> list[str]:
    """Returns notes about inconsistent figures; os_D: time to send a request after D, µs."""
    if not (os.estimate and or_.estimate and os_D.estimate):
        return []
    more = os_D.estimate - os.estimate
    if more.low <= 0 or more.value <= _SHARE * or_.estimate.value:
        return []
    return [
        f"after a pause D, a request takes {os_D.estimate.value:.3g} µs to send, {more.value:.3g} "
        f"±{more.half:.3g} more than os; curves with D include this time, the figure `or` does not"
    ]
