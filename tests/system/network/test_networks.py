"""Transfers work in networks that are more than one link between two addresses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hosts import CRAWLING, MIB, SLOWLY, Host, Hosts, finish, make_file, moving, wait_for


def test_two_addresses__sessions_of_one_host_leave_each_other_alone(
    pair: tuple[Host, Host],
) -> None:
    h1, h2 = pair
    h2.lab.run("h2", "ip", "addr", "add", "10.77.0.102/24", "dev", "eth1")
    size = 24 * MIB
    one, two = make_file(h1.export / "one", size), make_file(h2.export / "two", size, 2)
    gets = (
        h2.start("get", *SLOWLY, "10.77.0.1:one", h2.own / "one"),
        h1.start("get", *SLOWLY, "10.77.0.102:two", h1.own / "two"),
        h1.start("get", *SLOWLY, "10.77.0.2:two", h1.own / "again"),
    )
    for get in gets:
        status, _, errors = finish(get)
        assert status == 0, errors
    assert (h2.own / "one").read_bytes() == one
    assert (h1.own / "two").read_bytes() == (h1.own / "again").read_bytes() == two
    for host in pair:
        host.assert_nothing_lost()


RULES = {
    "source": (4, ("from", "10.77.0.2")),
    "ports": (4, ("ipproto", "udp", "sport", "51966")),
    "interface": (4, ("oif", "eth1")),
    "source of IPv6": (6, ("from", "fd77::2")),
}


@pytest.mark.parametrize("name", RULES)
def test_policy_routing__frames_go_where_the_rule_sends_the_packet(hosts: Hosts, name: str) -> None:
    h1, h2 = hosts()
    family, rule = RULES[name]
    far, near = ("10.78.0.1", "10.77.0.2") if family == 4 else ("fd78::1", "fd77::2")

    def ip(host: Host, *args: str) -> None:
        host.lab.run(host.name, "ip", f"-{family}", *args)

    ip(
        h1,
        "addr",
        "add",
        f"{far}/{32 if family == 4 else 128}",
        "dev",
        "eth1",
        *(("nodad",) if family == 6 else ()),
    )
    ip(h1, "route", "replace", near, "dev", "eth1", "src", far)
    ip(h2, "route", "add", "unreachable", far)  # unless the rule decides
    ip(h2, "route", "add", far, "dev", "eth1", "table", "100")
    ip(h2, "rule", "add", "prio", "100", *rule, "lookup", "100")
    for host in (h1, h2):
        host.up()
    data = make_file(h2.export / "f", MIB)
    h1.ctl("get", "--outlast", "0s", f"{near}:f" if family == 4 else f"[{near}]:f", h1.own / "f")
    assert (h1.own / "f").read_bytes() == data
    assert any(peer["address"].startswith(far) for peer in h2.status()["peers"])


@pytest.mark.parametrize("where", ["here", "there"])
def test_smaller_mtu__the_kernels_own_route_is_heeded(hosts: Hosts, where: str) -> None:
    h1, h2 = hosts()
    one = h1 if where == "here" else h2
    other = "10.77.0.2" if one is h1 else "10.77.0.1"
    one.lab.run(one.name, "ip", "route", "add", other, "dev", "eth1", "mtu", "lock", "1300")
    for host in (h1, h2):
        host.up()
    data = make_file(h2.export / "f", 4 * MIB)
    h1.ctl("get", "10.77.0.2:f", h1.own / "f")
    assert (h1.own / "f").read_bytes() == data
    for host in (h1, h2):
        host.assert_nothing_lost()
        (peer,) = host.status()["peers"]
        assert (peer["frame_bytes"], peer["path_is_narrow"]) == (
            (1314, True) if host is one else (host.status()["frame_bytes"], False)
        )
    towards = one.ctl("measure", "burst", other).stdout
    assert "a link on the way takes frames of 1314 bytes at most" in towards
    assert "path MTU 1300" in one.log
    assert "path MTU 1300" in " ".join(one.ctl("status", "-v").stdout.split())
    assert "path MTU 1300" in one.ctl("doctor", "eth1", check=False).stdout


TOO_LARGE = """
import socket, sys
theirs, ours, mtu, raw = *sys.argv[1:3], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
family = socket.AF_INET6 if ":" in ours else socket.AF_INET
ends = socket.inet_pton(family, ours) + socket.inet_pton(family, theirs)
udp = b"".join(n.to_bytes(2, "big") for n in (51966, 51966, 1380, 0)) + raw
if family == socket.AF_INET:
    quoted = bytes.fromhex("450005780000400040110000") + ends + udp
    said = b"\\3\\4\\0\\0" + mtu.to_bytes(4, "big") + quoted
    total = sum(int.from_bytes(said[i : i + 2], "big") for i in range(0, len(said), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    said = said[:2] + (total ^ 0xFFFF).to_bytes(2, "big") + said[4:]
    one = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP)
else:
    quoted = bytes.fromhex("6000000005641140") + ends + udp
    said = b"\\2\\0\\0\\0" + mtu.to_bytes(4, "big") + quoted
    one = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
for _ in range(20):
    one.sendto(said, (ours, 0))
"""


@pytest.mark.parametrize("family", [4, 6])
def test_smaller_mtu__forged_icmp_makes_no_frame_smaller(hosts: Hosts, family: int) -> None:
    h1, h2, h3 = hosts(hosts=3)
    ours, theirs = ("10.77.0.1", "10.77.0.2") if family == 4 else ("fd77::1", "fd77::2")
    for host in (h1, h2):
        host.up()
    data = make_file(h2.export / "f", 4 * MIB)

    def get() -> None:
        h1.ctl("get", "-f", f"{theirs}:f" if family == 4 else f"[{theirs}]:f", h1.own / "f")
        assert (h1.own / "f").read_bytes() == data
        (peer,) = h1.status()["peers"]
        assert (peer["frame_bytes"], peer["epochs"]) == (h1.status()["frame_bytes"], 1)

    get()
    for mtu in (68, 576, 1280):
        h3.lab.run("h3", sys.executable, "-c", TOO_LARGE, theirs, ours, str(mtu), "00" * 64)
    route = json.loads(h1.lab.run("h1", "ip", "-j", "route", "get", theirs).stdout)[0]
    assert "mtu" in str(route), "the kernel did not believe it either"
    get()
    h1.down()
    h1.up()
    get()


@pytest.mark.parametrize("change", ["rule", "nexthop"])
def test_route_changes__frames_leave_by_the_new_gateway(hosts: Hosts, change: str) -> None:
    h1, h2, old, new = hosts(hosts=4)

    def ip(host: Host, *args: str) -> None:
        host.lab.run(host.name, "ip", *args)

    def arrived(host: Host) -> int:
        shown = host.lab.run(host.name, "ip", "-s", "-j", "link", "show", "eth1").stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])

    # h2's frames to h1 pass a gateway on the same link; h1's go directly.
    for gateway in (old, new):
        gateway.lab.run(gateway.name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        gateway.lab.run(gateway.name, "sysctl", "-qw", "net.ipv4.conf.all.send_redirects=0")
        gateway.lab.run(gateway.name, "sysctl", "-qw", "net.ipv4.conf.eth1.send_redirects=0")
        ip(h2, "route", "get", gateway.lab.address(gateway.name))
        h2.lab.run("h2", "ping", "-c1", gateway.lab.address(gateway.name))
    h2.lab.run("h2", "ethtool", "-K", "eth1", "tx", "off")
    h2.lab.run("h2", "sysctl", "-qw", "net.ipv4.nexthop_compat_mode=0")
    ip(h2, "nexthop", "add", "id", "1", "via", "10.77.0.3", "dev", "eth1")
    ip(h2, "route", "add", "10.77.0.1/32", "nhid", "1")
    ip(h2, "route", "add", "10.77.0.1/32", "via", "10.77.0.4", "dev", "eth1", "table", "9")
    for host in (h1, h2):
        host.up()
    make_file(h2.export / "f", 32 * MIB)
    get = h1.start("get", *CRAWLING, "10.77.0.2:f", h1.own / "f")
    wait_for(lambda: arrived(old) > 200, "frames by the old gateway")
    if change == "rule":
        ip(h2, "rule", "add", "prio", "100", "to", "10.77.0.1", "lookup", "9")
    else:
        ip(h2, "nexthop", "replace", "id", "1", "via", "10.77.0.4", "dev", "eth1")
    before = arrived(new)
    wait_for(lambda: arrived(new) > before + 200, "frames by the new gateway", 30)
    ip(h2, "rule", "add", "prio", "50", "to", "10.77.0.1", "unreachable")
    wait_for(lambda: "the kernel has no route to it" in h2.log, "word in the log", 30)
    ip(h2, "rule", "del", "prio", "50")
    before = arrived(new)
    wait_for(lambda: arrived(new) > before + 200, "frames after that", 60)
    assert get.poll() is None
    get.kill()


def test_addresses__of_a_name_are_tried_in_turn(pair: tuple[Host, Host], tmp_path: Path) -> None:
    h1, h2 = pair
    (h2.export / "here").touch()
    names = tmp_path / "names"
    names.write_text("fd77::99 server\n10.77.0.99 server\n10.77.0.2 server\n")
    script = 'mount --bind "$1" /etc/hosts; exec carefulctl ls server:'
    done = h1.lab.run("h1", "unshare", "-m", "sh", "-c", script, "-", names, check=False)
    assert done.returncode == 0, done.stderr
    assert "here" in done.stdout


def test_interface__that_becomes_a_port_of_a_bridge(hosts: Hosts) -> None:
    h1, h2 = hosts()
    for host in (h1, h2):
        host.up("--sync", "50ms")
    make_file(h2.export / "f", 32 * MIB)
    get = h1.start("get", *CRAWLING, "10.77.0.2:f", h1.own / "f")
    moving(h1)
    h1.lab.run("h1", "ip", "link", "add", "br0", "type", "bridge")
    h1.lab.run("h1", "ip", "link", "set", "eth1", "master", "br0")
    wait_for(lambda: "eth1 became a port of br0 (bridge)" in h1.log, "the bridge in the log", 30)
    wait_for(
        lambda: "but no control messages: bridge or bond br0 gets them" in h1.log, "the reason", 60
    )
    found = json.loads(h1.ctl("doctor", "eth1", "--json", check=False).stdout)["findings"]
    (control,) = (one for one in found if one["check"] == "control")
    assert control["advice"] == "ip link set eth1 nomaster"
    for text in (control["text"], h1.ctl("status", "-v").stdout, h1.log):
        assert "br0" in text
        assert "firewall" not in text
    get.kill()
    get.wait()


def test_interface__that_is_down_is_not_well(pair: tuple[Host, Host]) -> None:
    _, h2 = pair
    assert "all is well" in h2.ctl("status").stdout
    h2.lab.run("h2", "ip", "link", "set", "eth1", "down")
    try:
        done = h2.ctl("status")
        first, second, *_ = done.stdout.splitlines()
    finally:
        h2.lab.run("h2", "ip", "link", "set", "eth1", "up")
    assert done.returncode == 3
    assert "not well" in first
    assert "eth1 is down: ip link set eth1 up" in second


def test_time_namespace__probes_are_answered(hosts: Hosts) -> None:
    h1, h2 = hosts()
    ahead = ("unshare", "-T", "--monotonic", "86400", "--fork")
    if h2.lab.run("h2", *ahead, "true", check=False).returncode:
        pytest.skip("no time namespaces here")
    h1.up()
    h2.lab.run("h2", *ahead, "carefulctl", "up", "eth1", "--insecure")
    found = json.loads(h1.ctl("measure", "pathchar", "10.77.0.2", "--json", check=False).stdout)
    assert [hop["address"] for hop in found["hops"]] == ["10.77.0.2"]
