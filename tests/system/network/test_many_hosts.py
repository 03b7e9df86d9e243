"""Several hosts at once, one of them stopped, and other traffic on the same interface."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import time

import pytest
from hosts import MIB, Hosts, alive, finish, make_file, moving

FILES = 24  # more than a copy has under way at a time


def test_three_hosts__every_pair_both_ways(hosts: Hosts) -> None:
    three = hosts(hosts=3)
    held = {}
    for seed, host in enumerate(three):
        host.up("--peers", "4")
        held[host.name] = make_file(host.export / "big", 24 * MIB, seed)
    jobs = []
    for a, b in itertools.permutations(three, 2):
        jobs.append(a.start("get", f"{b.name}:big", a.own / f"from-{b.name}"))
        jobs.append(a.start("put", a.export / "big", f"{b.name}:from-{a.name}"))
    for job in jobs:
        status, _, errors = finish(job)
        assert status == 0, errors
    for a, b in itertools.permutations(three, 2):
        assert (a.own / f"from-{b.name}").read_bytes() == held[b.name]
        assert (b.export / f"from-{a.name}").read_bytes() == held[a.name]
    a, b, c = three
    for at in (b, c):
        a.ctl("cp", f"{b.name}:big", f"{at.name}:copied")
        assert (at.export / "copied").read_bytes() == held[b.name]
    for host in three:
        found = host.assert_nothing_lost()
        assert {peer["epochs"] for peer in found["peers"]} == {1}


def test_three_hosts__one_is_stopped(hosts: Hosts) -> None:
    a, b, stopped = hosts(hosts=3)
    for host in (a, b, stopped):
        host.up("--peers", "4")
    kept = make_file(a.export / "big", 64 * MIB)
    small = make_file(a.export / "small", 4 * MIB, 3)
    make_file(stopped.export / "slow", 64 * MIB, 2)
    # Slow, so that both transfers are under way when the host is stopped.
    slowly = ("--block-bytes", "64KiB", "--rate-limit", "8MiB")
    into = a.start("put", *slowly, a.export / "big", f"{stopped.name}:into")
    outof = b.start("get", *slowly, f"{stopped.name}:slow", b.own / "slow")
    moving(stopped)
    pid = stopped.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        states: dict[str, str] = {}
        while states.get(stopped.lab.instance("h3")) != "stalled":
            # The other pair continues in both directions.
            a.ctl("put", "-f", a.export / "small", f"{b.name}:copy")
            a.ctl("get", "-f", f"{b.name}:copy", a.own / "copy")
            assert (a.own / "copy").read_bytes() == small
            assert into.poll() is None
            assert outof.poll() is None
            states = {peer["name"]: peer["state"] for peer in a.status()["peers"]}
    finally:
        os.kill(pid, signal.SIGCONT)
    for job in (into, outof):
        status, _, errors = finish(job)
        assert status == 0, errors
    assert (stopped.export / "into").read_bytes() == kept
    assert (b.own / "slow").read_bytes() == (stopped.export / "slow").read_bytes()
    for host in (a, b, stopped):
        host.assert_nothing_lost()


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
@pytest.mark.parametrize("kind", [[], ["-u", "-b", "0", "-l", "1400"]], ids=["tcp", "udp-flood"])
def test_coexistence__iperf3_beside_a_transfer(hosts: Hosts, kind: list[str]) -> None:
    a, b = hosts(hosts=2)
    a.up()
    b.up()
    kept = make_file(b.export / "big", 64 * MIB)
    words = ("iperf3", "-s", "-1", "--forceflush", "-B", a.lab.address("h2"))
    server = b.lab.start("h2", *words)
    assert server.stdout
    while "listening" not in server.stdout.readline():
        assert server.poll() is None
    flood = a.lab.start("h1", "iperf3", "-c", a.lab.address("h2"), "-t", "5", "-J", *kind)
    time.sleep(0.5)
    rounds = 0
    while flood.poll() is None:
        a.ctl("get", "-f", "h2:big", a.own / "big")
        assert (a.own / "big").read_bytes() == kept
        a.ctl("put", "-f", a.own / "big", "h2:back")
        rounds += 1
    status, out, errors = finish(flood)
    finish(server)
    assert status == 0, errors
    sent = json.loads(out)["end"]["sum_sent" if not kind else "sum"]
    assert sent["bytes"] > MIB
    assert rounds >= 1
    assert (b.export / "back").read_bytes() == kept
    for host in (a, b):
        found = host.assert_nothing_lost()
        assert {peer["epochs"] for peer in found["peers"]} == {1}
        assert alive(found["pid"])


def test_peers__one_too_many_is_refused_by_name(hosts: Hosts) -> None:
    a, b, c = hosts(hosts=3)
    a.up("--peers", "1")
    b.up()
    c.up()
    make_file(a.export / "f", 1000)
    b.ctl("get", "h1:f", b.own / "f")
    done = c.ctl("get", "h1:f", c.own / "f", check=False)
    assert done.returncode == 1
    assert "h1" in done.stderr
    assert "peers" in done.stderr
    # A peer that leaves makes room.
    b.down()
    c.ctl("get", "h1:f", c.own / "f")
    assert (c.own / "f").read_bytes() == (a.export / "f").read_bytes()


def test_client__asks_an_idle_server_for_its_place(hosts: Hosts) -> None:
    a, b, c = hosts(hosts=3)
    a.up("--peers", "1")
    for server in (b, c):
        server.up()
        (server.export / server.name).touch()
    for server in (b, c, b):
        assert a.ctl("ls", f"{server.name}:").stdout == f"{server.name}\n"
    a.assert_nothing_lost()


def test_trees__eight_both_ways_at_once(hosts: Hosts) -> None:
    a, b = hosts(hosts=2)
    tree = a.own / "tree"
    tree.mkdir()
    for i in range(FILES):
        make_file(tree / str(i), 100 << 10, i)  # too large to share a frame
    shutil.copytree(tree, b.export / "tree")
    a.up()
    b.up()
    jobs = [a.start("get", "-r", "h2:tree", a.own / f"got{i}") for i in range(8)]
    jobs += [a.start("put", "-r", tree, f"h2:put{i}") for i in range(8)]
    for job in jobs:
        status, _, errors = finish(job, 240)
        assert status == 0, errors
    for i in range(8):
        for copy in (a.own / f"got{i}/tree", b.export / f"put{i}/tree"):
            assert all(
                (copy / str(n)).read_bytes() == (tree / str(n)).read_bytes() for n in range(FILES)
            )
    b.assert_nothing_lost()
