"""Tests tools/bench/run regret's figures for a choice next to a sweep, and their confidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools/bench"


@pytest.fixture
def regrets(monkeypatch: pytest.MonkeyPatch) -> Any:
    """tools/bench/regrets.py."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delitem(sys.modules, "regrets", raising=False)
    import regrets

    return regrets


def size(plan_us: float, noise: float, seed: int, rounds: int = 100) -> dict[str, Any]:
    """Returns ten arms of a sweep with a best of 100 us, and ours; a request takes 20 us."""
    random = np.random.default_rng(seed)

    def took(us: float) -> list[float]:
        return list(us * (1 + noise * random.standard_normal(rounds)) + 20)

    swept = {f"{k}": took(100 + 3 * k) for k in range(10)}
    return {"bytes": 1024, "arms_us": {"plan": took(plan_us), **swept}, "empty_us": [40.0]}


@pytest.mark.parametrize(
    ("plan_us", "noise", "said"),
    [
        (101.0, 0.02, "met"),
        (102.5, 0.02, "met"),
        (130.0, 0.02, "NOT MET"),
        (112.0, 1.5, "not told"),
        (104.0, 0.02, "NOT MET"),
        (300.0, 0.5, "NOT MET"),
    ],
)
def test_choices__are_judged_with_their_noise(
    regrets: Any, plan_us: float, noise: float, said: str
) -> None:
    sizes = [size(plan_us, noise, seed) for seed in range(4)]
    found = regrets.choices(sizes, ["plan"])["plan"]
    assert found.average.low <= found.average.value <= found.average.high
    assert found.judged == said
    if noise < 0.1:
        assert found.average.value == pytest.approx(plan_us / 100 - 1, abs=0.01)
        assert found.average.high - found.average.low < 0.02


def test_choices__intervals_hold_the_truth(regrets: Any) -> None:
    """Nearly all of twenty runs do; a choice that is best by chance is no gain."""
    held = 0
    for seed in range(20):
        found = regrets.choices([size(110.0, 0.1, seed)], ["plan"])["plan"]
        held += found.average.low <= 0.10 <= found.average.high
    assert held >= 16


def test_choices__the_worst_size_is_named(regrets: Any) -> None:
    worse = size(120.0, 0.01, 1) | {"bytes": 4096}
    found = regrets.choices([size(101.0, 0.01, 2), worse], ["plan"])["plan"]
    assert found.worst_bytes == 4096
    assert found.worst.value == pytest.approx(0.2, abs=0.02)
