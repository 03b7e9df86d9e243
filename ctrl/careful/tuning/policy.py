"""The policy of `tune auto` for one path: when to measure, what to change, what to keep.

A change needs a predicted gain beyond its uncertainty. If there is no prediction, or live messages
refuted it, a search tries several ways. Every change is tried on live messages in an A/B and undone
if it does not hold. With too few messages the change stays, marked unverified, and the A/B resumes
when messages come. A steady path gets at most one change in ten minutes. A changed path is answered
at once; the next answer waits longer. The caller passes the clock and the path, so a test runs
hours in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from careful.jsonout import Json
from careful.tuning.ab import AB
from careful.tuning.measurements import Measuring
from careful.tuning.path import Live, Path, by_class, sent
from careful.tuning.propose import Measured, Row, proposed, unsure
from careful.tuning.search import Trying
from careful.tuning.search_state import Searches
from careful.tuning.settings import is_stored
from careful.tuning.shift_detector import Watch
from careful.tuning.state import CHANGE_EVERY_S, Pair, PathState
from careful.tuning.store_watch import StoreWatch
from careful.tuning.takeover import take_over
from careful.tuning.verdicts import Proofs
from careful.tuning.verify import Counts

#: Time between looks, seconds: when idle, and on average between two flips of an A/B.
LOOK_S, FLIP_S = 0.1, 0.03


class Controller:
    """The control loop of one path. Call `step` again after the seconds that it returns.

    Args:
        path: the path.
        state: the path's state; changed in place.
        clock: seconds; never goes back, even across restarts.
        save: stores the state; called after every change of it.
        say: called with each decision.
        returned: the state is from before another carefuld and must be confirmed.
    """

    def __init__(
        self,
        path: Path,
        state: PathState,
        clock: Callable[[], float],
        save: Callable[[], None] = lambda: None,
        say: Callable[[Json], None] = lambda _: None,
        seed: int | None = None,
        returned: bool = False,
    ) -> None:
        self.state = state
        self._path, self._clock, self._keep, self._say = path, clock, save, say
        self._random = random.Random(seed)
        self._watch, self._stores = Watch(), StoreWatch(state.store)
        self._trying: Trying | None = None
        self.searches = True  # the search for ways without a prediction is enabled
        self._searches = Searches(path, state, self._save)
        self._alone = True  # no other path is being measured
        self._proofs = Proofs(path, state, clock())
        self._measuring = Measuring(path, state, clock, returned)
        self._consider_at = clock()
        self._answers = False  # the path changed, and no change has answered it yet
        # the store changed, and items not in _answered have not answered it
        self._store_answers = False
        self._answered: set[int] = set()  # thresholds that answered the store's change
        self.considered = False  # the first round is over, except its A/B
        left = take_over(path, state)
        if left is not None:
            self._decide("unverified", left, "the controller was ended during the A/B")

    @property
    def trying(self) -> bool:
        return self._proofs.test is not None or self._trying is not None

    def step(self, alone: bool = True, /) -> float:
        """Does what is due; returns the seconds until the next step.

        alone: False while another path is measured. This path is then not measured, and shifts of
        its messages are ignored.
        """
        now, self._alone = self._clock(), alone
        proofs = self._proofs
        if proofs.test:
            self._advance(proofs.test, now)
            if proofs.test:
                return FLIP_S * self._random.uniform(0.6, 1.4)
            return LOOK_S
        measuring = self._measuring
        if not measuring.believed:
            if alone and now >= measuring.retry_at:
                self._stop_trying()
                self._begin()
            if not measuring.believed:
                self.considered |= alone
            if measuring.doubted:
                return LOOK_S
        if self._trying:
            self._search(self._trying, self._clock())
            return FLIP_S * self._random.uniform(0.6, 1.4)
        live = self._path.live()
        self._look(live, now)
        if not proofs.test:
            self._look_at_store(now)
        if not proofs.test and measuring.is_due_closely(now) and alone:
            measuring.closely_at = None
            self._measure("more closely", quick=False)
        elif not proofs.test and self._may_consider(now):
            self._consider(now)
        if not proofs.test:
            self._retry(live, now)
        if not proofs.test and alone:
            self._begin_trying(live, self._clock())
        return FLIP_S if self.trying else LOOK_S

    def collect(self, keep: bool, /) -> None:
        """Adds new messages to the A/B or search under way; keep False: ignores them."""
        under_way = self._proofs.test or self._trying
        if under_way and keep:
            under_way.collect(self._path.live(), self._clock())
        elif under_way:
            under_way.skip(self._path.live())

    def close(self) -> None:
        """Ends a search, undone, and an A/B: undecided changes stay, unverified."""
        self._stop_trying()
        if self._proofs.test:
            self._finish(self._clock(), "the controller ended")

    # --- the measurement

    def _begin(self) -> None:
        """Makes the first measurement, or confirms stored figures by a quick one."""
        measuring = self._measuring
        measuring.doubted = False
        before, kept = measuring.known, measuring.kept()
        if self.state.figures is None or before is None:
            self._measure("at the start", quick=False)
        elif not self._measure("what was kept is looked at", quick=True):
            measuring.doubted = True
        elif measuring.is_moved(before):
            self._path_changed("it is not as it was kept")
        else:
            measuring.confirm(kept)
            self._decide("path as before", {}, "it measures as it was kept")

    def _measure(self, reason: str, quick: bool) -> bool:
        try:
            error = self._measuring.measure(reason, quick)
            if error:
                self._decide("not measured", {}, f"{reason}: {error}")
                return False
        finally:
            self._watch.skip(by_class(self._path.live()))  # messages met the measurement's frames
        self._consider_at = self.state.measured_at
        self._searches.clear()
        self._save()
        return True

    def _is_another(self, before: Measured, classes: Sequence[int], said: str) -> bool | None:
        """Reports whether the path makes some classes' messages slower; None: unknown."""
        measuring = self._measuring
        if measuring.waits or measuring.is_moved(before, classes):
            return True
        if measuring.closely_at is None or measuring.is_same(before, classes):
            return False
        # The glance was not precise enough; measure closely now, even if the path is busy.
        if not self._measure(said, quick=False):
            return None
        return measuring.is_moved(before, classes)

    def _path_changed(self, why: str) -> None:
        self._answers = True
        self.state.refuted.clear()
        self._searches.forget()
        self._proofs.forget()
        self._decide("path changed", {}, why)

    # --- live messages, while nothing is on trial

    def _look(self, live: Live, now: float) -> None:
        shifted = self._shifted(sent(by_class(live)), now)
        if shifted and self.state.may_answer(now):
            self._answer(shifted, now)
        elif shifted:
            # on a path that keeps changing, a close measurement does not help
            self._measuring.closely_at = None

    def _retry(self, live: Live, now: float) -> None:
        if ready := self._proofs.ready(by_class(live)):
            self._try(ready, now, fresh=False)

    def _shifted(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        if self._alone:
            return self._watch.look(totals, now)
        self._watch.skip(totals)  # these messages may have met the measurement of another path
        return []

    def _look_at_store(self, now: float) -> bool:
        """Reports whether the store behind messages stored here has changed, and lets thresholds
        answer. Does nothing before the path is measured: an A/B of the store would delay that.
        """
        if self._measuring.known is None:
            return False
        seen = self._stores.look(self._path.stored(), now)
        another = seen == "another" and self.state.may_answer(now)
        if another:
            self.state.hold(now)
            for item in [one for one in self.state.refuted if is_stored(one)]:
                del self.state.refuted[item]
            if self._proofs.test:
                self._finish(now, "writes took another time meanwhile")
            self._decide("store changed", {}, "writes take another time than they did")
        if another or seen == "first":
            self._store_answers = True
            self._answered.clear()
        if seen:
            self._consider_at = now
        return another

    def _answer(self, shifted: Sequence[int], now: float) -> None:
        """Measures after live messages have shifted, and decides whether the path changed."""
        state, measuring = self.state, self._measuring
        before, kept = measuring.known, measuring.kept()
        self.state.hold(now)
        classes = ", ".join(str(index) for index in shifted)
        said = f"live messages of class {classes} took another time"
        # If the last quick measurement found nothing, a quick one is not used again.
        if not self._measure(said, quick=before is not None and not measuring.was_too_quick):
            if before is None:  # there are no figures, only results of searches
                self._watch.reset()
                self._searches.stale |= set(shifted)
            elif measuring.was_too_quick:  # a close measurement follows soon; retry after it
                state.held_until = self._clock() + state.hold_s / 10
            return
        self._watch.reset()
        another = before is None or self._is_another(before, shifted, said)
        if another is None:  # the close measurement failed, too
            measuring.confirm(kept)
            return
        if another:
            self._path_changed(f"{said}: frames wait for others'" if measuring.waits else said)
        else:
            measuring.confirm(kept)
            self._decide("path as before", {}, f"{said}, but it measures as before")
        self._consider(self._clock())
        known, quickly = measuring.known, measuring.closely_at is not None
        if self._answers and known and quickly and unsure(known, self._path.in_effect(), shifted):
            measuring.closely_at = self._clock()  # do not wait until the path is calm

    # --- changes

    def _consider(self, now: float) -> None:
        self.considered = True
        untold = self._untold()
        if untold is not None:
            self._stores.explore(untold, self._path, self.state, self._save)
        state, since = self.state, self.state.changed_at
        values, store = self._path.in_effect(), self._stores.known
        assert self._measuring.known is not None
        rows = proposed(self._measuring.known, store, values, self._path.by_hand())
        found = {
            item: row for item, row in rows.items() if row.best not in state.refuted.get(item, [])
        }
        due = self._is_due(now)
        ready = {item: row for item, row in found.items() if due or self._answers_store(item)}
        self._store_answers &= self._stores.settling
        self._consider_at = now + CHANGE_EVERY_S
        if not due and since is not None:
            self._consider_at = since + CHANGE_EVERY_S
        if ready:
            self._change(ready, now)
        elif not state.decisions or state.decisions[-1]["what"] != "nothing to change":
            why = "no plan gains more than its uncertainty"
            if found:
                why = f"{len(found)} classes wait: one change in {CHANGE_EVERY_S:.0f} s"
            self._decide("nothing to change", {}, why)
        else:
            self._save()

    def _untold(self) -> int | None:
        return self._stores.untold(self._path.by_hand())

    def _may_consider(self, now: float) -> bool:
        if self._measuring.known is None or now < self._consider_at:
            return False
        return self._alone or self._untold() is None

    def _answers_store(self, item: int) -> bool:
        """Reports whether the item is a threshold that has not answered the store's change yet."""
        return is_stored(item) and self._store_answers and item not in self._answered

    def _is_due(self, now: float) -> bool:
        since = self.state.changed_at
        return since is None or self._answers or now >= since + CHANGE_EVERY_S

    def _change(self, found: Mapping[int, Row], now: float) -> None:
        gains = {
            item: {
                "said": f"predicted gain {row.gain_us.low:.1f} to {row.gain_us.high:.1f} µs",
                **row.gain_us.figures("gain", "us"),
            }
            for item, row in found.items()
        }
        for item in found:
            self.state.tried.pop(item, None)
        pairs = {item: Pair(row.now, row.best) for item, row in found.items()}
        self._push(pairs, "prediction", gains, now)

    def _push(
        self, pairs: dict[int, Pair], evidence: str, figures: Mapping[int, Json], now: float
    ) -> None:
        self.state.changed_at = now
        # saved with the decision, so that a successor can run the A/B
        self.state.on_trial = dict(pairs)
        self.state.plans |= {item: pair.after for item, pair in pairs.items()}
        self._answers = False
        self._answered |= {item for item in pairs if is_stored(item)}
        self._proofs.anew(pairs)
        self._decide("changed", pairs, "", evidence, figures)
        self._try(pairs, now, fresh=True)

    # --- searches without a prediction

    def _begin_trying(self, live: Live, now: float) -> None:
        if not (self.searches and self._is_due(now)):
            return
        known, limits = self._measuring.known is not None, self._measuring.limits
        self._trying, count = self._searches.begin(live, known, limits, now)
        if count:
            why = "live messages refuted what was predicted" if known else "none is predicted"
            self._decide("trying", {}, f"{count} ways to send messages are compared: {why}")
        if self._trying:
            self._watch.reset()

    def _search(self, trying: Trying, now: float) -> None:
        live = self._path.live()
        said = trying.step(live, now)
        if not said:
            if self._measuring.known and self.state.may_answer(now):
                shifted = self._shifted(trying.base_counts(live), now)
                if shifted:
                    self._stop_trying()
                    self._answer(shifted, now)
                    return
            answered = self._store_answers
            if self._look_at_store(now) or self._store_answers > answered:
                self._stop_trying()  # the store's change does not wait for the search
            return
        self._stop_trying()
        self._watch.reset()
        self._searches.seen(live)
        if said == "by hand":
            self._searches.clear()
            self._decide("set by hand", {}, "meanwhile: no more ways are tried")
        elif said == "over":
            pairs, figures = self._searches.found(trying, now)
            if pairs:
                self._push(pairs, "trying", figures, now)
            else:
                self._decide("nothing better", {}, "no way that was tried is faster")

    def _stop_trying(self) -> None:
        if self._trying:
            self._trying.end()
            self._trying = None
            self._searches.stopped(self._clock())
            self._save()

    # --- the A/B

    def _try(self, pairs: dict[int, Pair], now: float, *, fresh: bool) -> None:
        if not fresh:  # otherwise it was saved with the decision
            self.state.on_trial = dict(pairs)
            self._save()
        self._proofs.begin(pairs, now, fresh)
        self._watch.reset()  # from now on half of the messages use the other values

    def _advance(self, test: AB, now: float) -> None:
        live = self._path.live()
        test.collect(live, now)
        shifted = self._shifted(sent(by_class(live)), now)
        if self._look_at_store(now):
            return
        if shifted and self.state.may_answer(now):
            self._finish(now, "live messages took another time meanwhile")
            self._answer(shifted, now)
            return
        why = test.ended(now)
        if why is not None:
            self._finish(now, why)
        elif not test.flip():
            self._proofs.forget()  # the versions may have held other values since
            self._decide("set by hand", {}, "meanwhile: the A/B ends")
            self._finish(now, "something was set by hand meanwhile")

    def _finish(self, now: float, why: str) -> None:
        """Ends the A/B and reports its result; why: "" if the result ended it."""
        told = self._proofs.finish(now, not why)
        self._watch.reset()
        for what, pairs, said in told:
            self._say(self.state.note(self._clock(), what, pairs, why, "ab", said))
        self._save()

    # --- saving and reporting

    def _save(self) -> None:
        self.state.store = self._stores.as_dict()
        self._keep()

    def _decide(
        self,
        what: str,
        pairs: Mapping[int, Pair],
        why: str,
        evidence: str = "",
        figures: Mapping[int, Json] | None = None,
    ) -> None:
        """Notes, saves and reports a decision; the arguments are those of PathState.note()."""
        decision = self.state.note(self._clock(), what, pairs, why, evidence, figures)
        self._save()
        self._say(decision)
