"""Hosts of a lab for tests: carefulctl on each, transfers, counters.

Owns the carefulds that a test brings up, which are down when the test ends, and the fixtures
`hosts`, `pair` and `shared_pair`. Used by the tests that try careful from the command line to the
wire.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, MakeLab

PINS = Path("/sys/fs/bpf/careful")
RUN = Path("/run/careful")
MIB = 1 << 20
#: Options of get and put that make a transfer last some seconds on any machine.
SLOWLY = ("--block-bytes", "64KiB", "--rate-limit", "32MiB")
#: Options of a transfer that a test interrupts; without that it ends after minutes.
CRAWLING = ("--block-bytes", "64KiB", "--rate-limit", "1MiB")
#: Counters that must be 0 if nothing was lost.
LOSSES = (
    "lost_frames",
    "bad_credits",
    "epochs_broken",
    "drop_malformed",
    "drop_crc",
    "digest_bad",
    "device_rx_ring_full",
    "device_rx_fill_ring_empty",
    "device_rx_dropped",
    "device_kicks_failed",
)


class Host:
    """One host: its exported folder, its own folder, and carefulctl."""

    def __init__(self, lab: Lab, name: str, folder: Path) -> None:
        self.lab, self.name = lab, name
        self.export, self.own = folder / name / "export", folder / name / "own"
        self.export.mkdir(parents=True)
        self.own.mkdir()

    def ctl(
        self, *args: str | Path, check: bool = True, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run carefulctl to its end."""
        check = check and args[0] != "status"  # exit status 3, not well, is no error here
        return self.lab.run(self.name, "carefulctl", *args, check=check, **more)

    def start(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start carefulctl."""
        return self.lab.start(self.name, "carefulctl", *args)

    def up(self, *options: str | Path) -> None:
        """Run carefulctl up eth1, the folder exported for writing, owners and all."""
        export = ("--export", f"{self.export}:rw,owners,devices", "--insecure")
        self.ctl("up", "eth1", *export, *options)

    def down(self) -> None:
        """Run carefulctl down eth1."""
        self.ctl("down", "eth1")

    def status(self) -> dict[str, Any]:
        """Returns carefuld's status."""
        one: dict[str, Any] = json.loads(self.ctl("status", "--json", "eth1").stdout)
        found: dict[str, Any] = one["instances"][0]
        return found

    @property
    def pid(self) -> int:
        """The pid of carefuld."""
        return int((RUN / self.lab.instance(self.name) / "pid").read_text())

    @property
    def log(self) -> str:
        """Returns the log of its carefuld since its start."""
        return self.whole_log.rpartition(" begins, process ")[2]

    @property
    def whole_log(self) -> str:
        """Returns the log of all its carefulds."""
        return (RUN / self.lab.instance(self.name) / "log").read_text()

    def assert_nothing_lost(self) -> dict[str, Any]:
        """Fails if a frame was lost. Returns the status."""
        found = self.status()
        lost = {name: found["counters"][name] for name in LOSSES if found["counters"][name]}
        assert not lost, f"{self.name}: {lost}"
        return found


def make_file(path: Path, nbytes: int, seed: int = 1) -> bytes:
    """Makes a file with unique contents, and returns them."""
    data = random.Random(seed).randbytes(nbytes)
    path.write_bytes(data)
    return data


def wait_for(what: Callable[[], Any], name: str, timeout_s: float = 200) -> None:
    """Waits until what() is true. A slow check extends the time."""
    end = time.monotonic() + timeout_s
    began = time.monotonic()
    while not what():
        took = time.monotonic() - began
        assert time.monotonic() < end, f"no {name} within {timeout_s} s"
        time.sleep(max(0.02, took))
        began = time.monotonic()


def finish(process: subprocess.Popen[str], timeout_s: float = 200) -> tuple[int, str, str]:
    """Waits for a process. Returns status, output and errors."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def received(host: Host) -> int:
    """Returns the number of frames that a host has received."""
    return int(host.status()["counters"]["rx_frames"])


def moving(host: Host, timeout_s: float = 200) -> None:
    """Waits until frames move at a host, while its transfer runs."""
    before = received(host)
    wait_for(lambda: received(host) > before + 100, "traffic", timeout_s)


def alive(pid: int) -> bool:
    """Reports whether a process exists and is not a zombie."""
    try:
        # A leader that has ended still waits for its threads, which hold files and locks.
        zombie = "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
        return not zombie or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except FileNotFoundError:
        return False


def attached(host: Host, text: str, *args: str | Path) -> subprocess.Popen[str]:
    """Starts a Python program on a host, and waits until it is ready."""
    process = host.lab.start(host.name, sys.executable, "-W", "error", "-c", text, *args)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def programs(host: Host) -> dict[str, Any]:
    """Returns the programs attached to a host's carefuld, by name."""
    return {one["name"]: one for one in host.status()["programs"]}


Hosts = Callable[..., list[Host]]


@pytest.fixture
def hosts(make_lab: MakeLab, tmp_path: Path) -> Iterator[Hosts]:
    """Returns a function that makes hosts in their own lab by make_lab()'s options; careful is
    down.
    """
    made: list[Host] = []

    def make(**options: Any) -> list[Host]:
        lab = make_lab(**options)
        made.extend(Host(lab, name, tmp_path) for name in lab.hosts)
        return made

    yield make
    for host in made:
        host.ctl("down", "eth1", check=False)


@contextlib.contextmanager
def hosts_up(folder: Path, **options: Any) -> Iterator[list[Host]]:
    """Yields two hosts that are up, in their own lab made with Lab()'s options."""
    lab = Lab(**options)
    try:
        made = [Host(lab, name, folder) for name in lab.hosts]
        for host in made:
            host.up()
        yield made
        for host in made:
            host.down()
    finally:
        lab.down()


def _two(lab: Lab, folder: Path) -> Iterator[tuple[Host, Host]]:
    made = [Host(lab, name, folder) for name in lab.hosts]
    for host in made:
        host.up()
    yield made[0], made[1]
    for host in made:
        lab.run(host.name, "ip", "link", "set", "eth1", "up")
        host.ctl("down", "eth1", check=False)


@pytest.fixture
def pair(lab: Lab, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Yields h1, the client, and h2, the server, up for one test."""
    yield from _two(lab, tmp_path)


@pytest.fixture(scope="module")
def shared_pair(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Yields the same pair for all tests of a module, which must not change it."""
    yield from _two(lab, tmp_path_factory.mktemp("pair"))
