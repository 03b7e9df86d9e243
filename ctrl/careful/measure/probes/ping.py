"""Pings through carefuld: frames that end at a hop, or at a stage inside the peer."""

from __future__ import annotations

import errno
import select
import time
from dataclasses import dataclass

from careful._abi import CData, ffi, lib, sizeof
from careful.address import Address
from careful.daemon.client import Answer as IpcAnswer
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes.diagnose import OVER
from careful.measure.probes.session import Session
from careful.measure.probes.udp import IPV4, IPV6, Answer, Reply

#: Extra time to wait for carefuld, seconds.
_PATIENCE_S = 5.0
#: careful's header, bytes; with the headers of IP and UDP the smallest probe.
_HEADER_BYTES = 48


@dataclass(frozen=True)
class PingReply:
    """The result of a probe; times in µs, by the peer's clock for the peer's stages.

    `status`: 0 or -errno; `stage`: the stage at which the probe ended; `address`: the answering
    host; `icmp`: type, code and info; `answer_bytes`: size of the answer's IP packet; `host_tx_us`:
    payload into UMEM; `net_tx_us`: the kick, 0 if it was repeated; `path_us`: from the start of the
    kick to the answer, without the peer's turn-around; `one_way_us`: until XDP's stamp, useful only
    if both ends share a clock; `host_rx_us`, `store_us`: XDP to engine to file; `cpus`: CPUs of our
    engine, the peer's XDP and its engine.
    """

    status: int
    stage: int = 0
    address: str = ""
    icmp: tuple[int, int, int] = (0, 0, 0)
    answer_bytes: int = 0
    host_tx_us: float = 0.0
    net_tx_us: float = 0.0
    path_us: float = 0.0
    one_way_us: float = 0.0
    host_rx_us: float = 0.0
    store_us: float = 0.0
    scratch: int = 0
    store_inline: bool = False
    cpus: tuple[int, int, int] = (0, 0, 0)


class PingSession(Session):
    """Pings to one peer.

    kick_runs_all: as on veth, our kick also runs the link and the peer's netRx. The kick is then
    part of the path to a host that is the first hop.

    Raises CarefulError: careful is not up on both hosts, or no ping is answered.
    """

    def __init__(self, route: Route, kick_runs_all: bool) -> None:
        self._kick_runs_all = kick_runs_all
        self.family = IPV6 if ":" in route.address.ip else IPV4
        self._least_bytes = self.family.headers_bytes + _HEADER_BYTES
        super().__init__(route)

    def _prepare(self) -> None:
        self.mtu_bytes = self._find_mtu()
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        for _ in range(3):
            reply = self.ask(lib.CAREFUL_STAGE_NET_RX, self._least_bytes, 1.0)
            if reply.status == 0:
                return
        self._check(reply.status)

    def _find_mtu(self) -> int:
        """Finds the largest probe by trial: the buffers at both ends limit it."""
        low, high = self._least_bytes, 65535
        while low < high:
            middle = (low + high + 1) // 2
            reply = self.ask(lib.CAREFUL_STAGE_NET_RX, middle, 0.001, ttl=1)
            if reply.status == -errno.EMSGSIZE:
                high = middle - 1
            else:
                low = middle
        return low

    def ask(self, stage: int, size_bytes: int, timeout_s: float, ttl: int = 0) -> PingReply:
        """Sends one probe that ends at a stage or, for NET_RX, where its TTL expires.

        ttl: 0: the default. Raises CarefulError if the probe cannot be sent. The reply reports a
        missing answer, or a size that does not fit.
        """

        def send() -> PingReply:
            reply = self._ask(stage, size_bytes, timeout_s, ttl)
            if -reply.status in OVER:
                self._check(reply.status)
            return reply

        return self._repeated(send)

    def _ask(self, stage: int, size_bytes: int, timeout_s: float, ttl: int) -> PingReply:
        answers: list[IpcAnswer] = []
        self._client.submit(
            lib.CAREFUL_IPC_PING,
            answers.append,
            peer=self._peer,
            args=[stage, ttl, max(1, round(timeout_s * 1000)), 0],
            bytes=size_bytes,
        )
        poller = select.poll()
        poller.register(self._client.fileno(), select.POLLIN)
        deadline = time.monotonic() + timeout_s + _PATIENCE_S
        while not answers:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poller.poll(left_s * 1e3):
                text = "the path is busy: other transfers use all credits"
                raise CarefulError(errno.ETIMEDOUT, text, self.host)
            self._client.receive()
        (answer,) = answers
        if len(answer.payload) != sizeof("careful_ping_result"):
            if answer.status != -errno.EMSGSIZE:
                self._check(answer.status)
            return PingReply(answer.status)
        return _reply(answer.status, answer.payload)

    def _check(self, status: int) -> None:
        if status < 0:
            raise self._explained(CarefulError(-status, "", self.host), 0)

    def probe(self, ttl: int, size_bytes: int, timeout_s: float, /) -> Reply:
        """Sends one probe for pathchar: routers answer by ICMP, the host as soon as XDP sees it.

        Raises CarefulError if the probe cannot be sent.
        """
        reply = self.ask(lib.CAREFUL_STAGE_NET_RX, size_bytes, timeout_s, ttl)
        if reply.status == -errno.EMSGSIZE:
            return Reply(Answer.TOO_BIG, mtu_bytes=self.mtu_bytes)
        if reply.status == -errno.ETIMEDOUT or (reply.status == 0 and reply.path_us <= 0):
            return Reply(Answer.SILENT)  # or a clock was set
        if reply.status != -errno.EHOSTUNREACH:
            self._check(reply.status)
        kind, code, info = reply.icmp
        answer, mtu_bytes = Answer.REACHED, 0
        if kind == self.family.expired:
            answer = Answer.EXPIRED
        elif self.family.too_big in ((kind, code), (kind, None)):
            answer, mtu_bytes = Answer.TOO_BIG, info
        elif kind:
            answer = Answer.REFUSED
        direct = ttl == 1 and answer is Answer.REACHED
        return Reply(
            answer,
            reply.address,
            reply.path_us,
            reply.answer_bytes,
            0.0 if direct and self._kick_runs_all else reply.net_tx_us,
            mtu_bytes,
            code,
        )


def _reply(status: int, payload: bytes) -> PingReply:
    result: CData = ffi.new("struct careful_ping_result *")
    ffi.memmove(result, payload, len(payload))
    known = bool(result.answer_bytes)
    raw = bytes(ffi.buffer(ffi.addressof(result, "by")))
    return PingReply(
        status=status,
        stage=result.stage,
        address=Address.from_sockaddr(raw).ip if known else "",
        icmp=(result.icmp_type, result.icmp_code, result.icmp_info),
        answer_bytes=result.answer_bytes,
        host_tx_us=result.host_tx_ns / 1e3,
        net_tx_us=result.net_tx_ns / 1e3,
        path_us=(result.round_trip_ns - result.turn_ns) / 1e3,
        one_way_us=(result.arrived_ns - result.sent_ns) / 1e3,
        host_rx_us=result.host_rx_ns / 1e3,
        store_us=result.store_ns / 1e3,
        scratch=result.scratch,
        store_inline=bool(result.store_inline),
        cpus=(result.tx_cpu, result.net_cpu, result.host_cpu),
    )
