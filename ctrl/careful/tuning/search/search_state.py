"""The searches of a path for the best way to send, by class, and their results.

A class is searched once, if it has messages, and no prediction or a refuted one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from careful.jsonout import Json
from careful.plan import Limits
from careful.tuning.path import Live, Path, by_class, sent
from careful.tuning.search.candidates import Search
from careful.tuning.search.search import SearchRun
from careful.tuning.state import Pair, PathState, Tried
from careful.tuning.verify import Counts

#: New messages of a class that begin its search.
BEGIN_MESSAGES = 10


class Searches:
    """The searches of a path, under way or interrupted.

    stale: classes whose messages shifted since their search, so that another way may be best.
    """

    def __init__(self, path: Path, state: PathState, save: Callable[[], None]) -> None:
        self.stale: set[int] = set()
        self._path, self._state, self._save = path, state, save
        self._searches: dict[int, Search] = {}
        self._began = 0.0
        self._stopped: float | None = None  # when the interrupted search stopped
        self._seen: dict[int, Counts] = {}
        self.mark_seen(path.live())

    def mark_seen(self, live: Live) -> None:
        self._seen = sent(by_class(live))

    def interrupted(self, now: float) -> None:
        """Records when a search stopped: the time until it resumes does not count."""
        self._stopped = now

    def clear(self) -> None:
        self._searches.clear()

    def forget(self) -> None:
        self.clear()
        self._state.tried.clear()

    def begin(
        self, live: Live, predicted: bool, limits: Limits, now: float
    ) -> tuple[SearchRun | None, int]:
        """Begins or resumes the searches that are needed; returns them and the number of new ways.

        predicted: a model predicts latencies; limits: payload of a frame.
        """
        classes = self._due_classes(live, predicted)
        if not classes:
            return None, 0
        values, pinned = self._path.in_effect(), self._path.by_hand()
        if not self._searches or self._stopped is None:
            self._began = now
        else:
            self._began += now - self._stopped
        self._stopped = now
        count, searches = 0, {}
        for index in classes:
            if index not in self._searches:
                search = Search(index, values, limits, pinned)
                count += search.ways_count
                if search.over:
                    self._state.tried[index] = self._result(index, search, False, now)
                    continue
                self._searches[index] = search
            searches[index] = self._searches[index]
        if not searches:
            return None, 0
        return SearchRun(self._path, self._state, searches, self._save, now, self._began), count

    def _due_classes(self, live: Live, predicted: bool) -> list[int]:
        state = self._state
        return [
            index
            for index, counts in sent(by_class(live)).items()
            if counts.since(self._seen.get(index, Counts())).count >= BEGIN_MESSAGES
            and index not in state.unverified
            and (not predicted or state.is_refuted(index))
            and (index not in state.tried or index in self.stale)
        ]

    def _result(self, index: int, search: Search, found: bool, now: float) -> Tried:
        """Returns the result to store for a class: a way that an earlier search found stays."""
        before = self._state.tried.get(index)
        if before and before.found and not found:
            return replace(before, at_s=now)
        return Tried(now, search.ways_count, found)

    def finish(self, trying: SearchRun, now: float) -> tuple[dict[int, Pair], dict[int, Json]]:
        """Ends a search; returns the resulting changes and their apparent gains, by item."""
        tried, best, values = self._state.tried, trying.best(), self._path.in_effect()
        for index, search in trying.searches.items():
            self._searches.pop(index, None)
            self.stale.discard(index)
            if search.has_result:
                tried[index] = self._result(index, search, index in best, now)
        self._began = now
        pairs: dict[int, Pair] = {}
        figures: dict[int, Json] = {}
        for index, way in best.items():
            count = trying.searches[index].ways_count
            for item, value in way.values.items():
                pairs[item] = Pair(values[item], value)
                figures[item] = {"said": way.source, "ways_count": count, "gain_share": way.gain}
        return pairs, figures
