"""The policy of `tune auto` for one path: when to measure, what to change, what to keep.

A change needs a predicted gain above its uncertainty. If there is no prediction, or live messages
refuted it, a search tries several ways to send. Each change is compared with the values before on
live messages, in an A/B, and undone if it is not faster. With too few messages the change stays,
marked unverified, and the A/B resumes when messages come. A steady path gets at most one change in
ten minutes. The controller answers a changed path at once, and later changes after longer waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from careful.jsonout import Json
from careful.plan import CLASS_COUNT
from careful.tuning.controller.measurements import Measuring
from careful.tuning.controller.shift_detector import Watch
from careful.tuning.controller.store_watch import StoreWatch
from careful.tuning.controller.takeover import take_over
from careful.tuning.path import Live, Path, by_class, sent
from careful.tuning.propose import Measured, Row, proposed, unsure
from careful.tuning.search.search import SearchRun
from careful.tuning.search.search_state import Searches
from careful.tuning.settings import is_stored
from careful.tuning.state import CHANGE_EVERY_S, Pair, PathState
from careful.tuning.trial.ab import AB
from careful.tuning.trial.verdicts import Verification
from careful.tuning.verify import Counts
from careful.units import shown_time

#: Time between two steps when idle, and mean time between two flips of an A/B, seconds.
LOOK_S, FLIP_S = 0.1, 0.03


class Controller:
    """The control loop of one path. Call `step` again after the seconds that it returns.

    Args:
        state: the path's state; changed in place.
        clock: seconds; never goes back, even across restarts.
        save: stores the state; called after every change.
        say: called with each decision.
        returned: the state is from an earlier carefuld and must be confirmed.
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
        self._path, self._clock, self._store_state, self._say = path, clock, save, say
        self._random = random.Random(seed)
        self._watch, self._stores = Watch(), StoreWatch(state.store)
        self._search: SearchRun | None = None
        self.searches = True  # searches are allowed where nothing can be predicted
        self._searches = Searches(path, state, self._save)
        self._alone = True  # no other path is being measured
        self._verification = Verification(path, state, clock())
        self._measuring = Measuring(path, state, clock, returned)
        self._consider_at = clock()
        self._must_answer = False  # the path changed, and no new plan has followed yet
        self._store_changed = False
        self._answered: set[int] = set()  # thresholds changed since the store changed
        self.considered = False  # the first round is over; its A/B may still run
        resumed = take_over(path, state)
        if resumed is not None:
            self._decide("unverified", resumed, "the controller ended during the A/B")

    @property
    def trying(self) -> bool:
        return self._verification.test is not None or self._search is not None

    def step(self, alone: bool = True, /) -> float:
        """Does what is due; returns the seconds until the next step.

        alone: False while another path is measured: this path is not, and its shifts are ignored.
        """
        now, self._alone = self._clock(), alone
        verification = self._verification
        if verification.test:
            self._step_ab(verification.test, now)
            if verification.test:
                return FLIP_S * self._random.uniform(0.6, 1.4)
            return LOOK_S
        measuring = self._measuring
        if not measuring.believed:
            if alone and now >= measuring.retry_at:
                self._stop_search()
                self._begin_measuring()
            if not measuring.believed:
                self.considered |= alone
            if measuring.doubted:
                return LOOK_S
        if self._search:
            self._step_search(self._search, self._clock())
            return FLIP_S * self._random.uniform(0.6, 1.4)
        live = self._path.live()
        self._check_messages(live, now)
        if not verification.test:
            self._check_store(now)
        if not verification.test and measuring.is_due_closely(now) and alone:
            measuring.closely_at = None
            self._measure("more closely", quick=False)
        elif not verification.test and self._may_consider(now):
            self._consider(now)
        if not verification.test:
            self._retry_unverified(live, now)
        if not verification.test and alone:
            self._begin_search(live, self._clock())
        return FLIP_S if self.trying else LOOK_S

    def collect(self, keep: bool, /) -> None:
        """Counts the messages since the last call in the A/B or search; not if keep is False."""
        under_way = self._verification.test or self._search
        if under_way and keep:
            under_way.collect(self._path.live(), self._clock())
        elif under_way:
            under_way.skip(self._path.live())

    def close(self) -> None:
        """Ends a search, whose values are restored, or an A/B, whose changes stay, unverified."""
        self._stop_search()
        if self._verification.test:
            self._end_ab(self._clock(), "the controller ended")

    # --- the measurement

    def _begin_measuring(self) -> None:
        """Makes the first measurement, or confirms stored figures by a quick one."""
        measuring = self._measuring
        measuring.doubted = False
        before, kept = measuring.known, measuring.kept()
        if self.state.figures is None or before is None:
            self._measure("at the start", quick=False)
        elif not self._measure("stored figures are checked", quick=True):
            measuring.doubted = True
        elif measuring.is_moved(before):
            self._path_changed("a measurement contradicts the stored figures")
        else:
            measuring.confirm(kept)
            self._decide("path as before", {}, "a measurement confirms the stored figures")

    def _measure(self, reason: str, quick: bool) -> bool:
        try:
            error = self._measuring.measure(reason, quick)
            if error:
                self._decide("not measured", {}, f"{reason}: {error}")
                return False
        finally:
            self._watch.skip(by_class(self._path.live()))  # they waited for the measurement
        self._consider_at = self.state.measured_at
        self._searches.clear()
        self._save()
        return True

    def _has_changed(self, before: Measured, classes: Sequence[int], reason: str) -> bool | None:
        """Reports whether the path now has other latencies for these classes; None: unknown."""
        measuring = self._measuring
        if measuring.waits or measuring.is_moved(before, classes):
            return True
        if measuring.closely_at is None or measuring.slipped or measuring.is_same(before, classes):
            return False
        # The quick measurement was not precise enough; measure closely, even if the path is busy.
        if not self._measure(reason, quick=False):
            return None
        return measuring.is_moved(before, classes)

    def _path_changed(self, why: str) -> None:
        self._must_answer = True
        self.state.refuted.clear()
        self._searches.forget()
        self._verification.forget()
        self._decide("path changed", {}, why)

    # --- live messages, while nothing is on trial

    def _check_messages(self, live: Live, now: float) -> None:
        shifted = self._shifted(sent(by_class(live)), now)
        if shifted and self.state.may_answer(now):
            self._answer(shifted, now)
        elif shifted:
            self._measuring.closely_at = None  # useless on a path that keeps changing

    def _retry_unverified(self, live: Live, now: float) -> None:
        if ready := self._verification.ready(by_class(live)):
            self._begin_ab(ready, now, is_first=False)

    def _shifted(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        if self._alone:
            return self._watch.look(totals, now)
        self._watch.skip(totals)  # these messages may have met the measurement of another path
        return []

    def _check_store(self, now: float) -> bool:
        """Reports whether the store of messages to files here changed, and lets thresholds change.

        Does nothing before the path is measured: an A/B of the store would delay that.
        """
        if self._measuring.known is None:
            return False
        event = self._stores.look(self._path.stored(), now)
        another = event == "another" and self.state.may_answer(now)
        if another:
            self.state.hold(now)
            for item in [one for one in self.state.refuted if is_stored(one)]:
                del self.state.refuted[item]
            if self._verification.test:
                self._end_ab(now, "the time of writes changed during the A/B")
            self._decide("store changed", {}, "the time of writes changed")
        if another or event == "first":
            self._store_changed = True
            self._answered.clear()
        if event:
            self._consider_at = now
        return another

    def _answer(self, shifted: Sequence[int], now: float) -> None:
        """Measures after live messages have shifted, and decides whether the path changed."""
        state, measuring = self.state, self._measuring
        before, kept = measuring.known, measuring.kept()
        self.state.hold(now)
        classes = ", ".join(str(index) for index in shifted)
        reason = f"the latency of live messages of class {classes} changed"
        # If the last quick measurement found nothing, measure closely.
        if not self._measure(reason, quick=before is not None and not measuring.was_too_quick):
            if before is None:  # there are no figures, only results of searches
                self._watch.reset()
                self._searches.stale |= set(shifted)
            elif measuring.was_too_quick:  # a close measurement follows soon
                state.held_until = self._clock() + state.hold_s / 10
            return
        self._watch.reset()
        has_changed = before is None or self._has_changed(before, shifted, reason)
        if has_changed is None:  # the close measurement failed, too
            measuring.confirm(kept)
            return
        if has_changed:
            queued = "frames queue behind those of others"
            self._path_changed(f"{reason}: {queued}" if measuring.waits else reason)
        else:
            measuring.confirm(kept)
            self._decide("path as before", {}, f"{reason}, but the path measures as before")
        self._consider(self._clock())
        known, quickly = measuring.known, measuring.closely_at is not None
        if (
            self._must_answer
            and known
            and quickly
            and unsure(known, self._path.in_effect(), shifted)
        ):
            measuring.closely_at = self._clock()  # do not wait until the path is calm

    # --- changes

    def _consider(self, now: float) -> None:
        self.considered = True
        explored = self._item_to_explore()
        if explored is not None:
            self._stores.explore(explored, self._path, self.state, self._save)
        state, since = self.state, self.state.changed_at
        values, store = self._path.in_effect(), self._stores.known
        assert self._measuring.known is not None
        rows = proposed(self._measuring.known, store, values, self._path.by_hand())
        due_rows = {
            item: row for item, row in rows.items() if row.best not in state.refuted.get(item, [])
        }
        due = self._is_due(now)
        ready = {
            item: row for item, row in due_rows.items() if due or self._must_answer_store(item)
        }
        self._store_changed &= self._stores.settling
        self._consider_at = now + CHANGE_EVERY_S
        if not due and since is not None:
            self._consider_at = since + CHANGE_EVERY_S
        if ready:
            self._change(ready, now)
        elif not state.decisions or state.decisions[-1]["what"] != "nothing to change":
            why = self._why_no_gain()
            if due_rows:
                why = f"{len(due_rows)} classes wait: one change in {CHANGE_EVERY_S:.0f} s"
            self._decide("nothing to change", {}, why)
        else:
            self._save()

    def _why_no_gain(self) -> str:
        why = "no plan gains more than its uncertainty"
        manual = sorted(self._path.by_hand() & set(range(CLASS_COUNT)))
        if not manual:
            return why
        named = f"{why}; set by hand: class {', '.join(map(str, manual))}"
        if len(manual) == CLASS_COUNT:
            named = "all classes are set by hand"
        return f"{named} (`carefulctl tune set --default` gives them back)"

    def _item_to_explore(self) -> int | None:
        return self._stores.item_to_explore(self._path.by_hand())

    def _may_consider(self, now: float) -> bool:
        if self._measuring.known is None or now < self._consider_at:
            return False
        return self._alone or self._item_to_explore() is None

    def _must_answer_store(self, item: int) -> bool:
        """Reports whether the item is a threshold that may change because the store has changed."""
        return is_stored(item) and self._store_changed and item not in self._answered

    def _is_due(self, now: float) -> bool:
        since = self.state.changed_at
        return since is None or self._must_answer or now >= since + CHANGE_EVERY_S

    def _change(self, rows: Mapping[int, Row], now: float) -> None:
        gains = {}
        for item, row in rows.items():
            low, high = shown_time(row.gain_us.low), shown_time(row.gain_us.high)
            said = f"predicted gain {low} to {high}"
            gains[item] = {"said": said, **row.gain_us.figures("gain", "us")}
        for item in rows:
            self.state.tried.pop(item, None)
        pairs = {item: Pair(row.now, row.best) for item, row in rows.items()}
        self._apply(pairs, "prediction", gains, now)

    def _apply(
        self, pairs: dict[int, Pair], evidence: str, figures: Mapping[int, Json], now: float
    ) -> None:
        self.state.changed_at = now
        self.state.on_trial = dict(pairs)  # saved with the decision, for a successor
        self.state.plans |= {item: pair.after for item, pair in pairs.items()}
        self._must_answer = False
        self._answered |= {item for item in pairs if is_stored(item)}
        self._verification.drop(pairs)
        self._decide("changed", pairs, "", evidence, figures)
        self._begin_ab(pairs, now, is_first=True)

    # --- searches without a prediction

    def _begin_search(self, live: Live, now: float) -> None:
        if not (self.searches and self._is_due(now)):
            return
        known, limits = self._measuring.known is not None, self._measuring.limits
        self._search, count = self._searches.begin(live, known, limits, now)
        if count:
            why = "live messages refuted the prediction" if known else "there is no prediction"
            self._decide("trying", {}, f"{count} ways to send messages are compared: {why}")
        if self._search:
            self._watch.reset()

    def _step_search(self, search: SearchRun, now: float) -> None:
        live = self._path.live()
        result = search.step(live, now)
        if not result:
            if self._measuring.known and self.state.may_answer(now):
                shifted = self._shifted(search.base_counts(live), now)
                if shifted:
                    self._stop_search()
                    self._answer(shifted, now)
                    return
            was_changed = self._store_changed
            if self._check_store(now) or self._store_changed > was_changed:
                self._stop_search()  # a changed store takes precedence
            return
        self._stop_search()
        self._watch.reset()
        self._searches.mark_seen(live)
        if result == "by hand":
            self._searches.clear()
            self._decide("set by hand", {}, "a setting was changed by hand: the search ends")
        elif result == "over":
            pairs, figures = self._searches.finish(search, now)
            if pairs:
                self._apply(pairs, "trying", figures, now)
            else:
                self._decide("nothing better", {}, "no way that was tried is faster")

    def _stop_search(self) -> None:
        if self._search:
            self._search.end()
            self._search = None
            self._searches.interrupted(self._clock())
            self._save()

    # --- the A/B

    def _begin_ab(self, pairs: dict[int, Pair], now: float, *, is_first: bool) -> None:
        if not is_first:  # otherwise it was saved with the decision
            self.state.on_trial = dict(pairs)
            self._save()
        self._verification.begin(pairs, now, is_first)
        self._watch.reset()  # from now on half of the messages use the other values

    def _step_ab(self, test: AB, now: float) -> None:
        live = self._path.live()
        test.collect(live, now)
        shifted = self._shifted(sent(by_class(live)), now)
        if self._check_store(now):
            return
        if shifted and self.state.may_answer(now):
            self._end_ab(now, "the latency of live messages changed during the A/B")
            self._answer(shifted, now)
            return
        why = test.end_reason(now)
        if why is not None:
            self._end_ab(now, why)
        elif not test.flip():
            self._verification.forget()  # messages may have met other values since
            self._decide("set by hand", {}, "a setting was changed by hand: the A/B ends")
            self._end_ab(now, "a setting was changed by hand")

    def _end_ab(self, now: float, why: str) -> None:
        """Ends the A/B and reports its result; why: "" if the result ended it."""
        results = self._verification.finish(now, not why)
        self._watch.reset()
        for what, pairs, verdicts in results:
            self._say(self.state.note(self._clock(), what, pairs, why, "ab", verdicts))
        self._save()

    # --- saving and reporting

    def _save(self) -> None:
        self.state.store = self._stores.as_dict()
        self._store_state()

    def _decide(
        self,
        what: str,
        pairs: Mapping[int, Pair],
        why: str,
        evidence: str = "",
        figures: Mapping[int, Json] | None = None,
    ) -> None:
        """Records, saves and reports a decision; the arguments are those of PathState.note()."""
        decision = self.state.note(self._clock(), what, pairs, why, evidence, figures)
        self._save()
        self._say(decision)
