"""Watches the writes of one peer's messages, and reports when the store is known or has changed.

If all writes have one size, explores other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from careful.jsonout import Json
from careful.tuning.path import Path
from careful.tuning.settings import STORE, Pulse
from careful.tuning.state import PathState
from careful.tuning.store_model import MESSAGES_MIN, Totals, fit, is_another_store, store_from_dict

#: A window closes after this many writes and seconds, whichever is later.
WINDOW_WRITES = 8
WINDOW_S = 0.2
#: The first window also needs enough messages of each class that it has, or this many in all.
FIRST_MESSAGES = 60
#: Consecutive windows that must differ from the known store. The last of them stays open until it
#: gives figures, like the first window.
AGREEING = 2
#: Windows, counted since the store is known, in which better figures may change a threshold.
SETTLING = 16
#: Writes after which the figures use newer writes only.
FRESH_WRITES = 1000
#: Limits of an exploration, in writes and seconds, and the time between looks.
EXPLORE_WRITES, EXPLORE_S, EXPLORE_LOOK_S = 32, 2.0, 0.1
#: Threshold during an exploration, as a share of a message.
EXPLORE_SHARE = 1 / 8


def _has_enough(window: Totals) -> bool:
    counts = [arrivals.count for arrivals in window.came.values() if arrivals.count]
    return min(counts, default=0) >= MESSAGES_MIN or sum(counts) >= FIRST_MESSAGES


class StoreWatch:
    """Watches the store of one peer's messages.

    before: as_dict() of an earlier process, dropped if g and G are not separate in it; new writes
    check it.

    known: the store's figures; None until there were enough writes.
    """

    def __init__(self, before: Json | None = None) -> None:
        known = store_from_dict(before or {})
        self.known = known if known and known.told_apart else None
        self._since: Totals | None = None  # start of the writes in the figures
        self._window: tuple[Totals, float] | None = None
        self._agreeing = self._settling = 0
        self._explored = False

    def as_dict(self) -> Json | None:
        return self.known.as_dict() if self.known else None

    def look(self, totals: Totals, now: float) -> str:
        """Returns what happened: "first" store, "another" store, "better" figures, or "".

        totals: counted so far; now: seconds.
        """
        if self._window is None or self._since is None:
            self._since, self._window = totals, (totals, now)
            return ""
        began, at = self._window
        window = totals.since(began)
        if window.writes_count < WINDOW_WRITES or now - at < WINDOW_S:
            return ""
        if self.known is None:
            is_known = _has_enough(window) and self._begin(began, totals)
            self._window = (totals, now) if is_known else self._window
            return "first" if is_known else ""
        self._agreeing = self._agreeing + 1 if is_another_store(self.known, window) else 0
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
        store = fit(totals.since(since))
        if store is None:
            return False
        self.known, self._since = store, since
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
        """Reports whether the store is known only for SETTLING windows, so that figures improve."""
        return self._settling > 0

    # --- exploration with other write sizes

    def item_to_explore(self, but: frozenset[int]) -> int | None:
        """Returns the item whose writes must vary to separate g from G, or None.

        but: items that the controller must not change.
        """
        known = self.known
        if known is None or known.told_apart or self._explored:
            return None
        items = [
            (arrivals.count, STORE + index)
            for index, arrivals in known.came.items()
            if arrivals.frames >= 2 * arrivals.count and STORE + index not in but
        ]
        return max(items)[1] if items else None

    def explore(self, item: int, path: Path, state: PathState, save: Callable[[], None]) -> None:
        """Lowers an item's threshold for a moment, so that smaller writes separate g from G.

        If this process is killed, its successor restores the threshold.
        """
        assert self.known is not None
        self._explored = True
        arrivals = self.known.came[item - STORE]
        before = path.in_effect()[item]
        pulse = Pulse(math.ceil(EXPLORE_SHARE * arrivals.nbytes / arrivals.count))
        state.put_back = {item: before}
        save()
        began, waited = path.stored(), 0.0
        try:
            path.settle({item: pulse})
            while waited < EXPLORE_S and path.stored().since(began).writes_count < EXPLORE_WRITES:
                path.wait(EXPLORE_LOOK_S)
                waited += EXPLORE_LOOK_S
        finally:
            path.settle({item: before})
            state.put_back = {}
            save()
        self._refine(path.stored())
