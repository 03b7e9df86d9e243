"""A real carefuld with a program that dies, stalls, floods or writes rubbish into its rings.

Meanwhile another program sends requests, stores and gets, and a file is fetched: both continue.
support/rogue_program.py has the misdeeds. tests/datapath/daemon/test_attach.c tests them in
process, with the errors of a stalled program's peers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rogue_program
from hosts import (
    MIB,
    RUN,
    SLOWLY,
    Host,
    attached,
    finish,
    make_file,
    moving,
    programs,
    wait_for,
)
from lab import Lab

pytestmark = pytest.mark.lab
#: At the other host: a region for rogues, another region, an echo, and a handler that never
#: answers.
SERVES = """
import asyncio, careful
async def never(message):
    await asyncio.sleep(1e6)
async def main():
    async with careful.attach(name="serves", memory_bytes=2 << 20) as node:
        for handler in (101, 1):
            table = node.register(node.memory(1 << 20))
            node.handle(handler, lambda message, table=table: table)
        for handler in (102, 2):
            node.handle(handler, lambda message: message.payload.upper())
        node.handle(103, never)
        print("ready", flush=True)
        await node.serve_forever()
asyncio.run(main())
"""
#: Sends requests, and bytes there and back, until a file exists.
ASKS = """
import careful, os, sys
with careful.attach(name="neighbour", memory_bytes=1 << 20) as node:
    h2 = node.connect("10.77.0.2")
    table = h2.region(h2.request(1).result().payload)
    mine, back = os.urandom(100_000), bytearray(100_000)
    print("ready", flush=True)
    while not os.path.exists(sys.argv[1]):
        assert h2.request(2, b"hello").result().payload == b"HELLO"
        table.store(mine, 1_000).result()
        table.get(back, 1_000).result()
        assert back == mine
"""


def areas(host: Host) -> int:
    """Returns the number of programs' areas that carefuld has mapped."""
    return Path(f"/proc/{host.pid}/maps").read_text().count("/memfd:careful-program")


def asked(host: Host) -> int:
    return int(programs(host)["neighbour"]["asked"])


@pytest.fixture(scope="module")
def two(
    lab_possible: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, Host]]:
    """Yields a host whose program sends requests all the time, and a host that serves it."""
    lab = Lab(hosts=2)
    hosts = [Host(lab, name, tmp_path_factory.mktemp("rogues")) for name in lab.hosts]
    local, remote = hosts
    try:
        for host in hosts:
            host.up("--lend", "1MiB")
        make_file(remote.export / "big", 16 * MIB)
        serves = attached(remote, SERVES)
        end = local.own / "end"
        asks = attached(local, ASKS, end)
        yield local, remote
        end.touch()
        out, err = asks.communicate(timeout=60)
        assert (asks.returncode, err, out) == (0, "", "")
        serves.kill()
        serves.wait(60)
    finally:
        for host in hosts:
            host.ctl("down", "eth1", check=False)
        lab.down()


def rogue(host: Host, misdeed: str) -> subprocess.Popen[str]:
    """Starts a misdeed. Returns its process."""
    path = RUN / host.lab.instance(host.name) / "sock"
    argv = (sys.executable, rogue_program.__file__, path, "10.77.0.2", misdeed)
    process = host.lab.start(host.name, *argv)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n", process.communicate()[1]
    return process


def goes_on(here: Host, there: Host) -> None:
    """Checks that the neighbour and a transfer succeed."""
    pids, before = (here.pid, there.pid), asked(here)
    get = here.start("get", "-f", *SLOWLY, "h2:big", here.own / "big")
    moving(here)
    wait_for(lambda: asked(here) > before + 60, "round of the neighbour")
    status, _, errors = finish(get)
    assert status == 0, errors
    assert (here.own / "big").read_bytes() == (there.export / "big").read_bytes()
    assert (here.pid, there.pid) == pids


def nothing_left(here: Host, there: Host) -> None:
    """Checks that all resources of the rogue are back."""
    wait_for(lambda: set(programs(here)) == {"neighbour"}, "end of the rogue")
    wait_for(lambda: areas(here) == 1, "end of its memory")
    for host in (here, there):
        found = host.assert_nothing_lost()
        assert [(one["buffers_kept"], one["epochs"]) for one in found["peers"]] == [(0, 1)]


@pytest.mark.parametrize("misdeed", [one for one in rogue_program.MISDEEDS if one != "fills"])
def test_rogue__harms_no_other(two: tuple[Host, Host], misdeed: str) -> None:
    process = rogue(two[0], misdeed)
    goes_on(*two)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["done"]
    nothing_left(*two)
    if misdeed == "rubbish":
        assert "program rubbish (process" in two[0].log
        assert "it is disconnected" in two[0].log


def test_rogue__stalls_and_dies(two: tuple[Host, Host]) -> None:
    """The rogue has all its operations under way, full rings, and never answers."""
    here, _ = two
    process = rogue(here, "fills")
    wait_for(lambda: programs(here)["fills"]["operations"] == rogue_program.OPERATIONS, "rings")
    pid = programs(here)["fills"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    goes_on(*two)
    assert programs(here)["fills"]["operations"] == rogue_program.OPERATIONS
    assert "fills" in here.ctl("status", "-v").stdout
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    nothing_left(*two)


def test_rogue__is_killed_in_the_midst(two: tuple[Host, Host]) -> None:
    here, _ = two
    for misdeed in ("requests", "stores", "gets"):
        process = rogue(here, misdeed)
        wait_for(lambda name=misdeed: programs(here)[name]["told"] > 300, "flood")
        os.kill(programs(here)[misdeed]["pid"], signal.SIGKILL)
        process.communicate(timeout=60)
        nothing_left(*two)
    goes_on(*two)
