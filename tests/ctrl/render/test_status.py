"""The short text of `status`: first whether all is well, and no counters."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from typing import Any

import pytest
from careful import man
from careful._abi import enum_names, ffi, lib
from careful.address import resolve
from careful.control.instance import top
from careful.control.instance.records import DECIDED, peer
from careful.control.instance.status import Status
from careful.control.options.config import Config
from careful.render.instance import status as report
from in_effect import IN_EFFECT, PEER

#: Counters of a healthy host after it compared the XDP modes.
TRIAL = {"drop_cookie": 42, "ctrl_malformed": 2, "device_rx_refused": 42}


def brief(found: Status) -> list[str]:
    look = top.Look(1.0, [found])
    text = report.brief([found], top.rates(look, look), {})
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


def with_peer(**peer: Any) -> Status:
    counted = {**IN_EFFECT.counters, **TRIAL}
    one = replace(PEER, epochs=13, **peer)
    return replace(IN_EFFECT, peers=[one], counters=counted, xdp_counters={"drop_train": 576})


def test_brief__of_a_healthy_host_is_eight_lines_without_counters() -> None:
    """A healthy lab once showed 13 epochs, and frames that XDP had dropped in its trial."""
    lines = brief(with_peer())
    assert lines[0] == "eth1: all is well, 1 peer up"
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "64 frames per peer (512 receive buffers / 8 peers)" in text
    assert not re.search(r"epoch|train|576|42|13", text)
    verbose = report.statuses([with_peer()], {})
    assert "drop_train" in verbose
    assert "epochs" in verbose


def test_brief__a_peer_that_has_not_answered_yet() -> None:
    """A peer behind a firewall was listed below "all is well, no peers"."""
    lines = brief(with_peer(state="connecting"))
    assert lines[0] == "eth1: all is well, 1 peer connecting"


def test_brief__a_peer_that_is_tried_for_long_is_wrong() -> None:
    """A peer that had failed and was tried again was "connecting", and all was well."""
    lines = brief(with_peer(state="connecting", away_ms=12_340))
    assert lines[0].startswith("eth1: not well")
    said = "h2: connecting, no answer for 12.3 s: `carefulctl doctor h2` finds out why"
    assert lines[1].strip() == said
    assert len(lines[1]) <= 80
    lines = brief(with_peer(state="connecting", away_ms=1_500))
    assert lines[0] == "eth1: all is well, 1 peer connecting"


def test_states__each_is_explained() -> None:
    rows = set(re.findall(r"^\| (\w+) \|", man.source("words"), re.M))
    states = set(enum_names("careful_peer_state", "CAREFUL_PEER_").values()) | {"ended"}
    assert {one for one in states if one not in ("none", "up") and "_" not in one} <= rows


def test_up__reasons_for_an_xdp_mode_fit_the_line() -> None:
    for by, why in DECIDED.items():
        found = replace(IN_EFFECT, xdp_by=by, driver="virtio_net")
        lines = report.up(found, already=False).splitlines()
        assert any(why in line for line in lines), by
        assert by == "left" or max(map(len, lines)) <= 80, by


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        ({"state": "stalled", "away_ms": 9000}, "h2: stalled, no answer for 9 s"),
        ({"state": "failed", "error": "no answer in time"}, "h2: failed (no answer in time)"),
        ({"state": "failed", "away_ms": 3 * 10**5}, "h2: failed, no session for 300 s"),
        ({"lost_here_frames": 7, "lost_there_frames": 3}, "h2: the network lost 10 frames (7 on"),
        ({"control_unheard": True}, "frames of h2 arrive, but no control messages"),
        ({"withholding": True}, "a slow client here keeps frames of h2"),
    ],
)
def test_brief__names_the_fault_at_once(peer: dict[str, Any], said: str) -> None:
    lines = brief(with_peer(**peer))
    assert lines[0].startswith("eth1: not well")
    assert lines[1].strip().startswith(said)


def test_brief__a_peer_that_ended_in_order_is_no_fault() -> None:
    """After a program that owned h2's queue had ended, h1 was "not well" for ever."""
    info = ffi.new("struct careful_peer_info *")
    raw = resolve("10.0.0.2").sockaddr()
    ffi.memmove(ffi.addressof(info, "address"), raw, len(raw))
    info.state = lib.CAREFUL_PEER_FAILED
    instance = ffi.new("struct careful_info *")
    for reason, state in ((errno.ECONNRESET, "ended"), (errno.ECONNREFUSED, "failed")):
        info.last_errno = reason
        one = peer(info, instance, Config())
        assert (one.state, one.error is None) == (state, state == "ended")
        lines = brief(replace(IN_EFFECT, peers=[one]))
        assert lines[0].startswith("eth1: all is well" if state == "ended" else "eth1: not well")
        assert state in "\n".join(lines[1:])


def test_whole__repairs_are_counted_by_cause() -> None:
    asked = {"asked_again_frames": 12, "asked_silent_frames": 3, "late_frames": 1}
    said = "h2: 12 frames requested again: 9 after a gap, 3 in silence; 1 were only late"
    for counts, is_there in ((asked, True), ({}, False)):
        assert (said in report.statuses([with_peer(**counts)], {})) is is_there


def test_brief__an_interface_that_is_down_is_wrong() -> None:
    trouble = "eth1 is down: ip link set eth1 up"
    lines = brief(replace(with_peer(), link_trouble=trouble))
    assert lines[0].startswith("eth1: not well")
    assert lines[1].strip() == trouble


def test_brief__damage_and_a_program_off_the_interface_are_wrong() -> None:
    for name, said in (
        ("digest_bad", "arrived damaged"),
        ("device_program_detached", "removed from"),
    ):
        lines = brief(replace(IN_EFFECT, counters={**IN_EFFECT.counters, name: 2}))
        assert (lines[0][:14], said in lines[1]) == ("eth1: not well", True), name


def test_counters__each_is_explained() -> None:
    page = set(re.findall(r"`(\w+)`", man.source("counters")))
    counters = enum_names("careful_counter", "CAREFUL_C_")
    every = {name for number, name in counters.items() if number < lib.CAREFUL_COUNTERS}
    xdp = enum_names("careful_xdp_counter", "CAREFUL_XDP_")
    every |= {name for number, name in xdp.items() if number < lib.CAREFUL_XDP_COUNTERS}
    fields = ffi.typeof("struct careful_device_statistics").fields
    every |= {f"device_{name}" for name, _ in fields}
    assert every - page == set()
