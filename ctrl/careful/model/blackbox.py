"""What the fixed-sized theorem needs and a black-box measurement gives (P1 section 5.3.2).

Two regressions know the bottleneck and the sums, not the stages: enough for theorem 1 and
equation 10, not for ramps or a hierarchy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from careful.model.fixed import optimal_count
from careful.model.planner import Plan
from careful.model.stages import (
    COST_US_MAX,
    KIB,
    Limits,
    check_message_bytes,
    is_cost,
    shortened,
)
from careful.model.whole import equal_sizes


@dataclass(frozen=True)
class BlackBox:
    """Parameters of a pipeline seen from outside (P1 Table 2).

    g_b_us, G_b_us_per_KiB: of the bottleneck; sum_g_us, sum_G_us_per_KiB: of all stages;
    sum_G_others_us_per_KiB: of all but the bottleneck. All 0 to COST_US_MAX.
    Raises ValueError for others, and when sum_g_us is less than g_b_us.
    """

    g_b_us: float
    G_b_us_per_KiB: float
    sum_g_us: float
    sum_G_us_per_KiB: float
    sum_G_others_us_per_KiB: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_cost(value):
                raise ValueError(
                    f"{field.name} is {shortened(value)}, must be a number from 0 to "
                    f"{COST_US_MAX:g}"
                )
        if self.sum_g_us < self.g_b_us:
            raise ValueError("sum_g_us is less than g_b_us, which it contains")

    @classmethod
    def from_dict(cls, data: dict[str, Any], origin: str = "measurement") -> BlackBox:
        """From the JSON of `carefulctl measure blackbox`; further keys are ignored."""
        values: dict[str, float] = {}
        for field in fields(cls):
            value = data.get(field.name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:
                raise ValueError(f"{origin}: '{field.name}' is missing or not a number")
            values[field.name] = value
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{origin}: {error}") from None

    def latency_us(self, message_bytes: float, k: float) -> float:
        """Latency with k equal fragments, µs (P1 equation 13)."""
        return (
            k * self.g_b_us
            + message_bytes / k * self.sum_G_others_us_per_KiB / KIB
            + (self.sum_g_us - self.g_b_us)
            + message_bytes * self.G_b_us_per_KiB / KIB
        )

    def plan(
        self,
        message_bytes: int,
        limits: Limits | None = None,
        fragments_count: int | None = None,
    ) -> Plan:
        """The best fixed size (P1 theorem 1, floor and ceiling), in whole bytes."""
        check_message_bytes(message_bytes)
        least, most = (limits or Limits()).counts(message_bytes)
        real = optimal_count(message_bytes, self.g_b_us, self.sum_G_others_us_per_KiB / KIB)
        real = min(max(real, least), most)
        counts = {math.floor(real), math.ceil(real)}
        if fragments_count is not None:
            if not least <= fragments_count <= most:
                raise ValueError(f"{fragments_count} fragments: the limits allow {least} to {most}")
            counts = {fragments_count}
        k = min(sorted(counts), key=lambda count: self.latency_us(message_bytes, count))
        sizes = tuple(float(size) for size in equal_sizes(int(message_bytes), k))
        return Plan(
            strategy="fixed",
            message_bytes=message_bytes,
            latency_us=self.latency_us(message_bytes, k),
            fragments_bytes=sizes,
            bottleneck="bottleneck",
            lower_bound_us=message_bytes * self.G_b_us_per_KiB / KIB + self.sum_g_us,
            one_fragment_us=self.latency_us(message_bytes, 1),
            sizes_by_stage=(sizes,),
            note="a black-box measurement knows only what fixed sizes need",
        )
