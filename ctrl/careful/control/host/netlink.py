"""Requests to the kernel about interfaces, addresses, qdiscs and routes (rtnetlink).

A library would do more, but its import takes longer than most commands run.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

REQUEST, ACK, DUMP = 1, 4, 0x300
NEWLINK, GETLINK, GETADDR, GETROUTE, DELQDISC, GETQDISC = 16, 18, 22, 26, 37, 38

_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BYTES = 1 << 16
_NESTED = 0x8000


def attribute(kind: int, value: bytes) -> bytes:
    """Returns an attribute of a request."""
    text = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value
    return text + bytes(-len(text) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    """Returns the values of an answer's attributes by their numbers."""
    values = {}
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            break
        values[kind & ~_NESTED] = data[_ATTRIBUTE.size : size]
        data = data[size + -size % 4 :]
    return values


def _answers(sock: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yields type, flags and contents of each message that arrives."""
    while True:
        data = sock.recv(_BYTES)
        while data:
            size, kind, flags, _, _ = _HEADER.unpack_from(data)
            yield kind, flags, data[_HEADER.size : size]
            data = data[size + -size % 4 :]


def ask(kind: int, body: bytes, flags: int = 0) -> list[bytes]:
    """Returns the contents of all messages that answer a request.

    body: the request after its header; flags: DUMP for all objects, ACK for a change, 0 for one
    object. Raises OSError: the kernel refuses the request.
    """
    messages: list[bytes] = []
    complete = True
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body)
        for answer, answer_flags, contents in _answers(sock):
            complete &= not answer_flags & _INTERRUPTED
            if answer == _ERROR and (error := -struct.unpack_from("=i", contents)[0]):
                raise OSError(error, os.strerror(error))
            if answer in (_ERROR, _DONE):
                break
            messages.append(contents)
            if not flags:
                break
    return messages if complete else ask(kind, body, flags)  # objects changed during the dump
