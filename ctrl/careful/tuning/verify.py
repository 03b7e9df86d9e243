"""What an A/B on live messages says: two arms' latencies, and whether the second is faster.

Owns the statistics. An arm is counts and sums, as the datapath keeps them, in blocks: what came
between two flips. Messages of one block share what else the path did then, so blocks count, too,
and the wider of both errors is used. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from careful.measure.statistics.estimate import Estimate

#: What an A/B of plans measures, and one of a store's thresholds.
MEASURES = "mean latency of live messages, from the engine to an answer from behind them, µs"
MEASURES_STORED = "mean latency of messages to files, from the first fragment until written, µs"
#: Messages an arm before anything is said.
MESSAGES_MIN = 30
#: Messages an arm after which what was not shown to hold does not.
MESSAGES_MAX = 1920
#: Looks at a growing sample: 30, 60, 120 … messages an arm. Each may err, so each is stricter
#: than the 95 % that all of them together shall keep (Bonferroni, of seven).
_LOOKS = 7
_LEVEL = 1 - 0.05 / _LOOKS
#: Blocks an arm before anything is said: of fewer, the spread says nothing.
BLOCKS_MIN = 4


@dataclass(frozen=True)
class Counts:
    """Latencies of some messages: how many, their sum in ns, the sum of their squares in ns²."""

    count: int = 0
    sum_ns: int = 0
    sum_sq_ns2: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.count + other.count,
            self.sum_ns + other.sum_ns,
            self.sum_sq_ns2 + other.sum_sq_ns2,
        )

    def since(self, before: Counts) -> Counts:
        """What came after `before`; all of it where the counters began anew."""
        if self.count < before.count or self.sum_ns < before.sum_ns:
            return self
        return Counts(
            self.count - before.count,
            self.sum_ns - before.sum_ns,
            self.sum_sq_ns2 - before.sum_sq_ns2,
        )

    @property
    def mean_us(self) -> float:
        """The mean, µs; NaN of none."""
        return self.sum_ns / self.count / 1e3 if self.count else math.nan

    @property
    def variance_us2(self) -> float:
        """Of single messages, µs²; 0 of fewer than two."""
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
        """What came between two flips."""
        if block.count:
            self.total += block
            self.blocks.append(block)

    def mean(self) -> Estimate:
        """Its mean latency, µs, with the wider of both errors."""
        total, mean = self.total, self.total.mean_us
        alone = Estimate(mean, math.sqrt(total.variance_us2 / total.count), total.count - 1)
        many = len(self.blocks)
        if many < 2:
            return alone
        # Of a ratio: the sums of blocks over their counts, which differ.
        spread = sum((one.sum_ns / 1e3 - mean * one.count) ** 2 for one in self.blocks)
        se = math.sqrt(spread * many / (many - 1)) / total.count
        return Estimate(mean, se, many - 1) if se > alone.se else alone


@dataclass(frozen=True)
class Verdict:
    """What became of an A/B of one message class.

    what: "held" (B is faster), "not held", or "undecided": more messages may tell.
    gain: A less B, µs, None below MESSAGES_MIN messages an arm.
    """

    what: str
    a: Counts
    b: Counts
    gain: Estimate | None = None

    def said(self) -> str:
        """In words."""
        least = min(self.a.count, self.b.count)
        if self.gain is None:
            return f"not verified: {least} messages of {MESSAGES_MIN}"
        low, high = self.gain.low, self.gain.high
        return (
            f"{self.what}: {self.a.mean_us:.1f} µs before, {self.b.mean_us:.1f} µs after, "
            f"gain {low:.1f} to {high:.1f} µs, {self.a.count} and {self.b.count} messages"
        )

    def as_dict(self, measures: str = MEASURES) -> dict[str, Any]:
        """For JSON."""
        figures: dict[str, Any] = {
            "measures": measures,
            "verdict": self.what,
            "before_count": self.a.count,
            "after_count": self.b.count,
            "messages_needed_count": MESSAGES_MIN,
        }
        if self.gain is not None:
            figures |= {
                "before_us": self.a.mean_us,
                "after_us": self.b.mean_us,
                **self.gain.figures("gain", "us"),
            }
        return {**figures, "said": self.said()}


@dataclass
class Trial:
    """The two arms of one message class, looked at as they grow."""

    a: Arm = field(default_factory=Arm)
    b: Arm = field(default_factory=Arm)
    _next_look: int = MESSAGES_MIN
    _decided: Verdict | None = None

    def verdict(self) -> Verdict:
        """What they say so far; once decided it stays so.

        B holds where it is faster by more than the error; it does not where it is slower by
        more, or where MESSAGES_MAX messages an arm did not show that it is faster.
        """
        if self._decided is None:
            said = self._looked()
            if said.what == "undecided":
                return said
            self._decided = said
        return self._decided

    def _looked(self) -> Verdict:
        a, b = self.a.total, self.b.total
        least = min(a.count, b.count)
        if least < MESSAGES_MIN:
            return Verdict("undecided", a, b)
        gain = self.a.mean() - self.b.mean()
        if least < self._next_look or min(map(len, (self.a.blocks, self.b.blocks))) < BLOCKS_MIN:
            return Verdict("undecided", a, b, gain)
        while self._next_look <= least:
            self._next_look *= 2
        half = gain.half_at(_LEVEL)
        if gain.value > half:
            return Verdict("held", a, b, gain)
        if gain.value < -half or least >= MESSAGES_MAX:
            return Verdict("not held", a, b, gain)
        return Verdict("undecided", a, b, gain)
