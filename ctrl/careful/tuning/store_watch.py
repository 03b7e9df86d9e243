"""The store behind one peer's messages, as they flow: when it is known, and when it is another.

Owns the windows of writes that this takes, and the trial of other writes where all are alike.
Calls stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from careful.jsonout import Json
from careful.tuning.items import STORE, Pulse, Value
from careful.tuning.state import PathState
from careful.tuning.stores import MESSAGES_MIN, Totals, another, fit, kept

#: A window closes after so many writes and so long, seconds, whichever is later.
WINDOW_WRITES = 8
WINDOW_S = 0.2
#: The first window goes on until each class that came has messages enough, or so many came in all:
#: where sizes are mixed, a short one has too few of any.
FIRST_MESSAGES = 60
#: Windows in turn that must agree on another store; the last of them goes on, as the first does.
AGREEING = 2
#: Windows after a store became known in which better figures of it may still answer.
SETTLING = 16
#: Writes after which newer ones take their place in the figures.
FRESH_WRITES = 1000
#: Other writes are made on purpose until there are so many, or for so long, seconds.
EXPLORE_WRITES, EXPLORE_S, EXPLORE_LOOK_S = 32, 2.0, 0.1
#: They begin with this share of a message.
EXPLORE_SHARE = 1 / 8


class Path(Protocol):
    """What exploring does to a path (path.Path)."""

    def in_effect(self) -> tuple[Value, ...]:
        """Values of all items: plans, and thresholds of store and netTx."""

    def settle(self, values: dict[int, Value], /) -> None:
        """Put values into effect."""

    def stored(self) -> Totals:
        """What was written to files."""

    def wait(self, seconds: float, /) -> None:
        """Let messages flow."""


def _has_enough(window: Totals) -> bool:
    counts = [one.count for one in window.came.values() if one.count]
    return min(counts, default=0) >= MESSAGES_MIN or sum(counts) >= FIRST_MESSAGES


class StoreWatch:
    """What is known of a store, and since when.

    Args:
        before: as_dict() of what an earlier process knew; what flows shows whether it is so
            still. Without g and G it begins anew.

    Attributes:
        known: None until there were enough writes.
    """

    def __init__(self, before: Json | None = None) -> None:
        known = kept(before or {})
        self.known = known if known and known.told_apart else None
        self._since: Totals | None = None  # of the figures
        self._window: tuple[Totals, float] | None = None
        self._agreeing = self._settling = 0
        self._explored = False

    def as_dict(self) -> Json | None:
        """For whoever goes on; None where nothing is known."""
        return self.known.as_dict() if self.known else None

    def look(self, totals: Totals, now: float) -> str:
        """What is to be answered: a "first" store, "another", "better" figures of it, or "".

        totals: what was counted so far; now: seconds.
        """
        if self._window is None or self._since is None:
            self._since, self._window = totals, (totals, now)
            return ""
        began, at = self._window
        window = totals.since(began)
        if window.writes_count < WINDOW_WRITES or now - at < WINDOW_S:
            return ""
        if self.known is None:
            told = _has_enough(window) and self._begin(began, totals)
            self._window = (totals, now) if told else self._window
            return "first" if told else ""
        self._agreeing = self._agreeing + 1 if another(self.known, window) else 0
        if self._agreeing >= AGREEING and not self._begin(began, totals):
            return ""
        self._window = (totals, now)
        if self._agreeing >= AGREEING:
            self._agreeing = 0
            return "another"
        if self._agreeing:
            return ""
        settling, self._settling = self._settling, max(0, self._settling - 1)
        if settling or totals.since(self._since).writes_count >= FRESH_WRITES:
            self._refine(totals)
        return "better" if settling else ""

    def _begin(self, since: Totals, totals: Totals) -> bool:
        found = fit(totals.since(since))
        if found is None:
            return False
        self.known, self._since = found, since
        self._settling, self._explored = SETTLING, False
        return True

    def _refine(self, totals: Totals) -> None:
        assert self._since is not None
        seen = totals.since(self._since)
        self.known = fit(seen) or self.known
        if seen.writes_count >= FRESH_WRITES:
            self._since = totals

    @property
    def settling(self) -> bool:
        """Reports whether it became known just now, and figures of it get better."""
        return self._settling > 0

    # --- where all writes are alike

    def untold(self, but: frozenset[int]) -> int | None:
        """The item whose messages shall be written otherwise, to tell g from G; None: none.

        but: items that are not ours to change.
        """
        known = self.known
        if known is None or known.told_apart or self._explored:
            return None
        found = [
            (one.count, STORE + index)
            for index, one in known.came.items()
            if one.frames >= 2 * one.count and STORE + index not in but
        ]
        return max(found)[1] if found else None

    def explore(self, item: int, path: Path, state: PathState, save: Callable[[], None]) -> None:
        """Write parts of messages for a moment: a measurement, no change.

        Whoever goes on if we are killed meanwhile puts back what was.
        """
        assert self.known is not None
        self._explored = True
        one = self.known.came[item - STORE]
        before = path.in_effect()[item]
        part = Pulse(math.ceil(EXPLORE_SHARE * one.nbytes / one.count))
        state.put_back = {item: before}
        save()
        began, waited = path.stored(), 0.0
        try:
            path.settle({item: part})
            while waited < EXPLORE_S and path.stored().since(began).writes_count < EXPLORE_WRITES:
                path.wait(EXPLORE_LOOK_S)
                waited += EXPLORE_LOOK_S
        finally:
            path.settle({item: before})
            state.put_back = {}
            save()
        self._refine(path.stored())
