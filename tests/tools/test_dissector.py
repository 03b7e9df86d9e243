"""tshark reads frames and control messages by the generated dissector."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from careful._abi import lib, pack
from ctrl_message import ctrl_message
from lab import nobody

ROOT = Path(__file__).parents[2]


def datagram(payload: bytes, ipv6: bool = False) -> bytes:
    """Wraps a payload in UDP, IP and Ethernet."""
    udp = struct.pack(">4H", 4000, int(lib.CAREFUL_PORT_DEFAULT), 8 + len(payload), 0)
    if ipv6:
        ip = struct.pack(">IHBB16s16s", 6 << 28, len(udp) + len(payload), 17, 64, b"1", b"2")
        return bytes(12) + b"\x86\xdd" + ip + udp + payload
    whole = 20 + len(udp) + len(payload)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, whole, 0, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\0\2")
    return bytes(12) + b"\x08\x00" + ip + udp + payload


def capture(path: Path, *payloads: bytes, ipv6: bool = False) -> None:
    """Writes a pcap file."""
    with path.open("wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1))
        for one in (datagram(payload, ipv6) for payload in payloads):
            file.write(struct.pack("=4I", 0, 0, len(one), len(one)) + one)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (apt-get install tshark)")
    path = tmp_path / "careful.lua"
    subprocess.run([sys.executable, ROOT / "tools/gen/dissector.py", path], check=True)
    return path


def test_dissector__has_each_struct_of_the_wire(tmp_path: Path) -> None:
    path = tmp_path / "careful.lua"
    subprocess.run([sys.executable, ROOT / "tools/gen/dissector.py", path], check=True)
    wire = (ROOT / "datapath/include/careful/wire.h").read_text()
    declared = re.findall(r"^struct careful_(\w+) \{", wire, re.MULTILINE)
    assert "proved" in declared
    assert sorted(declared) == sorted(
        re.findall(r"^structs\.(\w+) =", path.read_text(), re.MULTILINE)
    )


def shown(script: Path, frames: Path, names: list[str]) -> list[str]:
    """Returns the values of these fields of each frame; names with _ first are tshark's own."""
    full = [name if name.startswith("_") else f"careful.{name}" for name in names]
    fields = [word for name in full for word in ("-e", name)]
    argv = ["tshark", "-r", frames, "-X", f"lua_script:{script}", "-T", "fields", *fields]
    argv = [*nobody(), *argv, "-E", "separator=,"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Newer versions print "True" and "False", once 1 and 0, and escape a comma within a field.
    text = done.stdout.replace("True", "1").replace("False", "0").replace("\\,", ",")
    return text.splitlines()


@pytest.mark.parametrize("ipv6", [False, True])
def test_dissector__reads_sent_frames(script: Path, tmp_path: Path, ipv6: bool) -> None:
    first = int(lib.CAREFUL_F_FIRST) | int(lib.CAREFUL_F_LAST)
    version, cookie = int(lib.CAREFUL_WIRE_VERSION), 0x1122334455667788
    capture(
        tmp_path / "frames.pcap",
        pack("careful_hdr", version=version, type=1, flags=first, cookie=cookie, seq=77)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_STORE), region=5),
        pack("careful_hdr", version=version, type=1, seq=78, frag_off=3694) + bytes(100),
        ctrl_message(int(lib.CAREFUL_SYNC), "counts", seq_sent=9, nonce=3),
        pack("careful_keyed", version=version, type=int(lib.CAREFUL_HELLO), token=4),
        ctrl_message(int(lib.CAREFUL_WELCOME), window=64, name=b"h1"),
        pack("careful_ping_answer", version=version, type=int(lib.CAREFUL_PING_ANSWER), stage=3),
        pack("careful_hdr", version=version, type=1, flags=first, seq=79)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_REQUEST), region=1, next=50)
        + bytes(2)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_REPLY), region=2),
        b"\x02\x01",
        ipv6=ipv6,
    )
    names = ["hdr.seq", "hdr.cookie", "hdr.flags.first", "hdr.flags.bulk", "hdr.frag_off"]
    names += ["am.kind", "am.region", "ctrl.seq_sent", "ctrl.window", "keyed.token"]
    names += ["ping_answer.stage", "ctrl.name"]
    assert shown(script, tmp_path / "frames.pcap", names) == [
        f"77,{cookie:#x},1,0,0,3,5,,,,,",
        "78,0x0000000000000000,0,0,3694,,,,,,,",
        ",,,,,,,9,,,,",
        ",,,,,,,,,0x0000000000000004,,",
        ",,,,,,,,64,,,h1",
        ",,,,,,,,,,3,",
        "79,0x0000000000000000,1,0,0,1,2,1,2,,,,,",
        ",,,,,,,,,,,",
    ]


def test_dissector__sealed_frames(script: Path, tmp_path: Path) -> None:
    """The dissector shows their end, and their contents only if they are not encrypted."""
    flags = int(lib.CAREFUL_F_FIRST) | int(lib.CAREFUL_F_LAST)
    hdr = pack("careful_hdr", version=int(lib.CAREFUL_WIRE_SEALED), type=1, flags=flags, seq=80)
    am = pack("careful_am", kind=int(lib.CAREFUL_AM_GET), region=5)
    payload, end = b"payload", pack("careful_seal_end", count=9)
    encrypted = bytes(byte ^ 0xA5 for byte in am + payload)
    capture(tmp_path / "frames.pcap", *(hdr + part + end for part in (am + payload, encrypted)))
    names = ["hdr.seq", "am.kind", "am.region", "seal_end.count", "_ws.col.Info"]
    kind = int(lib.CAREFUL_AM_GET)
    assert shown(script, tmp_path / "frames.pcap", names) == [
        f"80,{kind},5,9,sealed data",
        "80,,,9,sealed data",
    ]


def test_dissector__control_messages_that_keys_prove(script: Path, tmp_path: Path) -> None:
    """The message is the same as without keys, followed by its count and mac."""
    version, mac = int(lib.CAREFUL_WIRE_VERSION), bytes(range(16))
    message = {"ctrl.version": version, "ctrl.nonce": 3, "count": 7, "mac": mac}
    capture(
        tmp_path / "frames.pcap",
        pack("careful_proved", **message, **{"ctrl.type": int(lib.CAREFUL_SYNC)}),
        pack("careful_proved", **message, **{"ctrl.type": int(lib.CAREFUL_HELLO)}),
        pack("careful_ctrl", version=version, type=int(lib.CAREFUL_SYNC), nonce=3),
        pack("careful_proved", **message, **{"ctrl.type": int(lib.CAREFUL_SYNC)})[:-1],
    )
    names = ["ctrl.type", "ctrl.nonce", "proved.count", "proved.mac", "_ws.col.Info"]
    names += ["_ws.malformed", "_ws.lua.error"]
    assert shown(script, tmp_path / "frames.pcap", names) == [
        f"132,0x0000000000000003,7,{mac.hex()},sync,,",
        f"128,0x0000000000000003,7,{mac.hex()},hello,,",
        "132,0x0000000000000003,,,sync,,",
        "132,0x0000000000000003,,,sync,,",
    ]


def test_dissector__fields_of_control_messages_by_type(script: Path, tmp_path: Path) -> None:
    """A field appears under its meaning in this type, and only in types that use it."""
    hello, terms = int(lib.CAREFUL_HELLO), {"window": 64, "protocol": 0x100, "seal": 2}
    capture(
        tmp_path / "frames.pcap",
        ctrl_message(hello, "opening", nonce=1, queues=5),
        ctrl_message(hello, nonce=1, token=2, reserve=9, **terms),
        ctrl_message(int(lib.CAREFUL_REFUSE), "refuse", why=3, peers=6),
        ctrl_message(int(lib.CAREFUL_SYNC), "counts", question=2, seq_sent=10, withheld=7),
        ctrl_message(int(lib.CAREFUL_TRAIN_ASK), "train", nonce=4, frames=100, smallest=1),
        ctrl_message(0xFF, window=8),
    )
    names = ["window", "queues", "peers", "withheld", "frames", "nonce", "train", "protocol"]
    names += ["refusal", "question", "seal", "reserve", "seq_sent", "frame_bytes", "smallest"]
    assert shown(script, tmp_path / "frames.pcap", [f"ctrl.{name}" for name in names]) == [
        ",5,,,,0x0000000000000001,,,,,,,,,",
        "64,,,,,0x0000000000000001,,256,,,2,9,,0,",
        ",,6,,,0x0000000000000000,,,3,,,,,,",
        ",,,7,,0x0000000000000000,,,,2,,,10,,",
        ",,,,100,,4,,,,,,,,1",
        ",,,,,0x0000000000000000,,,,,,,,,",
    ]


@pytest.mark.parametrize(
    ("before", "to", "lost", "text"),
    [
        (1000, 1007, [1001, 1002, 1003, 1007], "1001-1003, 1007"),
        (4, 252, [5, 7, *range(100, 253)], "5, 7, 100-252"),
        (2**32 - 2, 2, [2**32 - 1, 0, 2], "4294967295-0, 2"),
        (8, 9, [9], "9"),
        (8, 8, [], ""),
        (8, 1000000, range(9, 257), "9-256"),  # more than there are bits for
    ],
)
def test_dissector__missing_numbers(
    script: Path, tmp_path: Path, before: int, to: int, lost: Sequence[int], text: str
) -> None:
    bits = bytearray(b"\xff" * int(lib.CAREFUL_NAME_BYTES - 1))
    for seq in lost:
        at = (seq - before - 1) % 2**32
        bits[at // 8] &= ~(1 << at % 8)
    capture(
        tmp_path / "frames.pcap",
        ctrl_message(
            int(lib.CAREFUL_MISSING),
            "missing",
            before=before,
            last=to,
            seq_rcvd=before,
            arrived=bytes(bits),
        ),
    )
    names = ["before", "last", "seq_rcvd", "missing", "window", "name", "_ws.lua.error"]
    names = [name if name.startswith("_") else f"ctrl.{name}" for name in names]
    expected = f"{before},{to},{before},{text},,,"
    assert shown(script, tmp_path / "frames.pcap", names) == [expected]
