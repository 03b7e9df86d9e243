"""carefulctl capture: frames of a real carefuld, read by scapy."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rogue
from careful._abi import enum_names, lib, pack, sizeof, unpack
from careful.cli.main import run as carefulctl
from careful.cli.measuring import capture as cli
from careful.control.instance import instances
from careful.control.tracing import bpf, capture
from careful.control.tracing.capture import Frame
from careful.errors import CarefulError
from careful.render.tracing import capture as report
from careful.render.tracing import pcapng
from hosts import Host, finish, hosts_up, make_file, wait_for
from keyed import Keyed
from lab import nobody

ROOT = Path(__file__).parents[3]
PORT = int(lib.CAREFUL_PORT_DEFAULT)
HEADERS_BYTES = 14 + 20 + 8
TYPES = enum_names("careful_type", "CAREFUL_")


def read(path: Path) -> list[tuple[bytes, Any]]:
    """Returns scapy's packets of a file."""
    utils = pytest.importorskip("scapy.utils")
    return list(utils.RawPcapNgReader(str(path)))


# --- the file


def test_writer__scapy_reads_it(tmp_path: Path) -> None:
    frames = [
        Frame(1_700_000_000_123_456_789, b"abcde", 5, True),
        Frame(1_700_000_001_000_000_001, b"xy", 9000, False, "drop_cookie"),
    ]
    path = tmp_path / "two.pcapng"
    with path.open("wb") as file:
        writer = pcapng.Writer(file, "eth1")
        for one in frames:
            writer.write(one)
    (first, said), (second, said_too) = read(path)
    assert (first, second) == (b"abcde", b"xy")
    assert said.tsresol == 10**9
    assert (said.tshigh << 32) + said.tslow == frames[0].time_ns
    assert (said.direction, said_too.direction) == (2, 1)
    assert (said.wirelen, said_too.wirelen) == (5, 9000)
    assert said.comments is None
    assert said_too.comments == [b"XDP dropped it (drop_cookie): not the cookie of an open session"]
    assert said.ifname == b"eth1"


def test_comment__for_each_that_xdp_does_not_admit() -> None:
    names = set(enum_names("careful_xdp_counter", "CAREFUL_XDP_").values())
    assert set(pcapng.WHY) | set(pcapng.MEANT) == names - {"admitted", "pass_other", "counters"}
    assert not set(pcapng.WHY) & set(pcapng.MEANT)
    assert pcapng.comment(Frame(0, b"", 0, False, "admitted")) == ""


@pytest.mark.parametrize("data", [b"", bytes(12), bytes(14), bytes(60), b"\0" * 12 + b"\x08\0\x45"])
def test_line__of_anything(data: bytes) -> None:
    assert f"{len(data)} B" in report.line(Frame(0, data, len(data), False, "drop_short"))


@pytest.mark.parametrize(
    ("verdict", "said"), [("drop_check", "no frame"), ("drop_cookie", "of 2021161080")]
)
def test_line__fields_of_a_frame_alone(verdict: str, said: str) -> None:
    """Rubbish appeared as "bytes 2021161080 to 2021191920 of 2021161080"."""
    ip = bytes.fromhex("4500") + bytes(10) + bytes([10, 77, 0, 2, 10, 77, 0, 1]) + bytes(8)
    data = bytes(12) + b"\x08\0" + ip + bytes([6, lib.CAREFUL_DATA]) + b"xxxx" * 40
    line = report.line(Frame(0, data, len(data), False, verdict))
    assert f"10.77.0.2 > 10.77.0.1: {'no frame; ' if said == 'no frame' else 'data '}" in line
    assert said in line


def test_lost_count__unread_records_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    one = capture.Capture(instances.Instance("eth1"), PORT)
    waiting = [capture._HEAD.pack(0, 64, 0, lib.CAREFUL_XDP_ADMITTED, 0)] * 3

    class Ring:
        def take(self) -> list[bytes]:
            taken = waiting.copy()
            waiting.clear()
            return taken

    program = SimpleNamespace(number=lambda _: 2)
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        monkeypatch.setattr(one, "_program", program, raising=False)
        monkeypatch.setattr(one, "_ring", Ring(), raising=False)
        monkeypatch.setattr(one, "_socket", near, raising=False)
        monkeypatch.setattr(one, "_since_ns", 0, raising=False)
        monkeypatch.setattr(one, "_counted", 10, raising=False)
        monkeypatch.setattr(one, "_count", lambda: 14)
        assert one.lost_count == 2 + 1


# --- control messages that leave


def passes(program: list[tuple[int, int, int, int]], frame: bytes, pkttype: int) -> bool:
    """Runs a classic BPF program on a frame like the kernel."""
    at = a = x = 0
    while True:
        code, true, false, k = program[at]
        at += 1
        if code == 0x20:
            a = pkttype
        elif code in (0x28, 0x48):
            a = int.from_bytes(frame[k + x * (code == 0x48) :][:2], "big")
        elif code == 0x30:
            a = frame[k]
        elif code == 0xB1:
            x = 4 * (frame[k] & 15)
        elif code == 0x15:
            at += true if a == k else false
        elif code == 0x45:
            at += true if a & k else false
        else:
            return k > 0


def udp(port: int, options: bytes = b"", fragment: int = 0, protocol: int = 17) -> bytes:
    """Returns an IPv4 frame."""
    ip = bytearray(20)
    ip[0] = 0x45 + len(options) // 4
    ip[6:8] = fragment.to_bytes(2, "big")
    ip[9] = protocol
    return (
        bytes(12) + b"\x08\0" + bytes(ip) + options + bytes(2) + port.to_bytes(2, "big") + bytes(4)
    )


def udp6(port: int) -> bytes:
    """Returns an IPv6 frame."""
    ip = bytearray(40)
    ip[6] = 17
    return bytes(12) + b"\x86\xdd" + bytes(ip) + bytes(2) + port.to_bytes(2, "big") + bytes(4)


@pytest.mark.parametrize(
    ("frame", "taken"),
    [
        (udp(PORT), True),
        (udp(PORT, options=bytes(8)), True),
        (udp(PORT + 1), False),
        (udp(PORT, fragment=3), False),
        (udp(PORT, fragment=0x2000), True),
        (udp(PORT, protocol=6), False),
        (udp6(PORT), True),
        (udp6(PORT + 1), False),
        (bytes(12) + b"\x08\x06" + bytes(50), False),
    ],
)
def test_filter__takes_our_datagrams(frame: bytes, taken: bool) -> None:
    program = capture._filter(PORT)
    assert passes(program, frame, socket.PACKET_OUTGOING) == taken
    assert not passes(program, frame, socket.PACKET_HOST)


def test_collect__control_messages_have_the_time_at_which_they_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = capture.Capture(instances.Instance("eth1"), PORT)
    ring = SimpleNamespace(take=list)
    monkeypatch.setattr(one, "_ring", ring, raising=False)
    monkeypatch.setattr(one, "_since_ns", 0, raising=False)
    with (
        capture._outgoing("lo", PORT) as caught,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        monkeypatch.setattr(one, "_socket", caught, raising=False)
        sender.bind(("127.0.0.1", PORT))
        began_ns = time.time_ns()
        sender.sendto(b"first", ("127.0.0.1", PORT))
        time.sleep(0.02)
        sender.sendto(b"second", ("127.0.0.1", PORT))
        ended_ns = time.time_ns()
        time.sleep(0.02)
        first, second = one.collect(0)
    assert second.time_ns - first.time_ns >= 20_000_000
    assert began_ns <= first.time_ns <= second.time_ns <= ended_ns


class Interrupted:
    """A capture in which Ctrl-C is pressed while frames are handed over."""

    lost_count = 0

    def __init__(self, *_: object) -> None:
        self._looks = 0

    def __enter__(self) -> Interrupted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ended(self) -> None:
        pass

    def collect(self, _: float) -> list[Frame]:
        self._looks += 1
        if self._looks == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return [Frame(0, bytes(self._looks), self._looks, True)]


def test_capture__ctrl_c_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records in transit, and later ones, were lost."""
    monkeypatch.setattr(cli, "Capture", Interrupted)
    monkeypatch.setattr(cli, "info_of", lambda _: SimpleNamespace(port=PORT))
    monkeypatch.setattr(cli.choice, "on_interface", lambda *_: SimpleNamespace(ifname="eth1"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # `&` makes it ignored
    try:
        assert carefulctl(["capture", "eth1"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    out, err = capsys.readouterr()
    assert ["1 B" in out, "2 B" in out, len(out.splitlines())] == [True, True, 2]
    assert "2 frames" in err


# --- live


@pytest.fixture(scope="module")
def two(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    try:
        bpf.Program(capture._program(capture.RING_BYTES, capture.SNAP_BYTES)).close()
    except CarefulError as error:
        pytest.skip(f"bcc cannot trace here: {error}")
    with hosts_up(tmp_path_factory.mktemp("capture")) as made:
        yield made


def start(host: Host, *words: str | Path) -> subprocess.Popen[str]:
    """Starts a capture and waits until it captures."""
    process = host.start("capture", "eth1", *words)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "capturing" in line, line + process.stderr.read()
    return process


def stopped(process: subprocess.Popen[str]) -> str:
    """Stops a capture by Ctrl-C. Returns its records."""
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == 0, err
    assert "no room" not in err
    return out


@pytest.mark.lab
def test_capture__a_file_both_ways(two: list[Host], tmp_path: Path) -> None:
    h1 = two[0]
    data = make_file(h1.own / "file", 300_000)
    path = tmp_path / "frames.pcapng"
    h1.ctl("ls", "h2:")  # the XDP trial is over
    before = h1.status()["counters"]
    process = start(h1, "-w", path)
    h1.ctl("put", h1.own / "file", "h2:")
    time.sleep(0.5)
    stopped(process)
    after = h1.status()["counters"]
    sent = received = 0
    control = {1: 0, 2: 0}
    parts: dict[int, bytes] = {}
    for frame, said in read(path):
        payload = frame[HEADERS_BYTES:]
        if payload[1] & 0x80:
            control[said.direction] += 1
            continue
        hdr = unpack("careful_hdr", payload)
        assert said.comments is None
        if said.direction == 1:
            received += 1
            continue
        sent += 1
        if hdr["flags"] & lib.CAREFUL_F_BULK and said.wirelen == len(frame):
            parts[hdr["seq"]] = payload[-hdr["frag_bytes"] :] if hdr["frag_bytes"] else b""
    # The cost of the status is not captured, since only carefuld is asked.
    assert sent <= after["tx_frames"] - before["tx_frames"] <= sent + 3
    assert received <= after["rx_frames"] - before["rx_frames"] <= received + 3
    assert sent > 300_000 // 4096
    assert received > 0
    assert data[5000:5100] in b"".join(parts[one] for one in sorted(parts))


def dissected(path: Path, *names: str) -> list[list[str]]:
    """Returns these fields of each frame, as tshark reads them with the generated dissector."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (apt-get install tshark)")
    script = path.with_suffix(".lua")
    subprocess.run([sys.executable, ROOT / "tools/gen/dissector.py", script], check=True)
    wrong = ["_ws.malformed", "_ws.lua.error"]
    fields = [word for name in (*wrong, *names) for word in ("-e", name)]
    argv = [*nobody(), "tshark", "-r", path, "-X", f"lua_script:{script}", "-T", "fields", *fields]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = [line.split("\t") for line in done.stdout.splitlines()]
    assert {tuple(one[: len(wrong)]) for one in shown} == {("", "")}
    return [one[len(wrong) :] for one in shown]


#: Sends datagrams, each given in hex, to careful's port of a host as if they came from careful's.
_SEND = """
import socket, struct, sys
port = int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as one:
    for payload in map(bytes.fromhex, sys.argv[3:]):
        one.sendto(struct.pack(">4H", port, port, 8 + len(payload), 0) + payload, (sys.argv[1], 0))
"""


def wrong_frames() -> dict[str, bytes]:
    """Returns frames that XDP drops, and the counter of each."""
    mine = {"version": int(lib.CAREFUL_WIRE_VERSION), "type": int(lib.CAREFUL_DATA), "seq": 1}
    longer = rogue.checked("careful_hdr", pack("careful_hdr", **mine, frag_bytes=100))
    stranger = rogue.checked("careful_hdr", pack("careful_hdr", **mine, cookie=1, src_node=0xFFFF))
    return {
        "drop_version": pack("careful_hdr", **{**mine, "version": mine["version"] - 1}),
        "drop_check": pack("careful_hdr", **mine),
        "drop_short": longer + bytes(99),
        "drop_node": stranger,
    }


@pytest.mark.lab
def test_capture__wireshark_reads_it(two: list[Host], tmp_path: Path) -> None:
    """The generated dissector reads the traffic of two carefulds, and XDP's reasons for drops."""
    h1, h2 = two
    path, wrong = tmp_path / "frames.pcapng", wrong_frames()
    process = start(h1, "-w", path)
    h1.ctl("ls", "h2:")
    sent = [one.hex() for one in wrong.values()]
    before = h1.status()["xdp_counters"]
    h2.lab.run("h2", "python3", "-c", _SEND, h1.lab.address("h1"), str(PORT), *sent)

    def dropped() -> bool:
        after = h1.status()["xdp_counters"]
        return all(after[why] == before[why] + 1 for why in wrong)

    wait_for(dropped, "frame that XDP drops")
    stopped(process)
    names = ["careful.hdr.seq", "careful.ctrl.type", "careful.am.kind", "frame.comment"]
    shown = dissected(path, *names)
    frames = [frame[HEADERS_BYTES:] for frame, _ in read(path)]
    assert len(shown) == len(frames)
    for (seq, kind, am, _), frame in zip(shown, frames, strict=True):
        if frame[1] & 0x80:
            assert (seq, int(kind, 0), am) == ("", frame[1], "")
        else:
            hdr = unpack("careful_hdr", frame)
            assert (int(seq), kind) == (hdr["seq"], "")
            assert bool(am) == bool(hdr["type"] == 1 and hdr["flags"] & lib.CAREFUL_F_FIRST)
    assert {am for _, _, am, _ in shown} > {""}  # there were requests among them
    said = zip((comment for *_, comment in shown), frames, strict=True)
    assert sorted(one for one in said if one[0].startswith("XDP dropped it")) == sorted(
        (f"XDP dropped it ({why}): {pcapng.WHY[why]}", frame) for why, frame in wrong.items()
    )


@pytest.mark.lab
def test_capture__wireshark_reads_proved_and_sealed_frames(two: list[Host], tmp_path: Path) -> None:
    h1, h2 = two
    path = tmp_path / "frames.pcapng"
    for host in two:
        host.down()
    try:
        keyed = Keyed(h1, h2)
        keyed.up("--seal", "encrypt")
        process = start(h1, "-w", path)
        h1.ctl("ls", "h2:")
        stopped(process)
    finally:
        for host in two:
            host.ctl("down", "eth1", check=False)
            host.up()
    names = ["_ws.col.Info", "careful.am.kind", "careful.seal_end.count"]
    names += ["careful.proved.count", "careful.proved.mac"]
    shown = dissected(path, *names)
    proved, sealed = set(), set()
    for (info, kind, sealed_count, count, mac), (frame, _) in zip(shown, read(path), strict=True):
        payload = frame[HEADERS_BYTES:]
        name = TYPES[payload[1]]
        if payload[0] == lib.CAREFUL_WIRE_SEALED:
            sealed.add(info)
            end = unpack("careful_seal_end", payload[-sizeof("careful_seal_end") :])
            assert (info, kind, int(sealed_count)) == (f"sealed {name}", "", end["count"])
        elif payload[1] & lib.CAREFUL_CTRL_BIT and len(payload) == sizeof("careful_proved"):
            message = unpack("careful_proved", payload)
            assert (info, int(count), mac) == (name, message["count"], message["mac"].hex())
            proved.add((name, message["count"] > 0))
        else:
            assert (info, sealed_count, count) == (name, "", "")
    assert sealed >= {"sealed data"}
    assert proved >= {("challenge", False), ("train_ask", True)}


@pytest.mark.lab
def test_capture__the_heads_of_a_transfer_at_full_speed(two: list[Host], tmp_path: Path) -> None:
    """Whole frames of a fast get did not fit; with 128 bytes each they do."""
    h1, h2 = two
    make_file(h2.export / "whole", 128 << 20)
    path = tmp_path / "heads.pcapng"
    process = start(h1, "-w", path, "-s", "128")
    h1.ctl("get", "h2:whole", "null:")
    time.sleep(1)
    stopped(process)  # nothing was lost
    received = 0
    for frame, said in read(path):
        assert len(frame) == min(said.wirelen, 128)
        received += said.direction == 1 and not frame[HEADERS_BYTES + 1] & 0x80
    assert received >= (128 << 20) // 4096


@pytest.mark.lab
def test_capture__counts_frames_that_do_not_fit(two: list[Host]) -> None:
    """The ring is full before the capture reads it."""
    h1, h2 = two
    make_file(h2.export / "much", 64 << 20)
    process = start(h1, "-w", "/dev/null")
    process.send_signal(signal.SIGSTOP)
    h1.ctl("get", "h2:much", "null:")
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == 0, err
    more = re.search(r"(\d+) frames, (\d+) more did not fit", err)
    assert more, err
    assert sum(map(int, more.groups())) >= (64 << 20) // 4096


@pytest.mark.lab
def test_capture__a_filter(two: list[Host]) -> None:
    h1, _ = two
    each = {}
    for which in ("--host h2 --data", "--host h2 --control", "--host 10.9.9.9"):
        words = which.split()
        process = start(h1, *words)
        h1.ctl("ls", "h2:")
        time.sleep(0.5)
        each[words[-1]] = stopped(process).splitlines()
    data, control, none = each.values()
    assert data
    assert all(" seq " in line for line in data)
    assert not any(" seq " in line for line in control)
    assert none == []


@pytest.mark.lab
def test_capture__says_why_xdp_drops(two: list[Host]) -> None:
    h1, h2 = two
    h2.down()
    try:
        process = start(h1, "--dropped", "--count", "2")
        program = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
            f"s.bind(('', {PORT}));"
            f"[s.sendto(b'\\x03\\x01', ('10.77.0.1', {PORT})) for _ in range(2)]"
        )
        h2.lab.run("h2", "python3", "-c", program)
        status, out, err = finish(process)
    finally:
        h2.up()
    assert status == 0, err
    assert len(out.splitlines()) == 2
    assert all("XDP dropped it (drop_short): truncated" in line for line in out.splitlines())


@pytest.mark.lab
def test_capture__of_a_peer_that_lies(two: list[Host]) -> None:
    """Any contents of frames, messages and names become a line without control characters."""
    h1, h2 = two
    process = start(h1)
    for misdeed in ("names-for-terminals", "lies-in-frames", "lies-in-control"):
        argv = (sys.executable, rogue.__file__, h1.lab.address("h1"), misdeed, "0", "1")
        h2.lab.run("h2", *argv, timeout=120)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)  # some frames may not have fit
    assert status == 0, err
    assert len(out.splitlines()) > 20
    assert set(out) <= {"\n", *map(chr, range(0x20, 0x7F))}, out


@pytest.mark.lab
def test_capture__one_at_a_time_and_after_one_was_killed(two: list[Host]) -> None:
    h1 = two[0]
    process = start(h1)
    second = h1.ctl("capture", "eth1", check=False)
    assert second.returncode == 1
    assert f"is captured already, by process {process.pid}" in second.stderr
    process.kill()
    finish(process)
    after = start(h1, "--count", "1")
    h1.ctl("ls", "h2:")
    status, out, err = finish(after)
    assert (status, len(out.splitlines())) == (0, 1), err


@pytest.mark.lab
def test_capture__ends_with_carefuld(two: list[Host]) -> None:
    """It continued without the next carefuld's frames, and reported that it had all."""
    h1 = two[0]
    process = start(h1)
    h1.ctl("ls", "h2:")
    h1.down()
    status, out, err = finish(process)
    assert (status, bool(out)) == (1, True), err
    assert re.search(r"instance \S+: its process \d+ ended while it was captured$", err), err
    h1.up()


@pytest.mark.lab
def test_capture__to_a_pipe(two: list[Host]) -> None:
    h1 = two[0]
    process = h1.lab.start("h1", "sh", "-c", "carefulctl capture eth1 -w - --count 5 | base64")
    assert process.stderr is not None
    assert "capturing" in process.stderr.readline()
    h1.ctl("ls", "h2:")
    status, out, err = finish(process)

    data = base64.b64decode(out)
    utils = pytest.importorskip("scapy.utils")
    assert status == 0, err
    assert len(list(utils.RawPcapNgReader(io.BytesIO(data)))) == 5
