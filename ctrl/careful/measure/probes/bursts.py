"""Bursts through careful itself: carefuld issues them, like a program that owns the queue."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import numpy as np

from careful._abi import ffi, lib, sizeof
from careful.daemon.route import Route
from careful.errors import CarefulError, InputError
from careful.measure.probes import session
from careful.measure.probes.exchange import NO_DAEMON, peer_info
from careful.measure.statistics.sample import Bursts

#: Message kinds by name: a small request, or a bulk transfer.
KINDS = {
    "request": lib.CAREFUL_IPC_REQUEST,
    "store": lib.CAREFUL_IPC_STORE,
    "get": lib.CAREFUL_IPC_GET,
}
#: A host is silent if the first request has no answer after this time, seconds.
_SILENT_S = 3.0
#: Longer than carefuld's limit for a burst.
_TIMEOUT_S = 2 * lib.CAREFUL_BURST_MS / 1000
#: Least headers of a frame: Ethernet, IPv4 and UDP, bytes.
_HEADERS_BYTES = 42
_BURST = np.dtype([("began", "u8"), ("done", "u8"), ("arrived", "u8")])


class Session(session.Session):
    """A session for signatures to one peer, or to several in turn, through one carefuld.

    Raises CarefulError: careful is not up on both hosts, or too old for signatures.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        if not 1 <= len(routes) <= lib.CAREFUL_SIGNATURE_PEERS:
            raise InputError(f"{len(routes)} hosts: must be 1 to {lib.CAREFUL_SIGNATURE_PEERS}")
        super().__init__(*routes)

    def _prepare(self) -> None:
        infos = [peer_info(self._client, route.address, route.host) for route in self._routes]
        #: Minima over the peers: credits, and the largest frame.
        self.credits = min(int(info.credits_window) for info in infos)
        self.frame_bytes = min(int(info.frame_bytes) for info in infos)
        self._region, self.region_bytes = self._scratch(self._routes[0].host)

    def _scratch(self, host: str) -> tuple[int, int]:
        try:
            answer = self._client.call(
                lib.CAREFUL_IPC_REQUEST,
                host,
                peer=self._peers[0],
                handler=lib.CAREFUL_SCRATCH,
                timeout_s=_SILENT_S,
            )
        except CarefulError as error:
            if error.errno == errno.ETIMEDOUT:
                raise CarefulError(errno.ETIMEDOUT, "the host does not answer", host) from None
            if error.errno != errno.ENOSYS:
                raise
            raise CarefulError(errno.ENOSYS, NO_DAEMON, host) from None
        return answer.args[0], answer.args[1]

    def capacity(self, size_bytes: int) -> int:
        """Returns how many messages of a size fit in the windows of all peers together."""
        frames = max(1, -(-size_bytes // self.frame_bytes))
        return max(1, (self.credits - 2) // frames) * len(self._peers)

    def layer(self, kind: str = "request", size_bytes: int = 0) -> CarefulLayer:
        if size_bytes > self.region_bytes:
            raise InputError(f"{size_bytes} bytes: the peer's region holds {self.region_bytes}")
        return CarefulLayer(self, kind, size_bytes)

    def ask(
        self,
        layer: CarefulLayer,
        marks: Sequence[int],
        compute_us: float,
        count: int,
        flags: int = 0,
    ) -> Bursts:
        """Makes up to `count` bursts; raises CarefulError if the host is silent."""
        return self._repeated(lambda: self._ask(layer, marks, compute_us, count, flags))

    def _ask(
        self, layer: CarefulLayer, marks: Sequence[int], compute_us: float, count: int, flags: int
    ) -> Bursts:
        question = ffi.new(
            "struct careful_signature *",
            {
                "kind": KINDS[layer.kind],
                "bytes": layer.size_bytes,
                "bursts": count,
                "capacity": layer.capacity,
                "compute_ns": round(compute_us * 1000),
                "flags": flags,
                "peers_count": len(self._peers),
                "peers": self._peers,
                "marks_count": len(marks),
                "marks": list(marks),
            },
        )
        try:
            answer = self._client.call(
                lib.CAREFUL_IPC_SIGNATURE,
                self.host,
                payload=bytes(ffi.buffer(question)),
                region=self._region,
                timeout_s=_TIMEOUT_S,
            )
        except CarefulError as error:
            raise self._explain(error, marks[-1], layer.size_bytes) from None
        return parse(answer.payload, marks)

    def _explain(self, error: CarefulError, messages: int, size_bytes: int) -> CarefulError:
        if error.errno == errno.EOPNOTSUPP:
            text = "our carefuld cannot make signatures: it is older than this command"
            return CarefulError(errno.EOPNOTSUPP, text, self._own)
        if error.errno == errno.EPERM:
            text = "only root can measure signatures: meanwhile carefuld serves no other program"
            return CarefulError(errno.EPERM, text, self._own)
        frame_bytes = min(size_bytes, self.frame_bytes - _HEADERS_BYTES)
        explained = self._explained(error, frame_bytes)
        if explained.errno != errno.ETIMEDOUT:
            return explained
        text = f"{messages} messages took over {lib.CAREFUL_BURST_MS} ms: it is silent or slow"
        return CarefulError(errno.ETIMEDOUT, text, self.host)


class CarefulLayer:
    """One kind and size of message, in the form of logp.Layer."""

    def __init__(self, session: Session, kind: str, size_bytes: int) -> None:
        self.name = f"careful {kind}" + (f" of {size_bytes} bytes" if size_bytes else "")
        self.kind, self.size_bytes = kind, size_bytes
        self.capacity = min(session.capacity(size_bytes), 1024)
        self._session = session

    def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        return self._session.ask(self, marks, compute_us, count)

    def go_on(self, messages: int) -> Bursts:
        """Makes a burst. The next burst takes its last replies, so that the network stays full."""
        flags = lib.CAREFUL_SIGNATURE_GO_ON
        return self._session.ask(self, [messages], 0.0, 1, flags)


def parse(answers: bytes, marks: Sequence[int]) -> Bursts:
    """Parses a signature's answer; CarefulError if carefuld is another build."""
    assert _BURST.itemsize == sizeof("careful_burst")
    kind = np.dtype([("burst", _BURST), ("marks", "u8", (len(marks), 2))])
    if not answers or len(answers) % kind.itemsize:
        raise CarefulError(errno.EPROTO, "carefuld is from another build; restart it")
    answer = np.frombuffer(answers, dtype=kind)
    times = answer["marks"] / 1e3
    burst = answer["burst"]
    arrived = burst["arrived"].astype(np.int64) - burst["began"].astype(np.int64)
    return Bursts(
        np.asarray(marks, dtype=np.float64),
        times[:, :, 0],
        times[:, :, 1],
        burst["done"] / 1e3,
        arrived / 1e3,
    )
