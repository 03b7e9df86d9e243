"""A peer with a session misbehaves towards a real carefuld, next to an honest peer.

tests/ebpf tests frames that end in the XDP program: jumbo frames with a tiny UDP length, datagrams
to a host behind this router, answers to an ephemeral port.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rogue
from hosts import MIB, SLOWLY, Host, Hosts, alive, attached, finish, make_file, moving
from lab import Lab

PEERS = 16
#: Least repetitions of each misdeed before the server ends the session.
LEAST = {"many-ports": PEERS // 2, "names-for-terminals": 1}


@pytest.fixture(scope="module")
def three(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Yields a server, a client of its files, and a host for the rogue."""
    lab = Lab(hosts=3)
    hosts = [Host(lab, name, tmp_path_factory.mktemp("hostile")) for name in lab.hosts]
    try:
        hosts[0].up("--peers", str(PEERS), "--lend", "4MiB")
        hosts[1].up()
        make_file(hosts[0].export / "big", 32 * MIB)
        yield hosts
    finally:
        for host in hosts[:2]:
            host.ctl("down", "eth1", check=False)
        lab.down()


@pytest.mark.parametrize("misdeed", [one for one in rogue.MISDEEDS if one not in rogue.APART])
def test_misdeed__harms_no_other(three: list[Host], misdeed: str) -> None:
    server, honest, _ = three
    pid = server.pid
    address = server.lab.address("h1")
    get = honest.start("get", "-f", *SLOWLY, "h1:big", honest.own / "big")
    moving(honest)
    script = Path(rogue.__file__)
    least = LEAST.get(misdeed, 40)
    argv = (sys.executable, script, address, misdeed, "0", str(least))
    done = server.lab.run("h3", *argv, timeout=120)
    assert json.loads(done.stdout)[misdeed] >= least
    status, _, errors = finish(get)
    assert status == 0, errors
    assert (honest.own / "big").read_bytes() == (server.export / "big").read_bytes()
    assert server.pid == pid
    assert alive(pid)
    honest.assert_nothing_lost()
    own = server.lab.address("h2")
    # If the misdeed outlasts the get, the idle session yields its window. Then the server shows no
    # session, or the end of the last one; the honest host still has its peer.
    seen = [one for one in server.status()["peers"] if one["address"].startswith(own)]
    assert all(one["state"] in ("up", "ended") for one in seen)
    assert [(one["state"], one["error"]) for one in honest.status()["peers"]] == [("up", None)]
    assert not set(server.log) & {*map(chr, range(0x80, 0xA0)), "\x1b", "\x07"}
    assert "\x1b" not in server.ctl("status", "-v").stdout


def test_misdeeds__on_one_queue_of_four(hosts: Hosts) -> None:
    """The attacked queue and the others continue to serve."""
    server, honest = hosts(queues=(4, 1))
    server.up("--queues", "4", "--peers", "16")
    honest.up()
    make_file(server.export / "big", 16 * MIB)
    pids = [one["pid"] for one in server.status()["queues"]]
    get = honest.start("get", *SLOWLY, "h1:big", honest.own / "big")
    moving(honest)
    for misdeed in ("beyond-the-window", "lies-in-frames", "lies-in-control"):
        argv = (sys.executable, rogue.__file__, server.lab.address("h1"), misdeed, "0", "40")
        done = server.lab.run("h2", *argv, timeout=120)
        assert json.loads(done.stdout)[misdeed] >= 40
    status, _, errors = finish(get)
    assert status == 0, errors
    assert (honest.own / "big").read_bytes() == (server.export / "big").read_bytes()
    assert [one["pid"] for one in server.status()["queues"]] == pids
    assert all(map(alive, pids))
    honest.assert_nothing_lost()


_SILENT = """
import contextlib, sys
sys.path.insert(0, sys.argv[1])
import rogue
one = rogue.Rogue(sys.argv[2], port=rogue.PORT)
one.open()
print("ready", flush=True)
while True:
    try:
        one.pump(0.05)
    except rogue.Ended:
        with contextlib.suppress(rogue.Ended, TimeoutError):
            one.open()
"""
_STAT = "import careful.files as f\nwith f.connect('h2', timeout_s=2) as h: h.stat('x')"


def test_server__that_answers_no_request(hosts: Hosts) -> None:
    """The server keeps its session; each command ends with an error that names the question."""
    local, remote = hosts()
    local.up()
    silent = attached(remote, _SILENT, Path(rogue.__file__).parent, local.lab.address("h1"))
    try:
        for command in (
            ("carefulctl", "ls", "--timeout", "2s", "h2:x"),
            ("carefulctl", "get", "-r", "--timeout", "2s", "h2:x", local.own / "x"),
            (sys.executable, "-c", _STAT),
        ):
            done = local.lab.run("h1", "timeout", "60", *command, check=False)
            assert done.returncode == 1, done
            assert "h2: no answer to 'stat x' in 2 s" in done.stderr
        (peer,) = local.status()["peers"]
        assert (peer["state"], peer["epochs"]) == ("up", 1)
    finally:
        silent.kill()
        silent.communicate()
