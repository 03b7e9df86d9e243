"""A slot that goes to another host while its path is tuned: the other's settings stay its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi, lib, sizeof
from careful.address import Address, resolve
from careful.control import instances, maps, tune_entry
from careful.control.config import Config
from careful.control.instances import Instance
from careful.control.tune_entry import Plan, Setting
from careful.model import load_shipped
from careful.tuning.loop import Loop, _Tuned
from careful.tuning.running import RunningPath
from live_path import LIMITS, figures

H2, H3 = "10.77.0.2", "10.77.0.3"
SLOT, ELSEWHERE = 5, 6
MINE = {index: Setting(Plan.fixed(3000), {}) for index in range(tune_entry.CLASSES)}


@dataclass
class Memory:
    """A map in memory."""

    nbytes: int
    values: dict[int, bytes] = field(default_factory=dict)

    def lookup(self, key: int) -> bytes:
        return self.values.get(key, bytes(self.nbytes))

    def update(self, key: int, value: bytes) -> None:
        self.values[key] = value

    def close(self) -> None:
        """What is pinned stays."""


@dataclass
class World:
    """carefuld's peers, as its socket tells them, and the maps of its instance."""

    maps: dict[str, Memory] = field(default_factory=dict)
    slots: dict[int, str] = field(default_factory=dict)
    cookie: int = 0

    def map(self, path: Path, _: int, nbytes: int) -> Memory:
        return self.maps.setdefault(path.name, Memory(nbytes))

    def info(self) -> Any:
        one: Any = ffi.new("struct careful_info *")
        one.device.ifname = b"eth1"
        return one

    def peers(self) -> list[Any]:
        return [_peer(slot, ip) for slot, ip in self.slots.items()]

    def give(self, slot: int, ip: str) -> None:
        """A session of a host's in a slot: a new one, whoever had it."""
        self.slots[slot] = ip
        entry: Any = ffi.new("struct careful_peer_entry *")
        self.cookie += 1
        entry.cookie = self.cookie
        self.maps["peers"].update(slot, bytes(ffi.buffer(entry)))

    def settings(self, slot: int) -> bytes:
        return self.maps["tune"].lookup(slot)


def _peer(slot: int, ip: str) -> Any:
    one: Any = ffi.new("struct careful_peer_info *")
    ffi.memmove(ffi.addressof(one, "address"), _address(ip).sockaddr(), sizeof("sockaddr_storage"))
    one.slot, one.state = slot, lib.CAREFUL_PEER_UP
    return one


def _address(ip: str) -> Address:
    return replace(resolve(ip), port=7000)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    one = World()
    for name in ("tune", "live", "peers"):
        one.map(tmp_path / name, 4, sizeof(f"careful_{name.replace('peers', 'peer')}_entry"))
    (tmp_path / "i").mkdir()
    monkeypatch.setenv("CAREFUL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(maps, "PinnedMap", one.map)
    monkeypatch.setattr(maps, "PINS", tmp_path)
    monkeypatch.setattr(instances, "RUN", tmp_path)
    seen = figures(load_shipped("gam"), 0.03, random.Random(1))
    monkeypatch.setattr(RunningPath, "measure", lambda *_: (seen, LIMITS))
    return one


@pytest.fixture
def loop(world: World) -> Loop:
    """Tunes the host in the slot, and has an A/B under way."""
    one = Loop(Instance("i"), [], Config(), lambda *_: None, lambda _: None)
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
    """Everybody, due or not."""
    for each in loop._turns._all:
        each.due = 0.0
    loop._turns.step()


def tuned(loop: Loop) -> _Tuned:
    (one,) = loop._tuned.values()
    return one


def given_to_another(world: World) -> bytes:
    """The slot is another host's; its settings, which are what lay there."""
    world.give(SLOT, H3)
    return world.settings(SLOT)


def test_another_host__nothing_is_settled_for_it(world: World, loop: Loop) -> None:
    """It is found at the next look."""
    settings = given_to_another(world)
    look(loop, world)
    assert world.settings(SLOT) == settings


def test_another_host__nothing_takes_turns_there(world: World, loop: Loop) -> None:
    """A look may be seconds away: another path is measured."""
    settings = given_to_another(world)
    for _ in range(10):
        step(loop)
        assert world.settings(SLOT) == settings
    loop._close()
    assert world.settings(SLOT) == settings


@pytest.mark.parametrize("slot", [SLOT, ELSEWHERE])
def test_back_again__goes_on_where_it_ended(world: World, loop: Loop, slot: int) -> None:
    """Its A/B is not lost: the change is in effect, and unverified."""
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


def test_the_same_host__in_a_new_session(world: World, loop: Loop) -> None:
    """It still has its slot: the A/B goes on, and its outcome is settled."""
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


def test_between_two_looks__it_went_and_came(world: World, loop: Loop) -> None:
    """What was seen of another's messages meanwhile is not believed."""
    first = tuned(loop)
    given_to_another(world)
    step(loop)
    world.give(SLOT, H2)
    look(loop, world)
    assert tuned(loop) is not first
    step(loop)
    assert tuned(loop).controller.state.figures
