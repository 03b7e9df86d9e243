"""One UDP probe with a given TTL and size, and the ICMP error that answers it.

Owns a plain UDP socket. The kernel puts ICMP errors about our probes, with their time of arrival,
into the socket's error queue (IP_RECVERR, IPV6_RECVERR), so no privilege is needed.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from enum import Enum

from careful.closing import Closing
from careful.errors import CarefulError

# Linux's numbers that Python's socket module lacks.
_PMTUDISC_PROBE = 3  # never fragment; send up to the interface's MTU
_SO_TIMESTAMPNS = 35
_EXTENDED_ERR = struct.Struct("=IBBBxII")  # struct sock_extended_err
_TIMESPEC = struct.Struct("@qq")


@dataclass(frozen=True)
class Family:
    """The differences between IPv4 and IPv6.

    `level`, `mtu_discover`, `recverr`, `mtu`, `hop_limit`: socket options; `origin`: an ICMP
    error's origin; `expired`, `unreachable`: its types; `port`: the code of "port unreachable";
    `too_big`: type and code, None for any code; `offender`: the sender's address in an error;
    `headers_bytes`: IP and UDP; `error_headers_bytes`: IP and ICMP, before the quoted packet;
    `least_bytes`: size from which all answers have one size; `limit`: the rate limit's sysctl.
    """

    family: socket.AddressFamily
    level: int
    mtu_discover: int
    recverr: int
    mtu: int
    hop_limit: int
    origin: int
    expired: int
    unreachable: int
    port: int
    too_big: tuple[int, int | None]
    offender: slice
    headers_bytes: int
    error_headers_bytes: int
    least_bytes: int
    limit: str


_ERR = _EXTENDED_ERR.size
#: RFC 1812: Linux quotes up to 548 bytes in an error; RFC 4443: as much as fits into 1280.
IPV4 = Family(
    *(socket.AF_INET, socket.IPPROTO_IP, 10, 11, 14, socket.IP_TTL, 2, 11, 3, 3, (3, 4)),
    *(slice(_ERR + 4, _ERR + 8), 28, 28, 600, "net.ipv4.icmp_ratelimit"),
)
IPV6 = Family(
    *(socket.AF_INET6, socket.IPPROTO_IPV6, 23, 25, 24, socket.IPV6_UNICAST_HOPS, 3, 3, 1, 4),
    *((2, None), slice(_ERR + 8, _ERR + 24), 48, 48, 1280, "net.ipv6.icmp.ratelimit"),
)

#: The smallest and the largest probe, as IP packets.
SIZE_MIN_BYTES = IPV4.headers_bytes + 4
SIZE_MAX_BYTES = 65535
#: The ports of traceroute; no program should listen on them.
_PORT, _PORTS = 33434, 600
#: Errors of sendto() that report a pending ICMP error.
_PENDING = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPROTO, errno.EACCES}


class Answer(Enum):
    """The result of a probe."""

    EXPIRED = "time exceeded"  # from a router
    REACHED = "port unreachable"  # from the target
    REFUSED = "unreachable"  # the path ends here
    TOO_BIG = "fragmentation needed"
    SILENT = "no answer"


@dataclass(frozen=True)
class Reply:
    """An answer, or its absence.

    rtt_us: from before the send until the kernel receives the answer; reply_bytes: the ICMP error
    as an IP packet; own_us: this host's time to send; mtu_bytes: with TOO_BIG, the size that fits;
    code: with REFUSED, ICMP's code.
    """

    answer: Answer
    address: str = ""
    rtt_us: float = 0.0
    reply_bytes: int = 0
    own_us: float = 0.0
    mtu_bytes: int = 0
    code: int = 0


class Prober(Closing):
    """Sends probes to one host and receives the answers, one at a time."""

    def __init__(self, ip: str, scope: int = 0) -> None:
        self.ip, self.family = ip, IPV6 if ":" in ip else IPV4
        self._scope = scope
        self._seq = int.from_bytes(os.urandom(2), "big")
        self._own_ns = 0
        self._socket = socket.socket(self.family.family, socket.SOCK_DGRAM)
        for level, option, value in (
            (self.family.level, self.family.recverr, 1),
            (self.family.level, self.family.mtu_discover, _PMTUDISC_PROBE),
            (socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1),
            (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18),
        ):
            self._socket.setsockopt(level, option, value)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLERR)

    def close(self) -> None:
        self._socket.close()

    def interface_mtu_bytes(self) -> int:
        """Returns the MTU of the route; CarefulError if there is no route."""
        with socket.socket(self.family.family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect(self._to(_PORT))
                return sock.getsockopt(self.family.level, self.family.mtu)
            except OSError as error:
                raise self._error(error) from None

    def _to(self, port: int) -> tuple[str | int, ...]:
        return (self.ip, port, 0, self._scope) if self.family is IPV6 else (self.ip, port)

    def probe(self, ttl: int, size_bytes: int, timeout_s: float) -> Reply:
        """Sends an IP packet of a size and waits for the answer.

        Raises CarefulError if the probe cannot be sent: no route, not permitted.
        """
        self._seq = (self._seq + 1) % (1 << 31)
        port = _PORT + self._seq % _PORTS
        payload = struct.pack("!I", self._seq).ljust(size_bytes - self.family.headers_bytes, b"\0")
        self._socket.setsockopt(self.family.level, self.family.hop_limit, ttl)
        self._drain()
        sent = self._send(payload, port)
        if sent is None:
            return Reply(Answer.TOO_BIG, mtu_bytes=self.interface_mtu_bytes())
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if not self._poll.poll(left_s * 1e3):
                break
            while (reply := self._take(port, sent)) is not None:
                if reply is not _OTHERS:
                    return reply
        return Reply(Answer.SILENT)

    def _send(self, payload: bytes, port: int) -> tuple[int, int] | None:
        """Returns wall and monotonic time before the send, ns; None if the packet is too big.

        A late answer makes the next send fail once (ip(7), IP_RECVERR). The kernel queues the
        answer and then marks the socket, so the queue may be empty when the send fails.
        """
        unexplained = 0
        for attempt in range(8):
            now = time.time_ns(), time.monotonic_ns()
            try:
                self._socket.sendto(payload, self._to(port))
                self._own_ns = time.monotonic_ns() - now[1]
                return now
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    self._drain()
                    return None
                unexplained += not self._drain()
                if error.errno not in _PENDING or attempt == 7 or unexplained > 1:
                    raise self._error(error) from None
        return None

    def _drain(self) -> int:
        count = 0
        while self._take(-1, (0, 0)) is not None:
            count += 1
        return count

    def _take(self, port: int, sent: tuple[int, int]) -> Reply | None:
        """Returns the next error in the queue; None: no error, _OTHERS: another probe's error."""
        try:
            data, ancillary, _, about = self._socket.recvmsg(
                2048, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return None
        took_ns = time.monotonic_ns() - sent[1]
        reply = _OTHERS
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, ns = _TIMESPEC.unpack_from(raw)
                by_stamp_ns = seconds * 1_000_000_000 + ns - sent[0]
                if 0 < by_stamp_ns < took_ns:  # otherwise the wall clock was set
                    took_ns = by_stamp_ns
            elif (level, kind) == (self.family.level, self.family.recverr) and about[1] == port:
                reply = self._read(raw)
        if reply is not _OTHERS and len(data) >= 4:
            (seq,) = struct.unpack_from("!I", data)
            if seq != self._seq:
                return _OTHERS
        if reply is _OTHERS:
            return reply
        return Reply(
            reply.answer,
            reply.address,
            took_ns / 1e3,
            self.family.error_headers_bytes + self.family.headers_bytes + len(data),
            self._own_ns / 1e3,
            reply.mtu_bytes,
            reply.code,
        )

    def _read(self, raw: bytes) -> Reply:
        _, origin, kind, code, info, _ = _EXTENDED_ERR.unpack_from(raw)
        if origin != self.family.origin:
            return _OTHERS
        address = socket.inet_ntop(self.family.family, raw[self.family.offender])
        if kind == self.family.expired:
            return Reply(Answer.EXPIRED, address)
        if self.family.too_big in ((kind, code), (kind, None)):
            return Reply(Answer.TOO_BIG, address, mtu_bytes=info)
        if kind != self.family.unreachable:
            return _OTHERS
        if code == self.family.port or address == self.ip:  # from the host, by any of its addresses
            return Reply(Answer.REACHED, address)
        return Reply(Answer.REFUSED, address, code=code)

    def _error(self, error: OSError) -> CarefulError:
        number = error.errno or errno.EIO
        if number in (errno.EPERM, errno.EACCES):
            text = "sending probes is not permitted (a firewall's output rule for UDP?)"
            return CarefulError(number, text, self.ip)
        return CarefulError(number, "", self.ip)


_OTHERS = Reply(Answer.SILENT, "?")
