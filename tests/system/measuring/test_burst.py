"""A path with a queue shorter than the windows is measured, and loses no frame.

Without the measurement each transfer here loses some tens of frames, as test_sim_train.c
shows in virtual time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, Host, Hosts, finish, make_file, moving

pytestmark = pytest.mark.lab

QUEUE_FRAMES = 40
HOPS = f"""
[[stage]]
name = "short"
g_us = 20
G_us_per_KiB = 2
[stage.link]
queue_frames = {QUEUE_FRAMES}
"""


def overflows(host: Host) -> int:
    """Returns the frames that found the emulated link's queues full."""
    return sum(way["queue_dropped"] for link in host.lab.links() for way in link["ways"])


def peer_of(host: Host) -> dict[str, Any]:
    found: dict[str, Any] = host.assert_nothing_lost()["peers"][0]
    return found


def test_short_queue__transfers_lose_nothing(hosts: Hosts, tmp_path: Path) -> None:
    path = tmp_path / "hops.toml"
    path.write_text(HOPS)
    h1, h2 = made = hosts(hops=path, mtu=3826)
    for host in made:
        host.up()
    remote, local = make_file(h2.export / "there", 8 * MIB), make_file(h1.own / "here", 8 * MIB, 2)
    h1.ctl("ls", f"{h1.lab.address('h2')}:")
    before = overflows(h1)
    assert before > 0  # of the trains: a window of 64 does not fit
    get = h1.start("get", f"{h1.lab.address('h2')}:there", h1.own)
    h1.ctl("put", h1.own / "here", f"{h1.lab.address('h2')}:")
    assert finish(get)[0] == 0
    assert (h1.own / "there").read_bytes() == remote
    assert (h2.export / "here").read_bytes() == local
    assert overflows(h1) == before
    for host in made:
        peer = peer_of(host)
        assert peer["burst"] == "short"
        assert peer["burst_frames"] >= QUEUE_FRAMES
        assert peer["window_buffers"] == peer["burst_frames"] < 64
        text = f"window {peer['window_buffers']} of 64: the path from "
        shown = host.ctl("status", "-v", "eth1").stdout
        assert text in shown
        assert f"takes {peer['burst_frames']} frames at once" in shown


def test_by_hand__reports_the_burst(hosts: Hosts, tmp_path: Path) -> None:
    """On an idle path, since the measurement interrupts other traffic to the host."""
    path = tmp_path / "hops.toml"
    path.write_text(HOPS.replace("g_us = 20", "g_us = 200"))
    h1, h2 = made = hosts(hops=path, mtu=3826)
    for host in made:
        host.up()
    to = h1.lab.address("h2")
    found = json.loads(h1.ctl("measure", "burst", to, "--json").stdout)
    assert found["burst"] == "short"
    assert found["burst_frames"] >= QUEUE_FRAMES
    assert found["peer_window_buffers"] == found["burst_frames"]
    assert "frames at once, and loses later ones" in h1.ctl("measure", "burst", to).stdout
    make_file(h2.export / "there", 128 * MIB)
    get = h1.start("get", f"{to}:there", h1.own)
    moving(h1)
    refused = h1.ctl("measure", "burst", to, check=False)
    assert (refused.returncode, "would be cut off" in refused.stderr) == (1, True)
    get.terminate()
    finish(get)
