"""The statistics of an A/B on live messages.

An arm has the datapath's counts and sums in blocks. A block is the messages between two flips.
Messages of a block meet the same other load, so errors are computed from blocks. Only the middle
half of the messages counts: a busy machine delays a few messages a hundredfold, whatever their
plan, and these would dominate a mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from careful.jsonout import Json
from careful.measure.statistics.estimate import Estimate
from careful.units import shown_time

#: The quantity that an A/B of plans, or of a store's thresholds, measures.
_MIDDLE = "without the fastest and the slowest quarter, by turns"
MEASURES = f"mean latency of live messages, {_MIDDLE}, from the engine to their answers, µs"
MEASURES_STORED = (
    f"mean latency of messages to files, {_MIDDLE}, from the first fragment until written, µs"
)
#: Share of messages left out at either end, by their blocks' means.
_LEFT_OUT = 0.25
#: Least messages per arm for a verdict.
MESSAGES_MIN = 30
#: Messages per arm after which a change that was not shown to hold is undone.
MESSAGES_MAX = 1920
#: Number of looks at the growing sample: at 30, 60, 120 … messages per arm. All looks together must
#: err in at most 5 % of A/Bs, so each look is stricter (Bonferroni).
_LOOKS = 7
_LEVEL = 1 - 0.05 / _LOOKS
#: Least blocks per arm for a verdict; fewer show no variation.
BLOCKS_MIN = 4


@dataclass(frozen=True)
class Counts:
    """Latencies of some messages: number, sum in ns, sum of squares in ns²."""

    count: int = 0
    sum_ns: int = 0
    sum_sq_ns2: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.count + other.count, self.sum_ns + other.sum_ns, self.sum_sq_ns2 + other.sum_sq_ns2
        )

    def since(self, before: Counts) -> Counts:
        """Returns the messages after `before`; all if the counters restarted."""
        if self.count < before.count or self.sum_ns < before.sum_ns:
            return self
        return Counts(
            self.count - before.count,
            self.sum_ns - before.sum_ns,
            self.sum_sq_ns2 - before.sum_sq_ns2,
        )

    @property
    def mean_us(self) -> float:
        return self.sum_ns / self.count / 1e3 if self.count else math.nan

    @property
    def variance_us2(self) -> float:
        """The variance of single messages, µs²; 0 with fewer than two."""
        if self.count < 2:
            return 0.0
        squares = self.sum_sq_ns2 - self.sum_ns * self.sum_ns / self.count
        return max(squares, 0.0) / (self.count - 1) / 1e6


@dataclass
class Arm:
    """One side of an A/B."""

    total: Counts = field(default_factory=Counts)
    blocks: list[Counts] = field(default_factory=list)

    def add(self, block: Counts) -> None:
        if block.count:
            self.total += block
            self.blocks.append(block)

    def middle(self) -> Estimate:
        """Returns the mean latency of the middle half of the messages, by their blocks' means, µs.

        A trimmed mean; its error is that of winsorized blocks (Yuen, Biometrika 61, 1974, p. 165).
        """
        total = self.total
        if len(self.blocks) < 2:
            return Estimate(
                total.mean_us, math.sqrt(total.variance_us2 / total.count), total.count - 1
            )
        ordered = sorted((block.mean_us, block.count) for block in self.blocks)
        low, high = _LEFT_OUT * total.count, (1 - _LEFT_OUT) * total.count
        sum_us, before, least, most = 0.0, 0, math.inf, math.inf
        for mean, count in ordered:
            inside = min(before + count, high) - max(before, low)
            if inside > 0:
                sum_us += inside * mean
                least, most = min(least, mean), mean
            before += count
        clipped = [(min(max(mean, least), most), count) for mean, count in ordered]
        mean_us = sum(mean * count for mean, count in clipped) / total.count
        spread = sum(((mean - mean_us) * count) ** 2 for mean, count in clipped)
        freedom = max(1.0, len(self.blocks) * (1 - 2 * _LEFT_OUT) - 1)
        se = math.sqrt(spread * (1 + 1 / freedom)) / (high - low)
        return Estimate(sum_us / (high - low), se, freedom)


@dataclass(frozen=True)
class Verdict:
    """The result of an A/B of one message class.

    what: "held" (B is faster), "not held", or "undecided" (more messages may decide).
    a_count, b_count: messages.
    a, b: latencies, µs, None below MESSAGES_MIN messages per arm.
    """

    what: str
    a_count: int
    b_count: int
    a: Estimate | None = None
    b: Estimate | None = None

    @property
    def gain(self) -> Estimate | None:
        """A minus B, µs; None if unknown."""
        return self.a - self.b if self.a and self.b else None

    def summary(self) -> str:
        gain = self.gain
        if gain is None or self.a is None or self.b is None:
            least = min(self.a_count, self.b_count)
            return f"not verified: {least} messages of the {MESSAGES_MIN} that are needed"
        return (
            f"{self.what}: {shown_time(self.a.value)} before, {shown_time(self.b.value)} after, "
            f"gain {shown_time(gain.low)} to {shown_time(gain.high)}, "
            f"{self.a_count} and {self.b_count} messages"
        )

    def as_dict(self, measures: str = MEASURES) -> Json:
        figures: Json = {
            "measures": measures,
            "verdict": self.what,
            "before_count": self.a_count,
            "after_count": self.b_count,
            "messages_needed_count": MESSAGES_MIN,
        }
        gain = self.gain
        if gain and self.a and self.b:
            figures |= {
                "before_us": self.a.value,
                "after_us": self.b.value,
                **gain.figures("gain", "us"),
            }
        return {**figures, "said": self.summary()}


@dataclass
class Trial:
    """The two arms of one message class, examined as they grow."""

    a: Arm = field(default_factory=Arm)
    b: Arm = field(default_factory=Arm)
    _next_look: int = MESSAGES_MIN
    _decided: Verdict | None = None

    @property
    def has_verdict(self) -> bool:
        """Reports whether there is a verdict; costs nothing between two looks."""
        if self._decided is None and self._is_due():
            self.verdict()
        return self._decided is not None

    @property
    def count(self) -> int:
        return min(self.a.total.count, self.b.total.count)

    def _is_due(self) -> bool:
        blocks = min(len(self.a.blocks), len(self.b.blocks))
        return self.count >= self._next_look and blocks >= BLOCKS_MIN

    def verdict(self) -> Verdict:
        """Returns the verdict so far; a decided verdict is final.

        B holds if it is faster by more than the error. B does not hold if it is slower by more than
        the error, or not shown to be faster after MESSAGES_MAX messages per arm.
        """
        if self._decided is None:
            verdict = self._examine()
            if verdict.what == "undecided":
                return verdict
            self._decided = verdict
        return self._decided

    def _examine(self) -> Verdict:
        counts = (self.a.total.count, self.b.total.count)
        if self.count < MESSAGES_MIN:
            return Verdict("undecided", *counts)
        a, b = self.a.middle(), self.b.middle()
        gain = a - b
        if not self._is_due():
            return Verdict("undecided", *counts, a, b)
        while self._next_look <= self.count:
            self._next_look *= 2
        half = gain.half_at(_LEVEL)
        if gain.value > half:
            return Verdict("held", *counts, a, b)
        if gain.value < -half or self.count >= MESSAGES_MAX:
            return Verdict("not held", *counts, a, b)
        return Verdict("undecided", *counts, a, b)
