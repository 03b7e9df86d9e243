"""Wireshark's dissector: tshark reads frames and control messages as they were made."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("careful._binding")

from careful._abi import lib, pack

ROOT = Path(__file__).parents[2]


def datagram(payload: bytes) -> bytes:
    """In UDP, IPv4 and Ethernet."""
    udp = struct.pack(">4H", 4000, int(lib.CAREFUL_PORT_DEFAULT), 8 + len(payload), 0)
    whole = 20 + len(udp) + len(payload)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, whole, 0, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\0\2")
    return bytes(12) + b"\x08\x00" + ip + udp + payload


def capture(path: Path, *payloads: bytes) -> None:
    """A pcap file."""
    with path.open("wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1))
        for one in map(datagram, payloads):
            file.write(struct.pack("=4I", 0, 0, len(one), len(one)) + one)


def test_dissector__reads_what_was_sent(tmp_path: Path) -> None:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed (apt-get install tshark)")
    script = tmp_path / "careful.lua"
    argv = [sys.executable, ROOT / "tools/gen/dissector.py", script]
    subprocess.run(argv, check=True)
    first = int(lib.CAREFUL_F_FIRST) | int(lib.CAREFUL_F_LAST)
    version, cookie = int(lib.CAREFUL_WIRE_VERSION), 0x1122334455667788
    capture(
        tmp_path / "frames.pcap",
        pack("careful_hdr", version=version, type=1, flags=first, cookie=cookie, seq=77)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_STORE), region=5),
        pack("careful_hdr", version=version, type=1, seq=78, frag_off=3694) + bytes(100),
        pack("careful_ctrl", version=version, type=int(lib.CAREFUL_SYNC), seq_sent=9, nonce=3),
        pack("careful_keyed", version=version, type=int(lib.CAREFUL_HELLO), token=4),
        pack("careful_ctrl", version=version, type=int(lib.CAREFUL_HELLO), window=64),
        pack("careful_ping_answer", version=version, type=int(lib.CAREFUL_PING_ANSWER), stage=3),
        pack("careful_hdr", version=version, type=1, flags=first, seq=79)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_REQUEST), region=1, next=50)
        + bytes(2)
        + pack("careful_am", kind=int(lib.CAREFUL_AM_REPLY), region=2),
        b"\x02\x01",
    )
    names = ["hdr.seq", "hdr.cookie", "hdr.flags.first", "hdr.flags.bulk", "hdr.frag_off"]
    names += ["am.kind", "am.region", "ctrl.seq_sent", "ctrl.window", "keyed.token"]
    names += ["ping_answer.stage"]
    fields = [word for name in names for word in ("-e", f"careful.{name}")]
    read = ["tshark", "-r", tmp_path / "frames.pcap", "-X", f"lua_script:{script}"]
    done = subprocess.run(
        [*read, "-T", "fields", "-E", "separator=,", *fields],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"77,{cookie:#x},1,0,0,3,5,,,,",
        "78,0x0000000000000000,0,0,3694,,,,,,",
        ",,,,,,,9,0,,",
        ",,,,,,,,,0x0000000000000004,",
        ",,,,,,,0,64,,",
        ",,,,,,,,,,3",
        "79,0x0000000000000000,1,0,0,1,2,1,2,,,,",
        ",,,,,,,,,,",
    ]
