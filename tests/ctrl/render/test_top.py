"""`top`: rates are differences of two looks; unknown rates are left out."""

from __future__ import annotations

import errno
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from careful.control.instance import live_latency, maps, status, top
from careful.control.instance.instances import Instance
from careful.control.options.config import Config
from careful.errors import CarefulError
from careful.render.instance.top import ORDERS, keys, shown
from hosts import Host, make_file
from in_effect import IN_EFFECT
from in_effect import PEER as IN_EFFECT_PEER

PEER = replace(
    IN_EFFECT_PEER,
    slot=0,
    address="10.0.0.2",
    node=None,
    credits_free=60,
    tx_bytes=1000,
    tx_frames=10,
    rx_bytes=0,
)


def a_look(at_s: float, *peers: dict[str, Any], messages: Any = ((0, 0),)) -> top.Look:
    found = replace(IN_EFFECT, zerocopy=True, pid=7, peers=[replace(PEER, **one) for one in peers])
    return top.Look(at_s, [found], {"eth1": {(0, k): one for k, one in enumerate(messages)}})


def test_rates__are_of_the_time_between() -> None:
    before = a_look(10, {}, messages=[(5, 5000)])
    now = a_look(12, {"tx_bytes": 5000, "tx_frames": 30}, messages=[(9, 21000)])
    (one,) = top.rates(before, now)
    (peer,) = one.peers
    assert (peer.tx_bytes_per_s, peer.tx_frames_per_s) == (2000, 10)
    assert (peer.messages_per_s, peer.latency_us) == (2, 4)
    assert one.seconds == 2
    assert "zero-copy, window 64" in shown([one])


def test_rates__another_peer_in_the_slot_begins_at_zero() -> None:
    before = a_look(10, {"tx_bytes": 10**9})
    now = a_look(11, {"address": "10.0.0.3", "name": "h3"}, {"slot": 1, "tx_bytes": 7})
    (one,) = top.rates(before, now)
    assert [peer.tx_bytes_per_s for peer in one.peers] == [0, 0]
    assert [peer.latency_us for peer in one.peers] == [None, None]


def test_rates__another_process_begins_at_zero() -> None:
    """Otherwise durations would be negative after a process with smaller counts."""
    before = a_look(10, {"tx_bytes": 5}, messages=[(9, 90000)])
    now = a_look(11, {"tx_bytes": 8}, messages=[(10, 10000)])
    now = replace(now, found=[replace(now.found[0], pid=8)])
    ((peer,),) = [one.peers for one in top.rates(before, now)]
    assert (peer.tx_bytes_per_s, peer.messages_per_s, peer.latency_us) == (0, 0, None)


@pytest.mark.parametrize(
    ("order", "first"), [("", "h3"), ("s", "h3"), ("r", "h2"), ("m", "h2"), ("l", "h3")]
)
def test_shown__peers_in_the_order_of_a_key(order: str, first: str) -> None:
    before = a_look(10, {}, {"slot": 1, "name": "h3"}, messages=[(0, 0), (0, 0)])
    present = {"slot": 1, "name": "h3", "tx_bytes": 9000}
    now = a_look(11, {"rx_bytes": 500}, present, messages=[(9, 9000), (1, 5000)])
    (one,) = top.rates(before, now)
    text = shown([one], order=order)
    assert text.index(first) == min(text.index("h2"), text.index("h3"))
    assert keys(order).count(ORDERS["s"][1]) == 1  # what is sorted by, or can be


def test_shown__columns_stand_still() -> None:
    """Columns once moved with the unit of a rate and the reason of a wait."""
    slow = {"tx_bytes": 1000, "credits_free": 64}
    fast = {"tx_bytes": 10**10, "rx_bytes": 10**9, "credits_free": 1, "messages_out": 1}
    first = a_look(10, {})
    each = [
        shown(top.rates(first, a_look(11, peer, messages=[(count, took)]))).splitlines()
        for peer, count, took in ((slow, 1, 10**4), (fast, 250_000, 10**14))
    ]
    assert each[0][1:-1] == each[1][1:-1]  # headings and rule
    assert "80.0 Gbit/s  8.00 Gbit/s" in each[1][-1]
    assert max(map(len, each[1])) <= 100


def test_messages__a_slot_that_had_none_begins_at_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slot was once left out like an unreadable one, so its first messages were missing."""
    entries = [b"none", None, b"some"]
    cell = live_latency.Cell(count=2, asked=0, sum_ns=30, sum_sq_ns2=500)
    table = SimpleNamespace(entries=len(entries))
    monkeypatch.setattr(maps, "live_map", lambda _: nullcontext(table))
    monkeypatch.setattr(live_latency, "whole", lambda _, slot: entries[slot])
    monkeypatch.setattr(
        live_latency, "cells_in", lambda one: {(0, 0): cell} if one == b"some" else {}
    )
    stored = SimpleNamespace(count=3, sum_ns=70)
    monkeypatch.setattr(
        live_latency, "stored_in", lambda one: ({(1, 0): stored} if one == b"some" else {}, {})
    )
    assert top._messages(Instance("eth1", pid=1)) == {(0, 0): (0, 0), (0, 2): (5, 100)}


def test_look__one_of_several_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its silence once ended `top`, and `status` reported no other carefuld."""

    def gather(one: Instance, _: Config) -> status.Status:
        if one.name == "eth1":
            raise CarefulError(errno.ETIMEDOUT, "no answer in 10 s", "carefuld of eth1")
        return replace(a_look(1).found[0], instance=one.name)

    monkeypatch.setattr(status, "gather", gather)
    eth1, eth2 = (Instance(name, pid=1) for name in ("eth1", "eth2"))
    look = top.look([eth1, eth2], Config())
    assert look.mute == {"eth1": "carefuld of eth1: no answer in 10 s"}
    said = shown(top.rates(look, look), look.mute)
    assert "eth2 on" in said
    assert said.replace("\x1b[1;31m", "").replace("\x1b[0m", "").endswith("no answer in 10 s")
    with pytest.raises(TimeoutError):
        top.look([eth1], Config())


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        ({"messages_out": 1, "credits_free": 1}, "credits"),
        ({"messages_out": 1}, "frames"),
        ({"withholding": True}, "client"),
        ({"lost_there_frames": 77}, "77"),
        ({"state": "stalled"}, "stalled"),
    ],
)
def test_shown__names_the_fault(peer: dict[str, Any], said: str) -> None:
    for looked, present in ((a_look(1, peer), True), (a_look(1, {}), False)):
        row = shown(top.rates(looked, looked)).splitlines()[-1]
        assert (said in row) is present


def test_shown__repaired_frames_are_counted() -> None:
    counts = {"asked_again_frames": 60, "late_frames": 2, "sent_again_frames": 8}
    for peer, present in ((counts, True), ({}, False)):
        looked = a_look(1, peer)
        assert ("66 lost frames repaired" in shown(top.rates(looked, looked))) is present


def test_shown__nothing_is_up() -> None:
    assert shown(top.rates(top.Look(0, []), top.Look(1, []))) == "careful is not up"


def test_top__of_real_hosts(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    make_file(b.export / "f", 1 << 20)
    a.ctl("get", "h2:f", a.own)
    (one,) = json.loads(a.ctl("top", "eth1", "--json").stdout)["instances"]
    (peer,) = one["peers"]
    assert peer["address"] == "10.77.0.2"
    assert peer["state"] == "up"
    assert one["seconds"] >= 1
    assert Path(a.own / "f").stat().st_size == 1 << 20
