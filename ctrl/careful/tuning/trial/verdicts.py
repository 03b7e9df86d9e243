"""The A/Bs of a path's changes: the one under way, and the messages of unverified changes.

Owns when an unverified change is tried again, and what follows from an A/B: a change that held
stays, a change that did not hold is undone, and any other change stays unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from careful.jsonout import Json
from careful.tuning.path import Path, by_class
from careful.tuning.settings import measured_item
from careful.tuning.state import Pair, PathState
from careful.tuning.trial.ab import AB, ours
from careful.tuning.verify import Counts, Trial

#: Number of new messages that begin the A/B of an unverified change.
RETRY_MESSAGES = 10

#: A result: a word, the changes, and the verdicts for JSON.
Result = tuple[str, dict[int, Pair], dict[int, Json]]


class Verification:
    """The A/Bs of a path.

    state: holds changes on trial, unverified and refuted; saved by the caller.
    """

    def __init__(self, path: Path, state: PathState, now: float) -> None:
        self.test: AB | None = None
        self._path, self._state = path, state
        self._trials: dict[int, Trial] = {}
        self._arrived: dict[int, int] = {}  # item -> messages when its change was left unverified
        self._since = (now, by_class(path.live()))

    def forget(self) -> None:
        self._trials.clear()

    def drop(self, items: Iterable[int]) -> None:
        """Drops the messages of earlier changes of these items."""
        for item in items:
            self._trials.pop(item, None)
            self._state.unverified.pop(item, None)

    def ready(self, totals: Mapping[int, Counts]) -> dict[int, Pair]:
        """Returns the unverified changes with enough new messages to begin an A/B."""
        state = self._state
        ready = {
            item
            for item in state.unverified
            if _count(totals, item)
            >= self._arrived.setdefault(item, _count(totals, item)) + RETRY_MESSAGES
        }
        if not ready:  # reading the items set by hand is expensive
            return {}
        state.unverified = ours(self._path, state.unverified)
        return {item: state.unverified[item] for item in ready & state.unverified.keys()}

    def begin(self, pairs: dict[int, Pair], now: float, is_first: bool) -> None:
        began, before = self._since
        totals = by_class(self._path.live())
        message_gap_s = {}
        for item in pairs:
            count = _count(totals, item) - _count(before, item)
            message_gap_s[item] = (now - began) / count if count > 0 else 0.0
        self.test = AB(self._path, pairs, self._trials, now, is_first, message_gap_s)

    def finish(self, now: float, decided: bool) -> list[Result]:
        """Keeps changes that held, undoes those that did not, and marks the rest as unverified.

        decided: a verdict ended the A/B, so undecided changes resume if messages still come.
        """
        assert self.test is not None
        test, state, self.test = self.test, self._state, None
        outcome = test.outcome(ours(self._path, test.pairs), now)
        effect = {item: pair.after for item, pair in (outcome.held | outcome.undecided).items()}
        effect |= {item: pair.before for item, pair in outcome.undone.items()}
        self._path.settle(effect)
        state.plans |= effect
        state.on_trial = {}
        totals = by_class(self._path.live())
        for item in outcome.held | outcome.undone:
            state.unverified.pop(item, None)
            self._trials.pop(item, None)
        state.unverified |= outcome.undecided
        for item in outcome.undecided:
            flows = decided and not test.is_quiet(item, now)
            self._arrived[item] = _count(totals, item) - RETRY_MESSAGES * flows
        state.refute(outcome.undone)
        results = [("kept", outcome.held), ("undone", outcome.undone)]
        results += [("unverified", outcome.undecided)] * test.is_first
        return [(what, pairs, outcome.summary()) for what, pairs in results if pairs]


def _count(totals: Mapping[int, Counts], item: int) -> int:
    return totals.get(measured_item(item), Counts()).count
