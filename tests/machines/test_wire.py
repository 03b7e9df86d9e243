"""An emulated link between two machines: it charges g and G for each frame."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from guests import MARKS, Machines
from hosts import wait_for

pytestmark = MARKS

G_FRAME_US, G_KIB_US = 4000, 8000
NAME = f"wire{os.getpid()}"
STATE = Path("/run/careful-machines") / NAME


@pytest.fixture
def machines() -> Iterator[Machines]:
    one = Machines(NAME, "--nic", "virtio", "--mtu", "9000", "--wire", f"{G_FRAME_US},{G_KIB_US}")
    yield one
    one.down()


def test_wire__charges_g_and_G(machines: Machines) -> None:
    """Each way of a ping costs g, and G for its payload; the fit of the frames agrees."""
    least_ms = []
    for nbytes in (64, 8000):
        output = machines.run("h1", "ping", "-c", "5", "-s", str(nbytes), "10.77.0.2")
        assert " 0% packet loss" in output
        (found,) = re.findall(r"min/avg/max/mdev = ([0-9.]+)/", output)
        least_ms.append(float(found))
    both_ways_ms = [2 * (G_FRAME_US + G_KIB_US * nbytes / 1024) / 1e3 for nbytes in (64, 8000)]
    assert [one >= asked for one, asked in zip(least_ms, both_ways_ms, strict=True)] == [True, True]

    before = json.loads((STATE / "wire.json").read_text())["report"]
    os.kill(int((STATE / "wire.pid").read_text()), signal.SIGUSR1)
    wait_for(lambda: json.loads((STATE / "wire.json").read_text())["report"] > before, "the report")
    for way in json.loads((STATE / "wire.json").read_text())["ways"]:
        assert way["frames"] >= 10
        assert way["queue_dropped"] == 0  # frames before the other machine was up are lost
        assert way["applied"]["g_us"] == pytest.approx(G_FRAME_US, rel=0.5)
        assert way["applied"]["G_us_per_KiB"] == pytest.approx(G_KIB_US, rel=0.1)
