"""`tune set` while a controller works: the set values stay, at any time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi, lib
from careful.cli.measuring.tune import tune
from careful.control.instance.instances import Instance
from careful.control.plans import tune_entry, tune_peers
from careful.control.plans.tune_entry import Setting
from careful.plan import CLASS_COUNT, Plan
from careful.tuning.controller.policy import Controller
from careful.tuning.instance_path import Peer, RunningPath
from careful.tuning.path import Live
from careful.tuning.settings import Value
from careful.tuning.state import PathState, Store
from careful.tuning.store_model import Totals
from careful.tuning.verify import Counts
from click.testing import CliRunner
from slots import World, address_of, begin

H2, SLOT, CLASS = "10.77.0.2", 5, 10
PEER = Peer("h2", str(address_of(H2)), address_of(H2), SLOT)
START, MINE = Plan.fixed(3750), Plan.fixed(777)


def nothing() -> None:
    """Does nothing meanwhile."""


class Searched(RunningPath):
    """A path of maps in memory, that cannot be measured, with messages of one class.

    meanwhile: what happens between the look at what was set by hand and the call that follows, by
    that call's name.
    """

    now = 1000.0

    def __init__(self) -> None:
        instance = Instance("i")
        store = Store(instance.directory)
        super().__init__(instance, PEER, store, lambda _: None, lambda: True)
        self.meanwhile: dict[str, Callable[[], None]] = {}
        self.counts: dict[tuple[int, int], Counts] = {}

    def measure(self, quick: bool) -> Any:
        raise ValueError("the interval is wide")

    def live(self) -> Live:
        return dict(self.counts)

    def stored(self) -> Totals:
        return Totals({}, {})

    def offer(self, values: Mapping[int, Value]) -> tuple[int, int]:
        self.meanwhile.get("offer", nothing)()
        return super().offer(values)

    def flip(self) -> bool:
        self.meanwhile.get("flip", nothing)()
        return super().flip()

    def settle(self, values: Mapping[int, Value]) -> None:
        self.meanwhile.get("settle", nothing)()
        super().settle(values)

    def clock(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Lets time pass with messages of constant latency."""
        self.now += seconds
        entry = ffi.from_buffer("struct careful_tune_entry *", self._tune.lookup(SLOT))
        key = (CLASS, int(entry.active))
        for took_ns in (190_000, 200_000, 210_000):
            one = Counts(1, took_ns, took_ns**2)
            self.counts[key] = self.counts.get(key, Counts()) + one


def in_effect(path: RunningPath) -> Value:
    return path.in_effect()[CLASS]


def tune_set(*more: str) -> None:
    """Runs the command."""
    words = ["set", "eth1", "--class", str(CLASS), "--fragment-bytes", str(MINE.first_bytes)]
    CliRunner().invoke(tune, [*words, *more], catch_exceptions=False)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    one = begin(monkeypatch, tmp_path)
    one.give(SLOT, H2)
    kept = {index: Setting(START, {"net_tx": 65536}) for index in range(CLASS_COUNT)}
    slots = [SLOT, lib.CAREFUL_TUNE_DEFAULT]
    tune_entry.apply(one.maps["tune"], slots, kept)  # type: ignore[arg-type]
    peers = [tune_peers.TunedPeer(SLOT, PEER.name, PEER.name)]
    session = tune_peers.Session(Instance("i"), None, peers, 3750)
    monkeypatch.setattr(tune_peers, "session", lambda *_: session)
    return one


@pytest.fixture
def path(world: World) -> Iterator[Searched]:
    one = Searched()
    yield one
    one.close()


@pytest.fixture
def searching(path: Searched) -> Controller:
    """Returns a controller in a search, at the turn of a new way."""
    one = Controller(path, PathState({}), path.clock, seed=1)
    step(one, path, until=lambda: in_effect(path) != START)
    assert in_effect(path) != START
    return one


def step(one: Controller, path: Searched, until: Callable[[], bool]) -> None:
    for _ in range(5000):
        if until():
            return
        path.advance(one.step())


def test_set__the_controller_waits_for_the_map(
    path: Searched, searching: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller continues as soon as the command frees the map."""
    real, commands = tune_entry.one_writer, list[int]()

    @contextmanager
    def one_writer(pin: os.PathLike[str]) -> Iterator[None]:
        commands.append(1)
        with real(pin):
            yield
        if len(commands) == 1:  # the other classes belong to the controller
            searching.step()

    monkeypatch.setattr(tune_entry, "one_writer", one_writer)
    tune_set()
    assert len(commands) > 1
    assert in_effect(path) == MINE
    searching.close()
    assert in_effect(path) == MINE
    assert searching.state.decisions[-1]["what"] == "set by hand"
    assert CLASS in path.by_hand()


@pytest.mark.parametrize("what", ["offer", "flip", "settle"])
def test_set__between_a_look_and_a_write(path: Searched, searching: Controller, what: str) -> None:
    def meanwhile() -> None:
        path.meanwhile.clear()
        tune_set()

    path.meanwhile[what] = meanwhile
    if what != "settle":  # the controller settles when it ends
        step(searching, path, until=lambda: not path.meanwhile)
        for _ in range(100):
            assert in_effect(path) == MINE
            path.advance(searching.step())
    searching.close()
    assert not path.meanwhile
    assert in_effect(path) == MINE


def test_set__a_peer_of_another_queue(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values belong to that queue's peer, not to the first queue's peer in that slot."""
    (tmp_path / "i+1").mkdir()
    queues = [
        tune_peers.Session(Instance(name), None, [tune_peers.TunedPeer(SLOT, peer, peer)], 3750)
        for name, peer in (("i", "10.77.0.3:7000"), ("i+1", PEER.name))
    ]
    monkeypatch.setattr(tune_peers, "session", lambda *_: replace(queues[0], others=(queues[1],)))
    tune_set("--peer", H2)
    local, remote = (Store(one.instance.directory) for one in queues)
    values = [MINE] * CLASS_COUNT
    assert not local.by_hand("10.77.0.3:7000", values) | local.by_hand(PEER.name, values)
    assert remote.by_hand(PEER.name, values) == {CLASS}
    assert not remote.by_hand("10.77.0.3:7000", values)
    CliRunner().invoke(tune, ["set", "eth1", "--auto"], catch_exceptions=False)
    assert not remote.by_hand(PEER.name, values)


def test_set__two_at_once(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is read, changed and written under a lock."""
    real, held = Store._read_pins, list[bool]()

    def read(store: Store) -> Any:
        fd = os.open(tmp_path / "i", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(False)
        except BlockingIOError:
            held.append(True)
        finally:
            os.close(fd)
        return real(store)

    monkeypatch.setattr(Store, "_read_pins", read)
    tune_set()
    CliRunner().invoke(tune, ["set", "eth1", "--auto"], catch_exceptions=False)
    assert held == [True, True]


@pytest.mark.parametrize("text", ["-1", "-8KiB", "0KiB", "16", "4096", "16.0"])
def test_tune_set__an_invalid_class(text: str) -> None:
    """A wrong class does not count as the smallest one."""
    done = CliRunner().invoke(tune, ["set", "eth1", "--class", text, "--fragment-bytes", "512"])
    assert done.exit_code == 2
    assert "nor a message size" in done.output
