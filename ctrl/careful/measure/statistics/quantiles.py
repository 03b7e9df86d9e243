"""Quantiles of Student's t and of F, from the incomplete beta function, without scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

#: Degrees of freedom beyond which t is normal to seven digits.
_NORMAL_DOF = 1e7
_TERMS_MAX = 20000
_STEPS_MAX = 200


@lru_cache(maxsize=1024)
def t_quantile(share: float, dof: float) -> float:
    """Returns the value that |t| exceeds with a probability of 1 - share.

    share: between 0 and 1; dof: degrees of freedom, > 0, may be infinite.
    """
    if dof > _NORMAL_DOF:
        return NormalDist().inv_cdf(0.5 + share / 2)
    return _solve(lambda t: beta_share(dof / 2, 0.5, dof, t * t), 1 - share)


@lru_cache(maxsize=1024)
def f_quantile(dof: float, dof_below: float, chance: float) -> float:
    """Returns the value that F of (dof, dof_below) degrees of freedom exceeds by `chance`."""
    return _solve(lambda f: beta_share(dof_below / 2, dof / 2, dof_below, dof * f), chance)


def beta_share(a: float, b: float, x: float, y: float) -> float:
    """Returns the regularised incomplete beta function I of (a, b) at x / (x + y).

    a, b > 0; x, y >= 0, not both 0. x and y are separate arguments so that no digits are lost near
    0 and 1. Uses the continued fraction of DLMF 8.17.22 by Lentz's method.
    """
    share, rest = x / (x + y), y / (x + y)
    if not share or not rest:
        return float(not rest)
    if share > (a + 1) / (a + b + 2):  # the fraction converges slowly here
        return 1 - beta_share(b, a, y, x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(share) + b * math.log(rest)) / a
    fraction = upper = 1.0
    lower = 0.0
    for term in range(1, _TERMS_MAX):
        m, odd = divmod(term, 2)
        part = -(a + m) * (a + b + m) if odd else m * (b - m)
        part *= share / ((a + term - 1) * (a + term))
        lower = 1 / (1 + part * lower)
        upper = 1 + part / upper
        fraction *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return front / fraction


def _solve(falling: Callable[[float], float], wanted: float) -> float:
    """Returns the argument above 0 at which a function that falls from 1 to 0 has a value.

    Uses false position (Illinois) on logarithms, because tails are nearly straight there.
    """

    def off(exponent: float) -> float:
        return math.log(max(falling(math.exp(exponent)), 1e-320) / wanted)

    low, high = 0.0, 1.0
    while (below := off(low)) < 0:
        low -= 1
    while (above := off(high)) > 0:
        low, below = high, above
        high += 1
    side = 0
    for _ in range(_STEPS_MAX):
        middle = (low * above - high * below) / (above - below)
        value = off(middle)
        if abs(value) < 1e-12 or not low < middle < high:
            break
        if value > 0:
            low, below, above = middle, value, above / 2 if side > 0 else above
            side = 1
        else:
            high, above, below = middle, value, below / 2 if side < 0 else below
            side = -1
    return math.exp(middle)
