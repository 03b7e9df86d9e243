"""The gap of a sender that never pauses; run on several hosts at once to find shared parts (P4).

If K senders share a bottleneck, each has K times the gap of a single sender. A run is timed in
slices, whose times show which slices of several hosts overlap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from careful.errors import InputError
from careful.measure.statistics.sample import Bursts, Figure, figure

#: Length of a slice, seconds: long compared with a request to carefuld.
_SLICE_S = 0.1
#: Number of first slices, which fill the network and are not steady.
_FILLING = 2
#: Most messages of a slice.
_MESSAGES_MAX = 16384


class Sender(Protocol):
    """Issues messages and leaves the last replies to the next call."""

    capacity: int

    def go_on(self, messages: int, /) -> Bursts: ...


@dataclass(frozen=True)
class Slice:
    """A part of a run.

    ended_s: wall clock, which the hosts share, seconds; messages: messages since the previous
    slice; at_s: the same time by the monotonic clock.
    """

    ended_s: float
    messages: int
    at_s: float


@dataclass
class Flood:
    """The result; gap_us: time between messages, over the steady slices."""

    gap_us: Figure
    slices: list[Slice] = field(default_factory=list)


def flood(sender: Sender, seconds: float, clock: Callable[[], float] = time.monotonic) -> Flood:
    """Issues messages without pause for `seconds`; every slice ends with the network full."""
    if not 0.5 <= seconds <= 3600:
        raise InputError(f"{seconds:g} s: the time must be 0.5 to 3600 s")
    began = clock()
    messages, slices = sender.capacity, []
    while True:
        sender.go_on(messages)
        slices.append(Slice(time.time(), messages, clock()))
        if slices[-1].at_s - began > seconds and len(slices) > _FILLING:
            break
        if len(slices) > 1:
            took_s = slices[-1].at_s - slices[-2].at_s
            wanted = round(messages * _SLICE_S / max(took_s, 1e-9))
            # Delayed replies can make one slice short, so the next is at most twice as long.
            messages = min(max(wanted, 1), 2 * messages, _MESSAGES_MAX)
        else:
            messages = max(sender.capacity // 8, 1)  # a full network may be slow
    return Flood(gap_of(slices), slices)


def gap_of(slices: list[Slice]) -> Figure:
    """Returns the gap over the slices, without the first ones."""
    ended_s = np.array([part.at_s for part in slices])
    messages = np.array([part.messages for part in slices[1:]])
    gaps = np.diff(ended_s) * 1e6 / messages
    most = int(messages.max(initial=1))
    return figure(gaps[_FILLING - 1 :], 1, most)
