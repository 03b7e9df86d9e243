"""Transfers over every kind of link, and while the link changes."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest
from careful.control.instance import maps
from careful.control.plans import tune_entry
from hosts import MIB, SLOWLY, Host, Hosts, finish, make_file, moving


def exchange(a: Host, b: Host, there: str = "h2", *more: str | Path) -> None:
    """Moves a file each way, and a tree; checks that all are equal."""
    kept = make_file(b.export / "big", 8 * MIB + 12345)
    (b.export / "tree" / "deep").mkdir(parents=True)
    for k in range(40):
        make_file(b.export / "tree" / "deep" / str(k), 777 * k, k)
    a.ctl("get", f"{there}:big", a.own / "big", *more)
    a.ctl("put", a.own / "big", f"{there}:back", *more)
    a.ctl("get", "-r", f"{there}:tree", a.own, *more)
    assert (a.own / "big").read_bytes() == kept
    assert (b.export / "back").read_bytes() == kept
    for k in range(40):
        mine = a.own / "tree" / "deep" / str(k)
        assert mine.read_bytes() == (b.export / "tree" / "deep" / str(k)).read_bytes()
    for host in (a, b):
        host.assert_nothing_lost()


@pytest.mark.parametrize(
    ("mtu", "buffers"), [(1500, 1), (3826, 1), (9000, 3)], ids=["1500", "3826", "9000"]
)
@pytest.mark.parametrize("xdp", ["native", "generic"])
def test_mtu__single_and_several_buffers(hosts: Hosts, mtu: int, buffers: int, xdp: str) -> None:
    a, b = hosts(mtu=mtu)
    a.up("--xdp", xdp, "--file-writes", "workers")
    b.up("--xdp", xdp)
    exchange(a, b)
    found = a.status()
    assert found["xdp_mode"] == xdp
    assert found["mtu_bytes"] == mtu
    # The window allows the link's frames: a frame of several buffers costs as many credits.
    assert -(-found["frame_bytes"] // found["buffer_bytes"]) == buffers
    moved = (
        2 * (8 * MIB + 12345) / (found["counters"]["tx_frames"] + found["counters"]["rx_frames"])
    )
    assert moved < mtu


def test_ipv6__by_address_and_by_node_name(hosts: Hosts, tmp_path: Path) -> None:
    a, b = hosts()
    a.up()
    b.up()
    there = a.lab.address("h2", 6)
    exchange(a, b, f"[{there}]")
    names = tmp_path / "careful.toml"
    names.write_text(f'[nodes]\nserver = "{there}"\n')
    listed = a.ctl("ls", "server:", "--config", names).stdout
    assert "tree" in listed
    peers = json.loads(a.ctl("status", "eth1", "--json", "--config", names).stdout)
    peer = peers["instances"][0]["peers"][0]
    assert peer["node"] == "server"
    assert there in peer["address"]
    a.ctl("ls", "h2:")
    for host in (a, b):
        assert re.search(r"peer 1 10\.77\.0\.\d \S+: up; same process as peer 0\n", host.log)


@pytest.mark.parametrize(("second", "prefix"), [("10.77.0.200", 24), ("fd77::200", 64)])
def test_second_address__is_answered_from(hosts: Hosts, second: str, prefix: int) -> None:
    """Answers come from the address that was asked, not from the kernel's choice."""
    a, b = hosts()
    more = ["nodad", "preferred_lft", "0"] if ":" in second else []
    b.lab.run("h2", "ip", "address", "add", f"{second}/{prefix}", "dev", "eth1", *more)
    a.up()
    b.up()
    kept = make_file(b.export / "big", 8 * MIB)
    family = 6 if ":" in second else 4
    for there in (second, a.lab.address("h2", family), second):
        from_there = f"[{there}]" if family == 6 else there
        a.ctl("get", "-f", f"{from_there}:big", a.own / "big")
        assert (a.own / "big").read_bytes() == kept
        a.assert_nothing_lost()
        assert [one["address"] for one in a.status()["peers"]] == [there]
        # A session belongs to a pair of addresses; the earlier process's has ended.
        assert [one["state"] for one in b.status()["peers"]].count("up") == 1
        a.down()
        a.up()
    for there in (second, a.lab.address("h2", family)) * 2:  # two peers, at either end
        a.ctl("get", "-f", f"[{there}]:big" if family == 6 else f"{there}:big", a.own / "big")
        assert (a.own / "big").read_bytes() == kept


EXTREMES = [
    ("--fragment-bytes", "1"),
    ("--fragment-bytes", "1GiB"),
    ("--minpulse-bytes", "1GiB"),
    ("--minpulse-bytes", "0"),
    ("--fragment-bytes", "900", "--minpulse-bytes", "1MiB"),
    ("--fragment-bytes", "3694", "--minpulse-bytes", "64KiB"),
]


def test_tune__while_a_transfer_runs(hosts: Hosts) -> None:
    a, b = hosts()
    a.up()
    b.up()
    kept = make_file(b.export / "big", 96 * MIB)
    names = [host.lab.instance(host.name) for host in (a, b)]
    values = itertools.cycle(itertools.product((1, 900, 1 << 30, 3694), (0, 1 << 30, 65536)))
    changes = 0
    # Writes the map as often as possible; commands would make only a few changes.
    with contextlib.ExitStack() as held:
        maps_of_both = [held.enter_context(maps.tune_map(name)) for name in names]

        def change(fragment: int, pulse: int) -> None:
            one = tune_entry.change(fragment_bytes=fragment, minpulse_bytes=pulse)
            for entries in maps_of_both:
                tune_entry.apply(entries, tune_entry.all_slots(), one)

        # Tiny fragments first.
        change(16, 0)
        job = a.start("get", *SLOWLY, "h2:big", a.own / "big")
        moving(a)
        while job.poll() is None:
            change(*next(values))
            changes += 1
    status, _, errors = finish(job)
    assert status == 0, errors
    assert changes >= 3
    assert (a.own / "big").read_bytes() == kept
    for host in (a, b):
        found = host.assert_nothing_lost()
        assert found["peers"][0]["epochs"] == 1


@pytest.mark.parametrize("change", EXTREMES, ids=lambda change: " ".join(change))
def test_tune__no_value_hangs(hosts: Hosts, change: tuple[str, ...]) -> None:
    a, b = hosts()
    a.up("--rx-buffers", "64", "--peers", "8")  # window 8: less than any pulse set here
    b.up("--rx-buffers", "64", "--peers", "8")
    for host in (a, b):
        host.ctl("tune", "set", "eth1", *change)
    kept = make_file(b.export / "f", 300_000)
    a.ctl("get", "h2:f", a.own / "f")
    a.ctl("put", a.own / "f", "h2:back")
    assert (b.export / "back").read_bytes() == kept
    for host in (a, b):
        host.assert_nothing_lost()


def test_tune__next_message_has_the_new_size(hosts: Hosts) -> None:
    a, b = hosts()
    a.up()
    b.up()
    make_file(b.export / "f", MIB)

    def frames() -> int:
        before = b.status()["counters"]["tx_frames"]
        # One block at a time, so that each finds the path idle; backlog would fill its frames.
        a.ctl("get", "-f", "--block-bytes", "16KiB", "--blocks", "1", "h2:f", a.own / "f")
        return int(b.status()["counters"]["tx_frames"]) - before

    usual = frames()
    b.ctl("tune", "set", "eth1", "--fragment-bytes", "1000", "--peer", "h1")
    smaller = frames()
    assert smaller > usual * 2
    shown = json.loads(b.ctl("tune", "show", "eth1", "--json").stdout)
    sizes = {
        one["peer"]: [c["plan"]["first_bytes"] for c in one["classes"]] for one in shown["peers"]
    }
    assert sizes["h1"] == [1000] * 16
    assert 1000 not in sizes["new peers"]


def test_neighbour__its_mac_changes(hosts: Hosts) -> None:
    a, b = hosts()
    a.up()
    b.up()
    kept = make_file(b.export / "big", 128 * MIB)
    job = a.start("get", *SLOWLY, "h2:big", a.own / "big")
    moving(a)
    # veth delivers whatever the MAC: the other end must still learn and use the new one.
    b.lab.run("h2", "ip", "link", "set", "eth1", "address", "02:00:00:00:be:ef")
    a.lab.run("h1", "ip", "neigh", "flush", "dev", "eth1", check=False)  # may fail
    status, _, errors = finish(job)
    assert status == 0, errors
    assert (a.own / "big").read_bytes() == kept
    watcher = subprocess.Popen(
        a.lab.argv(
            "h2", "timeout", "60", "tcpdump", "-i", "eth1", "-e", "-n", "-c", "1",
            "udp", "and", "dst", "host", a.lab.address("h2"),
        ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watcher.stderr is not None
    assert any("listening on" in line for line in watcher.stderr)
    # Control goes through the kernel's table and our frames through ours: both are new.
    a.ctl("down", "eth1")
    a.up()
    a.ctl("get", "-f", "h2:big", a.own / "big")
    assert "02:00:00:00:be:ef" in finish(watcher)[1]
