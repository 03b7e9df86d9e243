"""Strangers send ten thousand frames a second, and replays, while a file moves.

Half of the frames use IPv4, half IPv6, like the file: there are two sessions. One kind of stranger
cannot see the traffic; another recorded it from the first HELLO on, and replays it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import flood
import pytest
from careful._abi import lib
from careful.control.instance import maps
from flood import frames_of
from hosts import MIB, Host, finish, make_file, wait_for
from lab import Lab
from scapy.layers.inet import ICMP, IP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy_layers import CarefulAm, CarefulCtrl, CarefulHdr

RATE = 10_000
SECONDS = 3
#: Most recorded frames per session.
RECORDED = 2000
#: The serving host, by family.
SERVERS = ("h2", "[fd77::2]")
PORT = int(lib.CAREFUL_PORT_DEFAULT)
DATA, UPDATE = int(lib.CAREFUL_DATA), int(lib.CAREFUL_UPDATE)
FIRST_LAST = int(lib.CAREFUL_F_FIRST | lib.CAREFUL_F_LAST)
CONTROL = range(int(lib.CAREFUL_HELLO), int(lib.CAREFUL_MISSING) + 1)
rng = random.Random(7)


@pytest.fixture(scope="module")
def three(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    """Yields two hosts with careful, and a stranger on the same switch."""
    lab = Lab(hosts=3)
    hosts = [Host(lab, name, tmp_path_factory.mktemp("flood")) for name in lab.hosts]
    try:
        for host in hosts[:2]:
            host.up("--peers", "4")
        make_file(hosts[1].export / "big", 96 * MIB)
        for server in SERVERS:  # a session over each family, before any flood
            with recording(lab, "p1"):
                hosts[0].ctl("get", "-f", f"{server}:big", hosts[0].own / "big")
        yield hosts
    finally:
        for host in hosts[:2]:
            host.ctl("down", "eth1", check=False)
        lab.down()


recorded: list[bytes] = []


@contextlib.contextmanager
def recording(lab: Lab, port: str) -> Iterator[None]:
    """Records the frames at a port of the switch."""
    argv = ["nsenter", f"--net=/run/netns/careful-{lab.name}-sw", sys.executable]
    argv += [str(Path(flood.__file__).with_name("record.py")), port, str(RECORDED)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"r"
    yield
    found = frames_of(process.communicate(timeout=60)[0])
    # From their own MAC addresses the switch would learn that these hosts moved; and the
    # kernel leaves UDP checksums to a device, of which there is none.
    stranger = bytes.fromhex("020000000099")
    for one in found:
        for ethertype, proto, check in ((b"\x08\x00", 23, 40), (b"\x86\xdd", 20, 60)):
            if one[12:14] == ethertype and one[proto] == int(socket.IPPROTO_UDP):
                rest = one[12:check] + bytes(2) + one[check + 2 :]
                recorded.append(one[:6] + stranger + rest)


def mac(host: Host) -> str:
    output = host.lab.run(host.name, "ip", "-json", "link", "show", "eth1").stdout
    return str(json.loads(output)[0]["address"])


def to(target: Host, source: str, payload: Packet) -> bytes:
    """Returns a frame to a host, from an address that may be forged."""
    lower = Ether(dst=mac_of[target.name], src="02:00:00:00:00:99")
    if ":" in source:
        return bytes(lower / IPv6(src=source, dst=target.lab.address(target.name, 6)) / payload)
    return bytes(lower / IP(src=source, dst=target.lab.address(target.name)) / payload)


mac_of: dict[str, str] = {}


def udp(payload: Packet | bytes) -> Packet:
    return UDP(sport=PORT, dport=PORT) / (Raw(payload) if isinstance(payload, bytes) else payload)


def header(**fields: int) -> CarefulHdr:
    """Returns a valid header of a window update, changed by `fields`."""
    return CarefulHdr(**({"type": UPDATE, "seq": 1, "src_node": 0} | fields))


def garbage(a: Host, strange: str) -> list[bytes]:
    """Returns UDP to our port with random contents, or a truncated header."""
    found = [to(a, strange, udp(rng.randbytes(rng.randrange(200)))) for _ in range(100)]
    whole = bytes(header())
    found += [to(a, strange, udp(whole[: rng.randrange(len(whole))])) for _ in range(50)]
    # UDP says more than the frame holds.
    lying = UDP(sport=PORT, dport=PORT, len=900) / Raw(whole)
    return [*found, to(a, strange, lying)]


def wrong(a: Host, strange: str) -> list[bytes]:
    """Returns well-formed frames without a session: version, check, type, node, cookie."""
    frames = [
        header(version=99),
        header(check=12345),
        header(type=77),
        header(src_node=4096),
        *(header(cookie=rng.getrandbits(64), src_node=k % 4) for k in range(60)),
        *(
            CarefulHdr(type=DATA, flags=FIRST_LAST, seq=k, cookie=rng.getrandbits(64))
            / CarefulAm(kind=1)
            / Raw(b"x" * 500)
            for k in range(20)
        ),
    ]
    return [to(a, strange, udp(frame)) for frame in frames]


def replays(a: Host, peer: str) -> list[bytes]:
    """Returns frames with the right cookie and address, with old or future numbers."""
    sessions = maps.sessions(a.lab.instance("h1"))
    found = []
    for slot, entry in sessions.items():
        for back in (0, 1, 2, 63, 1000):
            old = header(cookie=entry.cookie, src_node=slot, seq=entry.seq_last - back & 0xFFFFFFFF)
            found.append(to(a, peer, udp(old)))
        far = header(cookie=entry.cookie, src_node=slot, seq=entry.seq_last + 2**31 & 0xFFFFFFFF)
        found.append(to(a, peer, udp(far)))
    return found


def control(a: Host, source: str) -> list[bytes]:
    """Returns control messages of every type with invented contents, and damaged ones."""
    found = []
    for kind in CONTROL:
        for _ in range(20):
            fields = ("nonce", "token", "cookie", "incarnation")
            values = {name: rng.getrandbits(64) for name in fields}
            counts = {name: rng.getrandbits(32) for name in ("seal", "cipher", "reserve")}
            message = CarefulCtrl(type=kind, window=64, buffer_bytes=3840, **values, **counts)
            found.append(to(a, source, udp(message)))
            found.append(to(a, source, udp(CarefulCtrl(type=kind, check=1))))
    return found


def unreachable(a: Host, b: Host) -> list[bytes]:
    """Returns forged ICMP "port unreachable" of the peer, with invented or missing quotes."""
    of = IP(src=a.lab.address("h1"), dst=b.lab.address("h2"))
    quoted: list[Packet | bytes] = [b"", rng.randbytes(40)]
    for kind in CONTROL:
        quoted.append(CarefulCtrl(type=kind, nonce=rng.getrandbits(64), cookie=rng.getrandbits(64)))
    quoted += [header(type=DATA, cookie=rng.getrandbits(64)) for _ in range(10)]
    return [
        to(a, b.lab.address("h2"), ICMP(type=3, code=3) / of / udp(payload)) for payload in quoted
    ]


def sums(frame: Packet, **fields: int) -> bytes:
    """Returns a frame with wrong fields in the IP or UDP header."""
    for name, value in fields.items():
        layer = IP if name in ("ihl", "len", "frag", "flags", "chksum", "ttl", "proto") else UDP
        setattr(frame[layer], name.removeprefix("udp_"), value)
    return bytes(frame)


def malformed(a: Host, peer: str) -> list[bytes]:
    """Returns old frames of the session from the peer's address, with one fault in each."""
    slot, entry = sorted(maps.sessions(a.lab.instance("h1")).items())[":" in peer]
    old = {"cookie": entry.cookie, "src_node": slot, "seq": entry.seq_last - 1 & 0xFFFFFFFF}

    def made(payload: Packet) -> bytes:
        return to(a, peer, udp(payload))

    found = []
    wide = {"version": 8, "type": 8, "flags": 8, "stage_limit": 8, "src_node": 16, "queue": 16}
    wide |= {"cookie": 64, "msg_id": 32, "msg_bytes": 32, "frag_off": 32, "frag_bytes": 16}
    wide |= {"credits": 32, "payload_crc": 32, "check": 32}
    for name, bits in wide.items():
        for value in (0, 1, (1 << bits) - 1, rng.getrandbits(bits)):
            frame = header(**(old | {"type": DATA, name: value}))
            # An invented cookie can cause any drop except this one.
            if name != "type" or not value & 0x80:
                found += [made(frame), made(frame / Raw(rng.randbytes(40)))]
    whole = made(header(**old))
    found += [whole[:size] for size in range(43, len(whole), 5)]  # cut off
    found += [whole + bytes(size) for size in (1, 100, 3000)]  # and over-long
    return found + (
        headers6(a, peer, header(**old)) if ":" in peer else headers4(a, peer, header(**old))
    )


def headers4(a: Host, peer: str, old: CarefulHdr) -> list[bytes]:
    """Returns old IPv4 frames, with one wrong or rare lower header in each."""
    whole, found = to(a, peer, udp(old)), []
    for name, value in {"chksum": 7, "udp_chksum": 7, "udp_len": 8, "len": 40, "ttl": 1}.items():
        found.append(sums(Ether(whole), **{name: value}))
    found.append(sums(Ether(whole), udp_len=65535))
    found.append(sums(Ether(whole), flags=1))  # the first of several fragments
    tagged = Ether(dst=mac_of["h1"]) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / Ether(whole)[IP].copy()
    options = IP(src=peer, dst=a.lab.address("h1"), options=[IPOption_NOP()] * 8)
    return [*found, bytes(tagged), bytes(Ether(dst=mac_of["h1"]) / options / udp(old))]


def headers6(a: Host, peer: str, old: CarefulHdr) -> list[bytes]:
    """The same for IPv6, with extension headers, which the kernel reads."""
    whole, found = to(a, peer, udp(old)), []
    for layer, name, value in (
        *((IPv6, name, value) for name, value in (("plen", 40), ("plen", 0), ("hlim", 1))),
        *((UDP, name, value) for name, value in (("chksum", 7), ("len", 8), ("len", 65535))),
    ):
        frame = Ether(whole)
        setattr(frame[layer], name, value)
        found.append(bytes(frame))
    lower = Ether(dst=mac_of["h1"]) / IPv6(src=peer, dst=a.lab.address("h1", 6))
    for between in (
        IPv6ExtHdrHopByHop(),
        IPv6ExtHdrDestOpt(),
        IPv6ExtHdrFragment(m=1),
        IPv6ExtHdrFragment(offset=100),
        IPv6ExtHdrRouting(),
    ):
        found.append(bytes(lower / between / udp(old)))
    tagged = Ether(dst=mac_of["h1"]) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / Ether(whole)[IPv6].copy()
    return [*found, bytes(tagged)]


KINDS = ["garbage", "wrong", "replays", "control", "control-as-peer", "malformed", "recorded"]


def flooding(stranger: Host, frames: list[bytes], folder: Path) -> subprocess.Popen[str]:
    """Starts to send the frames, RATE a second for SECONDS."""
    data = b"".join(len(one).to_bytes(4, "big") + one for one in frames)
    (folder / "frames").write_bytes(data)
    script = Path(flood.__file__)
    argv = [sys.executable, script, "eth1", folder / "frames", str(RATE), str(SECONDS)]
    return stranger.lab.start("h3", *argv)


@pytest.mark.parametrize("kind", KINDS)
def test_flood__transfer_intact(three: list[Host], kind: str, tmp_path: Path) -> None:
    a, b, stranger = three
    mac_of["h1"] = mac(a)
    makers: dict[str, Callable[[int], list[bytes]]] = {
        "garbage": lambda family: garbage(a, stranger.lab.address("h3", family)),
        "wrong": lambda family: wrong(a, stranger.lab.address("h3", family)),
        "replays": lambda family: replays(a, b.lab.address("h2", family)),
        "control": lambda family: control(a, stranger.lab.address("h3", family)),
        "control-as-peer": lambda family: control(a, b.lab.address("h2", family)),
        "malformed": lambda family: malformed(a, b.lab.address("h2", family)),
        "recorded": lambda family: recorded if family == 4 else [],
    }
    frames = makers[kind](4) + makers[kind](6)
    rng.shuffle(frames)
    before, before_b, before_unread = a.status(), b.status(), unread(a) + unread(b)
    flood = flooding(stranger, frames, tmp_path)
    time.sleep(0.5)
    rounds = 0
    while flood.poll() is None or rounds < len(SERVERS):
        a.ctl("get", "-f", f"{SERVERS[rounds % len(SERVERS)]}:big", a.own / "big")
        assert (a.own / "big").read_bytes() == (b.export / "big").read_bytes()
        rounds += 1
    status, out, errors = finish(flood)
    assert status == 0, errors
    assert int(out) > 0.5 * RATE * SECONDS  # both cores are busy
    after = a.assert_nothing_lost()
    # No session was reset, and every drop has a name.
    assert [(one["epochs"], one["state"]) for one in after["peers"]] == [(1, "up")] * 2
    named = grown(before, after)
    # The kernel drops a datagram that does not parse as UDP to our port: pass_other.
    names = ("drop", "ctrl", "pass_other")
    both = [*named.items(), *grown(before_b, b.status()).items()]  # some were recorded towards b
    dropped = sum(count for name, count in both if any(one in name for one in names))
    dropped += unread(a) + unread(b) - before_unread
    # The switch drops frames with a wrong IP length.
    assert dropped >= (0.8 if kind == "malformed" else 0.95) * int(out), json.dumps(named)
    expected = {
        "garbage": {"drop_short", "drop_version"},
        "wrong": {"drop_version", "drop_check", "drop_type", "drop_node", "drop_cookie"},
        "replays": {"drop_seq"},
        "control": {"ctrl_malformed", "ctrl_unknown", "ctrl_challenged"},
        "control-as-peer": {"ctrl_malformed", "ctrl_unknown", "ctrl_challenged"},
        "malformed": {"drop_version", "drop_check", "drop_type", "drop_node", "drop_cookie"}
        | {"drop_short", "drop_seq"},
        "recorded": {"drop_seq", "ctrl_unknown"},
    }[kind]
    assert expected <= named.keys(), named
    said = "control messages" if kind.startswith("control") else "frames refused"
    wait_for(lambda: said in a.log, "a line in the log")


def test_unreachable__ends_no_session_of_a_silent_peer(three: list[Host], tmp_path: Path) -> None:
    """The peer is stopped, a transfer waits for it, and strangers report that it has gone."""
    a, b, stranger = three
    mac_of["h1"] = mac(a)
    before = a.status()
    os.kill(b.pid, signal.SIGSTOP)
    try:
        getting = a.start("get", "-f", "h2:big", a.own / "big")
        wait_for(lambda: "syncs" in grown(before, a.status()), "question")
        status, _, errors = finish(flooding(stranger, unreachable(a, b), tmp_path))
        assert status == 0, errors
    finally:
        os.kill(b.pid, signal.SIGCONT)
    status, _, errors = finish(getting)
    assert status == 0, errors
    assert (a.own / "big").read_bytes() == (b.export / "big").read_bytes()
    after = a.assert_nothing_lost()
    assert [one["epochs"] for one in after["peers"]] == [one["epochs"] for one in before["peers"]]
    named = grown(before, after)
    assert named["ctrl_unknown"] > 1000, named


def unread(host: Host) -> int:
    """Counts the datagrams that were dropped at a full socket buffer: carefuld got no CPU time."""
    ipv4, ipv6 = (
        host.lab.run(host.name, "cat", f"/proc/net/{name}").stdout for name in ("snmp", "snmp6")
    )
    names, values = (line.split() for line in ipv4.splitlines() if line.startswith("Udp:"))
    counters = dict(zip(names, values, strict=True)) | dict(
        line.split() for line in ipv6.splitlines()
    )
    return int(counters["RcvbufErrors"]) + int(counters["Udp6RcvbufErrors"])


def grown(before: dict[str, object], after: dict[str, object]) -> dict[str, int]:
    """Returns the counters of carefuld and XDP that grew."""
    found: dict[str, int] = {}
    for table in ("counters", "xdp_counters"):
        old, new = before[table], after[table]
        assert isinstance(old, dict)
        assert isinstance(new, dict)
        found |= {
            name: new[name] - old.get(name, 0) for name in new if new[name] > old.get(name, 0)
        }
    return found
