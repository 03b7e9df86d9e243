"""Files between emulated machines: real drivers, several kernels, zero-copy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest
from careful.control.checks import machine
from guests import MARKS, Machines
from hosts import wait_for

pytestmark = MARKS


@pytest.fixture
def machines(request: pytest.FixtureRequest) -> Iterator[Machines]:
    kernel, nic, *more = request.param
    one = Machines(f"test{os.getpid()}", "--kernel", kernel, "--nic", nic, *more)
    try:
        if nic.startswith("igb"):  # the card has several queues and no steering
            for host in ("h1", "h2"):
                one.run(host, "carefulctl", "doctor", "--fix", "--yes", "eth1")
        one.run("h2", "date", "-s", "+1 hour")
        yield one
    finally:
        one.down()


def there_and_back(machines: Machines) -> None:
    """Moves two MiB each way: the files are equal, no frame is lost, and nothing is left behind.

    The clocks are an hour apart. One is set back by a day during a transfer, which is then
    interrupted and continued.
    """
    machines.run("h2", "sh", "-c", "head -c 2097152 /dev/urandom >/tmp/file")
    machines.run("h1", "carefulctl", "get", "h2:file", "/tmp/got")
    before = machines.status("h2")["peers"][0]["rx_bytes"]
    put = "carefulctl put --block-bytes 64KiB --rate-limit 64KiB /tmp/got 10.77.0.2:back"
    pid = machines.run("h1", "sh", "-c", f"{put} >/tmp/said 2>&1 & echo $!").strip()
    wait_for(
        lambda: machines.status("h2")["peers"][0]["rx_bytes"] > before + 200_000, "blocks of a put"
    )
    machines.run("h1", "date", "-s", "-1 day")
    gone = f"kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"
    machines.run("h1", "sh", "-c", gone)
    again = machines.run("h1", *put.replace("--rate-limit 64KiB", "--json").split())
    assert 0 < json.loads(again)["resumed_bytes"] < 2097152
    machines.run("h2", "cmp", "/tmp/file", "/tmp/back")
    machines.run("h1", "carefulctl", "sync", "/tmp/got", "10.77.0.2:back")
    machines.run("h2", "cmp", "/tmp/file", "/tmp/back")
    for host in ("h1", "h2"):
        (peer,) = machines.status(host)["peers"]
        assert (peer["lost_here_frames"], peer["lost_there_frames"]) == (0, 0)
        assert peer["state"] == "up"
    for host in ("h1", "h2"):
        machines.run(host, "carefulctl", "down", "eth1")
        left = "ls -d /sys/fs/bpf/* /run/careful; ip link show eth1 | grep xdp; true"
        assert machines.run(host, "sh", "-c", left) == ""


def check_doctor(machines: Machines) -> None:
    """Checks that doctor's driver, descriptors and pause frames are ethtool's."""
    report = json.loads(machines.run("h1", "carefulctl", "doctor", "--json", "eth1"))["findings"]
    found = {one["check"]: one["text"] for one in report}
    assert "fail" not in {one["state"] for one in report}, report
    driver = machines.run("h1", "ethtool", "-i", "eth1").split()[1]
    assert found["interface"] == f"eth1 is up (driver {driver})"
    rings = re.findall(r"^RX:\s+(\d+)$", machines.run("h1", "ethtool", "-g", "eth1"), re.MULTILINE)
    most, size = map(int, rings)
    assert found["ring"] == machine.ring("eth1", size, most, 512).text
    paused = machines.tried("h1", "ethtool", "-a", "eth1")
    assert ("pause" in found) is (paused.returncode == 0)
    if "pause" in found:
        on = {way: f"\n{way}:\t\ton\n" in paused.stdout for way in ("RX", "TX")}
        assert found["pause"] == machine.pause("eth1", (on["RX"], on["TX"])).text


@pytest.mark.parametrize(
    "machines",
    [
        ("6.1", "virtio"),
        ("6.12", "e1000e"),
        ("6.18", "virtio"),
        ("6.18", "igb"),
        ("7.x", "virtio"),
    ],
    indirect=True,
    ids="-".join,
)
def test_files__copied(machines: Machines) -> None:
    check_doctor(machines)
    found = machines.up("h1"), machines.up("h2")
    assert [one["zerocopy"] for one in found] == [False, False]
    there_and_back(machines)


@pytest.mark.parametrize(
    "machines",
    [
        ("6.18", "virtio-zerocopy"),
        ("6.18", "igb-intx"),
        ("7.x", "virtio-zerocopy"),
        ("7.x", "igb"),
    ],
    indirect=True,
    ids="-".join,
)
def test_files__zero_copy(machines: Machines) -> None:
    found = machines.up("h1", "--require-zerocopy"), machines.up("h2", "--require-zerocopy")
    assert [one["zerocopy"] for one in found] == [True, True]
    there_and_back(machines)


@pytest.mark.parametrize(
    "machines", [("6.18", "virtio", "--hosts", "1")], indirect=True, ids=["6.18-virtio"]
)
def test_zero_copy__refused_with_the_hosts_settings(machines: Machines) -> None:
    refused = machines.tried("h1", "carefulctl", "up", "eth1", "--require-zerocopy", "--insecure")
    assert refused.returncode
    assert "driver virtio_net refuses zero-copy (Invalid argument): the host" in refused.stderr
    assert "QEMU: iommu_platform=on" in refused.stderr


@pytest.mark.parametrize(
    "machines", [("6.18", "virtio", "--queues", "2")], indirect=True, ids=["6.18-virtio"]
)
def test_queues__virtio_cannot_steer_to_one_of_two(machines: Machines) -> None:
    """virtio has no rules: the host of the guest chooses a frame's queue."""
    word = "ethtool -L eth1 combined 1"
    for queues in ("1", "2"):
        refused = machines.tried("h1", "carefulctl", "up", "eth1", "--queues", queues)
        assert refused.returncode
        assert f"cannot steer a port to one: `{word}`" in refused.stderr
    for host in ("h1", "h2"):
        machines.run(host, *word.split())
        machines.up(host)
    there_and_back(machines)


@pytest.mark.parametrize(
    "machines", [("6.18", "virtio", "--hosts", "3")], indirect=True, ids=["6.18-virtio"]
)
def test_hub__three_machines(machines: Machines) -> None:
    """Each machine reaches the others through a hub."""
    for host in ("h1", "h2", "h3"):
        machines.up(host)
    machines.run("h3", "sh", "-c", "head -c 500000 /dev/urandom >/tmp/file")
    for host in ("h1", "h2"):
        machines.run(host, "carefulctl", "get", "10.77.0.3:file", "/tmp/got")
    machines.run("h1", "carefulctl", "put", "/tmp/got", "10.77.0.2:again")
    machines.run("h2", "cmp", "/tmp/got", "/tmp/again")
    assert len(machines.status("h1")["peers"]) == 2
