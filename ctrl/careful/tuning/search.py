"""Tries ways to send a path's messages if no model says which is best.

Owns the classes that are searched at the same time, and restores the values when a search ends or
is interrupted. A result is only a candidate for an A/B (decide.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from careful.tuning.alternating import Alternating
from careful.tuning.candidates import Best, Search
from careful.tuning.path import Live, Path
from careful.tuning.settings import NET_TX, Value
from careful.tuning.state import PathState
from careful.tuning.verify import Counts

#: Longest search, seconds; then the best so far is taken.
SEARCH_S_MAX = 600.0
#: Share of it that all first turns may use, so that the last way has a turn too.
FIRST_SHARE = 0.5


class Trying:
    """The searches under way on a path.

    Args:
        path: the path.
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
        self._turns = Alternating(path, self._beside(), now)
        self._base = True  # the values before the search are in effect
        self._turn_at = dict.fromkeys(searches, now)  # when a class's turn began

    def _beside(self) -> dict[int, Value]:
        beside: dict[int, Value] = {}
        for search in self.searches.values():
            if not search.over:
                beside |= search.way.values
        return beside

    def end(self) -> None:
        if not self._base:
            restore(self._path, self._state)
        self._state.put_back = {}

    def _going(self) -> dict[int, Search]:
        return {index: one for index, one in self.searches.items() if not one.over}

    def collect(self, live: Live, now: float) -> None:
        trials = {index: one.way.trial for index, one in self._going().items()}
        self._turns.collect(trials, live, now)

    def skip(self, live: Live) -> None:
        self._turns.skip(live)

    def step(self, live: Live, now: float) -> str:
        """Advances: returns "" to continue, "over", "quiet" without messages, or "by hand"."""
        turns, going = self._turns, self._going()
        self.collect(live, now)
        changed = [one for index, one in going.items() if self._look(index, one, now)]
        open_ = [index for index, one in going.items() if not one.over]
        if not open_ or now - self._began > SEARCH_S_MAX:
            return "over"
        if all(turns.quiet(index, now) for index in open_):
            return "over" if len(open_) < len(self.searches) else "quiet"
        if not (changed and self._base):
            # assume the other until the flip is confirmed: a signal may interrupt it
            base, self._base = self._base, False
            if not turns.flip():
                return "by hand"
            self._base = not base
        if changed:
            turns.renew(self._beside())
        return ""

    def _look(self, index: int, search: Search, now: float) -> bool:
        late = now - self._turn_at[index] > FIRST_SHARE * SEARCH_S_MAX / search.ways_count
        if not search.look(late):
            return False
        self._turn_at[index] = now
        return True

    def best(self) -> dict[int, Best]:
        best = {index: one.best() for index, one in self.searches.items()}
        return {index: one for index, one in best.items() if one}

    def base_counts(self, live: Live) -> dict[int, Counts]:
        version = self._turns.versions[0]
        return {index: live.get((index, version), Counts()) for index in self.searches}


def restore(path: Path, state: PathState) -> None:
    """Restores the values before a search, except those set by hand since."""
    pinned = path.by_hand()
    path.settle({item: one for item, one in state.put_back.items() if item not in pinned})
    state.put_back = {}
