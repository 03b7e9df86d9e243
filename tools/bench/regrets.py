"""Computes the distance of a choice from the best of a sweep, with its interval.

For the regret scenario. The best is chosen on half of the rounds and judged on the other half, and
vice versa. Intervals of 95 % come from a bootstrap that redraws rounds and chooses the best in each
draw. They show if the noise is as large as the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Draws per interval.
DRAWS = 400
AVERAGE_MAX, WORST_MAX = 0.03, 0.08

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Regret:
    """Latency over the oracle's less one, and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, drawn: Array) -> Regret:
        """Makes a regret from the measured value and the draws."""
        low, high = np.percentile(drawn, (2.5, 97.5))
        return cls(float(drawn[0]), float(low), float(high))

    def judged(self, most: float) -> str:
        """Returns "met"; beyond the bound "NOT MET", or "not told" if the interval holds it."""
        if self.value <= most:
            return "met"
        return "not told" if self.low <= most else "NOT MET"

    def __str__(self) -> str:
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class Choice:
    """A choice's regret over all message sizes: the mean, and the worst with its size."""

    average: Regret
    worst: Regret
    worst_bytes: int

    @property
    def judged(self) -> str:
        """Returns the worse of both bounds' verdicts."""
        said = {self.average.judged(AVERAGE_MAX), self.worst.judged(WORST_MAX)}
        return next(one for one in ("NOT MET", "not told", "met") if one in said)


def choices(sizes: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Choice]:
    """Returns each choice's regret over a path's message sizes, from stores.py's output.

    Arms that `names` lacks are the sweep.

    """
    random = np.random.default_rng(1)
    drawn = [_of_size(size, names, random) for size in sizes]
    found = {}
    for name in names:
        each = np.array([one[name] for one in drawn])
        worst = int(each[:, 0].argmax())
        found[name] = Choice(
            Regret.of(each.mean(axis=0)), Regret.of(each[worst]), int(sizes[worst]["bytes"])
        )
    return found


def _of_size(
    size: dict[str, Any], names: Sequence[str], random: np.random.Generator
) -> dict[str, Array]:
    """Returns the regrets of a message size: measured, and in each draw."""
    swept = [name for name in size["arms_us"] if name not in names]
    us = np.array([size["arms_us"][name] for name in (*names, *swept)])
    us -= min(size["empty_us"]) / 2
    halves = us[:, 0::2], us[:, 1::2]
    rows = [_judged(halves, len(names))]
    rows += [_judged(_redrawn(halves, random), len(names)) for _ in range(DRAWS)]
    return dict(zip(names, np.array(rows).T, strict=True))


def _redrawn(halves: Iterable[Array], random: np.random.Generator) -> tuple[Array, ...]:
    """Redraws the rounds of each half; the arms of a round stay together."""
    return tuple(one[:, random.integers(0, one.shape[1], one.shape[1])] for one in halves)


def _judged(halves: Sequence[Array], count: int) -> Array:
    """Returns the regrets of the first `count` arms; each half judges once."""
    medians = [np.median(one, axis=1) for one in halves]
    found = []
    for choose, judge in (medians, medians[::-1]):
        oracle = count + int(choose[count:].argmin())
        found.append(judge[:count] / judge[oracle] - 1)
    return np.asarray(np.mean(found, axis=0))
