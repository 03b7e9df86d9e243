"""The controller's stored state, and when it is not trusted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from careful.control.state.state_dir import StateDir
from careful.model import load_shipped
from careful.plan import Plan
from careful.tuning.controller.measurements import Measuring
from careful.tuning.settings import NET_TX, STORE, Kick, Pulse
from careful.tuning.state import DECISIONS_MAX, PATHS_MAX, SCHEMA, Pair, PathState, Store, Tried
from live_path import LivePath

GAM = load_shipped("gam")

HERE = {"peer": "10.0.0.2", "mtu_bytes": 4000}
PAIR = Pair(Plan.fixed(3750), Plan.fixed(500))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_store__keeps_a_path(store: Store) -> None:
    state = PathState(HERE, {"sum_g_us": 1.0}, 5.0, "at the start", unverified={7: PAIR})
    state.refuted[3] = [Plan.fixed(64)]
    state.on_trial[2] = PAIR
    state.put_back = {2: PAIR.before, NET_TX + 2: Kick(65536), STORE + 2: Pulse(4096)}
    state.tried[2] = Tried(7.0, 11, found=True)
    store.save("h2", state)
    store.save("h3", PathState({**HERE, "peer": "10.0.0.3"}))
    assert store.of("h2", HERE) == state
    assert set(store.load()) == {"h2", "h3"}
    assert [one.name for one in store.path.parent.iterdir()] == ["tuning.json"]


def test_store__another_path_is_forgotten(store: Store) -> None:
    store.save("h2", PathState(HERE, {"sum_g_us": 1.0}))
    assert store.of("h2", {**HERE, "mtu_bytes": 1500}).figures is None


def test_store__a_path_is_confirmed_in_another_xdp_mode(store: Store) -> None:
    here = {**HERE, "xdp_mode": "native"}
    store.save("h2", PathState(here, {"sum_g_us": 1.0}, carefuld="17 4711"))
    found = store.of("h2", {**here, "xdp_mode": "generic"})
    assert found.figures == {"sum_g_us": 1.0}
    assert found.carefuld == ""  # nobody's: its figures are doubted
    assert found.identity["xdp_mode"] == "generic"


def _decision(number: int, *tried: int) -> dict[str, object]:
    plans = {"before": {}, "after": {}}
    classes = [{"class": index, **plans, "ab": {"verdict": "held"}} for index in tried]
    return {"at_s": float(number), "what": "kept", "why": "", "classes": classes}


def test_note__each_last_ab_stays() -> None:
    state = PathState(HERE)
    state.keep(_decision(0, 3))
    state.keep(_decision(1, 7))
    for number in range(2, 2 + 2 * DECISIONS_MAX):
        state.keep(_decision(number))
    state.keep(_decision(99, 7))
    times = [one["at_s"] for one in state.decisions]
    assert times[0] == 0.0  # the last A/B of class 3; that of class 7 is told by a newer one
    assert len(times) == DECISIONS_MAX + 1
    assert times[-1] == 99.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"schema": 99, "paths": {}}', '{"schema": 2, "paths": {"h2": {"x": 1}}}'],
)
def test_store__a_damaged_file_counts_as_missing(store: Store, text: str) -> None:
    store.path.write_text(text)
    assert store.of("h2", HERE) == PathState(HERE)
    store.save("h2", PathState(HERE, reason="new"))
    assert json.loads(store.path.read_text())["schema"] == SCHEMA


@pytest.mark.parametrize("value", [1.5, None, -1, True, 1 << 32])
@pytest.mark.parametrize("item", [7, STORE + 7, NET_TX + 7])
def test_from_dict__values_that_the_map_cannot_hold_are_refused(item: int, value: object) -> None:
    state = PathState(HERE, plans={7: PAIR.before, STORE + 7: Pulse(1), NET_TX + 7: Kick(1)})
    data = json.loads(json.dumps(state.as_dict()))
    name = next(iter(data["plans"][str(item)]))
    data["plans"][str(item)][name] = value
    with pytest.raises(ValueError, match="must be a whole number"):
        PathState.from_dict(data)


@pytest.mark.parametrize("figures", [{"sum_g_us": 1.0}, {"frame_payload_bytes": None}])
def test_measuring__invalid_figures_are_measured_again(figures: dict[str, Any]) -> None:
    state = PathState(HERE, figures)
    assert Measuring(LivePath(lambda _: GAM, []), state, lambda: 0.0, False).known is None
    assert state.figures is None


def lasting(path: Path) -> StateDir:
    return StateDir(path / "lib")


def test_lasting__survives_the_instance(tmp_path: Path) -> None:
    run = tmp_path / "run" / "eth1"
    run.mkdir(parents=True)
    state = PathState(HERE, {"sum_g_us": 1.0}, 5.0, plans={7: PAIR.after}, carefuld="12 34")
    Store(run, lasting(tmp_path)).save("h2", state)
    for one in run.iterdir():  # like `down`
        one.unlink()
    assert Store(run, lasting(tmp_path)).of("h2", HERE) == state
    assert Store(run).of("h2", HERE) == PathState(HERE)
    # Another instance has its own file.
    assert Store(tmp_path / "run" / "eth2", lasting(tmp_path)).load() == {}


def test_lasting__times_of_another_boot(tmp_path: Path) -> None:
    """An hour ago by the wall clock is an hour ago by this boot's monotonic clock."""
    store, now = Store(tmp_path, lasting(tmp_path)), time.monotonic()
    decision = {"at_s": 7200.0, "what": "kept", "why": "", "classes": []}
    state = PathState(HERE, {}, 7200.0, changed_at=1e9, held_until=8000.0, decisions=[decision])
    state.carefuld = "812 1234"
    store.save("h2", state)
    data = json.loads(store.path.read_text())
    data["clock"] = {"boot": "another", "wall_less_monotonic_s": time.time() - 3600 - 7200}
    store.path.write_text(json.dumps(data))
    found = store.of("h2", HERE)
    assert found.measured_at == pytest.approx(now - 3600, abs=10)
    assert found.decisions[0]["at_s"] == pytest.approx(now - 3600, abs=10)
    assert found.changed_at == pytest.approx(now, abs=10), "nothing is later than now"
    assert found.held_until is None
    # The state may seem new only because the wall clock was set back.
    assert found.carefuld == "", "another boot's carefuld may have had the same number and time"


def test_lasting__paths_have_a_bound(tmp_path: Path) -> None:
    data = {f"p{k}": PathState(HERE, {}, float(k)).as_dict() for k in range(PATHS_MAX + 3)}
    store = Store(tmp_path)
    clock = {"boot": "", "wall_less_monotonic_s": 0.0}
    store.path.write_text(json.dumps({"schema": SCHEMA, "clock": clock, "paths": data}))
    store.save("new", PathState(HERE))
    assert "new" in store.load()
    assert "p1" not in store.load()
    assert len(store.load()) <= PATHS_MAX + 1


def test_store__garbage_never_raises(tmp_path: Path) -> None:
    """Replaces any part of the stored state by an impossible value."""
    store = Store(tmp_path)
    decision = {"at_s": 1.0, "what": "kept", "why": "", "classes": []}
    kept = PathState(HERE, {"sum_g_us": 1.0}, 5.0, decisions=[decision], unverified={7: PAIR})
    store.save("h2", kept)
    whole = json.loads(store.path.read_text())
    for name in whole["paths"]["h2"]:
        for wrong in (None, [], {}, "x", -1, {"x": "y"}, [[]], [{}]):
            changed = json.loads(json.dumps(whole))
            changed["paths"]["h2"][name] = wrong
            store.path.write_text(json.dumps(changed))
            for one in store.load().values():
                assert PathState.from_dict(one.as_dict()) == one


def test_store__decisions_have_a_bound() -> None:
    state = PathState(HERE)
    for number in range(DECISIONS_MAX + 5):
        state.keep({"number": number})
    assert [one["number"] for one in state.decisions][::19] == [5, 24]


def test_by_hand__for_all_peers_and_for_one(store: Store) -> None:
    values = [PAIR.before] * STORE + [Pulse(1)] * STORE + [Kick(1)] * STORE
    assert not store.by_hand("h2", values)
    store.pin([], {1: PAIR.before, 2: PAIR.before})
    store.pin(["h2"], {7: PAIR.before, STORE + 7: Pulse(1), NET_TX + 7: Kick(1)})
    assert store.by_hand("h2", values) == {1, 2, 7, STORE + 7, NET_TX + 7}
    assert store.by_hand("h3", values) == {1, 2}
    store.release([2, 7])
    assert store.by_hand("h2", values) == {1}
    assert store.by_hand("h3", values) == {1}


def test_by_hand__ends_with_the_value(store: Store) -> None:
    """A peer that returns in another slot has the settings of new peers there."""
    mine = [PAIR.after] * STORE
    new = [PAIR.before] * STORE
    store.pin(["h2"], {7: PAIR.after})
    store.pin(["h3"], {7: PAIR.after})
    assert store.by_hand("h2", mine) == {7}
    assert not store.by_hand("h2", new)
    store.unpin("h2", mine)
    assert store.by_hand("h2", mine) == {7}
    store.unpin("h2", new)
    assert not store.by_hand("h2", mine), "the same value, found by others"
    assert store.by_hand("h3", mine) == {7}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"": {"99": {}}}', '{"": {"7": {"x": 1}}}'])
def test_by_hand__a_damaged_file_counts_as_missing(store: Store, text: str) -> None:
    (store.path.parent / "tuning-by-hand.json").write_text(text)
    assert not store.by_hand("h2", [PAIR.before] * STORE)
    store.pin([], {7: PAIR.before})
    assert store.by_hand("h2", [PAIR.before] * STORE) == {7}


def test_state__of_a_version_without_searches() -> None:
    """Its knowledge is still used."""
    data = PathState(HERE, {"sum_g_us": 1.0}, 5.0, plans={7: PAIR.after}).as_dict()
    del data["put_back"], data["tried"]
    found = PathState.from_dict(data)
    assert found.plans == {7: PAIR.after}
    assert not found.tried
