"""Piecewise lines: changes of regime are found, and anomalies do not count."""

from __future__ import annotations

import numpy as np
import pytest
from careful.measure.statistics.piecewise import fit_piecewise
from hypothesis import given
from hypothesis import strategies as st

SIZES = np.linspace(64, 9000, 48)


def bent(knee: float, before: float, after: float, step_us: float = 0.0):
    """Returns times with a change of slope and a step at a size."""
    low = 300 + before * SIZES
    high = 300 + before * knee + step_us + after * (SIZES - knee)
    return np.where(knee > SIZES, low, high)


@given(
    sigma=st.sampled_from([0.0, 1e-9, 0.01, 1.0, 5.0]),
    G=st.floats(0.01, 2),
    seed=st.integers(0, 2**16),
)
def test_piecewise__one_line_stays_one(sigma: float, G: float, seed: int) -> None:
    """Also with almost no residual, where Netgauge's rule alone fails."""
    rng = np.random.default_rng(seed)
    found = fit_piecewise(SIZES, 300 + G * SIZES + rng.normal(0, sigma, 48), resolution_us=0.01)
    assert found.transitions_bytes == ()
    assert found.lines[0].slope_us_per_byte.value == pytest.approx(G, rel=0.05, abs=0.002)


@given(
    knee=st.floats(2000, 7000),
    ratio=st.sampled_from([0.3, 0.5, 2.0, 4.0]),
    sigma=st.sampled_from([0.0, 1.0, 4.0]),
    seed=st.integers(0, 2**16),
)
def test_piecewise__a_bend_is_found(knee: float, ratio: float, sigma: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = bent(knee, 0.4, 0.4 * ratio) + rng.normal(0, sigma, 48)
    found = fit_piecewise(SIZES, times)
    assert len(found.lines) == 2
    assert found.transitions_bytes[0] == pytest.approx(knee, rel=0.10)
    assert found.lines[0].slope_us_per_byte.value == pytest.approx(0.4, rel=0.08)
    assert found.lines[1].slope_us_per_byte.value == pytest.approx(0.4 * ratio, rel=0.08)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 10.0])
def test_piecewise__a_bend_with_few_points_behind_it(sigma: float) -> None:
    """GMS x 100 at 16 sizes, 5 of them beyond the bend, none of them an outlier."""
    sizes = np.linspace(64, 3702, 16)
    times = np.maximum(9280 + 2620 * sizes / 1024, 400 + 6010 * sizes / 1024)
    held = 0
    for seed in range(60):
        found = fit_piecewise(sizes, times + np.random.default_rng(seed).normal(0, sigma, 16))
        assert found.transitions_bytes == (pytest.approx(2682, rel=0.02),), seed
        held += found.lines[1].G_us_per_KiB.contains(6010)
    assert held >= 52


def test_piecewise__a_bend_next_to_an_anomaly() -> None:
    """Gaps of GMS x 100 on a busy machine; one is late."""
    off_us = np.array([-37, 0, 0, 1, 0, -1, 2, 3, 1, 0, 120, 4, 1, -1, 11, -1])
    sizes = np.linspace(64, 3702, 16)
    times = np.maximum(9280 + 2620 * sizes / 1024, 400 + 6010 * sizes / 1024) + off_us
    found = fit_piecewise(sizes, times)
    assert found.transitions_bytes == (pytest.approx(2682, rel=0.02),)
    one = fit_piecewise(sizes, 9280 + 2620 * sizes / 1024 + off_us)
    assert one.transitions_bytes == ()


@given(knee=st.floats(2000, 7000), seed=st.integers(0, 2**16))
def test_piecewise__a_step_is_found(knee: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = fit_piecewise(SIZES, bent(knee, 0.2, 0.2, 400) + rng.normal(0, 3, 48))
    assert len(found.lines) == 2
    assert found.transitions_bytes[0] == pytest.approx(knee, abs=200)


@given(at=st.integers(5, 40), height=st.floats(50, 5000), count=st.integers(1, 2))
def test_piecewise__anomalies_end_no_line(at: int, height: float, count: int) -> None:
    rng = np.random.default_rng(at)
    times = 300 + 0.3 * SIZES + rng.normal(0, 2, 48)
    times[at : at + count] += height
    found = fit_piecewise(SIZES, times)
    assert len(found.lines) == 1
    assert found.lines[0].slope_us_per_byte.value == pytest.approx(0.3, rel=0.02)


def test_piecewise__three_regimes() -> None:
    times = np.where(SIZES < 6000, bent(3000, 0.2, 0.8), bent(3000, 0.2, 0.8) + 900)
    found = fit_piecewise(SIZES, times + np.random.default_rng(2).normal(0, 2, 48))
    assert found.transitions_bytes == pytest.approx((3000, 6000), rel=0.05)


def test_piecewise__few_points_are_one_line() -> None:
    found = fit_piecewise([100, 200, 300], [1.0, 2.0, 9.0])
    assert len(found.lines) == 1


def test_piecewise__shuffled_data_give_the_same() -> None:
    times = bent(4000, 0.2, 0.8) + np.random.default_rng(7).normal(0, 2, 48)
    order = np.random.default_rng(8).permutation(48)
    assert fit_piecewise(SIZES[order], times[order]) == fit_piecewise(SIZES, times)
