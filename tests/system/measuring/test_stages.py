"""carefulctl measure pathchar with careful up at both ends: every stage answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lab
import pytest
from hosts import Host, hosts_up, wait_for

pytestmark = pytest.mark.lab

#: 10, 5 and 8 Mbit/s, µs per KiB.
RATES = (819.2, 1638.4, 1024.0)

#: Probes of a stranger: with every limit, an unknown cookie, and garbage.
STRANGER = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from scapy_layers import CarefulHdr
to = ("10.77.0.2", 51966)
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(500):
    for limit in range(6):
        probe = CarefulHdr(type="ping", stage_limit=limit, src_node=number % 9,
                           cookie=1 + number, msg_id=1000 + number, seq=1 + number % 64)
        one.sendto(bytes(probe / bytes(100)), to)
    one.sendto(bytes([1, 3]) + os.urandom(100), to)
one.settimeout(0.5)
try:
    print("answered", one.recv(100))
except TimeoutError:
    print("silent")
"""


@pytest.fixture(scope="module")
def hosts(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("stages") / "hops.toml"
    path.write_text(
        "".join(
            f'[[stage]]\nname = "{G}"\ng_us = 50\nG_us_per_KiB = {G}\ndelay_us = 200\n'
            for G in RATES
        )
    )
    with hosts_up(tmp_path_factory.mktemp("stages"), hops=path, options=["--ipv6"]) as made:
        yield made


def measure(host: Host, *options: str) -> dict[str, Any]:
    shown = host.ctl("measure", "pathchar", "h2", "--json", *options, check=False).stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def counted(host: Host, name: str) -> int:
    status = host.status()
    return int((status["counters"] | status["xdp_counters"]).get(name, 0))


def credits_are_whole(here: Host, there: Host) -> bool:
    """Reports whether all of a window's credits are at one end or the other."""
    (peer,) = here.status()["peers"]
    (back,) = there.status()["peers"]
    return bool(peer["credits_free"] + back["buffers_owed"] == peer["credits_window"])


def test_stages__every_one_is_listed_in_order(hosts: list[Host]) -> None:
    """The hops' G is the same as without careful; the stages' sum is the one-way time; no frame is
    lost.
    """
    found = measure(hosts[0], "--one-clock", "--time", "6")
    assert [stage["stages"] for stage in found["stages"]] == [
        ["hostTx"],
        ["netTx"],
        ["hop 1"],
        ["hop 2"],
        ["hop 3", "netRx"],
        ["hostRx"],
        ["store"],
    ]
    for stage, G in zip(found["stages"][2:5], RATES, strict=True):
        assert stage["G_us_per_KiB"] == pytest.approx(G, rel=0.25)  # a busy machine slows links
        assert stage["latency_us"] > 0
        assert stage["g_us"] is None
    for stage in found["stages"]:
        assert stage["middle_us"] > 0
        assert (stage["size_min_bytes"], stage["size_max_bytes"]) == (600, 3826)
        assert stage["samples_count"] >= 12
    for row in found["one_way"]:
        assert row["sum_of_stages_us"] == pytest.approx(row["measured_us"], rel=0.25)
    # Frames that passed XDP used credits, which are all returned; frames that ended at XDP used
    # none.
    there = hosts[1]
    assert counted(there, "admitted") == found["pings_count"]
    assert counted(there, "rx_frames") == found["pings_count"]
    assert counted(there, "pass_ping") > 3 * 12
    wait_for(lambda: credits_are_whole(*hosts), "the credits on their way")
    for host in hosts:
        host.assert_nothing_lost()


def test_stages__a_stranger_gets_no_answer_and_takes_no_buffer(hosts: list[Host]) -> None:
    there = hosts[1]
    before = {name: counted(there, name) for name in ("admitted", "pings_answered", "pass_ping")}
    output = hosts[0].lab.run("h1", "python", "-c", STRANGER, Path(lab.__file__).parent).stdout
    assert output == "silent\n"
    assert {name: counted(there, name) for name in before} == before
    assert counted(there, "drop_cookie") > 0
    assert counted(there, "drop_ping") > 0


def test_stages__table(hosts: list[Host]) -> None:
    options = ["--sizes", "4", "--time", "1"]
    shown = hosts[0].ctl("measure", "pathchar", "h2", *options, check=False).stdout
    assert "hop 3, netRx" in shown
    assert "one resource: hostTx, netTx" in shown
    words = ["measure", "pathchar", "h2", "--no-stages", *options]
    without = hosts[0].ctl(*words, check=False).stdout
    assert "hostTx" not in without


def test_stages__without_careful_there_says_so(hosts: list[Host]) -> None:
    """The hops are measured anyway, unless stages are requested."""
    hosts[1].down()
    try:
        options = ["measure", "pathchar", "h2", "--sizes", "4", "--time", "1"]
        shown = hosts[0].ctl(*options, check=False).stdout
        assert "stages inside the hosts: not measured" in shown
        done = hosts[0].ctl(*options, "--stages", check=False)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
    finally:
        hosts[1].up()


def test_stages__over_ipv6(hosts: list[Host]) -> None:
    """Hop limits, and probes as long as what ICMPv6 quotes; each stage answers."""
    words = ["fd77::2", "--sizes", "6", "--time", "6", "--stages", "--json"]
    found = json.loads(hosts[0].ctl("measure", "pathchar", *words, check=False).stdout)
    hops = found["stages"][2:5]
    assert [stage["stages"] for stage in hops] == [["hop 1"], ["hop 2"], ["hop 3", "netRx"]]
    assert [stage["address"] for stage in hops] == ["fd77:65::2", "fd77:66::2", "fd77::2"]
    for stage, G in zip(hops, RATES, strict=True):
        assert stage["G_us_per_KiB"] == pytest.approx(G, rel=0.25)
    for stage in found["stages"]:
        assert stage["samples_count"] >= 6
        assert (stage["size_min_bytes"], stage["size_max_bytes"]) == (1280, 3826)
    assert found["pings_count"] > 0
    for host in hosts:
        host.assert_nothing_lost()
