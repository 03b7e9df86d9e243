"""Sealed frames between real daemons cannot be read on the wire, and both ends agree."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rogue
import rogue_keyed
from careful._abi import lib, pack, sizeof, unpack
from hosts import CRAWLING, MIB, SLOWLY, Host, Hosts, finish, make_file, moving, wait_for
from keyed import Keyed

SECRET = b"nobody on the wire is to read this line. " * 4096


@contextmanager
def tap(name: str) -> Iterator[socket.socket]:
    """Opens a socket that gets all frames of every interface of a network namespace."""
    local, remote = Path("/proc/self/ns/net"), Path("/run/netns") / name
    libc = ctypes.CDLL(None, use_errno=True)
    back = os.open(local, os.O_RDONLY)
    try:
        fd = os.open(remote, os.O_RDONLY)
        try:
            if libc.setns(fd, 0):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(fd)
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        one.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        one.setblocking(False)
    finally:
        if libc.setns(back, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(back)
    with one:
        yield one


def heard(one: socket.socket) -> tuple[int, int]:
    """Returns the UDP datagrams to careful's port, and those with a piece of SECRET."""
    frames = readable = 0
    while True:
        try:
            frame = one.recv(1 << 16)
        except BlockingIOError:
            return frames, readable
        ours = frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\xca\xfe"
        frames += ours
        readable += ours and b"is to read this" in frame


#: The start of careful's header in a frame over IPv4 and Ethernet.
AT = 14 + 20 + 8
#: Batches of forged frames, and frames in a batch. More than a quarter of the share, 16 buffers,
#: between two polls could displace true frames.
LOTS, LOT = 12, 8


def forged(frame: bytes, ahead: int) -> bytes:
    """Returns a frame that an attacker who reads the wire can make: valid except for its tag."""
    body = AT + sizeof("careful_hdr")
    fields = unpack("careful_hdr", frame[AT:body])
    fields["seq"] = (fields["seq"] + ahead) & 0xFFFFFFFF
    head = rogue.checked("careful_hdr", pack("careful_hdr", **fields))
    ethernet = frame[:6] + b"\x02\0\0\0\0\x99" + frame[12:14]
    no_sum = frame[14 : AT - 2] + bytes(2)
    return ethernet + no_sum + head + frame[body:-1] + bytes([frame[-1] ^ 1])


def forge(wire: socket.socket, port: str, address: str) -> None:
    """Sends a batch of forged next frames to an address from a port of the switch."""
    to, sent, until = socket.inet_aton(address), 0, time.monotonic() + 60
    heard(wire)  # the numbers of old frames are too small
    while sent < LOT:
        try:
            frame = wire.recv(1 << 16)
        except BlockingIOError:
            assert time.monotonic() < until, "no traffic"
            time.sleep(0.001)
            continue
        ours = frame[12:14] == b"\x08\x00" and frame[30:34] == to and frame[36:38] == b"\xca\xfe"
        if ours and frame[6:12] != b"\x02\0\0\0\0\x99" and frame[AT + 1] == lib.CAREFUL_DATA:
            wire.sendto(forged(frame, 1 + 4 * sent), (port, 0))
            sent += 1


def dropped(host: Host) -> int:
    """Returns the forged frames dropped there, by their tag or by a number already received."""
    found = host.status()
    by_number: int = found["xdp_counters"]["drop_seq"]
    return found["counters"]["drop_seal"] + by_number


def transfer(a: Host, b: Host) -> None:
    (b.export / "secret").write_bytes(SECRET)
    a.ctl("get", "h2:secret", a.own / "got")
    assert (a.own / "got").read_bytes() == SECRET
    a.ctl("put", a.own / "got", "h2:back")
    assert (b.export / "back").read_bytes() == SECRET


@pytest.mark.parametrize(
    ("seal", "protocol"),
    [("encrypt", "careful"), ("auth", "careful"), ("encrypt", "traditional")],
)
def test_seal__seen_by_a_tap(hosts: Hosts, seal: str, protocol: str) -> None:
    keyed = Keyed(*hosts(hosts=3)[:2])
    a, b = keyed.hosts
    keyed.up("--seal", seal, "--protocol", protocol)
    with tap(f"careful-{a.lab.name}-sw") as wire:
        transfer(a, b)
        frames, readable = heard(wire)
    assert frames > len(SECRET) / 4096
    assert (readable > 0) == (seal == "auth")
    for host in keyed.hosts:
        (peer,) = host.status()["peers"]
        assert peer["seal"] == seal
        assert peer["cipher"] in ("aes256_gcm", "chacha20_poly1305")
        counters = host.status()["counters"]
        assert counters["drop_seal"] == counters["drop_crc"] == 0
    a.assert_nothing_lost()
    assert f"frames are sealed ({seal}, " in a.ctl("status", "-v").stdout


def test_seal__forged_frames_change_nothing(hosts: Hosts) -> None:
    """Sends frames with right cookies and numbers, and wrong tags, during a transfer."""
    keyed = Keyed(*hosts(hosts=3)[:2])
    a, b = keyed.hosts
    keyed.up("--seal", "encrypt")
    make_file(b.export / "big", 100 * MIB)
    get = a.start("get", *CRAWLING, "h2:big", a.own / "big")
    moving(a)
    with tap(f"careful-{a.lab.name}-sw") as wire:
        for lot in range(1, LOTS + 1):
            forge(wire, "p1", a.lab.address("h1"))
            wait_for(lambda so_far=lot * LOT: dropped(a) >= so_far, "end of the forged frames")
    assert get.poll() is None
    get.terminate()
    finish(get)
    a.ctl("get", "h2:big", a.own / "big")  # continues where that one was
    assert (a.own / "big").read_bytes() == (b.export / "big").read_bytes()
    found = a.assert_nothing_lost()
    assert found["counters"]["drop_seal"] > 0
    assert [one["epochs"] for one in found["peers"]] == [1]


@pytest.mark.parametrize("seal", ["off", "encrypt"])
def test_rogue__with_a_key_harms_no_other(hosts: Hosts, seal: str) -> None:
    server, honest, other = hosts(hosts=3)
    keyed = Keyed(server, honest)
    keyed.key(other, "new")
    keyed.key(other, "trust", server.name, keyed.public(server))
    keyed.key(server, "trust", other.name, keyed.public(other))
    keyed.up("--peers", "4", *(() if seal == "off" else ("--seal", seal)))
    pid = server.pid
    make_file(server.export / "big", 24 * MIB)
    get = honest.start("get", *SLOWLY, "h1:big", honest.own / "big")
    moving(honest)
    address = server.lab.address("h1")
    argv = (sys.executable, rogue_keyed.__file__, address, keyed.folder(other), seal, "3")
    done = json.loads(server.lab.run("h3", *map(str, argv), timeout=120).stdout)
    assert done["sessions"] >= 1, done
    assert done["well"] + done["failed"] > 100, done
    assert done["failed"] > 0
    status, _, errors = finish(get)
    assert status == 0, errors
    assert (honest.own / "big").read_bytes() == (server.export / "big").read_bytes()
    assert server.pid == pid
    honest.assert_nothing_lost()
    assert sorted(one.name for one in server.export.iterdir()) == ["big"]


def test_seal__ends_with_different_settings_refuse(hosts: Hosts) -> None:
    keyed = Keyed(*hosts())
    a, b = keyed.hosts
    a.up("--keys", keyed.folder(a), "--seal", "encrypt", "--seal", "off@10.9.9.9")
    b.up("--keys", keyed.folder(b), "--seal", "auth")
    for host, other in ((a, "h2:"), (b, "h1:")):
        failed = host.ctl("ls", other, check=False)
        assert failed.returncode == 1
        assert "it seals frames differently than we do" in failed.stderr
    b.down()
    b.up("--keys", keyed.folder(b), "--seal", "encrypt@h1")  # of one peer
    a.ctl("ls", "h2:")


def test_seal__takes_keys(hosts: Hosts) -> None:
    a, _ = hosts()
    failed = a.ctl("up", "eth1", "--keys", "none", "--seal", "encrypt", check=False)
    assert failed.returncode == 1
    assert "needs keys: carefulctl key new" in failed.stderr
    failed = a.ctl("up", "eth1", "--seal", "a bit", check=False)
    assert "seal 'a bit' must be off, auth or encrypt" in failed.stderr
