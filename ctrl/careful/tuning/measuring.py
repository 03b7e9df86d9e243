"""What is known of one path from measurements, and when the next one is due.

Owns the figures that are believed: those of the last measurement, or those that were kept, until
a quick look at the path confirms them. Whether a measurement is worth it otherwise, and what
follows from it, is decide.py's. Calls path, glances, propose; keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from careful.errors import CarefulError
from careful.jsonout import Json
from careful.plan import CLASS_COUNT, Limits
from careful.tuning.glances import grown, waiting
from careful.tuning.path import Path
from careful.tuning.propose import Measured, measured, moved, same
from careful.tuning.state import CHANGE_EVERY_S, PathState

#: So long after a quick measurement the path is measured closely, if it is calm, seconds.
CLOSELY_S = 30.0
#: What was measured longer ago than this is looked at again by whoever takes over, seconds.
TRUST_S = 60.0
#: After a measurement that failed, seconds; twice as long each time.
RETRY_S = 30.0


@dataclass(frozen=True)
class Kept:
    """What was known of a path, and when and why it was measured (PathState)."""

    known: Measured | None
    figures: Json | None
    measured_at: float
    reason: str


class Measuring:
    """The measurements of a path.

    Args:
        path: what is measured.
        state: with the figures that were kept; changed in place, saved by the caller.
        clock: seconds, that only rise, across restarts too.
        returned: the figures are from before another carefuld, and are looked at again.

    Attributes:
        known: what the figures say; None: there are none.
        limits: payload of a frame.
        doubted: the figures are looked at before they are believed.
        was_too_quick: the last measurement was a quick one that found no figures.
        waits: the last measurement was a quick one that found frames waiting for others'.
        closely_at: when a quick measurement is followed by another, seconds; None: it is not.
        retry_at: a first measurement is not begun before, seconds.
    """

    def __init__(
        self, path: Path, state: PathState, clock: Callable[[], float], returned: bool
    ) -> None:
        self._path, self._state, self._clock = path, state, clock
        self.known: Measured | None = None
        self.limits = Limits()
        self.was_too_quick = self.waits = False
        self.closely_at: float | None = None
        self.retry_at = clock()
        self._retry_s = RETRY_S
        old = clock() - max(state.measured_at, state.confirmed_at or 0.0) > TRUST_S
        self.doubted = state.figures is not None and (returned or old)
        if (figures := state.figures) is not None:
            try:
                self.known = measured(figures, Limits(64, int(figures["frame_payload_bytes"])))
            except (ValueError, KeyError, TypeError):  # another version's, or damaged
                state.figures = None

    @property
    def believed(self) -> bool:
        """Reports whether there are figures, and no look at them is due."""
        return self._state.figures is not None and not self.doubted

    def measure(self, reason: str, quick: bool) -> Exception | None:
        """Measure the path; why that failed, or None: it is known.

        Args:
            reason: why it is measured.
            quick: with less precision.
        """
        try:
            figures, limits = self._path.measure(quick)
            self.limits = limits
            self.waits = False
            if quick and self.known is not None and self._state.figures is not None:
                delayed = waiting(self.known, self._state.figures, figures)
                self.waits = bool(delayed)
                figures = delayed or grown(self.known, figures)
            known = measured(figures, limits)
        except (CarefulError, ValueError) as error:
            self.limits = self._path.limits()
            self.retry_at = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, CHANGE_EVERY_S)
            self.was_too_quick = quick
            return error
        self._retry_s = RETRY_S
        self._state.figures = {**figures, "frame_payload_bytes": limits.max_bytes}
        self._state.reason = reason
        self._state.measured_at = self._clock()
        self.known = known
        self.was_too_quick = False
        self.closely_at = self._clock() + CLOSELY_S if quick else None
        return None

    def is_moved(self, before: Measured, classes: Collection[int] = range(CLASS_COUNT)) -> bool:
        """Reports whether the path is another than it was, for some classes."""
        assert self.known is not None
        return moved(before, self.known, self._path.in_effect(), classes)

    def is_same(self, before: Measured, classes: Collection[int]) -> bool:
        """Reports whether it is surely as it was, for some classes."""
        assert self.known is not None
        return same(before, self.known, self._path.in_effect(), classes)

    def kept(self) -> Kept:
        """What is known now, for confirm()."""
        state = self._state
        return Kept(self.known, state.figures, state.measured_at, state.reason)

    def confirm(self, kept: Kept) -> None:
        """It is as it was: that is believed, not the quick look at it."""
        state = self._state
        self.known, state.figures = kept.known, kept.figures
        state.measured_at, state.reason = kept.measured_at, kept.reason
        state.confirmed_at, self.closely_at = self._clock(), None

    def is_due_closely(self, now: float) -> bool:
        """Reports whether a quick measurement is to be followed by another now."""
        return self.closely_at is not None and now >= self.closely_at
