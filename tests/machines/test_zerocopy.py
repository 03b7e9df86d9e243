"""A file each way between two emulated machines whose cards write into UMEM; in CI too."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from guests import MARKS, Machines
from hosts import wait_for

pytestmark = MARKS

HOSTS = ("h1", "h2")


@pytest.fixture
def machines() -> Iterator[Machines]:
    one = Machines(f"zerocopy{os.getpid()}", "--kernel", "6.18", "--nic", "virtio-zerocopy")
    yield one
    one.down()


def held_back(machines: Machines, host: str) -> int:
    """Returns how often a frame found no buffer, and the driver then notified QEMU of new ones."""
    (count,) = re.findall(r" rx_kicks: (\d+)\n", machines.run(host, "ethtool", "-S", "eth1"))
    return int(count)


def test_files__zero_copy_and_each_frame_finds_a_buffer(machines: Machines) -> None:
    def up(host: str) -> dict[str, Any]:
        return machines.up(host, "--peers", "1", "--require-zerocopy")

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(up, HOSTS))
    assert [one["zerocopy"] for one in found] == [True, True]
    assert [one["receive_buffers"] for one in found] == [512, 512]  # of twice as many
    machines.run("h1", "sh", "-c", "head -c 8000000 /dev/urandom >/tmp/file")
    # After the first frame, QEMU asks for notice only if a frame found no buffer.
    machines.run("h1", "carefulctl", "get", "10.77.0.2:null:", "null:", "--bytes", "100000")
    before = [held_back(machines, host) for host in HOSTS]
    machines.run("h1", "carefulctl", "put", "/tmp/file", "10.77.0.2:file")
    machines.run("h1", "carefulctl", "get", "10.77.0.2:file", "/tmp/back")
    paths = (("h1", "/tmp/file"), ("h2", "/tmp/file"), ("h1", "/tmp/back"))
    assert len({machines.run(host, "sh", "-c", f"md5sum <{path}") for host, path in paths}) == 1
    assert [held_back(machines, host) for host in HOSTS] == before

    ends: list[dict[str, Any]] = []  # last status; `status` takes 12 s on an emulated CPU

    def moved() -> list[list[int]]:
        """Returns sent and received frames of h1, and received and sent ones of h2."""
        ends[:] = map(machines.status, HOSTS)
        one, other = (end["counters"] for end in ends)
        names = ["tx_frames", "rx_frames"]
        return [[one[name] for name in names], [other[name] for name in reversed(names)]]

    wait_for(lambda: operator.eq(*moved()), "all frames that were sent")
    assert min(ends[0]["counters"][name] for name in ("tx_frames", "rx_frames")) > 5_000
    for end in ends:
        (peer,) = end["peers"]
        assert (peer["lost_here_frames"], peer["lost_there_frames"], peer["epochs"]) == (0, 0, 1)
