"""A figure with its uncertainty: standard error, degrees of freedom, 95 % interval.

Sums, differences and multiples of estimates keep an honest interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from careful.measure.statistics.quantiles import t_quantile

#: Probability that an interval contains the true value.
LEVEL = 0.95


def decimals(half: float) -> int:
    """Returns how many decimals show two significant digits of half of an interval."""
    if not 0 < half < math.inf:
        return 3
    return min(max(0, 1 - math.floor(math.log10(half))), 6)


def at_most(high: float) -> str:
    """Returns the bound of a withheld figure, rounded up: the same in tables and in reasons."""
    size = 10.0 ** min(decimals(high), 3)
    return f"at most {math.ceil(high * size) / size:g}"


@dataclass(frozen=True)
class Estimate:
    """A value and its uncertainty.

    `value`, `se`: the figure and its standard error; `dof`: degrees of freedom of se; `slack`:
    error that no repetition removes (such as a clock's resolution), added to both ends of the
    interval. `value`, `se` and `slack` have the figure's unit.
    """

    value: float
    se: float = 0.0
    dof: float = math.inf
    slack: float = 0.0

    @property
    def half(self) -> float:
        return self.half_at(LEVEL)

    def half_at(self, level: float) -> float:
        spread = t_quantile(level, self.dof) * self.se if self.se else 0.0
        return spread + self.slack

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    @property
    def relative(self) -> float:
        """Half of the interval over the value; infinite for a value of 0."""
        return self.half / abs(self.value) if self.value else math.inf

    @property
    def is_at_best(self) -> bool:
        """Reports whether more samples could only halve the interval, because of the slack."""
        return self.slack >= self.half / 2

    def wide(self, unit: str) -> str:
        """Returns the reason to withhold a figure whose interval is wide."""
        ends = f"{self.low:.3g} to {self.high:.3g}" if self.low > 0 else at_most(self.high)
        return f"the interval is wide: {ends} {unit}"

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(
            self.value * factor, self.se * abs(factor), self.dof, self.slack * abs(factor)
        )

    def __add__(self, other: Estimate) -> Estimate:
        return self._join(other, 1)

    def __sub__(self, other: Estimate) -> Estimate:
        return self._join(other, -1)

    def _join(self, other: Estimate, sign: int) -> Estimate:
        """Adds or subtracts independent estimates (dof by Welch and Satterthwaite)."""
        variance = self.se**2 + other.se**2
        dof = math.inf
        if variance:
            parts = sum(
                (each.se**2) ** 2 / each.dof
                for each in (self, other)
                if each.se and not math.isinf(each.dof)
            )
            dof = variance**2 / parts if parts else math.inf
        return Estimate(
            self.value + sign * other.value, math.sqrt(variance), dof, self.slack + other.slack
        )

    def figures(self, name: str, unit: str, digits: int = 4) -> Mapping[str, float]:
        """Returns NAME_UNIT, NAME_low_UNIT and NAME_high_UNIT, for JSON."""
        ends = {"": self.value, "low_": self.low, "high_": self.high}
        return {f"{name}_{end}{unit}": round(value, digits) for end, value in ends.items()}
