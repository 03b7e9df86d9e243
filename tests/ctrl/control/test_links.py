"""Reads the kernel's data on interfaces."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys

import pytest
from careful.control.host import links, netlink
from careful.errors import CarefulError

#: Prints what `links` finds in a network namespace of its own.
PROGRAM = """
from careful.control.host import links
one = links.find("another-name-of-this-interface")
print(one.name, one.mtu, one.kind, one.up, links.master(links.find("v2")), links.names())
print(links.root_qdisc(one).is_ours, links.remove_our_qdisc(one), links.root_qdisc(one))
links.set_up(one)
print(links.find("v1").up, links.in_same_subnet(one), sorted(links.addresses(one.index)))
"""
MADE = """
ip link add v1 mtu 1400 type veth peer name v2
ip link add br0 type bridge && ip link set br0 up && ip link set v2 master br0
ip link property add dev v1 altname another-name-of-this-interface
ip addr add 10.1.0.1/24 dev v1 && ip addr add fd00::1/64 dev v1 && ip addr add 10.1.0.2/24 dev br0
ip link add v3 type veth peer name v4 && ip addr add 10.1.1.1/24 dev v3 && ip link set v3 up
tc qdisc add dev v1 root handle ca00: pfifo
"""


def test_addresses__an_interface_by_its_index() -> None:
    assert "127.0.0.1" in links.addresses(socket.if_nametoindex("lo"))
    assert not links.addresses(2147483000)


def test_interfaces__in_a_namespace() -> None:
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip(f"no network namespaces here: {probe.stderr.decode().strip()}")
    argv = ["unshare", "--net", "sh", "-ec", f'{MADE}exec "$@"', "sh", sys.executable, "-c"]
    done = subprocess.run([*argv, PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "v1 1400 veth False br0 ['lo', 'v2', 'v1', 'br0', 'v4', 'v3']",
        "True True None",
        "True ['br0'] ['10.1.0.1', 'fd00::1']",
    ]


@pytest.mark.parametrize("name", ["", "no-such-one", "no-such-name-of-an-interface", "x" * 200])
def test_find__no_such_interface(name: str) -> None:
    with pytest.raises(CarefulError, match="no such interface") as caught:
        links.find(name)
    assert caught.value.errno == errno.ENODEV


def test_ask__repeats_a_dump_that_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(socket, "socket", lambda *_: ours.dup())

    def message(kind: int, flags: int, body: bytes) -> bytes:
        return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body

    kernel.send(message(16, 0x10, b"olds") + message(3, 0x10, bytes(4)))
    kernel.send(message(16, 0, b"new1") + message(16, 0, b"new2"))
    kernel.send(message(3, 0, bytes(4)))
    assert netlink.ask(netlink.GETLINK, b"", netlink.DUMP) == [b"new1", b"new2"]
    kernel.send(message(2, 0, struct.pack("=i", -errno.EPERM)))
    with pytest.raises(PermissionError, match=os.strerror(errno.EPERM)):
        netlink.ask(netlink.NEWLINK, b"", netlink.ACK)
    ours.close()
    kernel.close()


def test_attributes__random_bytes() -> None:
    pairs = netlink.attribute(1, b"abc") + netlink.attribute(0x8002, b"")
    assert netlink.attributes(pairs) == {1: b"abc", 2: b""}
    assert netlink.attributes(b"\1\0\1\0" + pairs) == {}  # shorter than its own header
