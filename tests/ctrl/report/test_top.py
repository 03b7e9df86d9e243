"""`top`: rates are differences of two looks, and what cannot be told is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("careful._binding")

from careful.control import top
from careful.report.top import shown
from hosts import Host, make_file

PEER = {
    "slot": 0,
    "address": "10.0.0.2",
    "node": None,
    "name": "h2",
    "state": "up",
    "error": None,
    "credits_free": 60,
    "credits_window": 64,
    "withholding": False,
    "messages_out": 0,
    "tx_bytes": 1000,
    "rx_bytes": 0,
    "tx_frames": 10,
    "rx_frames": 0,
    "lost_here_frames": 0,
    "lost_there_frames": 0,
}


def a_look(at_s: float, *peers: dict[str, Any], messages: Any = ((0, 0),)) -> top.Look:
    one = {"instance": "eth1", "ifname": "eth1", "xdp_mode": "native", "zerocopy": True}
    said = [{**PEER, **peer} for peer in peers]
    found = {**one, "window_buffers": 64, "queues": [], "peers": said}
    return top.Look(at_s, [found], {"eth1": {(0, k): one for k, one in enumerate(messages)}})


def test_rates__are_of_the_time_between() -> None:
    before = a_look(10, {}, messages=[(5, 5000)])
    now = a_look(12, {"tx_bytes": 5000, "tx_frames": 30}, messages=[(9, 21000)])
    (one,) = top.rates(before, now)
    (peer,) = one["peers"]
    assert (peer["tx_bytes_per_s"], peer["tx_frames_per_s"]) == (2000, 10)
    assert (peer["messages_per_s"], peer["latency_us"]) == (2, 4)
    assert one["seconds"] == 2
    assert "zero-copy, window 64" in shown([one])


def test_rates__of_another_peer_in_the_slot_begin_at_nothing() -> None:
    before = a_look(10, {"tx_bytes": 10**9})
    now = a_look(11, {"address": "10.0.0.3", "name": "h3"}, {"slot": 1, "tx_bytes": 7})
    (one,) = top.rates(before, now)
    assert [peer["tx_bytes_per_s"] for peer in one["peers"]] == [0, 0]
    assert [peer["latency_us"] for peer in one["peers"]] == [None, None]


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        ({"messages_out": 1, "credits_free": 1}, "credits"),
        ({"messages_out": 1}, "frames to leave"),
        ({"withholding": True}, "a slow client here"),
        ({"lost_there_frames": 77}, "77"),
        ({"state": "stalled"}, "stalled"),
    ],
)
def test_shown__names_what_is_wrong(peer: dict[str, Any], said: str) -> None:
    for looked, there in ((a_look(1, peer), True), (a_look(1, {}), False)):
        row = shown(top.rates(looked, looked)).splitlines()[-1]
        assert (said in row) is there


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
