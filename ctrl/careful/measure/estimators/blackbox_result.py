"""What two regressions know of a pipeline (P1 section 5.3.2), as blackbox.py finds it.

Owns what follows from the figures of a bottleneck, and why one is withheld. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from careful.measure.estimators.blackbox_rounds import OWN_PACE
from careful.measure.estimators.trains import Regime
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Line


@dataclass
class Result:
    """What two regressions know of a pipeline.

    sum_g_us: overheads and delays one way, half of a round trip without payload; sum_G, one
    way, and sum_G_others without the bottleneck of `regime`, µs per KiB; None with a `reason`.
    trip_minima: sizes and least round trips, µs; gaps: sizes and gaps of every train, µs.
    """

    round_trips: Line
    one_way: Line
    regimes: list[Regime]
    regime: Regime
    sum_g_us: Estimate | None
    sum_G_us_per_KiB: Estimate | None
    sum_G_others_us_per_KiB: Estimate | None
    own_gap_us: float
    train_frames: int
    frames_count: int
    rounds_count: int
    elapsed_s: float
    settled: bool
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    trip_minima: tuple[list[float], list[float]] = ([], [])
    gaps: tuple[list[float], list[float]] = ([], [])

    def look_at(self, regime: Regime) -> None:
        """Makes it the regime of interest."""
        self.regime = regime
        if self.sum_G_us_per_KiB:
            self.sum_G_others_us_per_KiB, self.reason = self.others(regime)

    def doubt(self) -> None:
        """Notes on why its bottleneck may not be what it seems."""
        regime = self.regime
        if regime.line.at(regime.low_bytes) < OWN_PACE * self.own_gap_us:
            self.notes.append(
                f"trains left at {self.own_gap_us:.0f} µs a frame: the bottleneck may be this host"
            )
        if regime.g_b_us and regime.g_b_us.relative > RELATIVE_MAX:
            g = regime.g_b_us
            self.notes.append(f"the bottleneck's g is between {g.low:.3g} and {g.high:.3g} µs")

    def others(self, regime: Regime) -> tuple[Estimate | None, str]:
        """The G of all stages but a regime's bottleneck, µs per KiB; else why there is none."""
        whole, G = self.sum_G_us_per_KiB, regime.G_b_us_per_KiB
        if whole is None:
            return None, self.reason
        if G is None:
            return None, regime.line.reason
        others = whole - G
        if others.high < 0:
            return None, (
                f"the bottleneck's G ({G.value:.3g} µs/KiB) is more than that of all stages "
                f"({whole.value:.3g}): the path changed meanwhile"
            )
        if others.relative > RELATIVE_MAX:
            return None, f"the interval is wide: {others.low:.3g} to {others.high:.3g} µs/KiB"
        return others, ""
