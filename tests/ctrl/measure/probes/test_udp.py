"""pathchar's probes: the kernel may report an earlier probe's error at a later send."""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import replace
from typing import Any

import pytest
from careful.address import Address
from careful.errors import CarefulError
from careful.measure.path import path_to_file
from careful.measure.path.pathchar import Options
from careful.measure.probes.udp import Answer, Prober, Reply


class Marked:
    """A socket whose next sends fail, like after an unexpected answer."""

    def __init__(self, real: socket.socket, fails: int) -> None:
        self._real, self.fails, self.sends = real, fails, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendto(self, data: bytes, to: tuple[str, int]) -> int:
        """Fails without an entry in the error queue, or sends."""
        self.sends += 1
        if self.sends <= self.fails:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return self._real.sendto(data, to)


def marked(prober: Prober, fails: int) -> Marked:
    """Replaces a prober's socket by one that fails this often."""
    one = Marked(prober._socket, fails)
    prober._socket = one  # type: ignore[assignment]
    return one


@pytest.fixture
def loopback() -> str:
    """Returns IPv6's loopback if this host has IPv6."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error.strerror}")
    return "::1"


def test_probe__over_ipv6(loopback: str) -> None:
    """The host answers by ICMPv6, which quotes what fits into 1280 bytes."""
    with Prober(loopback) as prober:
        small, large = prober.probe(64, 200, 5), prober.probe(64, 1400, 5)
    assert (small.answer, small.address) == (Answer.REACHED, "::1")
    assert (small.reply_bytes, large.reply_bytes) == (200 + 48, 1280)
    assert 0 < small.rtt_us < 1e6


ROUTER = socket.inet_pton(socket.AF_INET6, "fd00::7")


@pytest.mark.parametrize(
    ("kind", "code", "info", "says"),
    [
        (3, 0, 0, Reply(Answer.EXPIRED, "fd00::7")),
        (2, 0, 1280, Reply(Answer.TOO_BIG, "fd00::7", mtu_bytes=1280)),
        (1, 1, 0, Reply(Answer.REFUSED, "fd00::7", code=1)),
        (1, 4, 0, Reply(Answer.REACHED, "fd00::7")),
        (4, 1, 0, Reply(Answer.SILENT, "?")),
    ],
)
def test_read__icmpv6_errors(kind: int, code: int, info: int, says: Reply) -> None:
    """RFC 4443; a struct sock_extended_err of it, and then the router's struct sockaddr_in6."""
    raw = struct.pack("=IBBBxII", errno.EHOSTUNREACH, 3, kind, code, info, 0)
    raw += struct.pack("=HHI", socket.AF_INET6, 0, 0) + ROUTER + bytes(4)
    with Prober("fd00::1") as prober:
        assert prober._read(raw) == says
        of_ipv4 = struct.pack("=IBBBxII", errno.EHOSTUNREACH, 2, kind, code, info, 0) + raw[16:]
        assert prober._read(of_ipv4).address == "?"


def test_pathchar__over_ipv6(loopback: str) -> None:
    """Works only with probes whose answers all have one size."""
    to = Address(socket.AF_INET6, loopback)
    options = Options(sizes_count=4, max_bytes=3000, rounds_max=4)
    found, stages, _ = path_to_file.measure(to, None, "", options)
    assert [hop.address for hop in found.hops] == [loopback]
    assert found.reached
    assert (found.sizes_bytes[0], found.sizes_bytes[-1]) == (1280, 3000)
    assert stages is None
    with pytest.raises(ValueError, match="from 1280 to 1000 bytes"):
        path_to_file.measure(to, None, "", replace(options, max_bytes=1000))


def test_probe__a_late_answer_fails_none() -> None:
    with Prober("127.0.0.1") as prober:
        one = marked(prober, 1)
        assert prober.probe(64, 100, 5).answer is Answer.REACHED
        assert one.sends == 2


def test_probe__a_missing_route_is_reported() -> None:
    with Prober("127.0.0.1") as prober:
        marked(prober, 100)
        with pytest.raises(CarefulError) as error:
            prober.probe(64, 100, 5)
        assert error.value.errno == errno.EHOSTUNREACH
