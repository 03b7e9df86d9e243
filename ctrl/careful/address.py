"""Addresses of peers: from text to a struct sockaddr_storage."""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass

from careful._abi import sizeof
from careful.errors import CarefulError


@dataclass(frozen=True)
class Address:
    """Address of a peer.

    Attributes:
        family: AF_INET or AF_INET6.
        ip: numeric, without a scope.
        port: UDP port; 0: the instance's own.
        scope: interface index of a link-local IPv6 address, else 0.
    """

    family: socket.AddressFamily
    ip: str
    port: int = 0
    scope: int = 0

    def __str__(self) -> str:
        shown = f"[{self.ip}]" if ":" in self.ip and self.port else self.ip
        return f"{shown}:{self.port}" if self.port else shown

    def sockaddr(self) -> bytes:
        packed = socket.inet_pton(self.family, self.ip)
        head = struct.pack("=H", self.family) + struct.pack("!H", self.port)
        if self.family == socket.AF_INET:
            raw = head + packed
        else:
            raw = head + bytes(4) + packed + struct.pack("=I", self.scope)
        return raw.ljust(sizeof("sockaddr_storage"), b"\0")

    @staticmethod
    def from_sockaddr(raw: bytes) -> Address:
        (family,) = struct.unpack_from("=H", raw)
        (port,) = struct.unpack_from("!H", raw, 2)
        if family == socket.AF_INET:
            return Address(socket.AF_INET, socket.inet_ntop(socket.AF_INET, raw[4:8]), port)
        ip = socket.inet_ntop(socket.AF_INET6, raw[8:24])
        (scope,) = struct.unpack_from("=I", raw, 24)
        return Address(socket.AF_INET6, ip, port, scope)


def _split(text: str) -> tuple[str, int]:
    """Splits HOST, HOST:PORT, [V6] or [V6]:PORT into host and port."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise CarefulError(errno.EINVAL, f"{port!r} is not a port", text)
    return host, int(port or 0)


def split_remote(text: str) -> tuple[str, str]:
    """Splits HOST:PATH or [V6]:PATH into host and path; an empty path is the export itself.

    Raises CarefulError if there is no host.
    """
    if text.startswith("["):
        host, bracket, path = text.partition("]:")
        host += "]" if bracket else ""
    else:
        host, bracket, path = text.partition(":")
    if not bracket or not host or "/" in host:
        raise CarefulError(errno.EINVAL, "is not HOST:PATH", text)
    return host, path


def is_remote(text: str) -> bool:
    """Reports whether text reads as HOST:PATH; a local name with a colon is written ./NAME.

    `null:` is no host: the transfer has no file at that end.
    """
    if text == "null:":
        return False
    try:
        split_remote(text)
    except CarefulError:
        return False
    return True


def resolve(text: str) -> Address:
    """Returns the address of a host, the first of several.

    Args:
        text: a name that the system resolves, or an IPv4 or IPv6 address, with an optional port.

    Raises:
        CarefulError: it is unknown.
    """
    return resolve_all(text)[0]


def resolve_all(text: str) -> list[Address]:
    """Returns all addresses of a host, in the order that the system prefers.

    Args:
        text: as for resolve().

    Raises:
        CarefulError: it is unknown.
    """
    host, port = _split(text)
    # A str would be encoded with IDNA, whose tables load slowly.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, port or None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        advice = "unknown host; name it in [nodes] of careful.toml, or give its address"
        if "@" in text:
            advice = f"careful knows no users; name the host alone: {text.rpartition('@')[2]}"
        raise CarefulError(errno.EHOSTUNREACH, advice, text) from None
    addresses = [
        Address(
            socket.AddressFamily(family),
            str(sockaddr[0]).partition("%")[0],
            port,
            int(sockaddr[3]) if len(sockaddr) == 4 else 0,
        )
        for family, _, _, _, sockaddr in found
    ]
    return list(dict.fromkeys(addresses))
