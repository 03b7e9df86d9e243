"""Quantiles of t and F against scipy's, far into the tails and near the normal distribution."""

from __future__ import annotations

import math

import pytest
from careful.measure.statistics.quantiles import beta_share, f_quantile, t_quantile
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, fdtri, ndtri, stdtrit

DOFS = [0.5, 1, 1.5, 2, 3.7, 10, 29, 30.5, 120, 1e3, 1e5, 2e6]


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.999])
def test_t_quantile__agrees_with_scipy(dof: float, share: float) -> None:
    assert t_quantile(share, dof) == pytest.approx(stdtrit(dof, 0.5 + share / 2), rel=1e-7)


def test_t_quantile__is_normal_in_the_end() -> None:
    assert t_quantile(0.95, math.inf) == pytest.approx(ndtri(0.975), rel=1e-12)
    assert t_quantile(0.95, 9.9e6) == pytest.approx(t_quantile(0.95, math.inf), rel=1e-6)


@pytest.mark.parametrize("below", [1, 2, 5, 12, 40, 1000])
@pytest.mark.parametrize("chance", [0.05, 1e-4])
def test_f_quantile__agrees_with_scipy(below: int, chance: float) -> None:
    assert f_quantile(3, below, chance) == pytest.approx(fdtri(3, below, 1 - chance), rel=1e-7)


@given(st.floats(0.1, 500), st.floats(0.1, 500), st.floats(0.001, 0.999))
def test_beta_share__agrees_with_scipy(a: float, b: float, x: float) -> None:
    assert beta_share(a, b, x, 1 - x) == pytest.approx(betainc(a, b, x), rel=1e-8, abs=1e-14)


def test_beta_share__at_its_ends() -> None:
    assert (beta_share(2, 3, 0, 1), beta_share(2, 3, 1, 0)) == (0, 1)
