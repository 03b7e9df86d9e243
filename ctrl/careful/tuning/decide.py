"""When to measure, what to change, and whether it stays: the policy of `tune auto` for one path.

Owns the rules. A change needs a predicted gain beyond its uncertainty. It is tried against what
was before on live messages, and undone where it does not hold. Without enough of them it stays,
marked as unverified, and is tried when they come. On a steady path there is one change in ten
minutes at most; a path that changed is answered at once, and the next time later. The clock and
the path are passed in, so that hours pass in a test within seconds.
Calls propose, verify, watch, path; keeps state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from careful.errors import CarefulError
from careful.model.stages import Limits
from careful.tuning.path import Live, Path, by_class, sent
from careful.tuning.propose import (
    Measured,
    Row,
    class_bytes,
    measured,
    moved,
    store_table,
    table,
    worth,
)
from careful.tuning.state import Pair, PathState
from careful.tuning.store_watch import StoreWatch
from careful.tuning.stores import STORE
from careful.tuning.verify import MEASURES, MEASURES_STORED, Counts, Trial
from careful.tuning.watch import Watch

#: Least time between two changes on a steady path, seconds.
CHANGE_EVERY_S = 600.0
#: So long after a quick measurement the path is measured closely, if it is calm, seconds.
CLOSELY_S = 30.0
#: What was measured longer ago than this is looked at again by whoever takes over, seconds.
TRUST_S = 60.0
#: After an answer, how long the next waits; twice as long each time until the path is calm.
HOLD_S, HOLD_S_MAX = 10.0, 600.0
#: How often to look: while nothing is going on, and on average between two flips of an A/B.
LOOK_S, FLIP_S = 0.1, 0.03
#: An A/B ends after so long without messages, or four times what one took to come, seconds.
QUIET_S = 2.0
#: Longest A/B, seconds.
TRIAL_S_MAX = 600.0
#: Messages of an unverified class that begin its A/B.
RETRY_MESSAGES = 10
#: After a measurement that failed, seconds.
RETRY_S = 30.0


@dataclass
class _Test:
    """An A/B under way. versions: of the plans before, and of those after; fresh: no A/B was made
    of it before.
    """

    pairs: dict[int, Pair]
    versions: tuple[int, int]
    began: float
    seen: dict[tuple[int, int], Counts]
    fresh: bool
    last: dict[int, float] = field(default_factory=dict)  # when a class had a message


class Controller:
    """The loop of one path; `step` is called again after the seconds that it returns.

    Args:
        path: what is done to it.
        state: what is known of it; changed in place.
        clock: seconds, that only rise, across restarts too.
        save: keeps the state; called after every change of it.
        say: told of each decision.
        returned: what is known is from before another carefuld, and is looked at again.
    """

    def __init__(
        self,
        path: Path,
        state: PathState,
        clock: Callable[[], float],
        save: Callable[[], None] = lambda: None,
        say: Callable[[dict[str, Any]], None] = lambda _: None,
        seed: int | None = None,
        returned: bool = False,
    ) -> None:
        self.state = state
        self._path, self._clock, self._keep, self._say = path, clock, save, say
        self._random = random.Random(seed)
        self._watch, self._stores = Watch(), StoreWatch(state.store)
        self._test: _Test | None = None
        self._alone = True  # no other path is measured now
        self._trials: dict[int, Trial] = {}
        self._arrived: dict[int, int] = {}  # messages, when a change was left unverified
        self._known: Measured | None = None
        self._retry_at = self._consider_at = clock()
        self._answers = False  # the path changed, and no change has answered it yet
        self._was_too_quick = False  # the last measurement: it found no figures
        self._store_answers = False  # so has the store
        self._closely_at: float | None = None  # a quick measurement is to be followed by another
        old = clock() - max(state.measured_at, state.confirmed_at or 0.0) > TRUST_S
        self._doubts = state.figures is not None and (returned or old)
        self.considered = False  # whether a round is over but for its A/B, measured or not
        self._resume()

    @property
    def trying(self) -> bool:
        """Whether an A/B is under way."""
        return self._test is not None

    def step(self, alone: bool = True, /) -> float:
        """Look, and do what is due; seconds until the next look.

        alone: False while another path is measured: nothing is then, and no shift is looked for.
        """
        now, self._alone = self._clock(), alone
        if self._test:
            self._advance(self._test, now)
            if self._test:
                return FLIP_S * self._random.uniform(0.6, 1.4)
            return LOOK_S
        if self.state.figures is None or self._doubts:
            if alone and now >= self._retry_at:
                self._begin()
            if self.state.figures is None or self._doubts:
                self.considered |= alone
                return LOOK_S
        live = self._path.live()
        self._look(live, now)
        if not self._test:
            self._look_at_store(now)
        closely = self._closely_at is not None and now >= self._closely_at
        if not self._test and closely and alone:
            self._closely_at = None
            self._measure("more closely", quick=False)
        elif not self._test and now >= self._consider_at and (alone or self._untold() is None):
            self._consider(now)
        return FLIP_S if self._test else LOOK_S

    def collect(self, keep: bool, /) -> None:
        """What came since the last look, into an A/B under way; keep False: out of it."""
        if self._test and keep:
            self._collect(self._test, self._path.live(), self._clock())
        elif self._test:
            self._test.seen |= self._path.live()

    def close(self) -> None:
        """End an A/B: what it did not decide stays, unverified."""
        if self._test:
            self._finish(self._test, self._clock(), "the controller ended")

    # --- what was, and the measurement

    def _resume(self) -> None:
        """Go on from a state that another process left."""
        if self.state.figures is not None:
            try:
                self._known = measured(self.state.figures, _limits(self.state.figures))
            except ValueError:
                self.state.figures = None
        plans, pinned = self._path.in_effect(), self._path.by_hand()
        lost = {
            index: plan
            for index, plan in self.state.plans.items()
            if index not in pinned and plan != plans[index]
        }
        if lost:
            self._path.settle(lost)
        pairs, self.state.on_trial = self.state.on_trial, {}
        if not pairs:
            return
        ours = self._ours(pairs)
        self._path.settle({index: pair.after for index, pair in ours.items()})
        self.state.unverified |= ours
        self._decide("unverified", ours, "the controller was ended during the A/B")

    def _ours(self, pairs: Mapping[int, Pair]) -> dict[int, Pair]:
        """Those of some changes that nobody has set by hand since."""
        plans, pinned = self._path.in_effect(), self._path.by_hand()
        return {
            index: pair
            for index, pair in pairs.items()
            if index not in pinned and plans[index] in (pair.before, pair.after)
        }

    def _begin(self) -> None:
        """The first measurement; of what was kept, a quick look at whether it is so still."""
        kept, self._doubts = self.state.figures, False
        before, when, why = self._known, self.state.measured_at, self.state.reason
        if kept is None or before is None:
            self._measure("at the start", quick=False)
        elif not self._measure("what was kept is looked at", quick=True):
            self._doubts = True
        elif self._is_moved(before):
            self._path_changed("it is not as it was kept")
        else:
            self.state.figures, self.state.measured_at, self.state.reason = kept, when, why
            self.state.confirmed_at, self._known = self._clock(), before
            self._closely_at = None
            self._decide("path as before", {}, "it measures as it was kept")

    def _measure(self, reason: str, quick: bool) -> bool:
        """Measure the path; whether that worked, and it is known in `_known`."""
        try:
            figures, limits = self._path.measure(quick)
            known = measured(figures, limits)
        except (CarefulError, ValueError) as error:
            self._retry_at = self._clock() + RETRY_S
            self._was_too_quick = quick
            self._decide("not measured", {}, f"{reason}: {error}")
            return False
        finally:
            self._watch.skip(by_class(self._path.live()))  # messages met the measurement's
        figures = {**figures, "frame_payload_bytes": limits.max_bytes}
        self.state.figures, self.state.reason = figures, reason
        self.state.measured_at = self._consider_at = self._clock()
        self._known = known
        self._was_too_quick = False
        self._closely_at = self._clock() + CLOSELY_S if quick else None
        self._save()
        return True

    def _is_moved(self, before: Measured) -> bool:
        assert self._known is not None
        return moved(before, self._known, self._path.in_effect())

    def _path_changed(self, why: str) -> None:
        self._answers = True
        self.state.refuted.clear()
        self._trials.clear()
        self._decide("path changed", {}, why)

    # --- live messages, while nothing is on trial

    def _look(self, live: Live, now: float) -> None:
        totals = by_class(live)
        if self.state.unverified:
            self.state.unverified = self._ours(self.state.unverified)
        ready = {
            index: pair
            for index, pair in self.state.unverified.items()
            if totals.get(index, Counts()).count
            >= self._arrived.setdefault(index, totals.get(index, Counts()).count) + RETRY_MESSAGES
        }
        shifted = self._shifted(sent(totals), now)
        if shifted and self._may_answer(now):
            self._answer(shifted, now)
            return
        if shifted:
            self._closely_at = None  # of a path that comes and goes a closer look tells no more
        if ready:
            self._try(ready, now, fresh=False)

    def _shifted(self, totals: Mapping[int, Counts], now: float) -> list[int]:
        """Classes whose messages take another time than they did."""
        if self._alone:
            return self._watch.look(totals, now)
        self._watch.skip(totals)  # they may meet the measurement of another path
        return []

    def _look_at_store(self, now: float) -> bool:
        """Whether what is stored here has become another store's; what is seen is answered."""
        seen = self._stores.look(self._path.stored(), now)
        another = seen == "another" and self._may_answer(now)
        if another:
            self._hold(now)
            for item in [one for one in self.state.refuted if one >= STORE]:
                del self.state.refuted[item]
            if self._test:
                self._finish(self._test, now, "writes took another time meanwhile")
            self._decide("store changed", {}, "writes take another time than they did")
        self._store_answers |= another or seen == "first"
        if seen:
            self._consider_at = now
        return another

    def _may_answer(self, now: float) -> bool:
        return self.state.held_until is None or now >= self.state.held_until

    def _answer(self, shifted: Sequence[int], now: float) -> None:
        """Live messages take another time than they did: measure, and see why."""
        state, before = self.state, self._known
        self._hold(now)
        classes = ", ".join(str(index) for index in shifted)
        said = f"live messages of class {classes} took another time"
        if not self._measure(said, quick=not self._was_too_quick):
            state.held_until = self._clock() + state.hold_s / 10
            return
        self._watch.reset()
        if before is None or self._is_moved(before):
            self._path_changed(state.reason)
        else:
            self._decide("path as before", {}, f"{state.reason}, but it measures as before")
        self._consider(self._clock())

    def _hold(self, now: float) -> None:
        """Something is answered now: the next waits."""
        state = self.state
        calm = state.held_until is None or now - state.held_until > CHANGE_EVERY_S
        state.hold_s = HOLD_S if calm else min(2 * state.hold_s, HOLD_S_MAX)
        state.held_until = now + state.hold_s

    # --- changes

    def _consider(self, now: float) -> None:
        """Change what is worth it, if a change is due."""
        assert self._known is not None
        self.considered = True
        untold = self._untold()
        if untold is not None:
            self._stores.explore(untold, self._path, self.state, self._save)
        state, since = self.state, self.state.changed_at
        values, store = self._path.in_effect(), self._stores.known
        rows = table(self._known, values) + (store_table(store, values) if store else [])
        found = {
            index: row
            for index, row in worth(rows, self._path.by_hand()).items()
            if row.best not in state.refuted.get(index, [])
        }
        due = since is None or self._answers or now >= since + CHANGE_EVERY_S
        of_store = due or self._store_answers
        ready = {item: row for item, row in found.items() if (of_store if item >= STORE else due)}
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
        """The item whose messages shall be written otherwise for a moment; None: none."""
        return self._stores.untold(self._path.by_hand())

    def _change(self, found: Mapping[int, Row], now: float) -> None:
        pairs = {index: Pair(row.now, row.best) for index, row in found.items()}
        self.state.changed_at = now
        self.state.on_trial = dict(pairs)  # saved with the decision: whoever goes on makes it
        self.state.plans |= {index: pair.after for index, pair in pairs.items()}
        self._answers = self._store_answers = False
        for index in pairs:
            self._trials.pop(index, None)
            self.state.unverified.pop(index, None)
        gains = {
            index: {
                "said": f"predicted gain {row.gain_us.low:.1f} to {row.gain_us.high:.1f} µs",
                **row.gain_us.figures("gain", "us"),
            }
            for index, row in found.items()
        }
        self._decide("changed", pairs, "", "prediction", gains)
        self._try(pairs, now, fresh=True)

    # --- the A/B

    def _try(self, pairs: dict[int, Pair], now: float, *, fresh: bool) -> None:
        """Begin an A/B. fresh: what is in effect is what was before."""
        self.state.on_trial = dict(pairs)
        self._save()
        beside = {index: pair.after if fresh else pair.before for index, pair in pairs.items()}
        active, other = self._path.offer(beside)
        versions = (active, other) if fresh else (other, active)
        self._test = _Test(pairs, versions, now, dict(self._path.live()), fresh)
        self._watch.reset()  # half of the messages go the other way from now on

    def _advance(self, test: _Test, now: float) -> None:
        live = self._path.live()
        self._collect(test, live, now)
        shifted = self._shifted(sent(by_class(live)), now)
        if self._look_at_store(now):
            return
        if shifted and self._may_answer(now):
            self._finish(test, now, "live messages took another time meanwhile")
            self._answer(shifted, now)
            return
        verdicts = {index: self._trial(index).verdict() for index in test.pairs}
        if any(one.what != "undecided" for one in verdicts.values()):
            self._finish(test, now, "")
        elif now - test.began > TRIAL_S_MAX:
            self._finish(test, now, f"the A/B took {TRIAL_S_MAX:.0f} s")
        elif all(self._quiet(test, index, now) for index in test.pairs):
            self._finish(test, now, "too few live messages")
        elif not self._path.flip():
            self._test = None
            self.state.on_trial = {}
            self._decide("set by hand", test.pairs, "meanwhile: the A/B is dropped")

    def _trial(self, index: int) -> Trial:
        return self._trials.setdefault(index, Trial())

    def _collect(self, test: _Test, live: Live, now: float) -> None:
        """What came since the last flip, into the arms."""
        for index in test.pairs:
            trial = self._trial(index)
            for version, arm in zip(test.versions, (trial.a, trial.b), strict=True):
                total = live.get((index, version), Counts())
                block = total.since(test.seen.get((index, version), Counts()))
                test.seen[index, version] = total
                arm.add(block)
                if block.count:
                    test.last[index] = now

    def _quiet(self, test: _Test, index: int, now: float) -> bool:
        """Whether a class has had no message for longer than its messages are apart."""
        trial = self._trial(index)
        count = trial.a.total.count + trial.b.total.count
        apart = (now - test.began) / count if count else 0.0
        return now - test.last.get(index, test.began) > max(QUIET_S, 4 * apart)

    def _finish(self, test: _Test, now: float, why: str) -> None:
        """Keep what held, undo what did not, and mark the rest."""
        self._test = None
        late = now - test.began > TRIAL_S_MAX
        kept, undone, open_ = {}, {}, {}
        ours = self._ours(test.pairs)
        verdicts = {index: self._trial(index).verdict() for index in ours}
        for index, pair in ours.items():
            one = verdicts[index]
            if one.what == "held":
                kept[index] = pair
            elif one.what == "not held" or (late and one.gain is not None):
                undone[index] = pair
            else:
                open_[index] = pair
        effect = {index: pair.after for index, pair in (kept | open_).items()}
        effect |= {index: pair.before for index, pair in undone.items()}
        self._path.settle(effect)
        self.state.plans |= effect
        self.state.on_trial = {}
        totals = by_class(self._path.live())
        for index in kept.keys() | undone.keys():
            self.state.unverified.pop(index, None)
        for index, pair in undone.items():
            self.state.refuted.setdefault(index, []).append(pair.after)
        self.state.unverified |= open_
        for index in open_:
            self._arrived[index] = totals.get(index, Counts()).count
        self._watch.reset()
        said = {
            index: one.as_dict(MEASURES if index < STORE else MEASURES_STORED)
            for index, one in verdicts.items()
        }
        for what, pairs in (("kept", kept), ("undone", undone)):
            if pairs:
                self._decide(what, pairs, why, "ab", said)
        if open_ and test.fresh:
            self._decide("unverified", open_, why, "ab", said)
        self._save()
        for index in kept.keys() | undone.keys():
            self._trials.pop(index, None)

    # --- what is kept and told

    def _save(self) -> None:
        self.state.store = self._stores.as_dict()
        self._keep()

    def _decide(
        self,
        what: str,
        pairs: Mapping[int, Pair],
        why: str,
        evidence: str = "",
        figures: Mapping[int, dict[str, Any]] | None = None,
    ) -> None:
        """Note and tell a decision; evidence: what the classes' figures are, `prediction`, `ab`."""
        decision: dict[str, Any] = {"at_s": self._clock(), "what": what, "why": why}
        decision["classes"] = [
            {
                "class": index % STORE,
                **({"sink": "store"} if index >= STORE else {}),
                "message_bytes_max": class_bytes(index),
                "before": pair.before.as_dict(),
                "after": pair.after.as_dict(),
                **({evidence: figures[index]} if figures else {}),
            }
            for index, pair in pairs.items()
        ]
        self.state.note(decision)
        self._save()
        self._say(decision)


def _limits(figures: Mapping[str, Any]) -> Limits:
    """Of a kept measurement."""
    return Limits(64, int(figures["frame_payload_bytes"]))
