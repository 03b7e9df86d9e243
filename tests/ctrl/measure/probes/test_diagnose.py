"""A peer no longer answers probes: the error, its delay, and the figures that are kept."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi, lib
from careful.address import Address, resolve
from careful.daemon.client import Answer as IpcAnswer
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes import diagnose, exchange, ping, session
from careful.measure.probes.bursts import Session as Signatures
from careful.measure.probes.udp import Answer, Reply

PEER = resolve("10.0.3.1")
OWN = "carefuld of eth1"


def explained(number: int, size_bytes: int = 64, what: str = "h2", mtu: int = 0) -> CarefulError:
    def smaller(address: Address, size: int) -> tuple[int, str]:
        return (mtu, "10.0.2.1") if mtu else (0, "")

    error = CarefulError(number, "", what)
    return diagnose.explained(error, OWN, "h2", PEER, size_bytes, smaller)


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ENOTCONN])
def test_explained__a_session_that_ended(number: int) -> None:
    """The error is neither "may have run" nor "endpoint is not connected"."""
    said = explained(number)
    assert said.errno == number
    assert str(said).startswith("h2: its careful ended or restarted: if it is up there")


def test_explained__silence_is_always_the_peers() -> None:
    for what in ("h2", OWN):
        assert str(explained(errno.ETIMEDOUT, what=what)).startswith("h2: no longer answers")


def test_explained__clear_errors_stay() -> None:
    ours = CarefulError(errno.ENOTCONN, "carefuld ended; its log says why", OWN)
    assert diagnose.explained(ours, OWN, "h2", PEER, 64) is ours
    busy = CarefulError(errno.EBUSY, "", "h2")
    assert diagnose.explained(busy, OWN, "h2", PEER, 9000) is busy


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT])
def test_explained__a_smaller_mtu_on_the_way_is_named(number: int) -> None:
    said = explained(number, size_bytes=3700, mtu=1500)
    assert said.errno == errno.EHOSTUNREACH  # EMSGSIZE would blame the interface
    assert "frames of 3700 bytes do not arrive: the MTU on the way is 1500" in str(said)
    assert "10.0.2.1" in str(said)
    assert explained(number, size_bytes=64, mtu=1500).errno == number  # nor looked for
    assert explained(number, size_bytes=3700).errno == number


class FakeProber:
    """Routers that name an MTU, or do not."""

    reply = Reply(Answer.SILENT)

    def __init__(self, ip: str, scope: int) -> None:
        self.ip = ip

    def __enter__(self) -> FakeProber:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    mtu_bytes = 3826

    def interface_mtu_bytes(self) -> int:
        return self.mtu_bytes

    def probe(self, ttl: int, size_bytes: int, timeout_s: float) -> Reply:
        assert size_bytes == 3826
        return self.reply


def test_narrower__names_the_source_of_the_mtu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "Prober", FakeProber)
    assert diagnose.narrower(PEER, 3700) == (0, "")
    reply = Reply(Answer.TOO_BIG, "10.0.2.1", mtu_bytes=1500)
    monkeypatch.setattr(FakeProber, "reply", reply)
    assert diagnose.narrower(PEER, 3700) == (1500, "10.0.2.1")
    monkeypatch.setattr(FakeProber, "mtu_bytes", 1400)  # the kernel knows already
    assert diagnose.narrower(PEER, 3700) == (1400, "the route there")
    assert diagnose.narrower(Address(socket.AF_INET6, "fd77::2"), 3700) == (1400, "the route there")


# --- what asks


class FakeClient:
    """A carefuld with a peer: fail(question) may raise; records the timeouts."""

    def __init__(self, fail: Callable[[dict[str, Any]], None]) -> None:
        self.fail, self.waits_s = fail, list[float]()

    def __call__(self, path: Path, name: str) -> FakeClient:
        self.name = name
        return self

    def close(self) -> None:
        pass

    def peers(self) -> list[Any]:
        info = ffi.new("struct careful_peer_info *", {"credits_window": 64, "frame_bytes": 3774})
        raw = PEER.sockaddr()
        ffi.memmove(ffi.addressof(info, "address"), raw, len(raw))
        return [info]

    def connect(self, address: Address, host: str, timeout_s: float) -> IpcAnswer:
        return self.call(lib.CAREFUL_IPC_CONNECT, host)

    def call(self, op: int, what: str, **fields: Any) -> IpcAnswer:
        payload = b""
        if op == lib.CAREFUL_IPC_MEASURE:
            self.waits_s.append(fields["timeout_s"])
            self.fail(fields)
            if fields["bytes"] > 3700:
                raise CarefulError(errno.EMSGSIZE, "", what)
            payload = bytes(ffi.sizeof("struct careful_ipc_probe") * fields["args"][0])
        return IpcAnswer(0, 0, 0, 0, 0, (0, 0, 0, 0), payload)


def probes(fail: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch) -> Any:
    client = FakeClient(fail)
    monkeypatch.setattr(session, "Client", client)
    return client, lambda: exchange.ProbeSession(Route(Path("/none"), "eth1", PEER, "h2", 0.2))


def test_probes__wait_little_longer_than_earlier_answers_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, begin = probes(lambda _: None, monkeypatch)
    one = begin()
    assert one.payload_max_bytes == 3700
    one.train_us(3700, 32)
    assert max(client.waits_s) < exchange.SILENT_S + 1


def test_probes__large_frames_that_vanish_name_the_mtu(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fields: dict[str, Any]) -> None:
        if fields["bytes"] > 1400:
            raise CarefulError(errno.ETIMEDOUT, "carefuld does not answer", OWN)

    monkeypatch.setattr(diagnose, "Prober", FakeProber)
    reply = Reply(Answer.TOO_BIG, "10.0.2.1", mtu_bytes=1500)
    monkeypatch.setattr(FakeProber, "reply", reply)
    _, begin = probes(fail, monkeypatch)
    with pytest.raises(CarefulError, match="the MTU on the way is 1500"):
        begin()


def test_probes__a_peer_that_was_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[int] = []

    def fail(_: dict[str, Any]) -> None:
        if broken:
            raise CarefulError(broken[0], "", "h2")

    monkeypatch.setattr(diagnose, "Prober", FakeProber)
    _, begin = probes(fail, monkeypatch)
    one = begin()
    for number in (errno.ECONNRESET, errno.ENOTCONN):
        broken[:] = [number]
        with pytest.raises(CarefulError, match="its careful ended or restarted") as said:
            one.round_trips(64, 1)
        assert said.value.what == "h2"


@pytest.mark.parametrize("at", ["its begin", "a question"])
def test_probes__a_peer_that_restarted_is_connected_again(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [errno.ECONNRESET] if at == "its begin" else []

    def fail(_: dict[str, Any]) -> None:
        if broken:
            raise CarefulError(broken.pop(), "", "h2")

    _, begin = probes(fail, monkeypatch)
    one = begin()
    broken += [errno.ENOTCONN] * (at == "a question")
    assert len(one.round_trips(64, 2)) == 2
    assert one.restarts == (at == "a question")
    assert not broken


def test_pings__a_peer_that_was_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    one = object.__new__(ping.PingSession)
    one.host, one._address, one._own, one._kick_runs_all = "h2", PEER, OWN, False
    for number in (errno.ECONNRESET, errno.ENOTCONN):
        reply = ping.PingReply(-number)
        monkeypatch.setattr(one, "ask", lambda *_, reply=reply: reply)
        with pytest.raises(CarefulError, match="h2: its careful ended or restarted"):
            one.probe(1, 600, 1.0)
        with pytest.raises(CarefulError, match="h2: its careful ended or restarted"):
            one._check(-number)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ETIMEDOUT, "h2: no longer answers"),
        (errno.ECONNRESET, "h2: its careful ended or restarted"),
    ],
)
def test_pings__the_first_pings_are_not_answered(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error once said that the other careful is older."""
    one = object.__new__(ping.PingSession)
    one.host, one._address, one._own, one._least_bytes = "h2", PEER, OWN, 600
    monkeypatch.setattr(one, "ask", lambda *_: ping.PingReply(-number))
    with pytest.raises(CarefulError, match=said):
        one._wait_for_answer()


def test_signatures__a_peer_that_was_taken_down() -> None:
    one = object.__new__(Signatures)
    one.host, one._address, one.frame_bytes = "h2", PEER, 3774
    one._own = OWN
    over = one._explain(CarefulError(errno.ECONNRESET, "", "h2"), 8, 0)
    assert "its careful ended or restarted" in str(over)
    slow = one._explain(CarefulError(errno.ETIMEDOUT, "", "h2"), 8, 0)
    assert "8 messages took over" in str(slow)


def test_signatures__a_slow_path_has_no_smaller_mtu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of 3840 bytes, Ethernet's header included, once had "an MTU of 3826 on the way"."""
    one = object.__new__(Signatures)
    one.host, one._address, one.frame_bytes = "h2", PEER, 3840
    one._own = OWN

    def narrower(_: Address, size: int) -> tuple[int, str]:
        return (3826, "the route there") if size > 3826 else (0, "")

    monkeypatch.setattr(diagnose, "narrower", narrower)
    slow = one._explain(CarefulError(errno.ETIMEDOUT, "", "h2"), 1, 1 << 20)
    assert "1 messages took over" in str(slow)
