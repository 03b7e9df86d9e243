"""Signatures of TCP and UDP, to compare with careful's (P4 Figures 6 and 11): 64 bytes both ways.

Owns the C program careful-tcp, which issues requests (`ask`) and answers them (`serve`); Python is
too slow for a loop of microseconds.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from collections.abc import Sequence
from typing import NoReturn

from careful import child
from careful._abi import ffi
from careful.address import Address
from careful.closing import Closing
from careful.errors import CarefulError
from careful.measure.probes.bursts import parse
from careful.measure.statistics.sample import Bursts

_LENGTH = struct.Struct("=i")
#: Words in the error if no program answers.
_NOBODY = {"refused", "timed"}


def serve(port: int) -> NoReturn:
    """Becomes the program that answers on a port, over TCP and UDP, until it is killed."""
    os.execv(child.program("careful-tcp"), ["careful-tcp", "serve", str(port)])


class SocketLayer(Closing):
    """Requests over one connection, or as datagrams; a lost datagram fails its burst.

    Args:
        port: port of `carefulctl measure echo` on the host.
        capacity: most requests under way, as in the compared layer.
        name: "TCP" or "UDP".
        reply_bytes: size of each answer over TCP; 0: 64, like a request.

    Raises CarefulError: no program answers on that port.
    """

    def __init__(
        self, address: Address, port: int, capacity: int, name: str = "TCP", reply_bytes: int = 0
    ) -> None:
        self.name, self.capacity, self._reply_bytes = name, capacity, reply_bytes
        self._host = f"{address}, {name} port {port}"
        argv = [child.program("careful-tcp"), "ask", address.ip, str(port)]
        self._process = subprocess.Popen(
            [*argv, *(["udp"] if name == "UDP" else [])],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            if self._read(_LENGTH.size) != _LENGTH.pack(0):
                raise self._ended()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        child.end(self._process)

    def _ended(self) -> CarefulError:
        assert self._process.stderr
        errors = self._process.stderr.read().decode(errors="replace").strip()
        text = errors.removeprefix("careful-tcp: ") or "careful-tcp ended"
        hint = (
            "; is `carefulctl measure echo`, or `speed --serve`, running there?"
            if _NOBODY & set(text.split())
            else ""
        )
        return CarefulError(errno.ECONNREFUSED, text + hint, self._host)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise self._ended()
        return data

    def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        question = ffi.new(
            "struct careful_signature *",
            {
                "bursts": count,
                "bytes": self._reply_bytes,
                "capacity": self.capacity,
                "compute_ns": round(compute_us * 1000),
                "marks_count": len(marks),
                "marks": list(marks),
            },
        )
        assert self._process.stdin
        try:
            self._process.stdin.write(bytes(ffi.buffer(question)))
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length < 0:
            raise CarefulError(-length, os.strerror(-length), self._host)
        return parse(self._read(length), marks)
