"""Round trips and trains through careful itself: the probe service, by way of carefuld.

Owns the session with the other end for the time of a measurement. What the figures mean is
blackbox.py's.
"""

from __future__ import annotations

import errno
import select
import time
from pathlib import Path
from typing import Any

from careful._abi import lib
from careful.address import Address
from careful.errors import CarefulError
from careful.transfer.ipc import Answer, Client

#: Longer than carefuld itself waits for a silent peer.
_TIMEOUT_S = 40.0


class ProbeSession:
    """Probes to one peer.

    Args:
        socket: of our own carefuld.
        instance: what errors call it.
        address: of the peer.
        host: what errors call it.
        timeout_s: for the handshake, seconds.

    Raises:
        CarefulError: careful is not up here or there, or it is too old to answer probes.
    """

    def __init__(
        self, socket: Path, instance: str, address: Address, host: str, timeout_s: float = 5.0
    ) -> None:
        self.host = host
        self._client = Client(socket, f"carefuld of {instance}")
        try:
            answer = self._client.call(
                lib.CAREFUL_IPC_CONNECT,
                host,
                payload=address.sockaddr(),
                bytes=int(timeout_s * 1000),
                timeout_s=timeout_s + 1,
            )
            self._peer = answer.peer
            self._ask([b""])
            self.credits, self.payload_max_bytes = self._limits(address)
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> ProbeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _limits(self, address: Address) -> tuple[int, int]:
        """Credits towards the peer, and the most payload that it takes in one frame."""
        info = peer_info(self._client, address, self.host)
        return int(info.credits_window), self._payload_max(int(info.frame_bytes))

    def _payload_max(self, frame_bytes: int) -> int:
        """Found by asking: headers differ by address family, and buffers bound it, too."""
        low, high = 0, frame_bytes
        while low < high:
            middle = (low + high + 1) // 2
            try:
                self._ask([bytes(middle)])
                low = middle
            except CarefulError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                high = middle - 1
        return low

    def _ask(self, payloads: list[bytes]) -> tuple[list[Answer], float]:
        """One request of each payload, back to back; answers, and µs to hand one over."""
        answers: list[Answer] = []
        began = time.monotonic_ns()
        for payload in payloads:
            self._client.submit(
                lib.CAREFUL_IPC_REQUEST,
                answers.append,
                payload,
                peer=self._peer,
                handler=lib.CAREFUL_PROBE,
            )
        own_us = (time.monotonic_ns() - began) / 1e3 / len(payloads)
        poller = select.poll()
        poller.register(self._client.fileno(), select.POLLIN)
        deadline = time.monotonic() + _TIMEOUT_S
        while len(answers) < len(payloads):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poller.poll(left_s * 1e3):
                raise CarefulError(errno.ETIMEDOUT, "", self.host)
            self._client.receive()
        for answer in answers:
            if answer.status == -errno.ENOSYS:
                text = "its careful answers no probes: it is older than this one"
                raise CarefulError(errno.ENOSYS, text, self.host)
            answer.check(self.host)
        return answers, own_us

    def round_trip_us(self, size_bytes: int) -> float:
        """From handing a message over to its empty answer, µs."""
        payload = bytes(size_bytes)
        began = time.monotonic_ns()
        self._ask([payload])
        return (time.monotonic_ns() - began) / 1e3

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        """Arrivals of a train by the peer's clock, µs, and our own pace, µs a frame."""
        answers, own_us = self._ask([bytes(size_bytes)] * count)
        stamps = sorted((answer.args[0] << 32 | answer.args[1]) for answer in answers)
        return [(stamp - stamps[0]) / 1e3 for stamp in stamps], own_us


def peer_info(client: Client, address: Address, host: str) -> Any:
    """The `struct careful_peer_info` of a connected peer; CarefulError where it has gone."""
    for info in client.peers():
        if _is(info, address):
            return info
    raise CarefulError(errno.ENOTCONN, "its session ended", host)


def _is(info: object, address: Address) -> bool:
    """Whether a peer's struct is that of an address."""
    from careful._abi import ffi

    raw = bytes(ffi.buffer(ffi.addressof(info, "address")))
    return Address.from_sockaddr(raw).ip == address.ip
