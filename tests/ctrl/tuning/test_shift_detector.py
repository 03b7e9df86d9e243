"""Detects shifts of live messages despite their scatter."""

from __future__ import annotations

import random

import pytest
from careful.tuning.controller.shift_detector import Watch
from careful.tuning.verify import Counts

CLASS = 6


class Messages:
    """Messages of one class, `a_look` of them each 0.1 s, and their detector."""

    def __init__(self, noise: float, a_look: int, seed: int, late: float = 0.0) -> None:
        self.noise, self.a_look, self.now = noise, a_look, 0.0
        self.late = late  # share of messages that other work delays
        self.random = random.Random(seed)
        self.total, self.watch = Counts(1, 10**6, 10**12), Watch()
        self.watch.look({CLASS: self.total}, self.now)

    def shift(self, mean_us: float, seconds: float, noise: float | None = None) -> float | None:
        """Returns the seconds until detection; None: not in time."""
        spread, began = self.noise if noise is None else noise, self.now
        while self.now < began + seconds:
            self.now += 0.1
            for _ in range(self.a_look):
                took_us = mean_us * max(0.1, self.random.gauss(1, spread))
                if self.random.random() < self.late:
                    took_us += self.random.uniform(5000, 50000)
                took = int(1000 * took_us)
                self.total += Counts(1, took, took * took)
            if self.watch.look({CLASS: self.total}, self.now):
                return self.now - began
        return None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("times", "within_s"), [(2.0, 0.7), (0.5, 0.7), (1.3, 1.5)])
def test_look__reports_a_shift(times: float, within_s: float, seed: int) -> None:
    one = Messages(0.15, 5, seed)
    assert one.shift(1000, 10) is None
    reported = one.shift(1000 * times, 10)
    assert reported is not None
    assert reported <= within_s


@pytest.mark.parametrize("seed", range(5))
def test_look__reports_a_shift_of_messages_that_vary(seed: int) -> None:
    """Like on a path with another stream: no two windows differ beyond doubt."""
    one = Messages(0.3, 5, seed)
    assert one.shift(5000, 10) is None
    reported = one.shift(8500, 10, noise=0.3)
    assert reported is not None
    assert reported <= 2.0


@pytest.mark.parametrize("seed", range(5))
def test_look__reports_the_end_of_a_stream_that_came_and_went(seed: int) -> None:
    """A stream delayed messages by varying times."""
    one = Messages(0.1, 5, seed)
    for mean_us in (6500, 10500) * 10:
        assert one.shift(mean_us, 0.2) is None
    reported = one.shift(4800, 10, noise=0.02)
    assert reported is not None
    assert reported <= 1.8


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("before_us", "after_us"), [(5500, 8000), (8000, 5500)])
def test_look__reports_a_shift_though_other_work_delays_messages(
    before_us: float, after_us: float, seed: int
) -> None:
    """A few late messages hide the shift in a mean, and make its error large."""
    one = Messages(0.1, 5, seed, late=0.04)
    assert one.shift(before_us, 10) is None
    reported = one.shift(after_us, 10)
    assert reported is not None
    assert reported <= 4.2


@pytest.mark.parametrize("late", [0.02, 0.1])
def test_look__late_messages_are_no_shift(late: float) -> None:
    one = Messages(0.1, 5, 3, late=late)
    assert one.shift(5500, 600) is None


@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize("a_look", [1, 10])
def test_look__scatter_is_no_shift(noise: float, a_look: int) -> None:
    one = Messages(noise, a_look, 7)
    assert one.shift(1000, 900) is None


@pytest.mark.parametrize("seed", range(5))
def test_look__a_short_burst_of_other_work_is_no_shift(seed: int) -> None:
    """Other work delays the messages of a tenth of a second, again and again."""
    one = Messages(0.2, 5, seed)
    assert one.shift(1000, 6) is None
    for _ in range(20):
        assert one.shift(5000, 0.1) is None
        assert one.shift(1000, 3) is None


def test_look__needs_a_reference() -> None:
    one = Messages(0.1, 5, 1)
    assert one.shift(1000, 0.3) is None
    assert one.shift(5000, 5) is None  # 0.3 s gave no reference


def test_look__a_few_percent_are_no_shift() -> None:
    one = Messages(0.01, 5, 1)
    assert one.shift(1000, 10) is None
    assert one.shift(1100, 30) is None


def test_reset__the_next_values_are_the_reference() -> None:
    one = Messages(0.1, 5, 1)
    assert one.shift(1000, 5) is None
    one.watch.reset()
    assert one.shift(3000, 5) is None
    assert one.shift(1000, 2) is not None


def test_skip__messages_tell_nothing() -> None:
    one = Messages(0.1, 5, 1)
    assert one.shift(1000, 5) is None
    one.total += Counts(500, 500 * 9 * 10**6, 500 * 81 * 10**12)
    one.watch.skip({CLASS: one.total})
    assert one.shift(1000, 5) is None
