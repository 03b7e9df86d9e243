"""Measurements of a path that live messages use, in virtual time with known figures."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from careful.errors import CarefulError
from careful.measure.outside.blackbox import BlackBox
from careful.measure.outside.undisturbed import Undisturbed
from careful.measure.probes.exchange import Arrival
from careful.measure.statistics.line import train_gap_us
from careful.measure.statistics.oneway import Trip
from careful.tuning.instance_path import BUSY
from fake_exchange import CROSSING, GAM
from loaded_exchange import HEAD_BYTES, LoadedExchange

RUNS = 40
#: Runs that must be near, and intervals that must hold, of RUNS.
ENOUGH = 36


def figures(exchange: LoadedExchange, undisturbed: bool = True) -> dict[str, float]:
    way = Undisturbed(exchange, exchange.sleep) if undisturbed else exchange
    options = replace(BUSY, patience_s=20.0)
    clock = lambda: exchange.now_us / 1e6  # noqa: E731
    found: dict[str, float] = BlackBox(way, options, clock, exchange.sleep).run().figures()
    return found


@pytest.mark.parametrize(("busy", "enough"), [(0.0, 36), (0.5, 36), (0.9, 36), (1.0, 30)])
def test_figures__a_path_with_live_messages(busy: float, enough: int) -> None:
    """A reader that always waits for a message leaves the path idle for a seventh of the time, so
    the costs of the other stages may be withheld. The other end wakes later behind large frames."""
    sum_G = sum(G for _, G in GAM)
    truth = {"g_b_us": 750.0, "G_b_us_per_KiB": 2490.0, "sum_G_others_us_per_KiB": sum_G - 2490}
    near, held = dict.fromkeys(truth, 0), 0
    for seed in range(RUNS):
        found = figures(LoadedExchange(busy=busy, seed=seed, wakes_us_per_KiB=15.0))
        for name, value in truth.items():
            if found[name] is None:
                continue
            near[name] += abs(found[name] / value - 1) < 0.1
            head, unit = name.split("_us", 1)
            low, high = (found[f"{head}_{end}_us{unit}"] for end in ("low", "high"))
            held += low <= value <= high
    assert min(near["g_b_us"], near["G_b_us_per_KiB"]) >= ENOUGH, near
    assert near["sum_G_others_us_per_KiB"] >= enough
    assert held >= 0.9 * sum(near.values())


@pytest.mark.parametrize("busy", [0.5, 0.9])
def test_figures__of_a_path_with_live_messages_both_ways(busy: float) -> None:
    """Answers wait behind messages on the way back, so times one way give the slope."""
    near, held = [0, 0], 0
    for seed in range(RUNS):
        found = figures(LoadedExchange(busy=busy, busy_back=busy, seed=seed))
        others, low_us = found["sum_G_others_us_per_KiB"], found["sum_g_low_us"]
        near[0] += found["g_b_us"] == pytest.approx(750.0, rel=0.1)
        near[1] += others is not None and others == pytest.approx(4000.0, rel=0.1)
        held += low_us is not None and low_us <= sum(g for g, _ in GAM) <= found["sum_g_high_us"]
    assert min(near) >= ENOUGH, near
    assert held >= 0.8 * RUNS  # where every answer has waited, the sum of g is too large


def test_figures__two_bottlenecks_on_a_busy_path() -> None:
    """The bottleneck of large fragments is another stage than that of small ones."""
    told = 0
    for seed in range(RUNS):
        found = figures(LoadedExchange(CROSSING, busy=0.5, seed=seed))
        regimes = found["regimes"]
        told += len(regimes) == 2 and regimes[0]["g_b_us"] == pytest.approx(2034.4, rel=0.1)
    assert told >= ENOUGH


def test_figures__are_withheld_or_wrong_if_all_times_count() -> None:
    """The test's load disturbs a measurement that takes each train and round trip."""
    good = 0
    for seed in range(8):
        found = figures(LoadedExchange(busy=1.0, seed=seed), undisturbed=False)
        others = found["sum_G_others_us_per_KiB"]
        good += others is not None and abs(others / 4000 - 1) < 0.1
    assert good <= 4


class Scripted(LoadedExchange):
    """Records the given arrivals, one list for each question."""

    def __init__(self, *told: list[Arrival] | int) -> None:
        super().__init__(busy=0.0)
        self._told = list(told)
        self.began = 0

    def record(self) -> None:
        self.began += 1

    def arrivals(self) -> list[Arrival]:
        told = self._told.pop(0)
        if isinstance(told, int):
            raise CarefulError(told, "cannot", "h2")
        return told


def frames(*pairs: tuple[float, int], others: tuple[int, ...] = ()) -> list[Arrival]:
    """Arrivals of (µs, bytes); others: indices behind another host's frames."""
    return [Arrival(at, n, i in others) for i, (at, n) in enumerate(pairs)]


SMALL, LARGE = 64 + HEAD_BYTES, 3750
#: Four small frames, 900 µs apart.
TRAIN = [(10000.0 + 900 * k, SMALL) for k in range(4)]


def test_train__behind_a_larger_frame_is_sent_again() -> None:
    piled = [(10000.0 + 760 * k, SMALL) for k in range(4)]
    exchange = Scripted(
        frames((9000.0, LARGE), (9760.0, 48), *piled),  # no pause since the large frame
        frames((8000.0, LARGE), *TRAIN),
    )
    way = Undisturbed(exchange)
    arrivals, _ = way.train_us(64, 4)
    assert train_gap_us(arrivals) == pytest.approx(905, rel=0.02)
    assert way.disturbed == 1


def test_train__behind_a_larger_frame_counts_once_the_pile_is_gone() -> None:
    """Frames of 64 bytes take 900 µs at the bottleneck, and 760 µs at the stage with the pile."""
    large = [(1000.0 + 9600 * k, LARGE) for k in range(3)]
    at_us, small = large[-1][0], []
    for k in range(128):
        at_us += 760 if k < 100 else 900
        small.append((at_us, SMALL))
    exchange = Scripted(
        frames((500.0, LARGE), *[(600.0 + 760 * k, SMALL) for k in range(4)]),
        frames(*large, *small),
    )
    way = Undisturbed(exchange)
    way._paces_us[64] = 760.0  # so that the second train is long
    arrivals, _ = way.train_us(64, 4)
    assert way.disturbed == 1
    assert 3 <= len(arrivals) < 28
    assert train_gap_us(arrivals) == pytest.approx(900, rel=0.02)


def test_train__uses_frames_that_arrived_together() -> None:
    late = [(at + 20000, n) for at, n in TRAIN[1:]]
    exchange = Scripted(
        frames(*TRAIN, others=(2,)),  # two and two: too few
        frames(*TRAIN[:1], (12000.0, LARGE), *late),
    )
    way = Undisturbed(exchange)
    arrivals, _ = way.train_us(64, 4)
    assert len(arrivals) == 3
    assert train_gap_us(arrivals) == pytest.approx(905, rel=0.02)
    assert way.disturbed == 1


def test_train__the_end_is_slower_than_the_path() -> None:
    """Its handlers' times are further apart than the arrivals at XDP."""
    exchange = Scripted(frames(*((at / 100, n) for at, n in TRAIN)))
    arrivals, _ = Undisturbed(exchange).train_us(64, 4)
    assert train_gap_us(arrivals) == pytest.approx(750 + 2490 / 16, rel=0.05)


def test_round_trips__that_waited_do_not_count() -> None:
    exchange = Scripted(
        frames(*TRAIN),
        frames((20000.0, LARGE), (20900.0, SMALL), (40000.0, SMALL)),
        frames((60000.0, SMALL), (60100.0, 48)),
    )
    way = Undisturbed(exchange)
    way.train_us(64, 4)
    assert len(way.round_trips(64, 2)) == 2
    assert way.disturbed == 1


def test_round_trips__have_the_time_since_xdp() -> None:
    way = Undisturbed(LoadedExchange(busy=0.5, wakes_us_per_KiB=100.0))
    for size in (64, 3702):
        for trip in way.round_trips(size, 5):
            assert trip.host_us == pytest.approx(100 * size / 1024, abs=1e-3)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EBUSY])
def test_peer__that_cannot_record(error: int) -> None:
    class Older(LoadedExchange):
        def record(self) -> None:
            raise CarefulError(error, "cannot", "h2")

    way = Undisturbed(Older(busy=0.0))
    assert len(way.round_trips(64, 3)) == 3
    assert len(way.train_us(64, 4)[0]) == 4


def test_peer__that_records_later() -> None:
    """Another host, or our last session, is recorded until two seconds after its last question."""

    class Busy(Scripted):
        def record(self) -> None:
            super().record()
            if self.began == 1:
                raise CarefulError(errno.EBUSY, "records another", "h2")

    exchange = Busy(frames(*TRAIN))
    way = Undisturbed(exchange)
    for _ in range(3):
        assert len(way.train_us(64, 4)[0]) == 4
        exchange._told.append(frames(*TRAIN))
    assert exchange.began == 2


def test_peer__its_session_began_again() -> None:
    exchange = Scripted(errno.ENOENT, frames(*TRAIN))
    way = Undisturbed(exchange)
    for _ in range(2):
        assert len(way.train_us(64, 4)[0]) == 4
    assert exchange.began == 2


def test_train__missing_in_the_record() -> None:
    """Another measurement uses frames of that size: all times count."""
    way = Undisturbed(Scripted(frames(*TRAIN, (14000.0, SMALL)), frames(*TRAIN[:2])))
    assert len(way.train_us(64, 4)[0]) == 4
    assert len(way.round_trips(64, 1)) == 1


def test_peer__that_fails_otherwise() -> None:
    with pytest.raises(CarefulError, match="cannot"):
        Undisturbed(Scripted(errno.ETIMEDOUT)).round_trips(64, 1)


def test_round_trips__none_of_a_path_that_is_never_idle() -> None:
    full = frames((1000.0, LARGE), (1001.0, SMALL))
    way = Undisturbed(Scripted(*[full] * 40))
    way._gaps_us[64] = 900.0
    found: list[Trip] = way.round_trips(64, 1)
    assert found == []
