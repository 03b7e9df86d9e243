"""Whether the ends of the sizes have the bottleneck of those beside them (P1 section 5.3.2).

Owns the comparison of an end with the line that reaches it, and the search for the bend where
another stage is the bottleneck there. The gap is the greatest of all stages' times, so it is convex
in the size: on a line at both of its ends, it is on it throughout, and off it by at most what an
end can be off unseen. Trains are passed in. Pure but for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from careful.measure.estimators.trains import Regime, bottlenecks
from careful.measure.statistics.piecewise import POINTS_MIN

#: An end is off its line by so many residuals.
_APART = 4.0
#: Sizes between an end and its bend that make a line, and how often each.
_SIZES, _ROUNDS = 5, 4
#: A bend is looked for down to so many bytes, or this share of the sizes.
_WIDTH_BYTES, _WIDTH_SHARE = 4, 0.002


@dataclass(frozen=True)
class Ends:
    """What was found.

    regimes: those given, and those of ends that have another bottleneck; unseen: the largest share
    of a gap that an end may be off its line without being seen; notes: on ends whose bottleneck
    has no figures.
    """

    regimes: list[Regime]
    unseen: float
    notes: list[str]

    @property
    def are_known(self) -> bool:
        """Reports whether all has figures."""
        return not self.notes


def at_ends(
    regimes: Sequence[Regime],
    sizes: Sequence[int],
    gap_at: Callable[[int], float],
    resolution_us: float,
) -> Ends:
    """Compare both ends, and split the range that has one with another bottleneck.

    Args:
        regimes: of consecutive ranges, with lines.
        sizes: measured so far, bytes, ascending.
        gap_at: the gap of trains of a size, µs.
        resolution_us: of the gaps.
    """
    found, unseen, notes = list(regimes), 0.0, []
    for order in (sizes, sizes[::-1]):
        at = 0 if order is sizes else -1
        old = found[at]
        inside = [s for s in order if old.line.size_min_bytes <= s <= old.line.size_max_bytes]
        look = _End(old, inside, gap_at, max(old.line.residual_us, resolution_us))
        gap_us = old.line.at(inside[0])
        unseen = max(unseen, look.apart_us / gap_us if gap_us > 0 else 1.0)
        if not look.is_off(inside[0]):
            continue
        new, bend = look.other()
        where = (
            f"{'below' if at == 0 else 'above'} {bend:.0f} bytes another stage is the bottleneck"
        )
        if new is None:
            notes.append(f"{where}: too narrow a range for its g and G")
            new = replace(old, g_b_us=None, G_b_us_per_KiB=None)
        if at == 0:
            found[0] = replace(old, low_bytes=bend)
            found.insert(0, replace(new, low_bytes=old.low_bytes, high_bytes=bend))
        else:
            found[-1] = replace(old, high_bytes=bend)
            found.append(replace(new, low_bytes=bend, high_bytes=old.high_bytes))
    return Ends(found, unseen, notes)


class _End:
    """One end. sizes: of the regime that reaches it, from the end inwards."""

    def __init__(
        self,
        regime: Regime,
        sizes: Sequence[int],
        gap_at: Callable[[int], float],
        noise_us: float,
    ) -> None:
        self._line, self._sizes, self._gap_at = regime.line, sizes, gap_at
        self._noise_us, self.apart_us = noise_us, _APART * noise_us

    def is_off(self, size: int) -> bool:
        """Reports whether gaps of a size are above the line."""
        return self._gap_at(size) - self._line.at(size) > self.apart_us

    def other(self) -> tuple[Regime | None, float]:
        """The regime of the end, None where it has no figures; and where it begins, bytes."""
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
        found = bottlenecks(rounds, self._noise_us)[0]
        if found.g_b_us is None:
            return None, (off + on) / 2
        turn = found.line.slope_us_per_byte.value - self._line.slope_us_per_byte.value
        apart = self._line.intercept_us.value - found.line.intercept_us.value
        bend = apart / turn if turn else (off + on) / 2
        low, high = sorted((off, self._sizes[-1]))
        return found, min(max(bend, low), high)
