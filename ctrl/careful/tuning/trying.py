"""Trying ways to send a path's messages, where no model says which is best.

Owns the classes that are searched at the same time, and that what was in effect is so again when
it ends, or is interrupted. What is found is only worth an A/B: decide.py's.
Calls alternating, ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from careful.tuning.alternating import Alternating
from careful.tuning.items import NET_TX, Value
from careful.tuning.path import Live, Path
from careful.tuning.state import PathState
from careful.tuning.verify import Counts
from careful.tuning.ways import Search, Way

#: Longest search, seconds: then the best so far is taken.
SEARCH_S_MAX = 600.0
#: The share of it that is for all ways' first turns: where messages are few or slow, a turn ends
#: with fewer of them, so that the last way has one, too.
FIRST_SHARE = 0.5


class Trying:
    """The searches under way on a path.

    Args:
        path: where.
        state: keeps what is to be put back, for whoever goes on.
        searches: by class, begun or not.
        save: keeps the state; called before anything else is in effect.
        now, began: seconds; when it is, and when the searches began.
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
        self._base = True  # whether what was in effect has its turn
        self._turn_at = dict.fromkeys(searches, now)  # when a class's turn began

    def _beside(self) -> dict[int, Value]:
        beside: dict[int, Value] = {}
        for search in self.searches.values():
            if not search.over:
                beside |= search.way.values
        return beside

    def end(self) -> None:
        """Put back what was in effect."""
        if not self._base:
            restore(self._path, self._state)
        self._state.put_back = {}

    def _going(self) -> dict[int, Search]:
        return {index: one for index, one in self.searches.items() if not one.over}

    def collect(self, live: Live, now: float) -> None:
        """What came since the last flip, into the ways' arms."""
        trials = {index: one.way.trial for index, one in self._going().items()}
        self._turns.collect(trials, live, now)

    def skip(self, live: Live) -> None:
        """What came since the last flip counts for none."""
        self._turns.skip(live)

    def step(self, live: Live, now: float) -> str:
        """What became of it: "" it goes on, "over", "quiet" without messages, "by hand"."""
        turns, going = self._turns, self._going()
        self.collect(live, now)
        changed = [one for index, one in going.items() if self._look(index, one, now)]
        open_ = [index for index, one in going.items() if not one.over]
        if not open_ or now - self._began > SEARCH_S_MAX:
            return "over"
        if all(turns.quiet(index, now) for index in open_):
            return "over" if len(open_) < len(self.searches) else "quiet"
        if not (changed and self._base):
            base, self._base = self._base, False  # until that is known: a signal may end the flip
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

    def best(self) -> dict[int, Way]:
        """The best way of each class that has one."""
        best = {index: one.best() for index, one in self.searches.items()}
        return {index: way for index, way in best.items() if way}

    def base_counts(self, live: Live) -> dict[int, Counts]:
        """Messages that were sent as before."""
        version = self._turns.versions[0]
        return {index: live.get((index, version), Counts()) for index in self.searches}


def restore(path: Path, state: PathState) -> None:
    """Put back what was in effect of what nobody has set by hand since."""
    pinned = path.by_hand()
    path.settle({item: one for item, one in state.put_back.items() if item not in pinned})
    state.put_back = {}
