"""The classes of a path whose best way to be sent is searched by trying, and what was found.

Owns which classes those are: messages come, and there is no prediction for them, or live messages
refuted it, and no search has ended; or messages take another time and the path does not, so that
it is their source; or a ramp may gain, by an order of the stages that nobody sees. Calls ways,
propose and trying; keeps state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from careful.model.stages import Limits
from careful.model.tunemap import TunePlan
from careful.tuning.items import Value
from careful.tuning.path import Live, Path, by_class, sent
from careful.tuning.propose import Measured, ramps_to_try
from careful.tuning.state import CHANGE_EVERY_S, Pair, PathState, Tried
from careful.tuning.trying import Trying
from careful.tuning.verify import Counts
from careful.tuning.ways import Search, reads, ways

#: Messages of a class that begin its search.
BEGIN_MESSAGES = 10


class Searches:
    """Those of a path, under way or interrupted.

    Attributes:
        stale: classes whose messages took another time since a search: there may be another.
        sources: classes whose messages take another time than they did, and the path does not.
    """

    def __init__(self, path: Path, state: PathState, save: Callable[[], None]) -> None:
        self.stale: set[int] = set()
        self.sources: set[int] = set()
        self._path, self._state, self._save = path, state, save
        self._searches: dict[int, Search] = {}
        self._ramps: dict[tuple[int, Value], list[TunePlan]] = {}  # beside a plan in effect
        self._began = 0.0
        self._stopped: float | None = None  # when the one under way was, that may go on
        self._seen: dict[int, Counts] = {}
        self.seen(path.live())

    def seen(self, live: Live) -> None:
        """Only messages that come from now on begin a search."""
        self._seen = sent(by_class(live))

    def stopped(self, now: float) -> None:
        """What passes until a search goes on is none of its time."""
        self._stopped = now

    def clear(self) -> None:
        """What is known of the ways is of another path."""
        self._searches.clear()
        self._ramps.clear()

    def forget(self) -> None:
        """So is what was found."""
        self.clear()
        self.sources.clear()
        self._state.tried.clear()

    def begin(
        self, live: Live, known: Measured | None, due: bool, limits: Limits, now: float
    ) -> tuple[Trying | None, int]:
        """Begin, or go on, with the classes that need it, and how many ways are new.

        Args:
            live: the messages so far.
            known: the model; None: nothing is predicted.
            due: whether a change is, though no source has changed.
            limits: payload of a frame.
            now: seconds.
        """
        found = self._untold(live, known is not None, due, now)
        if not found:
            return None, 0
        values, pinned = self._path.in_effect(), self._path.by_hand()
        if known and set(found.values()) == {"ramps"} and self._priced(known, values, found):
            return None, 0
        if not self._searches or self._stopped is None:
            self._began = now
        else:
            self._began += now - self._stopped
        self._stopped = now
        count, going = 0, {}
        for index, kind in found.items():
            if index not in self._searches:
                if kind == "ramps":
                    ramps = self._ramps.get((index, values[index]), [])
                    if not ramps or index in pinned:
                        continue
                    one = Search([{index: ramp} for ramp in ramps], kind)
                else:
                    candidates = reads if kind == "reads" else ways
                    one = Search(candidates(index, values, limits, pinned), kind)
                count += one.ways_count
                if one.over:
                    self._state.tried[index] = self._told(index, one, False, now)
                    self.sources.discard(index)
                    continue
                self._searches[index] = one
            going[index] = self._searches[index]
        if not going:
            return None, 0
        return Trying(self._path, self._state, going, self._save, now, self._began), count

    def _priced(self, known: Measured, values: Sequence[Value], classes: Iterable[int]) -> bool:
        """Find ramps for one of some classes: that takes a tenth of a second. False: all had it."""
        for index in classes:
            plan = values[index]
            assert isinstance(plan, TunePlan)
            if (index, plan) not in self._ramps:
                self._ramps[index, plan] = ramps_to_try(known, index, plan)
                return True
        return False

    def _untold(self, live: Live, predicted: bool, due: bool, now: float) -> dict[int, str]:
        """Classes with messages of which too little is known, and the kind of their search."""
        state, found = self._state, dict[int, str]()
        for index, one in sent(by_class(live)).items():
            came = one.since(self._seen.get(index, Counts())).count
            if came < BEGIN_MESSAGES or index in state.unverified:
                continue
            tried = state.tried.get(index)
            wrong = not predicted or state.is_refuted(index)
            never = tried is None or not tried.of_all
            if due and wrong and (never or index in self.stale):
                found[index] = "ways"
            elif index in self.sources and (tried is None or now >= tried.at_s + CHANGE_EVERY_S):
                found[index] = "reads"
            elif due and predicted and tried is None:
                found[index] = "ramps"
        return found

    def _told(self, index: int, search: Search, found: bool, now: float) -> Tried:
        """What is known of a class now; what an earlier search found stays what that one says."""
        before = self._state.tried.get(index)
        if before and before.found and not found:
            return replace(before, at_s=now)
        kind = search.kind
        return Tried(now, search.ways_count, found, reads=kind == "reads", ramps=kind == "ramps")

    def found(self, trying: Trying, now: float) -> tuple[dict[int, Pair], dict[int, Any]]:
        """The changes that one led to, by item, and what they looked to gain."""
        tried, best, values = self._state.tried, trying.best(), self._path.in_effect()
        for index, search in trying.searches.items():
            self._searches.pop(index, None)
            self.stale.discard(index)
            if not search.early:  # the others have their turn when a change is due again
                self.sources.discard(index)
            if search.judged:
                tried[index] = self._told(index, search, index in best, now)
        self._began = now
        pairs: dict[int, Pair] = {}
        figures: dict[int, dict[str, Any]] = {}
        for index, way in best.items():
            count = trying.searches[index].ways_count
            what = "ramps" if trying.searches[index].kind == "ramps" else "ways"
            said = f"the best of {count} {what} that were tried, there {way.gain:.0%} faster"
            for item, value in way.values.items():
                pairs[item] = Pair(values[item], value)
                figures[item] = {"said": said, "ways_count": count, "gain_share": way.gain}
        return pairs, figures
