"""Finds how to send the messages of a class from live messages alone.

Each way is tried in turns with the values in effect, so that both meet the same load. The ways are:
kicks of one frame; then fragments of a frame, of half a frame, a quarter and an eighth. P1's
latency of n equal fragments (equation 10) is fitted to the differences, and gives the best n. If
this model does not fit, the fastest way is the result. The result still needs an A/B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from careful.measure.statistics.estimate import Estimate
from careful.plan import Limits, Plan
from careful.tuning.search.live_fit import Fit, Point, fitted
from careful.tuning.settings import NET_TX, Kick, Value, class_bytes
from careful.tuning.verify import BLOCKS_MIN, MESSAGES_MIN, Trial

#: Most halvings of a fragment, and the least fragment, bytes.
HALVINGS, FRAGMENT_BYTES_MIN = 3, 512
#: The least kick that is tried: each frame alone.
KICK_BYTES = 1
#: Most and least messages of a way, and of the values in effect, in a turn. Between the two
#: numbers, the turn ends when the difference's error is below PRECISION, as a share of the latency.
ROUND_MESSAGES, ROUND_MESSAGES_MIN, PRECISION = 90, 8, 0.01
#: Least apparent gain, as a share of the latency.
GAIN_MIN = 0.02


def effect(plan: Plan, kick: Kick, nbytes: int, limits: Limits) -> tuple[object, int]:
    """Returns a message's fragments, and frames per kick, under a plan and a least kick.

    Two candidates with the same effect count as one way.
    """
    sizes = plan.sizes(nbytes, limits)
    frames = math.ceil(kick.net_tx_bytes / sizes[0]) if sizes else 1
    return tuple(sizes), max(1, min(frames, len(sizes)))


@dataclass
class Way:
    """A way to send a class's messages, and its trial: arm A has the values in effect, B the way.

    count: fragments of a message.
    """

    values: Mapping[int, Value]
    count: int = 1
    trial: Trial = field(default_factory=Trial)

    @property
    def known(self) -> bool:
        return self.trial.count >= ROUND_MESSAGES_MIN

    @property
    def precise(self) -> bool:
        blocks = min(len(self.trial.a.blocks), len(self.trial.b.blocks))
        if not self.known or blocks < ROUND_MESSAGES_MIN:
            return False
        return self.longer_us.se <= PRECISION * self.trial.a.middle().value

    @property
    def longer_us(self) -> Estimate:
        """The time that the way adds to a message, µs."""
        return self.trial.b.middle() - self.trial.a.middle()

    @property
    def gain(self) -> float:
        """The share of latency that a message seems to save; -1 with too few messages."""
        return -self.longer_us.value / self.trial.a.middle().value if self.known else -1.0


@dataclass(frozen=True)
class Best:
    """The result of a search: values by item, the expected gain as a share, and its source."""

    values: Mapping[int, Value]
    gain: float
    source: str


class Search:
    """A search for the best way to send a class's messages.

    now: values in effect, of all items; limits: payload of a frame; but: items that the controller
    must not change.

    ways_count: number of ways that are tried; over: the search needs no more messages.
    """

    def __init__(
        self, index: int, now: Sequence[Value], limits: Limits, but: frozenset[int]
    ) -> None:
        self._index, self._bytes, self._limits = index, class_bytes(index), limits
        plan, kick = now[index], now[NET_TX + index]
        assert isinstance(plan, Plan)
        assert isinstance(kick, Kick)
        self._plan, self._kick = plan, kick
        self._count_now = self._count(plan)
        alone = Kick(KICK_BYTES)
        self._alone = {} if NET_TX + index in but else {NET_TX + index: alone}
        self._plans = [] if index in but else self._other_plans()
        self._reference: Way | None = None  # the plan in effect, with a kick for each frame
        if self._alone and self._effect(plan, alone) != self._effect(plan, kick):
            self._reference = Way(self._alone, self._count_now)
        self._ways = [self._reference] if self._reference else []
        self._ways += [self._planned(plan) for plan in self._plans]
        self._stages = [self._predicted_ways, self._kick_kept_ways]
        self._kick_kept: Way | None = None  # the best plan, with the kick in effect
        self._at, self.ways_count = 0, len(self._ways)
        self._fit: Fit | None = None
        self.over = False
        self._next_stage()

    def _effect(self, plan: Plan, kick: Kick) -> tuple[object, int]:
        return effect(plan, kick, self._bytes, self._limits)

    def _count(self, plan: Plan) -> int:
        return len(plan.sizes(self._bytes, self._limits))

    def _other_plans(self) -> list[Plan]:
        whole = Plan.fixed(self._bytes).sizes(self._bytes, self._limits)[0]
        sizes = [math.ceil(whole / 2**times) for times in range(HALVINGS + 1)]
        plans = [Plan.fixed(size) for size in sizes if size >= min(FRAGMENT_BYTES_MIN, whole)]
        now = self._plan.sizes(self._bytes, self._limits)
        return [plan for plan in plans if plan.sizes(self._bytes, self._limits) != now]

    def _planned(self, plan: Plan) -> Way:
        """Returns the way of a plan, each frame kicked alone, as in P1."""
        return Way({**self._alone, self._index: plan}, self._count(plan))

    @property
    def way(self) -> Way:
        return self._ways[self._at]

    @property
    def has_result(self) -> bool:
        """Reports whether the messages were enough for a result."""
        return any(way.known for way in self._ways)

    def look(self, late: bool = False) -> bool:
        """Ends the turn if it has enough messages; reports whether it ended.

        late: the turn's time is over, so MESSAGES_MIN are enough.
        """
        trial = self.way.trial
        needed = MESSAGES_MIN if late else ROUND_MESSAGES
        enough = trial.count >= needed and len(trial.b.blocks) >= BLOCKS_MIN
        if not enough and not self.way.precise:
            return False
        self._at += 1
        self._next_stage()
        return True

    def _next_stage(self) -> None:
        while self._at == len(self._ways) and self._stages:
            self._fit = fitted(self._count_now, self._points(), self._reference is not None)
            more = self._stages.pop(0)()
            self.ways_count += len(more)
            self._ways += more
        self.over = self._at == len(self._ways)

    def _predicted_ways(self) -> list[Way]:
        """Returns the plan that the model predicts, as a test of the model, unless it was tried."""
        tried = [self._count_now, *(self._count(plan) for plan in self._plans)]
        if not self._fit or self._fit_count(self._fit) in tried:
            return []
        return [self._planned(self._predicted(self._fit))]

    def _kick_kept_ways(self) -> list[Way]:
        """Returns the best plan with the kick in effect, which stays if it makes no difference."""
        best = self._fastest()
        if not best or self._index not in best.values or NET_TX + self._index not in best.values:
            return []
        self._kick_kept = Way({self._index: best.values[self._index]}, best.count)
        return [self._kick_kept]

    def _fit_count(self, fit: Fit) -> int:
        least = self._count(Plan.fixed(self._bytes))
        return fit.best_count(least, max(least, self._bytes // FRAGMENT_BYTES_MIN))

    def _predicted(self, fit: Fit) -> Plan:
        return Plan.fixed(math.ceil(self._bytes / self._fit_count(fit)))

    def _points(self) -> list[Point]:
        used = [way for way in self._ways if way.known and way is not self._kick_kept]
        return [Point(way.count, way.longer_us, way.trial.a.middle().value) for way in used]

    def _fastest(self) -> Way | None:
        """Returns the way with the model's best plan, or the fastest if the model does not fit."""
        ways = [way for way in self._ways if way.known and way is not self._kick_kept]
        if self._fit and self._fit.fits:
            best = self._fit_count(self._fit)
            ways = [way for way in ways if way.count == best] or ways
        return max(ways, key=lambda way: way.gain, default=None)

    def best(self) -> Best | None:
        """Returns the best way; None: no way seems to gain, or too few messages came."""
        fastest, fit = self._fastest(), self._fit
        if fastest is None:
            return None
        values, gain = fastest.values, fastest.gain
        source = f"the best of {self.ways_count} ways that were tried"
        if fit and fit.fits:
            gain = -fit.longer_us(fastest.count).value / fit.now_us
            source += f", and the model fits: {fit.summary()}"
        elif fit:
            source += f"; the model does not fit: {fit.summary()}"
        alike = self._kick_kept
        if alike and alike.known and (alike.longer_us - fastest.longer_us).low <= 0:
            values = alike.values
        return Best(values, gain, f"{source}; {gain:.0%} faster") if gain >= GAIN_MIN else None
