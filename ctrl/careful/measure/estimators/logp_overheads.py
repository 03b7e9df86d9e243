"""What a signature leaves open of os and or. Pure.

P4 takes os for the same in a burst and with computation after each request, and a send for over
before its reply is there. Where the data say otherwise, so do we: or is what a request after D
takes more once replies come than before.
"""

from __future__ import annotations

from dataclasses import replace

from careful.measure.statistics.sample import Figure

#: Of or: what a request after a pause may take beyond os without a word.
_SHARE = 0.2


def told(overhead: Figure, rtt: Figure) -> Figure:
    """What a send takes, withheld where a round trip, 2 (os + L + or), has no room for it."""
    os, trip = overhead.estimate, rtt.estimate
    if not (os and trip and (os * 2 - trip).low > 0):
        return overhead
    reason = (
        f"2 × {os.value:.3g} µs is more than the round trip of {trip.value:.3g}: "
        "a reply is there before its send ends, or other work came between"
    )
    return replace(overhead, estimate=None, reason=reason)


def sent_after_compute(os: Figure, os_D: Figure) -> Figure:
    """What a request after D takes to send: os, where nothing else is seen."""
    if not (os.estimate and os_D.estimate):
        return os
    more = os_D.estimate - os.estimate
    return os_D if abs(more.value) > more.half else os


def doubts(os: Figure, or_: Figure, os_D: Figure, at_most: bool) -> list[str]:
    """Notes; os_D: what a request takes to send after D, before any reply; all µs.

    at_most: or was read as if os were the same after D.
    """
    if not (os.estimate and or_.estimate and os_D.estimate):
        return []
    more = os_D.estimate - os.estimate
    if more.low <= 0 or more.value <= _SHARE * or_.estimate.value:
        return []
    return [
        f"after D, a request takes {os_D.estimate.value:.3g} µs to send, {more.value:.3g} "
        f"±{more.half:.2g} more than os, before any reply is there; "
        + (
            "later ones take less, and or is at most what is said: it has what D adds to them"
            if at_most
            else "or is what requests after D take beyond that"
        )
    ]
