"""One member of `up --group` leaves enough to root and to other hosts (support/rogue_member.py).

In process the bounds are tests/datapath/daemon/test_ipc.c.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rogue_member
from hosts import MIB, RUN, Host, make_file
from lab import Lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed"),
]
NOBODY = ("setpriv", "--reuid=65534", "--regid=games", "--clear-groups")
PEERS = 4
TIMES = 5  # a busy machine is not a quiet one


@pytest.fixture(scope="module")
def two(
    lab_possible: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, Host]]:
    lab = Lab(hosts=2)
    here, there = [Host(lab, name, tmp_path_factory.mktemp("member")) for name in lab.hosts]
    try:
        if lab.run("h1", *NOBODY, "test", "-x", sys.executable, check=False).returncode:
            pytest.skip(f"nobody may not run {sys.executable}")
        here.up("--group", "games", "--peers", str(PEERS))
        there.up()
        for host in (here, there):
            make_file(host.export / "big", MIB)
        yield here, there
    finally:
        for host in (here, there):
            host.ctl("down", "eth1", check=False)
        lab.down()


def member(host: Host, misdeed: str) -> subprocess.Popen[str]:
    path = RUN / host.lab.instance(host.name) / "sock"
    argv = (sys.executable, rogue_member.__file__, path, "10.77.0.2", misdeed)
    process = host.lab.start(host.name, *NOBODY, "env", "HOME=/", *argv)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n", process.communicate()[1]
    return process


def took(host: Host, *argv: str | Path) -> float:
    """How long a command that succeeds takes, s."""
    began = time.monotonic()
    host.ctl(*argv)
    return time.monotonic() - began


@pytest.mark.parametrize("misdeed", rogue_member.MISDEEDS)
def test_member__leaves_places_to_root_and_hosts(two: tuple[Host, Host], misdeed: str) -> None:
    here, there = two
    commands = (
        (here, ("status", "eth1")),
        (here, ("get", "-f", "h2:big", here.own / "big")),
        (there, ("get", "-f", "h1:big", there.own / "big")),
    )
    alone = max(took(host, *argv) for host, argv in commands for _ in range(2))
    process = member(here, misdeed)
    try:
        for host, argv in commands:
            assert min(took(host, *argv) for _ in range(2)) < TIMES * alone
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=60)
