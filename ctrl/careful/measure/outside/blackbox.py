"""A pipeline measured from its ends (P1 section 5.3.2): its bottleneck, and sums over all stages.

Owns the plan of round trips and trains, and two regressions. The line of single round trips over
sizes gives the sums over all stages: of g and delays, and of G. The line of the gaps in trains,
timed at arrival, gives the bottleneck's g_b and G_b. Propagation occupies no stage, so it is part
of the first line's intercept, and never of the second's.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from careful.errors import CarefulError, InputError
from careful.measure.outside.blackbox_result import Result
from careful.measure.outside.blackbox_rounds import Round, trip_lines, usable_gaps
from careful.measure.outside.range_ends import at_ends
from careful.measure.outside.trains import Regime, bisected, bottlenecks, hidden, without_bunches
from careful.measure.statistics.line import minima, train_gap_us
from careful.measure.statistics.oneway import Trip, step_us

ROUNDS_MIN = 4
#: Least frames of a train: many frames, not a pair, average out the clock's resolution (PBProbe).
#: Trains shorter than TRAIN_US get more frames, because the first frames wake the other end.
TRAIN_FRAMES = 12
TRAIN_FRAMES_MIN = 4
TRAIN_US = 2000.0
_WARM_TRAINS = 3
#: A round has as many round trips of each size as fit in this time, within these bounds.
_TRIPS_US = 500.0
_TRIPS_MIN, _TRIPS_MAX = 3, 200
#: Share of the path's time that a background measurement uses.
_BACKGROUND = 0.01
#: Factor for the number of round trips, once the first rounds did not suffice.
_TRIPS_MORE = 4
#: Additional train sizes near both ends, as shares of the range. The gap is convex in the size, so
#: a stage that is the bottleneck at both ends is the bottleneck throughout (P1 section 5.3.2).
#: These sizes show the line at each end, and a bend a 27th of the range or more from the end.
_END_SHARES = (0.009, 0.018, 0.027, 0.036)
#: If a train's gap at arrival is below this share of its sending pace, frames arrived together.
_BUNCHED = 0.9
_TRAIN_TRIES = 4
#: The path has changed if the times of two rounds shifted by this share, in the median.
_MOVED = 0.10
#: Most changes of the path in a measurement: times that keep changing are noise for the intervals.
_MOVES_MAX = 2
#: Trains of each size in the search for a transition.
_BISECT_TRAINS = 3


class Exchange(Protocol):
    """The way to the other end: messages of one frame each.

    round_trips(size_bytes, count): messages and their empty answers, one after the other, without
    those that other traffic disturbed;
    train_us(size_bytes, count): arrivals at the other end of `count` frames sent back to back, µs
    of its clock (none if other traffic disturbed them), and our time to send a frame, µs;
    payload_max_bytes: most payload of a frame; credits: most frames under way; train_max: most
    frames of a train.
    """

    payload_max_bytes: int
    credits: int
    train_max: int

    def round_trips(self, size_bytes: int, count: int, /) -> list[Trip]: ...

    def train_us(self, size_bytes: int, count: int, /) -> tuple[list[float], float]: ...


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    `sizes_count`: payload sizes from min_bytes to max_bytes (0: a frame's payload); `at_bytes`: the
    fragment size of interest if the bottleneck depends on the size (0: the largest with figures);
    `precision`: sufficient half interval of both G, relative; `seconds`: no round begins later;
    `background`: use at most 1 % of the path's time; `resolution_us`: of the clocks, 0: estimated;
    `train_frames`: least frames of a train, more if it is shorter than TRAIN_US; `trips_count`:
    least round trips of each size in a round; `ends`: also send trains of sizes near both ends
    (without them a result is never settled); `between`: number of additional train sizes between
    two sizes, to find a bend with few round trips; `share`: share of the path's time to use;
    `patience_s`: extra time beyond `seconds` while there are no figures.
    """

    sizes_count: int = 16
    min_bytes: int = 64
    max_bytes: int = 0
    at_bytes: int = 0
    precision: float = 0.01
    rounds_max: int = 40
    seconds: float = 25.0
    background: bool = False
    resolution_us: float = 0.0
    train_frames: int = TRAIN_FRAMES
    trips_count: int = _TRIPS_MIN
    ends: bool = True
    between: int = 0
    share: float = 1.0
    patience_s: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 4 <= self.sizes_count <= 100:
            raise InputError(f"{self.sizes_count} sizes: must be 4 to 100")
        if self.min_bytes < 0 or self.max_bytes < 0 or self.at_bytes < 0:
            raise InputError("sizes must not be negative")
        if not (0 < self.precision < 1 and 0 < self.seconds < math.inf and 0 < self.share <= 1):
            raise InputError("precision and share must be between 0 and 1, and seconds positive")
        if self.train_frames < TRAIN_FRAMES_MIN or self.trips_count < 1:
            raise InputError(
                f"a train needs {TRAIN_FRAMES_MIN} frames or more; trips_count must be positive"
            )


class _DisturbedError(Exception):
    """Other traffic disturbed all trains of a size."""


class BlackBox:
    """One measurement; `run` makes it."""

    def __init__(
        self,
        exchange: Exchange,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options or Options()
        self._exchange, self._clock, self._sleep = exchange, clock, sleep
        self._random = random.Random(self.options.seed)
        self._train = min(self.options.train_frames, exchange.train_max)
        if self._train < TRAIN_FRAMES_MIN:
            raise InputError(
                f"a window of {exchange.credits} buffers is too small for a train: lower --peers"
            )
        self._trips_count = self.options.trips_count
        high = min(self.options.max_bytes or exchange.payload_max_bytes, exchange.payload_max_bytes)
        low, count = self.options.min_bytes, self.options.sizes_count
        if high - low < 2 * count:
            raise InputError(f"the range {low} to {high} bytes is too narrow for {count} sizes")
        self._sizes = [round(low + (high - low) * k / (count - 1)) for k in range(count)]
        shares = _END_SHARES if self.options.ends else ()
        near = [round((high - low) * share) for share in shares]
        ends = [low + step for step in near] + [high - step for step in near]
        steps = (count - 1) * (self.options.between + 1)
        trains = [round(low + (high - low) * k / steps) for k in range(steps + 1)]
        self._train_sizes = sorted({*trains, *ends})
        self._rounds: list[Round] = []
        self._own_us = float("inf")
        self._frames = self._moves = 0
        self._warm = self._in_round = False
        self._owed_us = 0.0  # for pauses that were postponed
        self._notes: list[str] = []

    def run(self) -> Result:
        began = self._clock()
        self._warm_up()
        number, result, over = 0, None, ""
        trips, trains = 1, True
        while number < self.options.rounds_max:
            try:
                self._round(trips, trains)
                if self._drop_outdated_rounds():
                    result, trips, trains = None, 1, True
                    if not all(any(counts) for counts in zip(*self._contents(), strict=True)):
                        self._round(trips, trains)
            except CarefulError as error:
                over = self._note_end(error, self._clock() - began)
                result = None
                break
            number += 1
            if len(self._rounds) < ROUNDS_MIN and self._clock() - began < self.options.seconds:
                continue
            result = self._result(number, began)
            # Only what is not precise enough is repeated; a round trip is far shorter than a train.
            trips, trains = self._still_needed(result)
            patience_s = self.options.patience_s if result.reason else 0.0
            if result.settled or result.elapsed_s > self.options.seconds + patience_s:
                break
        result = result or self._result(number, began)
        try:
            if not over:
                self._check_between(result)
        except _DisturbedError:
            result.settled = False
            result.notes.append("other traffic disturbed the trains between the measured sizes")
        except CarefulError as error:
            over = self._note_end(error, self._clock() - began)
        if over:
            result.notes.append(over)
        if over or not self.options.ends:
            result.settled = False  # there may be a bend
        result.look_at(self._regime_of_interest(result.regimes))
        result.elapsed_s = self._clock() - began
        result.trip_minima, result.gaps = self._points()
        return result

    def _check_between(self, result: Result) -> None:
        """Locates the transitions, and checks for a further stage between the measured sizes."""
        result.regimes = bisected(result.regimes, self._gap_at)
        for size_bytes in hidden(result.regimes, self._gap_at):
            result.settled = False
            result.notes.append(
                f"near {size_bytes:.0f} bytes another stage is the bottleneck: use more --sizes"
            )
        if self.options.ends:
            self._check_ends(result)

    def _check_ends(self, result: Result) -> None:
        ends = at_ends(result.regimes, self._train_sizes, self._gap_at, self._gap_step_us())
        result.regimes = ends.regimes
        result.notes += ends.notes
        if ends.unseen > self.options.precision:
            result.settled = False
            result.notes.append(
                f"a bottleneck near an end stays hidden below {ends.unseen:.1%} of a gap"
            )
        G = self._regime_of_interest(ends.regimes).G_b_us_per_KiB
        if not ends.are_known or G is None or G.relative > self.options.precision:
            result.settled = False

    def _note_end(self, error: CarefulError, elapsed_s: float) -> str:
        """Drops the unfinished round; returns a note. Raises CarefulError with too few rounds."""
        if self._in_round:
            self._rounds.pop()
        if len(self._rounds) < ROUNDS_MIN:
            known = f"after {elapsed_s:.1f} s and {len(self._rounds)} of {ROUNDS_MIN} rounds"
            raise CarefulError(error.errno or 0, f"{error.reason} ({known})", error.what)
        return f"ended after {elapsed_s:.1f} s ({error}): the figures are from earlier"

    def _points(self) -> tuple[tuple[list[float], list[float]], tuple[list[float], list[float]]]:
        trips = [(size, trip) for a_round in self._rounds for size, trip in a_round.pairs()]
        sizes, least, _ = minima([size for size, _ in trips], [trip.round_us for _, trip in trips])
        gaps = [pair for a_round in self._rounds for pair in a_round.gaps_us.items()]
        return (list(sizes), list(least)), ([size for size, _ in gaps], [gap for _, gap in gaps])

    def _regime_of_interest(self, regimes: list[Regime]) -> Regime:
        at_bytes = self.options.at_bytes
        if not at_bytes:  # the largest sizes that have figures
            return next(
                (regime for regime in reversed(regimes) if regime.G_b_us_per_KiB), regimes[-1]
            )
        return next((regime for regime in regimes if at_bytes < regime.high_bytes), regimes[-1])

    def _gap_at(self, size: int) -> float:
        gap_us = statistics.median(
            self._send_train(size, keep=False) for _ in range(_BISECT_TRAINS)
        )
        if math.isinf(gap_us):
            raise _DisturbedError
        return gap_us

    def _pause(self, busy_us: float) -> None:
        share = _BACKGROUND if self.options.background else self.options.share
        if self.options.background and not self._warm:
            self._owed_us += busy_us
        elif share < 1:
            self._sleep((1 / share - 1) * busy_us / 1e6)

    def _warm_up(self) -> None:
        """Wakes the path, and adapts the numbers of round trips and of a train's frames to it."""
        middle = self._sizes[len(self._sizes) // 2]
        trips = self._send_trips(middle, 2, keep=False)
        self._fit_count(trips)
        warm = _WARM_TRAINS if self.options.ends else 1
        gap_us = min(self._send_train(middle, keep=False) for _ in range(warm))
        most = min(self._exchange.train_max, int(TRAIN_US / max(gap_us, 1e-3)))
        self._train = max(self._train, most)
        self._warm = True
        if self.options.background:
            trip_us = min((trip.round_us for trip in trips), default=gap_us)
            self._check_time((self._trips_count + 1) * trip_us, (self._train - 1) * gap_us)
            self._pause(self._owed_us)

    def _check_time(self, trips_us: float, train_us: float) -> None:
        """Raises InputError if the least number of rounds does not fit in the time."""
        count = len(self._sizes)
        round_us = count * trips_us + len(self._train_sizes) * train_us
        needed_s = 100 * ROUNDS_MIN * round_us / 1e6
        if needed_s > self.options.seconds:
            raise InputError(
                f"in the background {ROUNDS_MIN} rounds of {count} sizes take about "
                f"{needed_s:.0f} s on this path: give --time {math.ceil(1.2 * needed_s)}, "
                "or fewer --sizes"
            )

    def _fit_count(self, trips: list[Trip]) -> None:
        least_us = min((trip.round_us for trip in trips), default=_TRIPS_US)
        fitting = int(min(_TRIPS_MAX, _TRIPS_US / least_us))
        self._trips_count = max(self._trips_count, fitting)

    def _send_trips(self, size: int, count: int, keep: bool = True) -> list[Trip]:
        trips = self._exchange.round_trips(size, count)
        self._frames += 2 * count
        if keep:
            self._rounds[-1].trip_sizes.extend([size] * len(trips))
            self._rounds[-1].trips.extend(trips)
        self._pause(sum(trip.round_us for trip in trips))
        return trips

    def _send_train(self, size: int, keep: bool = True) -> float:
        """Returns a train's gap, or infinity if other traffic disturbed it.

        If all frames arrived at once, because the other end slept, sends the train again.
        """
        for _ in range(_TRAIN_TRIES):
            began = self._clock()
            arrivals, own_us = self._exchange.train_us(size, self._train)
            self._frames += self._train + 1
            self._pause((self._clock() - began) * 1e6)  # the path is busy from the first frame on
            if len(arrivals) < 2:
                return math.inf
            gap_us = train_gap_us(arrivals)
            if gap_us >= own_us * _BUNCHED:
                break
        else:
            if keep:
                self._rounds[-1].bunched.add(size)
        if keep:
            self._rounds[-1].gaps_us[size], self._rounds[-1].own_us[size] = gap_us, own_us
            self._own_us = min(self._own_us, own_us)
        return gap_us

    def _still_needed(self, result: Result) -> tuple[int, bool]:
        """Returns the factor for the next round's trips, 0 for none, and whether trains are due."""
        one_way = result.one_way
        precision = 0.0 if result.reason else self.options.precision
        enough = one_way.supported and one_way.G_us_per_KiB.relative <= precision
        G = result.regime.G_b_us_per_KiB
        trains = G is None or G.relative > precision
        return 0 if enough else _TRIPS_MORE, trains

    def _round(self, trips: int, trains: bool) -> None:
        """Sends round trips of each size, `trips` times the usual number, and trains if needed."""
        self._rounds.append(Round())
        self._in_round = True
        for size in self._random.sample(self._train_sizes, len(self._train_sizes)):
            if trips and size in self._sizes:
                self._fit_count(self._send_trips(size, trips * self._trips_count))
            if trains:
                self._send_train(size)
        self._in_round = False

    def _contents(self) -> list[tuple[bool, bool]]:
        return [(bool(a_round.trips), bool(a_round.gaps_us)) for a_round in self._rounds]

    def _drop_outdated_rounds(self) -> bool:
        """Drops earlier rounds once two rounds agree that the path has changed."""
        if len(self._rounds) < 3 or self._moves == _MOVES_MAX:
            return False
        *before, last, latest = self._rounds
        shifts = [a_round.shift_from(before) for a_round in (last, latest)]
        if min(shifts) > _MOVED or max(shifts) < -_MOVED:
            self._moves += 1
            self._notes.append(
                f"times changed by {shifts[1]:+.0%} halfway: the path changed or is loaded; "
                "earlier samples are dropped"
            )
            self._rounds = [last, latest]
            return True
        return False

    def _clock_us(self) -> float:
        return self.options.resolution_us or step_us([a_round.trips for a_round in self._rounds])

    def _gap_step_us(self) -> float:
        return self._clock_us() / (self._train - 1)

    def _result(self, rounds: int, began: float) -> Result:
        trips, one_way = trip_lines(self._rounds, self._clock_us())
        with_trains = [a_round for a_round in self._rounds if a_round.gaps_us]
        gaps, bunches = (
            usable_gaps(with_trains),
            [size for a_round in with_trains for size in a_round.bunched],
        )
        sizes = [size for a_round in with_trains for size in a_round.gaps_us]
        regimes = [
            without_bunches(regime, sizes, bunches)
            for regime in bottlenecks(gaps, self._gap_step_us())
        ]
        regime = self._regime_of_interest(regimes)
        result = Result(
            round_trips=trips,
            one_way=one_way,
            regimes=regimes,
            regime=regime,
            sum_g_us=None,
            sum_G_us_per_KiB=None,
            sum_G_others_us_per_KiB=None,
            own_gap_us=self._own_us,
            train_frames=self._train,
            frames_count=self._frames,
            rounds_count=rounds,
            elapsed_s=self._clock() - began,
            settled=False,
            reason=one_way.reason or trips.reason or regime.line.reason,
            notes=list(self._notes),
        )
        if bunches:
            result.notes.append(
                f"in {len(bunches)} of {len(sizes)} trains all frames arrived at once, faster than "
                "they left, because the other end slept: use `carefulctl up --wait spin`, or a "
                "quiet machine"
            )
        late = len(sizes) - len(bunches) - sum(map(len, gaps))
        if late > 0:
            result.notes.append(
                f"{late} of {len(sizes)} trains are left out: other work on this host delayed them"
            )
        result.doubt()
        if one_way.reason or trips.reason:
            return result
        result.sum_g_us = trips.intercept_us * 0.5
        result.sum_G_us_per_KiB = one_way.G_us_per_KiB
        result.look_at(regime)
        if regime.G_b_us_per_KiB is None or result.reason:
            return result
        widest = max(one_way.G_us_per_KiB.relative, regime.G_b_us_per_KiB.relative)
        result.settled = widest <= self.options.precision
        return result
