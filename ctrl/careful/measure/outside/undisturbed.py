"""Round trips and trains on a busy path: keeps those that other traffic did not disturb.

The peer's XDP records the arrival of each frame of this host, of any program. In a train, the
frames count between which no other frame arrived. A round trip counts if it found the path idle. So
the two regressions of P1 section 5.3.2 hold under traffic, too.

Small frames behind a larger frame pile up at a later stage, and arrive at that stage's pace until
the pile is gone. So a train is longer on a busy path, and only its end counts.
"""

from __future__ import annotations

import errno
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from careful._abi import sizeof
from careful.errors import CarefulError
from careful.measure.outside import blackbox
from careful.measure.probes.exchange import Arrival
from careful.measure.statistics.line import train_gap_us
from careful.measure.statistics.oneway import Trip

#: Bytes before the payload in a request's frame.
_HEAD_BYTES = sizeof("careful_am")
#: A frame that arrives more than this many gaps after the frame before found the bottleneck idle.
_IDLE_GAPS = 1.5
#: Least frames of a train that lie together.
_RUN_MIN = 3
#: Frames from this share of the largest size count as largest: a first fragment has a header more.
_ALIKE = 0.9
#: Number of the larger frame's gaps after which its pile counts as gone. If a later stage's gap
#: differs from the bottleneck's by less than one part in this many, a pile may remain; the error
#: is then below that share.
_PILE_GAPS = 12.0
#: Most attempts for a train; there are twice as many for a round trip.
TRIES = 20
#: Most frames of a train: the peer keeps some 250 arrivals.
_TRAIN_MAX = 128
#: Most round trips of a record.
_TRIPS_MAX = 20
#: Errors of a peer that cannot record now, or not at all.
_NO_RECORD = (errno.ENOSYS, errno.EBUSY, errno.ENOENT)


class Recorder(blackbox.Exchange, Protocol):
    """The way to the other end, which records the arrivals of all our frames."""

    def record(self) -> None: ...

    def arrivals(self) -> list[Arrival]: ...


class Undisturbed:
    """An exchange (blackbox.Exchange) whose times other traffic did not disturb.

    While the peer cannot record arrivals, all times count.

    Args:
        inner: the exchange.
        sleep: seconds.
        tries: most attempts for a train; for round trips, twice as many.

    Attributes:
        disturbed: trains and round trips that do not count.
    """

    def __init__(
        self,
        inner: Recorder,
        sleep: Callable[[float], None] = time.sleep,
        tries: int = TRIES,
    ) -> None:
        self._inner, self._sleep, self._tries = inner, sleep, tries
        self._random = random.Random(1)
        self.payload_max_bytes, self.credits = inner.payload_max_bytes, inner.credits
        self.train_max = min(inner.train_max, _TRAIN_MAX)
        self.disturbed = 0
        self._gaps_us: dict[int, float] = {}  # of trains, by their payload
        self._paces_us: dict[int, float] = {}  # also of trains that do not count
        self._larger_us = 0.0  # gap of the largest live frames
        self._state: Literal["new", "records", "cannot"] = "new"

    def _records(self) -> bool:
        """Begins a record unless one is under way; reports whether one is."""
        if self._state == "new":
            try:
                self._inner.record()
                self._state = "records"
            except CarefulError as error:
                if error.errno not in _NO_RECORD:
                    raise
                if error.errno == errno.ENOSYS:
                    self._state = "cannot"  # else later: another host, or our last session, records
        return self._state == "records"

    def _arrivals(self) -> list[Arrival]:
        try:
            return self._inner.arrivals()
        except CarefulError as error:
            if error.errno not in _NO_RECORD:
                raise
            self._state = "new"  # the session began anew
            return []

    def _gap_us(self, size_bytes: int) -> float:
        """Returns the gap of frames of this size or, as far as known, of larger ones."""
        known = self._gaps_us
        larger = [size for size in known if size >= size_bytes]
        return known[min(larger)] if larger else max(known.values(), default=0.0)

    def _note_larger(self, arrivals: Sequence[Arrival], nbytes: int) -> None:
        """Stores the gap of the largest live frames of a record, if they are larger than ours."""
        most = max((one.nbytes for one in arrivals), default=0)
        gaps = [
            later.at_us - one.at_us
            for one, later in pairwise(arrivals)
            if most > nbytes and min(one.nbytes, later.nbytes) > _ALIKE * most
        ]
        if gaps:
            self._larger_us = statistics.median(gaps)

    def _train_frames(self, size_bytes: int, count: int) -> int:
        """Returns `count`; on a busy path more, so that `count` frames remain behind a pile."""
        if not (self.disturbed and self._paces_us):
            return count
        sizes = sorted(self._paces_us)
        pace_us = np.interp(size_bytes, sizes, [self._paces_us[size] for size in sizes])
        pile = math.ceil(_PILE_GAPS * self._larger_us / max(float(pace_us), 1e-3))
        return min(count + pile, self.train_max)

    def _fall_out_of_step(self, took_us: float) -> None:
        """Waits a random time: a program that waits for answers may be in step with us."""
        self._sleep(self._random.uniform(0, took_us) / 1e6)

    def round_trips(self, size_bytes: int, count: int) -> list[Trip]:
        """Returns up to `count` round trips that met an idle path; none, if all waited."""
        found: list[Trip] = []
        tried = 0
        while tried < 2 * self._tries:
            some = min(count - len(found), _TRIPS_MAX)
            if not self._records():
                return self._inner.round_trips(size_bytes, count)
            trips = self._some_trips(size_bytes, some)
            gap_us = self._gap_us(size_bytes)
            idle = _met_idle(self._arrivals(), size_bytes + _HEAD_BYTES, trips, gap_us)
            found += idle
            self.disturbed += some - len(idle)
            tried += some
            if len(found) >= count or (found and tried > count):
                break
            self._fall_out_of_step(trips[-1].round_us)
        return found

    def _some_trips(self, size_bytes: int, count: int) -> list[Trip]:
        """Sends `count` messages; on a busy path one by one, out of step with live messages."""
        if not self.disturbed:
            return self._inner.round_trips(size_bytes, count)
        trips: list[Trip] = []
        for _ in range(count):
            if trips:
                self._fall_out_of_step(trips[-1].round_us)
            trips += self._inner.round_trips(size_bytes, 1)
        return trips

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        """Returns the arrivals of those frames of a train that lie together, and our own pace.

        The peer's handlers record arrivals, too. Their times count if they are further apart than
        XDP's: then the peer itself is the bottleneck.
        """
        for _ in range(self._tries):
            records, frames = self._records(), self._train_frames(size_bytes, count)
            handled, own_us = self._inner.train_us(size_bytes, frames)
            arrivals = self._arrivals() if records else []
            self._note_larger(arrivals, size_bytes + _HEAD_BYTES)
            pile_us = _PILE_GAPS * self._larger_us
            run = _longest(arrivals, size_bytes + _HEAD_BYTES, frames, pile_us)
            if run is None:
                return handled, own_us
            self._paces_us[size_bytes] = train_gap_us(handled)
            if len(run) < min(_RUN_MIN, count):
                self.disturbed += 1
                self._fall_out_of_step(handled[-1] - handled[0])
                continue
            seen = [arrivals[i].at_us for i, _ in run]
            theirs = [handled[k] for _, k in run]
            times = max(seen, theirs, key=train_gap_us)
            self._gaps_us[size_bytes] = train_gap_us(seen)
            return times, own_us
        return [], own_us


def _longest(
    arrivals: Sequence[Arrival], nbytes: int, count: int, pile_us: float
) -> Sequence[tuple[int, int]] | None:
    """Returns the longest run of a train's frames, as indices of arrivals and of the train.

    None: the record does not show which frames are the train's. Behind a larger frame a run counts
    only after `pile_us`; never if that is 0 (unknown).
    """
    frames = [i for i, one in enumerate(arrivals) if one.nbytes == nbytes]
    if len(frames) != count:  # another frame has that size, or the record is too short
        return None
    runs: list[list[tuple[int, int]]] = [[]]
    for k, i in enumerate(frames):
        if runs[-1] and (arrivals[i].others or runs[-1][-1][0] != i - 1):
            runs.append([])
        runs[-1].append((i, k))
    return max((_without_pile(arrivals, run, pile_us) for run in runs), key=len)


def _without_pile(
    arrivals: Sequence[Arrival], run: list[tuple[int, int]], pile_us: float
) -> list[tuple[int, int]]:
    if not run or _alone(arrivals, run):
        return run
    from_us = arrivals[run[0][0]].at_us + (pile_us or math.inf)
    return [one for one in run if arrivals[one[0]].at_us >= from_us]


def _alone(arrivals: Sequence[Arrival], run: Sequence[tuple[int, int]]) -> bool:
    """Reports whether no frame before a run, back to the last pause, was larger."""
    at, end = run[0][0], run[-1][0] + 1
    gaps = [later.at_us - one.at_us for one, later in pairwise(arrivals[at:end])]
    pause_us = _IDLE_GAPS * max(gaps, default=0.0)
    for i in range(at, 0, -1):
        if arrivals[i].at_us - arrivals[i - 1].at_us > pause_us:
            return True
        if arrivals[i - 1].nbytes > arrivals[at].nbytes:
            return False
    return True  # nothing came before


def _met_idle(
    arrivals: Sequence[Arrival], nbytes: int, trips: Sequence[Trip], gap_us: float
) -> Sequence[Trip]:
    """Returns the trips whose message had no frame shortly before it, with the time since XDP.

    gap_us: between frames of that size that queue at the bottleneck.
    """
    probes = [i for i, one in enumerate(arrivals) if one.nbytes == nbytes]
    if len(probes) != len(trips):  # as in _longest(): all count
        return trips
    found = []
    for i, trip in zip(probes, trips, strict=True):
        before = i - 1
        while before >= 0 and before in probes:  # answered before this one left
            before -= 1
        at_us = arrivals[i].at_us
        late_us = at_us - arrivals[before].at_us if before >= 0 else float("inf")
        if not arrivals[i].others and late_us > _IDLE_GAPS * gap_us:
            found.append(replace(trip, host_us=trip.sent_us + trip.one_way_us - at_us))
    return found
