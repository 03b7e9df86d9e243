"""Robust lines: correct intervals, outliers, and data without a slope."""

from __future__ import annotations

import math

import numpy as np
import pytest
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import fit_line, fit_minima, minima, widened
from hypothesis import given
from hypothesis import strategies as st

SIZES = np.linspace(576, 3800, 16)


def noisy(rng, sizes, g_us: float, G: float, sigma_us: float, outliers: float = 0.0):
    """Returns times over sizes with Gaussian noise; a share is late, by 50 sigma on average."""
    times = g_us + G * sizes + rng.normal(0, sigma_us, len(sizes))
    late = rng.random(len(sizes)) < outliers
    return np.where(late, times + rng.exponential(50 * sigma_us, len(sizes)), times)


# --- estimates


def test_estimate__interval_is_students() -> None:
    one = Estimate(10.0, 2.0, 5)
    assert one.half == pytest.approx(2 * 2.5706, rel=1e-4)
    assert (one.low, one.high) == pytest.approx((10 - one.half, 10 + one.half))
    assert Estimate(10.0, 2.0).half == pytest.approx(2 * 1.95996, rel=1e-4)


def test_estimate__difference_widens() -> None:
    one = Estimate(10, 3, 10, 0.5) - Estimate(4, 4, 10, 0.25)
    assert (one.value, one.se, one.slack) == (6, 5, 0.75)
    assert one.dof == pytest.approx(625 / (81 / 10 + 256 / 10))
    both = Estimate(10, 3) + Estimate(4, 4)
    assert (both.value, both.se) == (14, 5)
    assert (one * -2).value == -12
    assert (one * -2).half == pytest.approx(2 * one.half)


def test_estimate__without_samples_is_infinitely_wide() -> None:
    assert Estimate(0.0).relative == math.inf
    assert Estimate(1.0).half == 0


# --- exact and noisy lines


@given(
    g_us=st.floats(0, 1e5),
    G=st.floats(1e-3, 10),
    count=st.integers(4, 60),
    bad=st.integers(0, 5),
    seed=st.integers(0, 2**16),
)
def test_fit_line__exact_lines_are_found_despite_outliers(g_us, G, count, bad, seed) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.choice(np.arange(64, 9000), count, replace=False)).astype(float)
    times = g_us + G * sizes
    spoilt = rng.choice(count, min(bad, count // 5), replace=False)
    times[spoilt] += rng.uniform(1, 1e4, len(spoilt)) * (1 + times.max())
    line = fit_line(sizes, times)
    assert line.supported
    assert line.slope_us_per_byte.value == pytest.approx(G, rel=1e-6)
    assert line.at(1000) == pytest.approx(g_us + G * 1000, rel=1e-6)
    assert (line.size_min_bytes, line.size_max_bytes) == (sizes[0], sizes[-1])
    assert line.points_count == count


@pytest.mark.parametrize(
    ("outliers", "count"),
    [
        (0.0, 5),
        (0.0, 6),
        (0.0, 7),
        (0.0, 8),
        (0.15, 8),
        (0.0, 16),
        (0.15, 16),
        (0.0, 60),
        (0.15, 60),
    ],
)
def test_fit_line__intervals_hold_the_truth(outliers: float, count: int) -> None:
    """95 % intervals of slope and intercept hold the truth in at least 92 % of 1000 cases, or 90 %
    with outliers, and are not too wide.
    """
    rng = np.random.default_rng(count)
    sizes = np.linspace(576, 3800, count)
    lines = [fit_line(sizes, noisy(rng, sizes, 500, 0.8, 5, outliers)) for _ in range(1000)]
    least = 0.90 if outliers else 0.92
    assert np.mean([line.slope_us_per_byte.contains(0.8) for line in lines]) >= least
    assert np.mean([line.intercept_us.contains(500) for line in lines]) >= least
    ideal = 5 / (np.std(sizes) * math.sqrt(count))
    widths = [line.slope_us_per_byte.half / ideal for line in lines]
    assert np.median(widths) < {5: 5.5, 6: 5.0, 7: 4.5, 8: 4.5}.get(count, 3.5)
    error = np.median([abs(line.slope_us_per_byte.value - 0.8) for line in lines])
    assert error < 1.5 * ideal


def test_fit_line__time_at_a_size_is_known_best_in_the_middle() -> None:
    """The interval holds the truth at any size, and is narrowest among the points."""
    rng = np.random.default_rng(9)
    lines = [fit_line(SIZES, noisy(rng, SIZES, 500, 0.8, 5)) for _ in range(300)]
    for size in (-1000, 0, 2000, 9000):
        truth = 500 + 0.8 * size
        assert np.mean([line.estimate_at(size).contains(truth) for line in lines]) >= 0.90
        assert lines[0].estimate_at(size).value == pytest.approx(lines[0].at(size))
    assert lines[0].estimate_at(2188).half < lines[0].intercept_us.half


@given(factor=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3), seed=st.integers(0, 2**16))
def test_fit_line__follows_scale_and_shift(factor: float, shift: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = noisy(rng, SIZES, 500, 0.8, 5, 0.1)
    one, other = fit_line(SIZES, times), fit_line(SIZES, times * factor + shift)
    slope, scaled = one.slope_us_per_byte, other.slope_us_per_byte
    assert scaled.value == pytest.approx(slope.value * factor, rel=1e-5)
    assert scaled.half == pytest.approx(slope.half * factor, rel=1e-3)


@given(order=st.permutations(range(16)))
def test_fit_line__order_does_not_matter(order: list[int]) -> None:
    times = noisy(np.random.default_rng(1), SIZES, 500, 0.8, 5, 0.1)
    one, other = fit_line(SIZES, times), fit_line(SIZES[order], times[order])
    assert other.slope_us_per_byte.value == pytest.approx(one.slope_us_per_byte.value, rel=1e-9)


def test_fit_line__resolution_widens_the_interval() -> None:
    times = 500 + 0.8 * SIZES
    line = fit_line(SIZES, times, resolution_us=2.0)
    assert line.slope_us_per_byte.half == pytest.approx(4 / (3800 - 576), rel=1e-3)
    assert line.intercept_us.half > 2


def test_fit_line__many_points_take_a_shorter_way() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.uniform(576, 3800, 5000)
    line = fit_line(sizes, noisy(rng, sizes, 500, 0.8, 5, 0.2))
    assert line.slope_us_per_byte.value == pytest.approx(0.8, rel=1e-2)


# --- what the data cannot support


def test_fit_line__no_slope_in_noise() -> None:
    """Almost none of 300 cases without a slope gets one."""
    rng = np.random.default_rng(3)
    found = [fit_line(SIZES, noisy(rng, SIZES, 500, 0, 5, 0.1)) for _ in range(300)]
    assert sum(line.supported for line in found) <= 3
    assert any("wide" in line.reason for line in found)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [([100.0], "1 sizes"), ([100.0] * 20, "1 sizes"), ([100.0, 200.0] * 10, "2 sizes")],
)
def test_fit_line__too_few_sizes(sizes: list[float], says: str) -> None:
    line = fit_line(sizes, [5.0 + 0.1 * size for size in sizes])
    assert not line.supported
    assert says in line.reason
    assert math.isinf(line.slope_us_per_byte.half)


def test_fit_line__falling_time_is_no_slope() -> None:
    line = fit_line(SIZES, 5000 - SIZES)
    assert "falls with size" in line.reason


def repeated(rng, spread: float):
    """Returns the line through the medians of five repetitions with different slopes, and the
    widened line.
    """
    slopes = 0.8 + rng.normal(0, spread, 5)
    times = np.array([500 + slope * SIZES + rng.normal(0, 2, 16) for slope in slopes])
    line = fit_line(SIZES, np.median(times, axis=0))
    return line, widened(line, [fit_line(SIZES, one) for one in times])


def test_widened__repetitions_that_differ_as_a_whole() -> None:
    """Residuals alone give far too narrow intervals."""
    rng = np.random.default_rng(11)
    pairs = [repeated(rng, 0.01) for _ in range(300)]
    promised = np.mean([line.slope_us_per_byte.contains(0.8) for line, _ in pairs])
    assert promised < 0.6
    assert np.mean([wide.slope_us_per_byte.contains(0.8) for _, wide in pairs]) >= 0.90
    assert np.mean([wide.intercept_us.contains(500) for _, wide in pairs]) >= 0.90
    assert np.median([wide.slope_us_per_byte.half for _, wide in pairs]) < 0.02


def test_widened__is_never_narrower() -> None:
    rng = np.random.default_rng(12)
    for line, wide in (repeated(rng, 0.0) for _ in range(50)):
        assert wide.slope_us_per_byte.half >= line.slope_us_per_byte.half
        assert wide.slope_us_per_byte.value == line.slope_us_per_byte.value
    assert widened(line, [line]) == line


def test_widened__repetitions_can_refute_a_slope() -> None:
    slopes = (0.5, -0.4, 1.2, 0.1)
    times = [500 + slope * SIZES for slope in slopes]
    line = fit_line(SIZES, np.mean(times, axis=0))
    assert line.supported
    assert "wide" in widened(line, [fit_line(SIZES, one) for one in times]).reason


def test_fit_line__two_clouds_are_no_line() -> None:
    rng = np.random.default_rng(4)
    times = 500 + 0.1 * SIZES + rng.permutation([0.0, 4000.0] * 8)
    assert not fit_line(SIZES, times).supported


@pytest.mark.parametrize(
    ("sizes", "times"),
    [([], []), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0]), ([1.0], [math.inf])],
)
def test_fit_line__bad_data_are_refused(sizes: list[float], times: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|shape|no measurements"):
        fit_line(sizes, times)


# --- minima


@given(st.lists(st.tuples(st.sampled_from([64.0, 1000.0, 3000.0]), st.floats(0, 1e6)), min_size=1))
def test_minima__are_each_sizes_least(samples: list[tuple[float, float]]) -> None:
    sizes, least, counts = minima(*zip(*samples, strict=True))
    assert list(sizes) == sorted({size for size, _ in samples})
    for size, time, count in zip(sizes, least, counts, strict=True):
        mine = [other for same, other in samples if same == size]
        assert (time, count) == (min(mine), len(mine))


def test_fit_minima__sees_through_queues() -> None:
    """Exponential waiting, often and long, on every sample: the least of 12 is close."""
    rng = np.random.default_rng(6)
    sizes = np.repeat(SIZES, 12)
    times = 500 + 0.8 * sizes + rng.exponential(40, len(sizes))
    line = fit_minima(sizes, times)
    assert line.samples_count == 192
    assert line.points_count == 16
    assert line.slope_us_per_byte.value == pytest.approx(0.8, rel=0.01)
    assert line.slope_us_per_byte.contains(0.8)
