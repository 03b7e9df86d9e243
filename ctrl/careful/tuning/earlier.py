"""What messages took before the path changed, and would take then with what is in effect now.

Owns that "they take again what they took before" outlives a change of plans: what a class took is
scaled by what the path of before makes of both plans. Pure. Calls propose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from careful.model.tunemap import TunePlan
from careful.tuning.items import Value, class_bytes
from careful.tuning.propose import Measured


@dataclass(frozen=True)
class Earlier:
    """A path before it changed: as it was known, what was in effect, what messages took, µs."""

    path: Measured
    values: Sequence[Value]
    took_us: Mapping[int, float]

    def us(self, values: Sequence[Value]) -> dict[int, float]:
        """What messages would take there with other plans, by class."""
        found = {}
        for index, took in self.took_us.items():
            was, now = self.values[index], values[index]
            assert isinstance(was, TunePlan)
            assert isinstance(now, TunePlan)
            nbytes = class_bytes(index)
            before = self.path.latency_us(nbytes, was).value
            if before > 0 and not math.isnan(took):
                found[index] = took * self.path.latency_us(nbytes, now).value / before
        return found
