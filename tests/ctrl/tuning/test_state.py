"""What the controller keeps, and when it does not believe it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from careful.model.tunemap import TunePlan
from careful.tuning.state import DECISIONS_MAX, Pair, PathState, Store

HERE = {"peer": "10.0.0.2", "mtu_bytes": 4000}
PAIR = Pair(TunePlan.fixed(3750), TunePlan.fixed(500))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_store__keeps_a_path(store: Store) -> None:
    state = PathState(HERE, {"sum_g_us": 1.0}, 5.0, "at the start", unverified={7: PAIR})
    state.refuted[3] = [TunePlan.fixed(64)]
    state.on_trial[2] = PAIR
    store.save("h2", state)
    store.save("h3", PathState({**HERE, "peer": "10.0.0.3"}))
    assert store.of("h2", HERE) == state
    assert set(store.load()) == {"h2", "h3"}
    assert [one.name for one in store.path.parent.iterdir()] == ["tuning.json"]


def test_store__another_path_is_forgotten(store: Store) -> None:
    store.save("h2", PathState(HERE, {"sum_g_us": 1.0}))
    assert store.of("h2", {**HERE, "mtu_bytes": 1500}).figures is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"schema": 99, "paths": {}}', '{"schema": 1, "paths": {"h2": {"x": 1}}}'],
)
def test_store__a_damaged_file_is_none(store: Store, text: str) -> None:
    store.path.write_text(text)
    assert store.of("h2", HERE) == PathState(HERE)
    store.save("h2", PathState(HERE, reason="new"))
    assert json.loads(store.path.read_text())["schema"] == 1


def test_store__decisions_have_a_bound() -> None:
    state = PathState(HERE)
    for number in range(DECISIONS_MAX + 5):
        state.note({"number": number})
    assert [one["number"] for one in state.decisions][::19] == [5, 24]


def test_by_hand__of_all_and_of_one(store: Store) -> None:
    assert not store.by_hand("h2")
    store.pin([], [1, 2])
    store.pin(["h2"], [7])
    assert store.by_hand("h2") == {1, 2, 7}
    assert store.by_hand("h3") == {1, 2}
    store.release([2, 7])
    assert store.by_hand("h2") == {1}
    assert store.by_hand("h3") == {1}
