"""Files between emulated machines: real drivers, several kernels, zero-copy (tools/machines)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MACHINES = Path(__file__).parents[2] / "tools/machines"
#: An emulated CPU takes its time, and more so beside others.
LIMIT_S = 600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * LIMIT_S),
    pytest.mark.skipif(
        "CAREFUL_MACHINES" not in os.environ, reason="it takes minutes: tools/test machines"
    ),
]


class Machines:
    """Two that run."""

    def __init__(self, name: str, kernel: str, nic: str) -> None:
        self._name = name
        done = self._tool("up", "--kernel", kernel, "--nic", nic)
        if "has no" in done.stderr or "apt-get" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr

    def _tool(self, word: str, *argv: str) -> subprocess.CompletedProcess[str]:
        argv = (str(MACHINES), word, "--name", self._name, *argv)
        return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)

    def run(self, host: str, *argv: str) -> str:
        done = self._tool("exec", host, "--", *argv)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def up(self, host: str, *options: str) -> dict[str, Any]:
        """Careful on eth1, as long as it takes; its settings."""
        until = time.monotonic() + LIMIT_S
        argv = ("carefulctl", "up", "eth1", "--export", "/tmp:rw", "--insecure", *options)
        while (done := self._tool("exec", host, "--", *argv)).returncode:
            assert "was not ready" in done.stderr, done.stderr
            assert time.monotonic() < until, done.stderr
        return self.status(host)

    def status(self, host: str) -> dict[str, Any]:
        found = json.loads(self.run(host, "carefulctl", "status", "eth1", "--json"))
        (one,) = found["instances"]
        return dict(one)

    def down(self) -> None:
        self._tool("down")


@pytest.fixture
def machines(request: pytest.FixtureRequest) -> Iterator[Machines]:
    one = Machines(f"test{os.getpid()}", *request.param)
    yield one
    one.down()


def there_and_back(machines: Machines) -> None:
    """Two MiB each way, the same at the end, none lost; and nothing is left behind."""
    machines.run("h2", "sh", "-c", "head -c 2097152 /dev/urandom >/tmp/file")
    machines.run("h1", "carefulctl", "get", "10.77.0.2:file", "/tmp/got")
    machines.run("h1", "carefulctl", "put", "/tmp/got", "10.77.0.2:back")
    machines.run("h2", "cmp", "/tmp/file", "/tmp/back")
    for host in ("h1", "h2"):
        (peer,) = machines.status(host)["peers"]
        assert (peer["lost_here_frames"], peer["lost_there_frames"]) == (0, 0)
        assert peer["state"] == "up"
    for host in ("h1", "h2"):
        machines.run(host, "carefulctl", "down", "eth1")
        left = "ls -d /sys/fs/bpf/* /run/careful; ip link show eth1 | grep xdp; true"
        assert machines.run(host, "sh", "-c", left) == ""


@pytest.mark.parametrize(
    "machines",
    [("6.1", "virtio"), ("6.12", "e1000e"), ("6.18", "virtio"), ("7.x", "virtio")],
    indirect=True,
    ids="-".join,
)
def test_files__copied(machines: Machines) -> None:
    found = machines.up("h1"), machines.up("h2")
    assert [one["zerocopy"] for one in found] == [False, False]
    there_and_back(machines)


@pytest.mark.parametrize(
    "machines",
    [("6.18", "virtio-zerocopy"), ("7.x", "virtio-zerocopy")],
    indirect=True,
    ids="-".join,
)
def test_files__zero_copy(machines: Machines) -> None:
    found = machines.up("h1", "--require-zerocopy"), machines.up("h2", "--require-zerocopy")
    assert [one["zerocopy"] for one in found] == [True, True]
    there_and_back(machines)
