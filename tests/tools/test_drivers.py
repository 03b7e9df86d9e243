"""Tests the record that `drivers` keeps of a pair, and which results are failures."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("tests/machines/drivers", monkeypatch)


def test_used__is_of_both_hosts(drivers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"h1": "native", "h2": "generic"}

    def status(host: str) -> dict[str, Any]:
        return dict.fromkeys(drivers.USED, 0) | {"xdp_mode": modes[host], "driver": "igb"}

    monkeypatch.setattr(drivers, "status", status)
    found = drivers.used()
    assert set(found) == set(drivers.USED)
    assert found["xdp_mode"] == modes


def test_troubled__sets_up_either_card_twice(
    drivers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    met: list[str] = []

    def done(argv: list[str]) -> subprocess.CompletedProcess[str]:
        met.append(argv[0])
        if len(met) == 4:
            ended.touch()
        return subprocess.CompletedProcess(argv, int(argv[0] == "h1"), "", "Not supported\n")

    def inside(host: str, *argv: str) -> list[str]:
        transfer = ["sh", "-c", f"until [ -e {ended} ]; do sleep 0.01; done"]
        return transfer if argv[0] == "carefulctl" else [host, *argv]

    monkeypatch.setattr(drivers, "completed", done)
    monkeypatch.setattr(drivers, "inside", inside)
    monkeypatch.setattr(drivers, "on", lambda *_: "the same sum")
    monkeypatch.setattr(drivers, "counted", lambda _: {"peer": {"epochs": 1}})
    monkeypatch.setattr(drivers.time, "sleep", lambda _: None)
    found = drivers.troubled("down and up", "ip link …")
    assert met == ["h2", "h1", "h2", "h1"]
    assert found["done"] == {"h1": 0, "h2": 2}
    assert found["driver_said"] == {"h1": "Not supported"}
    assert found["right"]


@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        ("6.18:virtio", ("6.18", "virtio", None)),
        ("7.x:igb:generic", ("7.x", "igb", "generic")),
        ("6.18:virtio-zerocopy:native", ("6.18", "virtio-zerocopy", "native")),
        ("6.18", None),
        ("6.18:virtio:auto", None),
        ("6.18:virtio:", None),
    ],
)
def test_pair__may_name_a_mode(
    drivers: ModuleType, pair: str, parts: tuple[str | None, ...] | None
) -> None:
    match = drivers.PAIR.fullmatch(pair)
    assert (match and match.groups()) == parts


def ended(status: int, said: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], status, "", said)


def test_up__refuses_only_explicit_options(
    drivers: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without zero-copy is no failure; a careful that does not come up is one."""
    later = [ended(1, "it was not ready\n")]

    def done(argv: list[str]) -> subprocess.CompletedProcess[str]:
        if later:
            return later.pop()
        return ended(int("--require-zerocopy" in argv), "the driver has none\n")

    monkeypatch.setattr(drivers, "completed", done)
    drivers.up("h1", [])
    with pytest.raises(drivers.Refused, match=r"^the driver has none$"):
        drivers.up("h1", ["--require-zerocopy"])
    monkeypatch.setattr(drivers, "completed", lambda _: ended(1, "no such interface\n"))
    for asked in ([], ["--require-zerocopy"]):
        with pytest.raises(drivers.Failed, match="h1: up: no such interface"):
            drivers.up("h1", asked)


@pytest.mark.parametrize(
    ("pair", "refused", "status"),
    [("6.12:virtio-zerocopy", True, 0), ("6.12:virtio-zerocopy", False, 1), ("7.x:igb", True, 1)],
)
def test_main__a_known_lack_is_a_row_and_no_failure(
    drivers: ModuleType,
    pair: str,
    refused: bool,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    @contextlib.contextmanager
    def machines(kernel: str, nic: str) -> Iterator[dict[str, Any]]:
        yield {"kernel": kernel, "nic": nic}

    def begin(nic: str, mode: str) -> dict[str, Any]:
        assert (nic, mode) == (pair.split(":")[1], "")
        raise (drivers.Refused if refused else drivers.Failed)("why")

    monkeypatch.setattr(drivers, "machines", machines)
    monkeypatch.setattr(drivers, "begin", begin)
    report = tmp_path / "report"
    monkeypatch.setattr(sys, "argv", ["drivers", pair, "--report", str(report)])
    assert drivers.main() == status
    row = json.loads(report.read_text())[pair]
    assert row["up_said" if refused else "failed"] == "why"
    assert row["kernel"] == pair.split(":")[0]


SAID = """Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
0      0               eth1:q0               *     ino:1278 sk:1
\tstats(rx dropped:0,rx invalid:0,rx queue full:0,rx fill ring empty:1455,tx invalid:0)
NIC statistics:
     rx_drops: 512
     rx_kicks: 22
     rx0_kicks: 22
     tx_kicks: 9
     rx_no_buffer_count: 1
     rx_queue_0_alloc_failed: 2
     rx_packets: 77
"""


class Played:
    """Two hosts that receive what the other sends; h2 sends less than h1."""

    def __init__(self, drivers: ModuleType, patch: pytest.MonkeyPatch) -> None:
        self.moved, self.held, self.lost = 0, 0, 0
        patch.setattr(drivers, "both_ways", self.both_ways)
        patch.setattr(drivers, "counted", self.counted)
        patch.setattr(drivers, "buffers", lambda _: {"rx_kicks": 7 + self.held, "rx_drops": 512})
        patch.setattr(drivers, "used", lambda: {"zerocopy": {"h1": True, "h2": True}})

    def both_ways(self, nbytes: int) -> None:
        self.moved += nbytes // 1500

    def counted(self, host: str) -> dict[str, Any]:
        sent, got = self.moved, self.moved * 9 // 10
        if host == "h2":
            sent, got = got, sent - self.lost
        counters = {"tx_frames": sent, "rx_frames": got}
        return {"counters": counters, "peer": {"lost_here_frames": 0}}


@pytest.fixture
def played(drivers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(drivers, monkeypatch)


def test_frames__are_so_many_in_either_direction(drivers: ModuleType, played: Played) -> None:
    said = drivers.frames("virtio-zerocopy", 10_000, 60)
    assert min(said["received"]) >= 10_000
    assert said["frames"] == sum(said["received"])
    assert said["held_back"] == {"h1": 0, "h2": 0}
    assert said["buffers"] == {"h1": {}, "h2": {}}  # counters that rose meanwhile


def test_frames__fewer_than_asked_for_are_a_failure(
    drivers: ModuleType, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "PIECE_BYTES", 1_500_000)
    with pytest.raises(drivers.Failed, match="only 900 frames in 0 s"):
        drivers.frames("virtio-zerocopy", 10_000, 0)


@pytest.mark.parametrize("what", ["held", "lost"])
def test_frames__held_back_for_want_of_a_buffer_or_lost_is_a_failure(
    drivers: ModuleType, played: Played, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_ways(nbytes: int) -> None:
        setattr(played, what, played.moved)  # from the second time on
        played.both_ways(nbytes)

    monkeypatch.setattr(drivers, "both_ways", both_ways)
    with pytest.raises(drivers.Failed, match="no buffer" if what == "held" else "were lost"):
        drivers.frames("virtio-zerocopy", 10_000, 0)


def test_buffers__of_the_kernel_the_driver_and_qemu(
    drivers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "h1").mkdir()
    (tmp_path / "h1/qemu.log").write_text("full\nfull\n")
    monkeypatch.setattr(drivers, "on", lambda *_: SAID)
    monkeypatch.setattr(drivers, "STATE", tmp_path)
    found = drivers.buffers("h1")
    assert found == {
        "rx_drops": 512,
        "rx_kicks": 22,
        "rx_no_buffer_count": 1,
        "rx_queue_0_alloc_failed": 2,
        "kernel_fill_ring_empty": 1455,
        "qemu_ring_empty": 2,
    }
    assert drivers.held_back("virtio", found) is None
    assert drivers.held_back("virtio-zerocopy", found) == 22
    assert drivers.held_back("igb-intx", found) == 2
