"""The measurements of one path: the figures in use, and when the next measurement is due.

Stored figures are used only after a quick measurement confirms them. policy.py decides about all
other measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from careful.errors import CarefulError
from careful.jsonout import Json
from careful.plan import CLASS_COUNT, Limits
from careful.tuning.controller.quick_correction import grown, is_as_before, waiting
from careful.tuning.path import Path
from careful.tuning.propose import Measured, measured, moved, same
from careful.tuning.state import CHANGE_EVERY_S, PathState

#: After a quick measurement, time without a shift until a close one, seconds.
CLOSELY_S = 30.0
#: Figures older than this must be confirmed by a process that takes over, seconds.
TRUST_S = 60.0
#: Time before a failed measurement is repeated, seconds; doubles each time.
RETRY_S = 30.0


@dataclass(frozen=True)
class Kept:
    """Figures of a path, and when and why they were measured (PathState)."""

    known: Measured | None
    figures: Json | None
    measured_at: float
    reason: str


class Measuring:
    """The measurements of a path.

    Args:
        state: holds the figures; changed in place, saved by the caller.
        clock: seconds; never goes back, even across restarts.
        returned: the figures are from an earlier carefuld and must be confirmed.

    Attributes:
        known: the path as measured; None: there are no figures.
        limits: payload of a frame.
        doubted: the figures must be confirmed before they are used.
        was_too_quick: the last measurement was quick and found no figures.
        waits: the last measurement was quick, and our frames queued behind another stream.
        slipped: the last measurement was quick, and frames that met no others found the known path.
        closely_at: when a close measurement follows a quick one, seconds; None: never.
        retry_at: earliest time of the next attempt at a first measurement, seconds.
    """

    def __init__(
        self, path: Path, state: PathState, clock: Callable[[], float], returned: bool
    ) -> None:
        self._path, self._state, self._clock = path, state, clock
        self.known: Measured | None = None
        self.limits = Limits()
        self.was_too_quick = self.waits = self.slipped = False
        self.closely_at: float | None = None
        self.retry_at = clock()
        self._retry_s = RETRY_S
        old = clock() - max(state.measured_at, state.confirmed_at or 0.0) > TRUST_S
        self.doubted = state.figures is not None and (returned or old)
        if (figures := state.figures) is not None:
            try:
                self.known = measured(figures, Limits(64, int(figures["frame_payload_bytes"])))
            except (ValueError, KeyError, TypeError):  # written by another version, or damaged
                state.figures = None

    @property
    def believed(self) -> bool:
        """Reports whether there are figures that need no confirmation."""
        return self._state.figures is not None and not self.doubted

    def measure(self, reason: str, quick: bool) -> Exception | None:
        """Measures the path; returns the error, or None on success.

        reason: why the path is measured; quick: measure with less precision.
        """
        try:
            figures, limits = self._path.measure(quick)
            self.limits = limits
            self.waits = self.slipped = False
            if quick and self.known is not None and (known_figures := self._state.figures):
                delayed = waiting(self.known, known_figures, figures)
                self.waits, self.slipped = bool(delayed), is_as_before(self.known, figures)
                kept = known_figures if self.slipped else {}
                figures = delayed or kept or grown(self.known, figures)
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
        assert self.known is not None
        return moved(before, self.known, self._path.in_effect(), classes)

    def is_same(self, before: Measured, classes: Collection[int]) -> bool:
        assert self.known is not None
        return same(before, self.known, self._path.in_effect(), classes)

    def kept(self) -> Kept:
        state = self._state
        return Kept(self.known, state.figures, state.measured_at, state.reason)

    def confirm(self, kept: Kept) -> None:
        state = self._state
        self.known, state.figures = kept.known, kept.figures
        state.measured_at, state.reason = kept.measured_at, kept.reason
        state.confirmed_at, self.closely_at = self._clock(), None

    def is_due_closely(self, now: float) -> bool:
        return self.closely_at is not None and now >= self.closely_at
