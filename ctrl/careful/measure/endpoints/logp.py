"""LogP of a path as seen by its endpoints (P4): os, or, g and L from a signature.

Owns the plan of the bursts and the parameters from their curves (logp_curve.py). A burst issues M
requests with computation of length D after each. A curve is the burst's time over M, one curve per
D. Its slope is os before the first reply, g in a full network, and os + or + D if D exceeds the
sender's idle time. P4 derives `or` from the last slope. But after a pause a request can take longer
(sleeping forwarder, cold caches), by more than `or`. So `or` is timed alone: a request, a pause in
which its reply arrives, and the time to take the reply (Kielmann, Bal and Verstoep: Fast
Measurement of LogP Parameters, 2000). L is half a round trip minus os and `or`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from careful.errors import InputError
from careful.measure.endpoints.curve import Curve
from careful.measure.endpoints.overheads import notes as overhead_notes
from careful.measure.endpoints.overheads import plausible
from careful.measure.endpoints.predict import BY_GAP, BY_STEPS, Trial, by_gap_us, by_steps_us
from careful.measure.statistics.sample import SAMPLES_MIN, Bursts, Figure, figure, supported

#: Bursts between two looks at the figures (P4: for the cache's sake).
BATCH = 50
#: D as multiples of the gap. The sender's idle time hides the first D, but not the others.
_COMPUTE = (0.5, 1.25, 2.0)
#: A pause in which a reply arrives, as a multiple of this quantile of the round trips.
_LATE, _MOST = 1.5, 0.9
#: Messages of a curve with D, beyond three round trips.
_BEYOND = 40
#: Marks are at every message up to _DENSE, then wider apart by this factor.
_DENSE, _WIDER = 8, 1.13
#: Burst lengths that test the model.
TRIED = (2, 3, 5, 10, 20, 50)


class Layer(Protocol):
    """A layer whose requests are answered.

    name: for people; capacity: most requests under way; bursts(marks, compute_us, count): makes 1
    to `count` bursts of marks[-1] requests each.
    """

    name: str
    capacity: int

    def bursts(self, marks: Sequence[int], compute_us: float, count: int, /) -> Bursts: ...


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    precision: sufficient half interval of a figure, relative; seconds: no batch begins later;
    messages_min, messages_max: lengths of the longest burst; only: "", "signature" (no bursts that
    test the model), or "gap" (os and g alone).
    """

    precision: float = 0.05
    seconds: float = 20.0
    messages_min: int = 64
    messages_max: int = 4096
    only: str = ""

    def __post_init__(self) -> None:
        if not (0 < self.precision < 1 and 0 < self.seconds < math.inf):
            raise InputError("precision must be between 0 and 1, and seconds positive")
        if not 16 <= self.messages_max <= 16384:
            raise InputError(f"{self.messages_max} messages: must be 16 to 16384")


@dataclass
class Result:
    """A signature and its parameters, µs; curves[0] has D = 0.

    os_D: time to send a request after D if no reply has arrived; on many systems more than os;
    trips_us: shortest and longest round trip (P4 Table 3).
    """

    layer: str
    capacity: int
    os: Figure
    or_: Figure
    g: Figure
    L: Figure
    rtt: Figure
    os_D: Figure
    trips_us: tuple[float, float]
    curves: list[Curve]
    settled: bool
    trials: list[Trial] = field(default_factory=list)
    bursts_count: int = 0
    elapsed_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    sender_bound: bool = False

    @property
    def L_is_impossible(self) -> bool:
        """Reports whether L is withheld because it would be negative."""
        parts = (self.os, self.or_, self.rtt)
        known = self.L.estimate is None and all(one.estimate for one in parts)
        return known and math.isinf(self.L.most)

    def most_us(self, name: str) -> float:
        """Returns the bound of a withheld figure, by its name in P4."""
        bursts = self.curves[0].bursts
        if name == "g":
            return float(np.median(bursts.done_us) / bursts.marks[-1])
        trip_us = self.rtt.estimate.high if self.rtt.estimate else self.trips_us[1]
        return trip_us if name == "rtt" else trip_us / 2


def marks_to(messages: int) -> list[int]:
    """Returns the message counts at which bursts are timed, up to a number of messages."""
    marks = list(range(1, min(messages, _DENSE) + 1))
    mark = float(marks[-1])
    while marks[-1] < messages:
        mark = max(mark * _WIDER, marks[-1] + 1)
        marks.append(min(round(mark), messages))
    return marks


class LogP:
    """One measurement of one layer; `run` makes it."""

    def __init__(
        self,
        layer: Layer,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or Options()
        self._layer, self._clock = layer, clock
        self._began = clock()
        self._count = 0

    def run(self) -> Result:
        """Makes batches of bursts until the figures are precise enough, or time is up."""
        self._layer.bursts([1], 0.0, 1)  # wakes the path
        trips = self._batch([1], 0.0)
        curves = [self._first(trips)]
        late, precision = None, self.options.precision
        if self.options.only != "gap":
            curves += [self._with_compute(share, curves[0], trips) for share in _COMPUTE]
            late = self._late(trips)
        while True:
            result = derived(self._layer, trips, curves, late)
            lacking = {
                name
                for name in ("os", "or_", "g", "rtt")
                if getattr(result, name).relative > precision and (late or name != "or_")
            }
            # Other work disturbed the bursts that a negative L comes from: all are repeated.
            if result.L_is_impossible:
                lacking |= {"os", "or_", "rtt"}
            result.settled = not lacking
            if result.settled or self._elapsed_s() > self.options.seconds:
                break
            if "rtt" in lacking:
                trips += self._batch([1], 0.0)
            if "or_" in lacking and late:
                late += self._late(trips)
            if "os" in lacking:
                curves[0].add_sends(self._batch(curves[0].send_marks(), 0.0))
            if "g" in lacking:
                curves[0].add(self._batch([int(mark) for mark in curves[0].bursts.marks], 0.0))
            curves[0] = self._longer(curves[0], trips)
        if result.settled and result.L.reason:
            text = "the other figures are as precise as asked for, and L is what they leave"
            result.notes.append(f"ended after {self._elapsed_s():.1f} s: {text}")
        if not self.options.only:
            result.trials = self._trials(result)
        result.bursts_count, result.elapsed_s = self._count, self._elapsed_s()
        return result

    def _elapsed_s(self) -> float:
        return self._clock() - self._began

    def _batch(self, marks: list[int], compute_us: float) -> Bursts:
        """Makes a batch of bursts. A slow path gets fewer bursts, but enough for an interval."""
        until = self._clock() + self.options.seconds / 12
        bursts = self._layer.bursts(marks, compute_us, BATCH)
        while (count := len(bursts.done_us)) < BATCH:
            if count > SAMPLES_MIN and self._clock() > until:
                break
            bursts += self._layer.bursts(marks, compute_us, BATCH - count)
        self._count += len(bursts.done_us)
        return bursts

    def _late(self, trips: Bursts) -> Bursts:
        """Sends single requests, and takes each reply after a pause in which it arrived."""
        return self._batch([1], _LATE * float(np.quantile(trips.done_us, _MOST)))

    def _first(self, trips: Bursts) -> Curve:
        """Makes the curve without computation, long enough to become steady."""
        messages = min(
            max(2 * self._layer.capacity, self.options.messages_min), self.options.messages_max
        )
        while True:
            bursts = self._batch(marks_to(messages), 0.0)
            curve = Curve(0.0, bursts, trips.done_us, self._layer.capacity)
            more = min(2 * messages, self.options.messages_max)
            next_s = 2 * SAMPLES_MIN * float(np.median(bursts.done_us)) / 1e6  # twice as long
            is_late = self._elapsed_s() + next_s > self._half_s
            if curve.steady_messages or curve.disturbed or more == messages or is_late:
                return curve
            messages = more

    def _longer(self, curve: Curve, trips: Bursts) -> Curve:
        messages = int(curve.bursts.marks[-1])
        more = min(2 * messages, self.options.messages_max)
        is_late = 2 * SAMPLES_MIN * float(np.median(curve.bursts.done_us)) / 1e6 > self._half_s
        if curve.steady_messages or curve.disturbed or more == messages or is_late:
            return curve
        return Curve(0.0, self._batch(marks_to(more), 0.0), trips.done_us, self._layer.capacity)

    @property
    def _half_s(self) -> float:
        return self.options.seconds / 2

    def _with_compute(self, share: float, first: Curve, trips: Bursts) -> Curve:
        gap = first.steady().estimate
        gap_us = gap.value if gap else float(first.costs()[0][-1])
        compute_us = float(f"{share * gap_us:.2g}")
        before = math.ceil(float(np.median(trips.done_us)) / compute_us)
        messages = min(3 * before + _BEYOND, self.options.messages_max)
        bursts = self._batch(marks_to(messages), compute_us)
        return Curve(compute_us, bursts, trips.done_us, self._layer.capacity)

    def _trials(self, result: Result) -> list[Trial]:
        if not (result.g.estimate and result.rtt.estimate):
            return []
        half_us = result.rtt.estimate.value / 2
        trials = []
        for messages in TRIED:
            bursts = self._batch([messages], 0.0)
            measured = figure(bursts.done_us - half_us, messages, messages)
            low, value, high = (
                _predicted(result, messages, end) for end in ("low", "value", "high")
            )
            trials.append(Trial(messages, measured, value, (high - low) / 2, _rule(result)))
        return trials


def _rule(result: Result) -> str:
    return BY_STEPS if result.sender_bound and result.os.estimate else BY_GAP


def _predicted(result: Result, messages: int, end: str) -> float:
    """Predicts a burst's time, µs, from the parameters; end: value, low or high of each."""
    g_us, rtt_us = (getattr(figure.estimate, end) for figure in (result.g, result.rtt))
    if _rule(result) == BY_GAP:
        return by_gap_us(messages, g_us, rtt_us)
    os_us = getattr(result.os.estimate, end)
    return by_steps_us(messages, os_us, max(g_us - os_us, 0.0), rtt_us, result.capacity)


def derived(layer: Layer, trips: Bursts, curves: list[Curve], late: Bursts | None = None) -> Result:
    """Derives the parameters from the curves (P4, `Small-message empirical results`).

    late: single requests, each with a pause in which its reply arrives.
    """
    g, rtt = curves[0].steady(), figure(trips.done_us)
    os = plausible(curves[0].overhead(), rtt, "a reply arrives before its send ends")
    os_D = _after_compute(curves[1:])
    or_ = _receive_overhead(late, rtt, os)
    notes, sender_bound = [], False
    L = Figure(None, rtt.samples_count, rtt.residual, 1, 1, rtt.reason or os.reason or or_.reason)
    if rtt.estimate and os.estimate and or_.estimate:
        half = rtt.estimate * 0.5
        L = supported(half - os.estimate - or_.estimate, rtt.samples_count, rtt.residual / 2)
        both = os.estimate + or_.estimate
        if g.estimate and (g.estimate - both).low <= 0.05 * g.estimate.value:
            sender_bound = True
            notes.append("the sender is the bottleneck: g = os + or, so no computation overlaps")
    return Result(
        layer.name,
        layer.capacity,
        os,
        or_,
        g,
        L,
        rtt,
        os_D,
        (float(trips.done_us.min()), float(trips.done_us.max())),
        curves,
        False,
        notes=notes + overhead_notes(os, or_, os_D),
        sender_bound=sender_bound,
    )


def _after_compute(curves: list[Curve]) -> Figure:
    """Returns a request's time after the shortest D, if two were sent before a reply."""
    if not curves or curves[0].send_messages == 1:
        return Figure(None)
    return curves[0].overhead()


def _receive_overhead(late: Bursts | None, rtt: Figure, os: Figure) -> Figure:
    """Returns `or`: the time from the end of the pause until the reply is taken.

    Without a figure for os there is none for `or`: sending may have taken the replies.
    """
    if late is None or not os.estimate:
        return Figure(None, reason=os.reason)
    taken = figure(late.done_us - late.elapsed_us[:, -1])
    return plausible(taken, rtt, "the pause was too short for a reply")
