"""Tests when tools/bench/run regret --auto counts the settings of `tune auto` as decided."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools/bench"
DONE: dict[str, Any] = {
    "on_trial": {},
    "put_back": {},
    "unverified": {},
    "figures": None,
    "tried": {"6": {}, "7": {}},
    "decisions": [],
}


@pytest.fixture
def auto(monkeypatch: pytest.MonkeyPatch) -> Any:
    """tools/bench/auto.py."""
    monkeypatch.syspath_prepend(str(BENCH))
    for name in ("auto", "bench_lab"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import auto

    return auto


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"tried": {"6": {}}}, False),
        ({"on_trial": {"6": {}}}, False),
        ({"put_back": {"6": {}}}, False),
        ({"unverified": {"7": {}}}, False),
        ({"unverified": {"39": {}}}, False),
        ({"unverified": {"8": {}}}, True),
        ({"figures": {}}, False),
        ({"figures": {}, "decisions": [{"what": "changed"}]}, False),
        ({"figures": {}, "tried": {}, "decisions": [{"what": "kept"}]}, True),
    ],
)
def test_is_decided__when_nothing_is_open(auto: Any, change: dict[str, Any], said: bool) -> None:
    assert auto.is_decided(DONE | change, {"6", "7"}) is said


def test_is_decided__not_before_anything_is_known(auto: Any) -> None:
    assert not auto.is_decided({}, {"6"})
