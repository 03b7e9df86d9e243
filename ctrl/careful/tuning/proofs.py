"""The A/Bs of a path's changes: the one under way, and what is known of those that are unverified.

Owns when a change that nothing has confirmed is tried again, and what becomes of it: what held
stays, what did not is undone, of the rest more messages tell. Calls ab, path; keeps state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from careful.jsonout import Json
from careful.tuning.ab import AB, ours
from careful.tuning.items import told_by
from careful.tuning.path import Path, by_class
from careful.tuning.state import Pair, PathState
from careful.tuning.verify import Counts, Trial

#: Messages of an unverified change that begin its A/B.
RETRY_MESSAGES = 10

#: What was decided of some changes: a word, those, and the verdicts for JSON.
Told = tuple[str, dict[int, Pair], dict[int, Json]]


class Proofs:
    """Those of a path.

    Args:
        path: where.
        state: keeps what is on trial, unverified and refuted; saved by the caller.
        now: seconds.

    Attributes:
        test: the A/B under way.
    """

    def __init__(self, path: Path, state: PathState, now: float) -> None:
        self.test: AB | None = None
        self._path, self._state = path, state
        self._trials: dict[int, Trial] = {}
        self._arrived: dict[int, int] = {}  # messages, when a change was left unverified
        self._since = (now, by_class(path.live()))

    def forget(self) -> None:
        """What messages took tells no more: the path is another."""
        self._trials.clear()

    def anew(self, items: Iterable[int]) -> None:
        """Of these there is another change."""
        for item in items:
            self._trials.pop(item, None)
            self._state.unverified.pop(item, None)

    def ready(self, totals: Mapping[int, Counts]) -> dict[int, Pair]:
        """Unverified changes of which messages came, as many as begin an A/B."""
        state = self._state
        ready = {
            item
            for item in state.unverified
            if _count(totals, item)
            >= self._arrived.setdefault(item, _count(totals, item)) + RETRY_MESSAGES
        }
        if not ready:  # what was set by hand is not looked for at each look: that is dear
            return {}
        state.unverified = ours(self._path, state.unverified)
        return {item: state.unverified[item] for item in ready & state.unverified.keys()}

    def begin(self, pairs: dict[int, Pair], now: float, fresh: bool) -> None:
        """An A/B. fresh: what is in effect is what was before."""
        began, before = self._since
        totals = by_class(self._path.live())
        apart_s = {}
        for item in pairs:
            count = _count(totals, item) - _count(before, item)
            apart_s[item] = (now - began) / count if count > 0 else 0.0
        self.test = AB(self._path, pairs, self._trials, now, fresh, apart_s)

    def finish(self, now: float, decided: bool) -> list[Told]:
        """Keep what held, undo what did not, and mark the rest.

        decided: it ended because of what it says, so the rest goes on where messages flow.
        """
        assert self.test is not None
        test, state, self.test = self.test, self._state, None
        found = test.outcome(ours(self._path, test.pairs), now)
        effect = {item: pair.after for item, pair in (found.kept | found.open).items()}
        effect |= {item: pair.before for item, pair in found.undone.items()}
        self._path.settle(effect)
        state.plans |= effect
        state.on_trial = {}
        totals = by_class(self._path.live())
        for item in found.kept | found.undone:
            state.unverified.pop(item, None)
            self._trials.pop(item, None)
        state.unverified |= found.open
        for item in found.open:
            flows = decided and not test.quiet(item, now)
            self._arrived[item] = _count(totals, item) - RETRY_MESSAGES * flows
        state.refute(found.undone)
        told = [("kept", found.kept), ("undone", found.undone)]
        told += [("unverified", found.open)] * test.fresh
        return [(what, pairs, found.said()) for what, pairs in told if pairs]


def _count(totals: Mapping[int, Counts], item: int) -> int:
    return totals.get(told_by(item), Counts()).count
