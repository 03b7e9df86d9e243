"""A slot gets another host while its path is tuned: the new host's settings are not touched."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from careful.control.host import links
from careful.control.instance.instances import Instance
from careful.control.options.config import Config
from careful.control.plans import tune_entry
from careful.control.plans.tune_entry import Setting
from careful.model import load_shipped
from careful.plan import CLASS_COUNT, Plan
from careful.tuning.controller.loop import Loop, _Tuned
from careful.tuning.instance_path import RunningPath
from careful.tuning.state import Store
from live_path import LIMITS, figures
from slots import World, begin

H2, H3 = "10.77.0.2", "10.77.0.3"
SLOT, ELSEWHERE = 5, 6
MINE = {index: Setting(Plan.fixed(3000), {}) for index in range(CLASS_COUNT)}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    one = begin(monkeypatch, tmp_path)
    seen = figures(load_shipped("gam"), 0.03, random.Random(1))
    monkeypatch.setattr(RunningPath, "measure", lambda *_: (seen, LIMITS))
    return one


@dataclass
class Own:
    """Fakes our address towards a peer, and the addresses of our interface."""

    ip: str = "10.77.0.1"
    here: frozenset[str] = frozenset({"10.77.0.1"})


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Own:
    one = Own()
    monkeypatch.setattr("careful.tuning.controller.loop.own_ip", lambda _: one.ip)
    monkeypatch.setattr(links, "addresses", lambda _: one.here)
    return one


def begun(warnings: list[str] | None = None) -> Loop:
    lines = [] if warnings is None else warnings
    return Loop(Instance("i"), [], Config(), lambda *_: None, lines.append)


@pytest.fixture
def loop(world: World, own: Own) -> Loop:
    """Returns a loop that tunes the host in the slot, with an A/B under way."""
    one = begun()
    world.give(SLOT, H2)
    tune_entry.apply(world.maps["tune"], [SLOT, ELSEWHERE], MINE)
    look(one, world)
    for _ in range(2):
        step(one)
    assert tuned(one).controller.trying
    return one


def look(loop: Loop, world: World) -> None:
    loop._look(world)  # type: ignore[arg-type]


def step(loop: Loop) -> None:
    """Steps all paths, due or not."""
    for each in loop._turns._all:
        each.due = 0.0
    loop._turns.step()


def tuned(loop: Loop) -> _Tuned:
    (one,) = loop._tuned.values()
    return one


def test_end__names_unverified_classes(world: World, own: Own) -> None:
    """An A/B under way once left its plan in effect without a message."""
    lines: list[str] = []
    one = begun(lines)
    world.give(SLOT, H2)
    tune_entry.apply(world.maps["tune"], [SLOT], MINE)
    look(one, world)
    for _ in range(2):
        step(one)
    assert not any("not verified" in each for each in lines)
    one._close()
    (line,) = (each for each in lines if "not verified" in each)
    count = len(tuned(one).controller.state.unverified)
    assert line.startswith(H2)
    assert f": {count} settings in effect but not verified" in line
    assert "carefulctl tune explain" in line
    assert "tune set --default" in line


@pytest.mark.parametrize(("sent_bytes", "count"), [(0, 1), (1 << 30, 0)])
def test_direction__the_sender_is_the_end_to_tune(sent_bytes: int, count: int) -> None:
    """A host that only received was once tuned in vain."""
    lines: list[str] = []
    one = begun(lines)
    for step_bytes in range(4):
        one._note_direction("h2", 7 + step_bytes * sent_bytes, 9 + (step_bytes << 30))
    assert len(lines) == count
    assert all("run `carefulctl tune auto` on h2" in line for line in lines)


def given_to_another(world: World) -> bytes:
    """Gives the slot to another host. Returns its settings."""
    world.give(SLOT, H3)
    return world.settings(SLOT)


def test_another_host__its_settings_are_not_touched(world: World, loop: Loop) -> None:
    """The change is noticed at the next look."""
    settings = given_to_another(world)
    look(loop, world)
    assert world.settings(SLOT) == settings


def test_another_host__its_settings_do_not_alternate(world: World, loop: Loop) -> None:
    """The next look may be seconds away, while another path is measured."""
    settings = given_to_another(world)
    for _ in range(10):
        step(loop)
        assert world.settings(SLOT) == settings
    loop._close()
    assert world.settings(SLOT) == settings


@pytest.mark.parametrize("slot", [SLOT, ELSEWHERE])
def test_back_again__continues_after_its_end(world: World, loop: Loop, slot: int) -> None:
    """The change of its A/B is in effect, unverified."""
    pairs = dict(tuned(loop).controller.state.on_trial)
    given_to_another(world)
    step(loop)
    world.slots.clear()
    look(loop, world)
    assert not loop._tuned
    world.give(slot, H2)
    look(loop, world)
    state = tuned(loop).controller.state
    assert state.unverified == pairs
    assert not state.on_trial
    values = tuned(loop).path.in_effect()
    assert all(values[item] == pair.after for item, pair in pairs.items())


def test_back_again__earlier_settings_have_ended(world: World, loop: Loop) -> None:
    """In another slot it begins with the settings of new peers, which belong to tune auto."""
    path = tuned(loop).path
    tune_entry.apply(world.maps["tune"], [SLOT], {7: Setting(Plan.fixed(777), {})})
    store = Store(Instance("i").directory)
    store.pin([path.peer.name], {7: path.in_effect()[7]})
    assert path.by_hand() == {7}
    for slot, pinned in ((SLOT, {7}), (ELSEWHERE, set())):
        world.slots.clear()
        look(loop, world)
        world.give(slot, H2)
        look(loop, world)
        assert tuned(loop).path.by_hand() == pinned
    tune_entry.apply(world.maps["tune"], [ELSEWHERE], {7: Setting(Plan.fixed(777), {})})
    assert not tuned(loop).path.by_hand(), "the same value, found by others"


def test_the_same_host__in_a_new_session(world: World, loop: Loop) -> None:
    """The host still has its slot, so the A/B continues and its result counts."""
    before = world.settings(SLOT)
    world.give(SLOT, H2)
    step(loop)
    assert world.settings(SLOT) != before
    look(loop, world)
    assert tuned(loop).controller.trying
    loop._close()
    state = tuned(loop).controller.state
    assert state.unverified
    values = tune_entry.read(world.maps["tune"], SLOT)
    for item, pair in state.unverified.items():
        assert vars(values[item].plan) == pair.after.as_dict()


def test_between_two_looks__a_peer_left_and_returned(world: World, loop: Loop) -> None:
    """Figures of messages under another controller are not trusted."""
    first = tuned(loop)
    given_to_another(world)
    step(loop)
    world.give(SLOT, H2)
    look(loop, world)
    assert tuned(loop) is not first
    step(loop)
    assert tuned(loop).controller.state.figures


@pytest.mark.parametrize("meanwhile", ["", "192.0.2.1"])
def test_interface__down_for_a_moment(world: World, own: Own, loop: Loop, meanwhile: str) -> None:
    """Meanwhile there is no route to the peer, or one by another interface: the path stays the
    same.
    """
    first, here = tuned(loop), own.here
    own.ip, own.here = meanwhile, frozenset()
    look(loop, world)
    assert tuned(loop) is first
    loop._close()
    another = begun()  # begun while it is down
    look(another, world)
    assert tuned(another).controller.state.figures
    own.ip, own.here = "10.77.0.1", here
    second = tuned(another)
    look(another, world)
    assert tuned(another) is second


def test_interface__with_another_address(world: World, own: Own, loop: Loop) -> None:
    first = tuned(loop)
    own.ip, own.here = "10.77.0.9", frozenset({"10.77.0.9"})
    look(loop, world)
    assert tuned(loop) is not first
    assert not tuned(loop).controller.state.figures
