"""LogP of a path as its endpoints see it (P4): os, or, g and L, read off a signature.

Owns the plan of the bursts and what their curves (logp_curve.py) say together. A burst issues M
requests with D of computation after each; a curve is the time of that over M, one for each D. Its
slope is os before the first reply, g where the network is full, and os + or + D where D exceeds
the time that the sender would idle. There os is that of a request after D: what a pause adds to it
(who forwards has gone to sleep, caches are cold) is no part of or, unless requests before the first
reply take even more than later ones that take a reply: then or is P4's g' - D - os, and that at
most. L is what half of a round trip leaves. Who issues is passed in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from careful.measure.estimators.logp_curve import Bursts, Curve
from careful.measure.estimators.logp_overheads import doubts, sent_after_compute, told
from careful.measure.estimators.logp_predict import BY_GAP, BY_STEPS, Trial, by_gap_us, by_steps_us
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.sample import (
    SAMPLES_MIN,
    Figure,
    figure,
    supported,
)

#: Bursts between two looks at the figures (P4: for the cache's sake).
BATCH = 50
#: D over the gap: one that the idle time hides, and two that it does not.
_COMPUTE = (0.5, 1.25, 2.0)
#: Messages of a curve with D, beyond three round trips.
_BEYOND = 40
#: Marks up to here are at every message, then ever wider apart by this factor.
_DENSE, _WIDER = 8, 1.13
#: Of os + or, what bursts that count as disturbed, and are left out, take with them: simulated
#: machines whose noise is known came out 0.2 % short.
_LEFT_OUT = 0.002
#: Bursts by which the model is tried.
TRIED = (2, 3, 5, 10, 20, 50)


class Layer(Protocol):
    """A layer whose requests are answered.

    name: of the layer; capacity: requests that may be under way; bursts(marks, compute_us,
    count): at least one burst, and at most count, of marks[-1] requests each.
    """

    name: str
    capacity: int

    def bursts(self, marks: Sequence[int], compute_us: float, count: int, /) -> Bursts: ...


@dataclass(frozen=True)
class Options:
    """How to measure.

    precision: half of an interval over its figure at which it is enough; seconds: after which
    no further batch begins; messages_min, messages_max: lengths of the longest burst; only:
    "", "signature", without bursts by which the model is tried, or "gap", for os and g alone.
    """

    precision: float = 0.05
    seconds: float = 20.0
    messages_min: int = 64
    messages_max: int = 4096
    only: str = ""

    def __post_init__(self) -> None:
        if not (0 < self.precision < 1 and 0 < self.seconds < math.inf):
            raise ValueError("precision must be between 0 and 1, seconds above 0")
        if not 16 <= self.messages_max <= 16384:
            raise ValueError(f"{self.messages_max} messages: must be 16 to 16384")


@dataclass
class Result:
    """A signature and what was read off it, µs; curves[0] has D = 0.

    os_D: what a request takes to send after D, with no reply to take; on many systems more than os.
    """

    layer: str
    capacity: int
    os: Figure
    or_: Figure
    g: Figure
    L: Figure
    rtt: Figure
    os_D: Figure
    curves: list[Curve]
    settled: bool
    trials: list[Trial] = field(default_factory=list)
    bursts_count: int = 0
    elapsed_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    sender_bound: bool = False


def marks_to(messages: int) -> list[int]:
    """Where a burst of so many messages is timed."""
    marks = list(range(1, min(messages, _DENSE) + 1))
    at = float(marks[-1])
    while marks[-1] < messages:
        at = max(at * _WIDER, marks[-1] + 1)
        marks.append(min(round(at), messages))
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
        """Batches of bursts until the figures are as good as asked for, or time is up."""
        self._layer.bursts([1], 0.0, 1)  # the path awakes
        trips = self._batch([1], 0.0)
        curves = [self._first(trips)]
        if self.options.only != "gap":
            curves += [self._with_compute(share, curves[0], trips) for share in _COMPUTE]
        while True:
            result = read(self._layer, trips, curves)
            lacking = self._lacking(result)
            result.settled = not lacking and result.rtt.relative <= self.options.precision
            if result.settled or self._elapsed_s() > self.options.seconds:
                break
            if result.rtt.relative > self.options.precision:
                trips += self._batch([1], 0.0)
            for curve in lacking:
                marks = [int(mark) for mark in curve.bursts.marks]
                curve.add(self._batch(marks, curve.compute_us))
            curves[0] = self._longer(curves[0], trips)
        if not self.options.only:
            result.trials = self._trials(result)
        result.bursts_count, result.elapsed_s = self._count, self._elapsed_s()
        return result

    def _elapsed_s(self) -> float:
        return self._clock() - self._began

    def _batch(self, marks: list[int], compute_us: float) -> Bursts:
        """A batch, cut short on a slow path, yet with enough bursts for an interval."""
        until = self._clock() + self.options.seconds / 12
        found = self._layer.bursts(marks, compute_us, BATCH)
        while (have := len(found.done_us)) < BATCH:
            if have > SAMPLES_MIN and self._clock() > until:
                break
            found += self._layer.bursts(marks, compute_us, BATCH - have)
        self._count += len(found.done_us)
        return found

    def _first(self, trips: Bursts) -> Curve:
        """The curve without computation, long enough to become steady."""
        messages = min(
            max(2 * self._layer.capacity, self.options.messages_min), self.options.messages_max
        )
        while True:
            bursts = self._batch(marks_to(messages), 0.0)
            curve = Curve(0.0, bursts, trips.done_us, self._layer.capacity)
            more = min(2 * messages, self.options.messages_max)
            long = 2 * SAMPLES_MIN * float(np.median(bursts.done_us)) / 1e6  # of twice as many
            late = self._elapsed_s() + long > self._half_s
            if curve.steady_messages or curve.disturbed or more == messages or late:
                return curve
            messages = more

    def _longer(self, curve: Curve, trips: Bursts) -> Curve:
        """A longer one where further bursts showed that the curve is not steady after all."""
        messages = int(curve.bursts.marks[-1])
        more = min(2 * messages, self.options.messages_max)
        late = 2 * SAMPLES_MIN * float(np.median(curve.bursts.done_us)) / 1e6 > self._half_s
        if curve.steady_messages or curve.disturbed or more == messages or late:
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

    def _lacking(self, result: Result) -> list[Curve]:
        """The curves whose figures are not as good as asked for."""
        fine = self.options.precision
        lacking = []
        if max(result.os.relative, result.g.relative) > fine:
            lacking.append(result.curves[0])
        if self.options.only != "gap" and not _enough(result, fine):
            lacking += result.curves[1:]
            by_os = sent_after_compute(result.os, result.os_D) is result.os
            if by_os and result.curves[0] not in lacking:
                lacking.append(result.curves[0])
        return lacking

    def _trials(self, result: Result) -> list[Trial]:
        """Bursts that nothing was read off, beside what the model says of them."""
        if not (result.g.estimate and result.rtt.estimate):
            return []
        half_us = result.rtt.estimate.value / 2
        trials = []
        for messages in TRIED:
            found = self._batch([messages], 0.0)
            measured = figure(found.done_us - half_us, messages, messages)
            low, one, high = (_predicted(result, messages, end) for end in ("low", "value", "high"))
            trials.append(Trial(messages, measured, one, (high - low) / 2, _rule(result)))
        return trials


def _enough(result: Result, precision: float) -> bool:
    """Whether or is known: where a pause adds to os, as a share of both overheads after one.

    It is a small difference there, and P4 asks for the points of a signature, not for those.
    """
    or_, os, os_D = result.or_.estimate, result.os.estimate, result.os_D.estimate
    if not (or_ and os):
        return False
    more = os_D.value if os_D and os_D.low > os.high else 0.0
    return or_.half <= precision * (or_.value + more)


def _rule(result: Result) -> str:
    """How bursts are predicted."""
    return BY_STEPS if result.sender_bound and result.os.estimate else BY_GAP


def _predicted(result: Result, messages: int, end: str) -> float:
    """A burst's time, µs, of what was read off the curves; end: value, low or high of each."""
    g_us, rtt_us = (getattr(one.estimate, end) for one in (result.g, result.rtt))
    if _rule(result) == BY_GAP:
        return by_gap_us(messages, g_us, rtt_us)
    os_us = getattr(result.os.estimate, end)
    return by_steps_us(messages, os_us, max(g_us - os_us, 0.0), rtt_us, result.capacity)


def read(layer: Layer, trips: Bursts, curves: list[Curve]) -> Result:
    """The parameters from the curves (P4, `Small-message empirical results`)."""
    g, rtt = curves[0].steady(), figure(trips.done_us)
    os, os_D = told(curves[0].overhead(), rtt), _after_compute(curves[1:])
    or_ = _receive_overhead(sent_after_compute(os, os_D), g, curves[1:])
    at_most = not or_.estimate and os_D.estimate is not None
    if at_most:  # the first requests of a burst take more than later ones: P4's own reading is left
        or_ = _receive_overhead(os, g, curves[1:])
    notes, sender_bound = [], False
    L = Figure(None, rtt.samples_count, rtt.residual, 1, 1, rtt.reason or os.reason or or_.reason)
    if rtt.estimate and os.estimate and or_.estimate:
        half = rtt.estimate * 0.5
        L = supported(half - os.estimate - or_.estimate, rtt.samples_count, rtt.residual / 2)
        both = os.estimate + or_.estimate
        if g.estimate and (g.estimate - both).low <= 0.05 * g.estimate.value:
            sender_bound = True
            notes.append("the sender is the bottleneck: g is os + or, no computation is hidden")
    return Result(
        layer.name,
        layer.capacity,
        os,
        or_,
        g,
        L,
        rtt,
        os_D,
        curves,
        False,
        notes=notes + doubts(os, or_, os_D, at_most),
        sender_bound=sender_bound,
    )


def _after_compute(curves: list[Curve]) -> Figure:
    """A request's own time after D: of the shortest D, where two were sent before a reply."""
    if not curves or curves[0].send_messages == 1:
        return Figure(None)
    return curves[0].overhead()


def _receive_overhead(os: Figure, g: Figure, curves: list[Curve]) -> Figure:
    """or: what the steady slopes with D leave above os after D, where D is more than the gap."""
    raised = []
    for curve in curves:
        steady = curve.steady()
        if g.estimate and steady.estimate and curve.compute_us > g.estimate.value:
            raised.append(steady)
    if not raised or not os.estimate:
        reasons = [one.reason for one in (os, g, *(curve.steady() for curve in curves))]
        reason = next(filter(None, reasons), "no D raised the gap")
        return Figure(None, 0, 0, 1, 1, reason)
    both = raised[0].estimate
    for one in raised[1:]:
        both = both + one.estimate if both and one.estimate else both
    assert both
    both = both * (1 / len(raised))
    both = both + Estimate(0.0, slack=_LEFT_OUT * both.value)
    return supported(
        both - os.estimate,
        sum(one.samples_count for one in raised),
        float(np.mean([one.residual for one in raised])),
        min(one.low_messages for one in raised),
        max(one.high_messages for one in raised),
    )
