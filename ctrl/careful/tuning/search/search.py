"""Tries ways to send a path's messages if no model says which is best.

Owns the classes that are searched at the same time, and restores the values when a search ends or
is interrupted. A result is only a candidate for an A/B (policy.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from careful.tuning.path import Live, Path
from careful.tuning.search.candidates import Best, Search
from careful.tuning.settings import NET_TX, Value
from careful.tuning.state import PathState
from careful.tuning.trial.alternating import Alternating
from careful.tuning.verify import Counts

#: Longest search, seconds; then the best so far is taken.
SEARCH_S_MAX = 600.0
#: Share of SEARCH_S_MAX for all first turns, so that each way has a turn.
FIRST_SHARE = 0.5


class SearchRun:
    """The searches under way on a path.

    Args:
        state: stores the values to restore, for a successor.
        searches: by class, begun or not.
        save: stores the state; called before any value changes.
        now, began: the time now and when the searches began, seconds.
    """

    def __init__(
        self,
        path: Path,
        state: PathState,
        searches: Mapping[int, Search],
        save: Callable[[], None],
        now: float,
        began: float,
    ) -> None:
        self.searches = searches
        self._path, self._state, self._began = path, state, began
        values = path.in_effect()
        items = [item for index in searches for item in (index, NET_TX + index)]
        state.put_back = {item: values[item] for item in items}
        save()
        self._turns = Alternating(path, self._trial_values(), now)
        self._base = True  # the values before the search are in effect
        self._turn_at = dict.fromkeys(searches, now)  # when a class's turn began

    def _trial_values(self) -> dict[int, Value]:
        values: dict[int, Value] = {}
        for search in self.searches.values():
            if not search.over:
                values |= search.way.values
        return values

    def end(self) -> None:
        if not self._base:
            restore(self._path, self._state)
        self._state.put_back = {}

    def _unfinished(self) -> dict[int, Search]:
        return {index: search for index, search in self.searches.items() if not search.over}

    def collect(self, live: Live, now: float) -> None:
        trials = {index: search.way.trial for index, search in self._unfinished().items()}
        self._turns.collect(trials, live, now)

    def skip(self, live: Live) -> None:
        self._turns.skip(live)

    def step(self, live: Live, now: float) -> str:
        """Advances the searches; returns "", "over", "quiet" (no messages), or "by hand"."""
        turns, unfinished = self._turns, self._unfinished()
        self.collect(live, now)
        changed = [search for index, search in unfinished.items() if self._look(index, search, now)]
        open_ = [index for index, search in unfinished.items() if not search.over]
        if not open_ or now - self._began > SEARCH_S_MAX:
            return "over"
        if all(turns.is_quiet(index, now) for index in open_):
            return "over" if len(open_) < len(self.searches) else "quiet"
        if not (changed and self._base):
            # A signal may interrupt flip(): until it returns, either values may be in effect.
            base, self._base = self._base, False
            if not turns.flip():
                return "by hand"
            self._base = not base
        if changed:
            turns.renew(self._trial_values())
        return ""

    def _look(self, index: int, search: Search, now: float) -> bool:
        late = now - self._turn_at[index] > FIRST_SHARE * SEARCH_S_MAX / search.ways_count
        if not search.look(late):
            return False
        self._turn_at[index] = now
        return True

    def best(self) -> dict[int, Best]:
        found = {index: search.best() for index, search in self.searches.items()}
        return {index: best for index, best in found.items() if best}

    def base_counts(self, live: Live) -> dict[int, Counts]:
        version = self._turns.versions[0]
        return {index: live.get((index, version), Counts()) for index in self.searches}


def restore(path: Path, state: PathState) -> None:
    """Restores the values before a search, except those set by hand since."""
    pinned = path.by_hand()
    path.settle({item: value for item, value in state.put_back.items() if item not in pinned})
    state.put_back = {}
