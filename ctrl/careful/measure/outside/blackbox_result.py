"""The result of a black-box measurement (P1 section 5.3.2), and why a figure is withheld."""

from __future__ import annotations

from dataclasses import dataclass, field

from careful.measure.outside.blackbox_rounds import OWN_PACE
from careful.measure.outside.trains import Regime
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Line


@dataclass
class Result:
    """The figures of two regressions.

    sum_g_us: overheads and delays one way, half of a round trip without payload; sum_G: one way;
    sum_G_others: without the bottleneck of `regime`; a figure is None with a `reason`.
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

    def regime_of(self, size_bytes: float) -> Regime:
        """Returns the regime whose range contains a size, or the last one."""
        return next((one for one in self.regimes if size_bytes < one.high_bytes), self.regimes[-1])

    def look_at(self, regime: Regime) -> None:
        self.regime = regime
        if self.sum_G_us_per_KiB:
            self.sum_G_others_us_per_KiB, self.reason = self.others(regime)

    def doubt(self) -> None:
        """Adds notes if the bottleneck may be wrong."""
        regime = self.regime
        if regime.line.at(regime.low_bytes) < OWN_PACE * self.own_gap_us:
            self.notes.append(
                f"this host needs {self.own_gap_us:.0f} µs to send a frame of a train: it may be "
                "the bottleneck"
            )
        if regime.g_b_us and regime.g_b_us.relative > RELATIVE_MAX:
            g = regime.g_b_us
            self.notes.append(f"the bottleneck's g is between {g.low:.3g} and {g.high:.3g} µs")

    @property
    def others_at_most(self) -> Estimate:
        """The bound of sum_G_others, µs per KiB."""
        G, most = self.regime.G_b_us_per_KiB, self.one_way.G_us_per_KiB
        return most - G if G else most

    @property
    def why_no_others(self) -> str:
        """Why sum_G_others is withheld, with its own bound; "" if it is not."""
        wide = self.one_way.G_us_per_KiB.wide("µs/KiB")
        own = self.others_at_most.wide("µs/KiB")
        return own if self.sum_G_us_per_KiB is None and self.reason == wide else self.reason

    def others(self, regime: Regime) -> tuple[Estimate | None, str]:
        """Returns the other stages' sum of G, µs per KiB, or None and the reason."""
        whole, G = self.sum_G_us_per_KiB, regime.G_b_us_per_KiB
        if whole is None:
            return None, self.reason
        if G is None:
            return None, regime.line.reason
        others = whole - G
        if others.high < 0:
            return None, (
                f"the bottleneck's G ({G.value:.3g} µs/KiB) exceeds the sum over all stages "
                f"({whole.value:.3g}): the path changed during the measurement"
            )
        if others.relative > RELATIVE_MAX:
            return None, others.wide("µs/KiB")
        return others, ""

    def figures(self) -> dict[str, object]:
        """Returns the figures for JSON; `carefulctl plan --pipeline -` reads them."""
        figures: dict[str, object] = {
            "kind": "blackbox",
            "settled": self.settled,
            "reason": self.reason,
        }
        for name, unit, estimate in (
            ("g_b", "us", self.regime.g_b_us),
            ("G_b", "us_per_KiB", self.regime.G_b_us_per_KiB),
            ("sum_g", "us", self.sum_g_us),
            ("sum_G", "us_per_KiB", self.sum_G_us_per_KiB),
            ("sum_G_others", "us_per_KiB", self.sum_G_others_us_per_KiB),
        ):
            figures |= estimate.figures(name, unit) if estimate else {f"{name}_{unit}": None}
        trips, trains = self.round_trips, self.regime.line
        return figures | {
            "low_bytes": round(self.regime.low_bytes, 1),
            "high_bytes": round(self.regime.high_bytes, 1),
            "regimes": [self._regime(regime) for regime in self.regimes],
            **trips.G_us_per_KiB.figures("sum_G_by_round_trips", "us_per_KiB"),
            "one_way_residual_us": round(self.one_way.residual_us, 3),
            "round_trips_residual_us": round(trips.residual_us, 3),
            "round_trips_count": trips.samples_count,
            "trains_residual_us": round(trains.residual_us, 3),
            "trains_count": trains.samples_count,
            "sizes_count": trips.points_count,
            "size_min_bytes": int(trips.size_min_bytes),
            "size_max_bytes": int(trips.size_max_bytes),
            "train_frames": self.train_frames,
            "own_gap_us": round(self.own_gap_us, 2),
            "frames_count": self.frames_count,
            "rounds_count": self.rounds_count,
            "elapsed_s": round(self.elapsed_s, 3),
            "round_trip_minima": [
                {"size_bytes": int(size), "least_us": round(time_us, 3)}
                for size, time_us in zip(*self.trip_minima, strict=True)
            ],
            "train_gaps": _gaps(*self.gaps),
            "G_counts": "payload bytes",
            "sum_g_is": "overhead and propagation one way, half of a round trip of no payload",
            "sum_G_is": "one way, by both ends' clocks without their drift; behind XDP a bound",
            "notes": self.notes,
        }

    def _regime(self, regime: Regime) -> dict[str, object]:
        g, G, line = regime.g_b_us, regime.G_b_us_per_KiB, regime.line
        others, why_not = self.others(regime)
        return {
            "low_bytes": round(regime.low_bytes, 1),
            "high_bytes": round(regime.high_bytes, 1),
            **(g.figures("g_b", "us") if g else {"g_b_us": None}),
            **(G.figures("G_b", "us_per_KiB") if G else {"G_b_us_per_KiB": None}),
            **(
                others.figures("sum_G_others", "us_per_KiB")
                if others
                else {"sum_G_others_us_per_KiB": None}
            ),
            "residual_us": round(line.residual_us, 3),
            "trains_count": line.samples_count,
            "sizes_count": line.points_count,
            "size_min_bytes": int(line.size_min_bytes),
            "size_max_bytes": int(line.size_max_bytes),
            "reason": line.reason or why_not,
        }


def _gaps(sizes: list[float], gaps_us: list[float]) -> list[dict[str, object]]:
    by_size: dict[float, list[float]] = {}
    for size, gap_us in zip(sizes, gaps_us, strict=True):
        by_size.setdefault(size, []).append(round(gap_us, 3))
    return [{"size_bytes": int(size), "gaps_us": by_size[size]} for size in sorted(by_size)]
