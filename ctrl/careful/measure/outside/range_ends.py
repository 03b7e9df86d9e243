"""Checks that the ends of the size range have the bottleneck of their neighbours (P1 5.3.2).

Compares the gap at each end with the line of the sizes next to it. If they differ, another stage is
the bottleneck at the end, and the bend is searched. The gap is the maximum of all stages' times, so
it is convex in the size. If both ends are on a line, so are all sizes between, except for a
deviation that is too small to see at an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from careful.measure.outside.trains import Regime, bottlenecks
from careful.measure.statistics.piecewise import POINTS_MIN

#: An end is off its line if it is this many residuals away.
_APART = 4.0
#: Number of sizes between an end and its bend for a line, and trains of each.
_SIZES, _ROUNDS = 5, 4
#: Resolution of the search for a bend, bytes, or as a share of the range.
_WIDTH_BYTES, _WIDTH_SHARE = 4, 0.002


@dataclass(frozen=True)
class Ends:
    """The result.

    regimes: all ranges, also those at ends with another bottleneck; unseen: largest deviation of an
    end that would not be seen, as a share of the gap; notes: on ends without figures.
    """

    regimes: list[Regime]
    unseen: float
    notes: list[str]

    @property
    def are_known(self) -> bool:
        return not self.notes


def at_ends(
    regimes: Sequence[Regime],
    sizes: Sequence[int],
    gap_at: Callable[[int], float],
    resolution_us: float,
) -> Ends:
    """Compares the gaps at both ends with the lines; splits a range whose end is off its line.

    regimes: consecutive ranges, with lines; sizes: measured so far, bytes, ascending; gap_at:
    measures the gap of trains of a size, µs; resolution_us: resolution of the gaps.
    """
    result, unseen, notes = list(regimes), 0.0, []
    for order in (sizes, sizes[::-1]):
        at = 0 if order is sizes else -1
        old = result[at]
        inside = [s for s in order if old.line.size_min_bytes <= s <= old.line.size_max_bytes]
        end = _End(old, inside, gap_at, max(old.line.residual_us, resolution_us))
        gap_us = old.line.at(inside[0])
        unseen = max(unseen, end.apart_us / gap_us if gap_us > 0 else 1.0)
        if not end.is_off(inside[0]):
            continue
        new, bend = end.other()
        where = (
            f"{'below' if at == 0 else 'above'} {bend:.0f} bytes another stage is the bottleneck"
        )
        if new is None:
            notes.append(f"{where}: the range is too narrow for its g and G")
            new = replace(old, g_b_us=None, G_b_us_per_KiB=None)
        if at == 0:
            result[0] = replace(old, low_bytes=bend)
            result.insert(0, replace(new, low_bytes=old.low_bytes, high_bytes=bend))
        else:
            result[-1] = replace(old, high_bytes=bend)
            result.append(replace(new, low_bytes=bend, high_bytes=old.high_bytes))
    return Ends(result, unseen, notes)


class _End:
    """One end; sizes: the regime's sizes, from the end inwards."""

    def __init__(
        self, regime: Regime, sizes: Sequence[int], gap_at: Callable[[int], float], noise_us: float
    ) -> None:
        self._line, self._sizes, self._gap_at = regime.line, sizes, gap_at
        self._noise_us, self.apart_us = noise_us, _APART * noise_us

    def is_off(self, size: int) -> bool:
        return self._gap_at(size) - self._line.at(size) > self.apart_us

    def other(self) -> tuple[Regime | None, float]:
        """Returns the end's regime, None without figures, and where it begins, bytes."""
        end = off = self._sizes[0]
        width = max(_WIDTH_BYTES, round(_WIDTH_SHARE * abs(self._sizes[-1] - end)))
        on = next((size for size in self._sizes[1:] if not self.is_off(size)), self._sizes[-1])
        while abs(on - off) > width:
            middle = (on + off) // 2
            if self.is_off(middle):
                off = middle
            else:
                on = middle
        sizes = sorted({round(end + (off - end) * k / (_SIZES - 1)) for k in range(_SIZES)})
        if len(sizes) < POINTS_MIN:
            return None, (off + on) / 2
        rounds = [{size: self._gap_at(size) for size in sizes} for _ in range(_ROUNDS)]
        regime = bottlenecks(rounds, self._noise_us)[0]
        if regime.g_b_us is None:
            return None, (off + on) / 2
        turn = regime.line.slope_us_per_byte.value - self._line.slope_us_per_byte.value
        apart = self._line.intercept_us.value - regime.line.intercept_us.value
        bend = apart / turn if turn else (off + on) / 2
        low, high = sorted((off, self._sizes[-1]))
        return regime, min(max(bend, low), high)
