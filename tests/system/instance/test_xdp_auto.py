"""--xdp auto in a lab: the measurement with the first peer, its storage and its report.

The better mode depends on the machine and is not checked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import rogue
from hosts import Host, Hosts, alive, finish, make_file, wait_for
from lab import keep_xdp

MEASURING = "XDP: measuring native and generic with peer"
MEASURED = "XDP, measured with peer"
FAILED = "XDP: not measured with peer"
TRIES = 3

#: A decision may need two minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def two(hosts: Hosts) -> list[Host]:
    """Yields two hosts that measure; neither is up."""
    return hosts(measures_xdp=True)


def kept(host: Host) -> dict[str, str]:
    path = host.lab.kept(host.name) / "xdp.veth.json"
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def attached(host: Host) -> bool:
    return " prog/xdp " in host.lab.run(host.name, "ip", "-d", "link", "show", "eth1").stdout


def await_decision(host: Host) -> None:
    wait_for(lambda: host.status()["xdp_by"] != "pending", "decision", 120)


def decided(host: Host) -> tuple[str, str]:
    """Returns the mode and its origin; checks that `status` and the stored result agree.

    On a busy machine a trial may fail, and is repeated.
    """
    await_decision(host)
    found = host.status()
    mode, by = found["xdp_mode"], found["xdp_by"]
    assert by in ("measured", "driver")
    assert kept(host).get("mode") == (mode if by == "measured" else None)
    last = [line for line in host.log.splitlines() if MEASURED in line or FAILED in line][-1]
    assert last.endswith(f"; the mode is {mode} (the driver's)" if FAILED in last else mode)
    assert host.log.count(FAILED) + (MEASURED in last) == host.log.count(MEASURING) <= TRIES
    assert attached(host)
    output = host.ctl("status", "-v", "eth1").stdout
    assert f"XDP {mode} ({'measured' if by == 'measured' else 'the driver'}" in output
    return mode, by


def test_auto__measures_with_the_first_peer_before_its_data(two: list[Host]) -> None:
    h1, h2 = two
    data = make_file(h2.export / "big", 8 << 20)
    make_file(h1.own / "up", 3 << 20)
    output = h1.ctl("up", "eth1").stdout
    assert "  XDP native: for now; compared with generic when the first peer connects\n" in output
    assert max(map(len, output.splitlines())) <= 80
    h2.up()
    done = json.loads(h1.ctl("get", "--json", "h2:big", h1.own / "big").stdout)
    assert (h1.own / "big").read_bytes() == data
    assert done["new_epochs_count"] == 0, "the epochs of a trial are no news of a transfer"
    for host in two:
        decided(host)
    tried = [host.log.count(MEASURING) for host in two]
    h1.ctl("put", h1.own / "up", "h2:up")
    assert (h2.export / "up").read_bytes() == (h1.own / "up").read_bytes()
    for host, count in zip(two, tried, strict=True):
        host.assert_nothing_lost()
        assert host.log.count(MEASURING) == count


def test_auto__simultaneous_peers_are_all_decided(hosts: Hosts) -> None:
    """A mode needs a new epoch for every peer: all are quiet, and one measures at a time."""
    three = hosts(hosts=3, measures_xdp=True)
    for host in three:
        host.up()
        make_file(host.export / "one", 1 << 20, seed=int(host.name[1]))
    gets = [
        host.start("get", f"{other.name}:one", host.own / other.name)
        for host in three
        for other in three
        if other is not host
    ]
    for get in gets:
        status, _, errors = finish(get)
        assert status == 0, errors
    for host in three:
        decided(host)
        host.assert_nothing_lost()
        for other in three:
            if other is not host:
                assert (host.own / other.name).read_bytes() == (other.export / "one").read_bytes()


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_auto__remembers(two: list[Host], mode: str) -> None:
    h1, h2 = two
    data = make_file(h2.export / "one", 1 << 20)
    keep_xdp(mode, h1.lab.kept("h1"))
    output = h1.ctl("up", "eth1").stdout
    assert f"XDP {mode} (remembered)" in output
    h2.up("--xdp", "generic")
    assert "XDP generic (by --xdp)" in h2.ctl("status", "-v").stdout
    h1.ctl("get", "h2:one", h1.own / "one")
    assert (h1.own / "one").read_bytes() == data
    for host in two:
        host.assert_nothing_lost()
        assert MEASURING not in host.log
    assert kept(h1)["mode"] == mode
    assert not kept(h2)


def test_auto__another_kernels_answer_is_none(two: list[Host]) -> None:
    folder = two[0].lab.kept("h1")
    keep_xdp("generic", folder)
    path = folder / "xdp.veth.json"
    path.write_text(path.read_text().replace(os.uname().release, "5.4.0"))
    output = two[0].ctl("up", "eth1").stdout
    assert "XDP native: for now; compared" in output


def test_auto__a_state_directory_that_is_none(two: list[Host]) -> None:
    folder = two[0].lab.kept("h1")
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file")
    two[1].up("--xdp", "native")
    make_file(two[1].export / "one", 1000)
    two[0].ctl("up", "eth1")
    two[0].ctl("get", "h2:one", two[0].own)
    await_decision(two[0])
    assert two[0].status()["xdp_by"] in ("measured", "driver")
    assert "Not a directory: it is not used" in two[0].log


def test_auto__killed_in_the_middle_leaves_nothing_behind(two: list[Host]) -> None:
    h1, h2 = two
    data = make_file(h2.export / "one", 1 << 20)
    h1.ctl("up", "eth1")
    h2.up("--xdp", "native")
    get = h1.start("get", "h2:one", h1.own / "one")
    wait_for(lambda: MEASURING in h1.log, "trial")
    pid = h1.pid
    os.kill(pid, signal.SIGKILL)
    get.communicate(timeout=60)
    wait_for(lambda: not alive(pid), "end")
    assert not attached(h1)
    assert [one.name for one in Path(h1.lab.kept("h1")).glob(".*")] == []
    h1.ctl("up", "eth1")
    h1.ctl("get", "h2:one", h1.own / "one")
    assert (h1.own / "one").read_bytes() == data


def test_auto__peers_that_answer_late_do_not_hold_the_daemon(hosts: Hosts) -> None:
    """Waits for sixteen peers together, and for none of them at the end of the lock."""
    h1, h2 = hosts(measures_xdp=True)
    h1.up("--peers", "32", "--rx-buffers", "4096")
    argv = (sys.executable, rogue.__file__, h1.lab.address("h1"), "late-unlock", "0", "20")
    evil = h1.lab.start(h2.name, *argv)
    waits = []
    while evil.poll() is None:
        began = time.monotonic()
        h1.status()
        waits.append(time.monotonic() - began)
        time.sleep(0.1)
    out, errors = evil.communicate()
    assert evil.returncode == 0, errors
    assert json.loads(out)["late-unlock"] >= 1  # as many as the machine has time for
    began = time.monotonic()
    h1.status()
    alone = time.monotonic() - began
    # Asking one by one needed a quarter of a second per peer.
    assert max(waits) < 1 + 3 * alone, sorted(waits)[-5:]
