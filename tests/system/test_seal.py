"""Sealed frames between real daemons: nothing can be read on the way, and both ends agree."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import Host, Hosts
from keyed import Keyed

SECRET = b"nobody on the wire is to read this line. " * 4096


@contextmanager
def tap(name: str) -> Iterator[socket.socket]:
    """A socket that gets all that comes into every interface of a network namespace."""
    here, there = Path("/proc/self/ns/net"), Path("/run/netns") / name
    libc = ctypes.CDLL(None, use_errno=True)
    back = os.open(here, os.O_RDONLY)
    try:
        fd = os.open(there, os.O_RDONLY)
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
    """UDP datagrams to careful's port that passed, and those of them with a piece of SECRET."""
    frames = readable = 0
    while True:
        try:
            frame = one.recv(1 << 16)
        except BlockingIOError:
            return frames, readable
        ours = frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\xca\xfe"
        frames += ours
        readable += ours and b"is to read this" in frame


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
def test_seal__what_a_tap_sees(hosts: Hosts, seal: str, protocol: str) -> None:
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
    assert f"frames are sealed ({seal}, " in a.ctl("status").stdout


def test_seal__both_ends_must_say_the_same(hosts: Hosts) -> None:
    keyed = Keyed(*hosts())
    a, b = keyed.hosts
    a.up("--keys", keyed.folder(a), "--seal", "encrypt", "--seal", "off@10.9.9.9")
    b.up("--keys", keyed.folder(b), "--seal", "auth")
    for host, other in ((a, "h2:"), (b, "h1:")):
        failed = host.ctl("ls", other, check=False)
        assert failed.returncode == 1
        assert "its frames are sealed otherwise than ours, or not" in failed.stderr
    b.down()
    b.up("--keys", keyed.folder(b), "--seal", "encrypt@h1")  # of one peer
    a.ctl("ls", "h2:")


def test_seal__takes_keys(hosts: Hosts) -> None:
    a, _ = hosts()
    failed = a.ctl("up", "eth1", "--keys", "none", "--seal", "encrypt", check=False)
    assert failed.returncode == 1
    assert "takes keys: carefulctl key new" in failed.stderr
    failed = a.ctl("up", "eth1", "--seal", "a bit", check=False)
    assert "seal 'a bit': one of off, auth, encrypt" in failed.stderr
