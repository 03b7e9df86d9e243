"""A quick measurement of a path in virtual time with known figures."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from careful.measure.outside.quick import Glance, Options
from careful.model.blackbox import BlackBox
from fake_exchange import GAM, FakeExchange

KIB = 1024


def seen(exchange: FakeExchange, **options: object) -> dict[str, float]:
    """Returns the result of a quick measurement."""
    given = replace(Options(), **options)  # type: ignore[arg-type]
    clock = lambda: exchange.now_us / 1e6  # noqa: E731
    return Glance(exchange, given, clock, exchange.sleep).figures()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("times", [0.1, 1.0])
def test_figures__of_gam(seed: int, times: float) -> None:
    stages = tuple((times * g, times * G) for g, G in GAM)
    found = seen(FakeExchange(stages, delay_us=500 * times, seed=seed))
    sum_g = times * (sum(g for g, _ in GAM) + 500)
    sum_G = times * sum(G for _, G in GAM)
    truth = {"g_b_us": times * 750, "G_b_us_per_KiB": times * 2490, "sum_g_us": sum_g}
    truth |= {"sum_G_us_per_KiB": sum_G, "sum_G_others_us_per_KiB": sum_G - times * 2490}
    for name, value in truth.items():
        assert found[name] == pytest.approx(value, rel=0.25), name
        head, unit = name.split("_us", 1)
        low, high = (found[f"{head}_{end}_us{unit}"] for end in ("low", "high"))
        assert low < found[name] < high
        assert high - low < 1.2 * value, name
    assert found["elapsed_s"] < 3
    BlackBox.from_dict(found)  # in `plan`'s format


def test_figures__a_path_with_interruptions() -> None:
    """Other messages disturb one of three trains, and some round trips."""
    quiet, busy = FakeExchange(jitter_us=0.0), FakeExchange(jitter_us=0.0)
    trains, trips = busy.train_us, busy.round_trips
    random_ = random.Random(1)

    def later() -> float:
        return 20000.0 if random_.random() < 0.3 else 0.0

    def train_us(size: int, frames: int) -> tuple[list[float], float]:
        arrivals, own_us = trains(size, frames)
        return [*arrivals[:-1], arrivals[-1] + later()], own_us

    busy.train_us = train_us  # type: ignore[method-assign]
    busy.round_trips = lambda size, many: [  # type: ignore[method-assign]
        replace(one, round_us=one.round_us + later()) for one in trips(size, many)
    ]
    known, found = seen(quiet), seen(busy)
    for name in ("g_b_us", "G_b_us_per_KiB", "sum_g_us", "sum_G_us_per_KiB"):
        assert found[name] == pytest.approx(known[name], rel=0.1), name


def test_figures__a_bend_widens_the_intervals() -> None:
    """Small and large fragments have different bottlenecks, so the intervals are wide."""
    bent = FakeExchange(((3000.0, 100.0), (100.0, 4000.0)), jitter_us=0.0)
    straight = FakeExchange(((1000.0, 2000.0),), jitter_us=0.0)
    widths = []
    for one in (bent, straight):
        found = seen(one)
        width = found["G_b_high_us_per_KiB"] - found["G_b_low_us_per_KiB"]
        widths.append(width / found["G_b_us_per_KiB"])
    assert widths[0] > 5 * widths[1]


def test_figures__none_if_trains_arrive_in_bunches() -> None:
    bunched = FakeExchange()
    trains = bunched.train_us
    bunched.train_us = lambda *which: (trains(*which)[0], 1e5)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="arrived at once"):
        seen(bunched)


def test_figures__do_without_the_smallest_frames_if_those_come_in_bunches() -> None:
    exchange = FakeExchange()
    trains = exchange.train_us

    def train_us(size: int, frames: int) -> tuple[list[float], float]:
        arrivals, own_us = trains(size, frames)
        return arrivals, 1e5 if size < 100 else own_us

    exchange.train_us = train_us  # type: ignore[method-assign]
    found = seen(exchange)
    assert found["G_b_us_per_KiB"] == pytest.approx(2490, rel=0.15)


def test_pauses__leave_the_path_its_share() -> None:
    exchange = FakeExchange()
    found = seen(exchange, share=0.5)
    assert exchange.busy_us < 0.6 * found["elapsed_s"] * 1e6


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("payload_max_bytes", 200, "too similar"), ("train_max", 1, "too small for a train")],
)
def test_refused__nothing_can_be_measured(name: str, value: int, said: str) -> None:
    exchange = FakeExchange()
    setattr(exchange, name, value)
    with pytest.raises(ValueError, match=said):
        seen(exchange)
