"""Round trips and trains through careful itself: the probe service of carefuld."""

from __future__ import annotations

import errno
import struct
import time
from dataclasses import dataclass

from careful._abi import CData, ffi, lib
from careful.address import Address
from careful.daemon.client import Answer, Client
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes.session import Session
from careful.measure.statistics.line import train_gap_us
from careful.measure.statistics.oneway import Trip

#: Longest wait for an answer, seconds, plus _TIMES the longest time of an answered message.
SILENT_S = 5.0
_TIMES = 4
#: Number of retries, and the pause before each, while another host measures the peer.
_TRIES, _PAUSE_S = 100, 0.05
NO_DAEMON = "a program that owns its queue answers no measurements, nor does an older careful"
#: Errors if either end is not a carefuld of this version.
_OLD = {
    errno.ENOSYS: NO_DAEMON,
    errno.EPROTO: "its careful is older than this one, and does not answer trains",
    errno.EOPNOTSUPP: "our carefuld is older than this command: take careful down and up again",
}


#: struct careful_arrival in network byte order (abi.h).
_ARRIVAL = struct.Struct(">QII")


@dataclass(frozen=True)
class Arrival:
    """A frame's arrival at the peer's XDP.

    at_us: by the peer's clock; nbytes: the frame's bytes behind its header; others: frames of other
    hosts arrived since the arrival before.
    """

    at_us: float
    nbytes: int
    others: bool


class ProbeSession(Session):
    """Probes to one peer: round trips and trains.

    `payload_max_bytes`: payload of a frame, from an earlier session; 0: found by trial.
    """

    def __init__(self, route: Route, payload_max_bytes: int = 0) -> None:
        self.payload_max_bytes = payload_max_bytes
        super().__init__(route)

    def _prepare(self) -> None:
        self._longest_s = 0.0  # longest time of a message
        self._taken = 0  # arrivals that were read
        self.round_trips(0, 1)
        info = peer_info(self._client, self._address, self.host)
        self.credits = int(info.credits_window)
        # If frames are smaller by now, the first message of that size is refused.
        self.payload_max_bytes = self.payload_max_bytes or self._payload_max(int(info.frame_bytes))
        # One frame returns all arrivals. A train of half a window needs no credit updates.
        stamps_max = min(self.payload_max_bytes // 8, lib.CAREFUL_PROBE_FRAMES)
        self.train_max = min(self.credits // 2, stamps_max)

    def _payload_max(self, frame_bytes: int) -> int:
        """Finds the payload by trial: it depends on the address family and on buffers."""
        low, high = 0, frame_bytes
        while low < high:
            middle = (low + high + 1) // 2
            try:
                self.round_trips(middle, 1)
                low = middle
            except CarefulError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                high = middle - 1
        return low

    def round_trips(self, size_bytes: int, count: int) -> list[Trip]:
        trips: list[Trip] = []
        while len(trips) < count:
            batch = min(count - len(trips), lib.CAREFUL_PROBE_FRAMES)
            trips += [
                Trip(sent / 1e3, (arrived - sent) / 1e3, (back - sent) / 1e3)
                for sent, arrived, back in self._measure(size_bytes, batch, 0)
            ]
        return trips

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        """Returns a train's arrivals by the peer's clock, µs, and our own pace, µs a frame."""
        probes = self._measure(size_bytes, count, lib.CAREFUL_IPC_TRAIN)
        sent, arrived, _ = zip(*probes, strict=True)
        own_us = train_gap_us([(stamp - sent[0]) / 1e3 for stamp in sent])
        return [(stamp - arrived[0]) / 1e3 for stamp in arrived], own_us

    def record(self) -> None:
        """Lets the peer record the arrivals of all our frames, of any program.

        Raises CarefulError, with ENOSYS from an older careful, and EBUSY if the peer records
        another host.
        """
        self._taken = self._arrivals(0).args[0]

    def arrivals(self) -> list[Arrival]:
        """Returns the arrivals since the last call, or since record(); the peer keeps some 250.

        Raises CarefulError, with ENOENT if the session began anew.
        """
        recorded: list[Arrival] = []
        count = None
        while count is None or self._taken < count:
            answer = self._arrivals(1 + self._taken)
            count = answer.args[0] if count is None else count  # the questions arrive, too
            batch = [
                Arrival(at_ns / 1e3, nbytes, others > 0)
                for at_ns, nbytes, others in _ARRIVAL.iter_unpack(answer.payload)
            ]
            if answer.args[1] > self._taken:
                recorded.clear()  # some are missing
            self._taken = answer.args[1] + len(batch)
            recorded += batch
            if not batch:
                break
        return recorded

    def _arrivals(self, first: int) -> Answer:
        try:
            return self._client.call(
                lib.CAREFUL_IPC_REQUEST,
                self.host,
                timeout_s=SILENT_S + _TIMES * self._longest_s,
                peer=self._peer,
                handler=lib.CAREFUL_ARRIVALS,
                args=[first, 0, 0, 0],
            )
        except CarefulError as error:
            if error.errno in (errno.ENOSYS, errno.EBUSY, errno.ENOENT):
                raise
            raise self._explained(error, 0) from None

    def _measure(self, size_bytes: int, count: int, flags: int) -> list[tuple[int, int, int]]:
        """Returns each probe's times, ns: sent (our clock), arrived (the peer's), back (ours)."""
        began = time.monotonic()
        payload = self._repeated(lambda: self._call(size_bytes, count, flags)).payload
        self._longest_s = max(self._longest_s, (time.monotonic() - began) / count)
        probes = ffi.from_buffer("struct careful_ipc_probe[]", payload)
        return [(probe.sent_ns, probe.arrived_ns, probe.back_ns) for probe in probes]

    def _call(self, size_bytes: int, count: int, flags: int) -> Answer:
        for _ in range(_TRIES):
            try:
                return self._client.call(
                    lib.CAREFUL_IPC_MEASURE,
                    self.host,
                    timeout_s=SILENT_S + _TIMES * count * self._longest_s,
                    peer=self._peer,
                    bytes=size_bytes,
                    flags=flags,
                    args=[count, 0, 0, 0],
                )
            except CarefulError as error:
                if error.errno in _OLD:
                    raise CarefulError(error.errno, _OLD[error.errno], self.host) from None
                if error.errno == errno.EMSGSIZE:
                    most = self.payload_max_bytes or "fewer"
                    text = f"{size_bytes} bytes: a frame to it carries {most}"
                    raise CarefulError(error.errno, text, self.host) from None
                if error.errno != errno.EAGAIN:
                    raise self._explained(error, size_bytes) from None
            time.sleep(_PAUSE_S)
        raise CarefulError(errno.EBUSY, "is being measured by other hosts: try later", self.host)


def peer_info(client: Client, address: Address, host: str) -> CData:
    """Returns the `struct careful_peer_info` of a peer; CarefulError without a session."""
    for info in client.peers():
        if _has_address(info, address):
            return info
    raise CarefulError(errno.ENOTCONN, "its session ended", host)


def _has_address(info: object, address: Address) -> bool:
    raw = bytes(ffi.buffer(ffi.addressof(info, "address")))
    return Address.from_sockaddr(raw).ip == address.ip
