"""Records a short exchange of two carefulds as released.h, for test_released.c.

Run it at a release: `python tests/datapath/link/record_released.py` in a checkout that tools/setup
has prepared, as root. A lab host lists another host's export, and `carefulctl capture` records the
handshake and the request. Then a host is asked for a session in the next wire version. Random
values (nonces, tokens, cookies) stay; the test replaces them. The records of the version before
become released_before.h.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from careful._abi import enum_names, lib, pack, sizeof, unpack
from scapy.utils import RawPcapNgReader

ROOT = Path(__file__).resolve().parents[3]
LAB = [str(ROOT / "tools/lab")]
NAME = ["--name", f"record{os.getpid()}"]
PORT = int(lib.CAREFUL_PORT_DEFAULT)
VERSION = int(lib.CAREFUL_WIRE_VERSION)
TYPES = enum_names("careful_type", "CAREFUL_")
_ETHERNET_IP_BYTES, _UDP_BYTES = 34, 8
ASK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(30)
    s.sendto(bytes.fromhex(sys.argv[1]), (sys.argv[2], int(sys.argv[3])))
    print(s.recv(2000).hex())
"""


def on(host: str, *argv: str) -> list[str]:
    return [*LAB, "exec", *NAME, host, "--", *argv]


def run(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def exchange(folder: Path) -> tuple[list[bytes], dict[str, bytes]]:
    """Returns the messages while h1 listed h2's export, and a refusal with its request."""
    export, file = folder / "export", folder / "frames.pcapng"
    export.mkdir()
    (export / "a-file").write_text("x")
    for host in ("h1", "h2"):
        # Only the session is recorded, so the XDP mode is fixed.
        run(on(host, "carefulctl", "up", "eth1", "--export", str(export), "--xdp", "native"))
    argv = on("h1", "carefulctl", "capture", "eth1", "-w", str(file), "--time", "20")
    capture = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert capture.stderr
    capture.stderr.readline()  # it has begun
    address = run(on("h2", "sh", "-c", "ip -4 -br addr show eth1")).split()[2].partition("/")[0]
    run(on("h1", "carefulctl", "ls", f"{address}:"))
    capture.wait()
    frames = [data for data, _ in RawPcapNgReader(str(file))]
    hello = pack("careful_ctrl", version=VERSION + 1, type=int(lib.CAREFUL_HELLO), nonce=77)
    output = run(on("h2", "python3", "-c", ASK, hello.hex(), address, str(PORT)))
    return frames, {"next_hello": hello, "refuse": bytes.fromhex(output)}


def picked(frames: list[bytes]) -> dict[str, bytes]:
    """Picks the first HELLO without and with a token, their answers, and a request."""
    found: dict[str, bytes] = {}
    for frame in frames:
        message = frame[_ETHERNET_IP_BYTES + _UDP_BYTES :]
        name = TYPES.get(message[1], "")
        if name == "hello" and unpack("careful_ctrl", message)["token"]:
            name = "hello_again"
        elif message[1] == lib.CAREFUL_DATA and "request" not in found:
            am = unpack("careful_am", message[sizeof("careful_hdr") :])
            name = "request" if am["kind"] == lib.CAREFUL_AM_REQUEST else ""
        if name:
            found.setdefault(name, message)
    return found


def version_of(recorded: str) -> tuple[int, int]:
    """Returns the wire's version and minor number in a header of written()."""
    found = re.search(r"released_welcome\[\] = \{(.*?)\};", recorded, re.S)
    assert found
    welcome = bytes(int(one, 16) for one in re.findall(r"0x(\w\w)", found[1]))
    fields = unpack("careful_ctrl", welcome)
    return fields["version"], fields["terms.minor"]


def written(messages: dict[str, bytes]) -> str:
    """Returns the records as a header for the test."""
    lines = [
        "/* SPDX-License-Identifier: BSD-2-Clause */",
        "/* Messages of the last released wire version, as a carefuld of it sent them; made by",
        " * record_released.py, and not to be changed. */",
        "#ifndef RELEASED_H",
        "#define RELEASED_H",
        "",
        "#include <stdint.h>",
        "",
        "/* clang-format off */",
    ]
    for name, message in messages.items():
        lines += ["", f"static const uint8_t released_{name}[] = {{"]
        for at in range(0, len(message), 16):
            lines.append("\t" + " ".join(f"0x{byte:02x}," for byte in message[at : at + 16]))
        lines.append("};")
    return "\n".join([*lines, "", "/* clang-format on */", "#endif /* RELEASED_H */", ""])


def main() -> None:
    run([*LAB, "up", *NAME, "--owner", str(os.getpid())])
    try:
        with tempfile.TemporaryDirectory() as folder:
            frames, refused = exchange(Path(folder))
    finally:
        run([*LAB, "down", *NAME])
    messages = picked(frames) | refused
    wanted = ("hello", "challenge", "hello_again", "welcome", "request", "next_hello", "refuse")
    kept = Path(__file__).with_name("released.h")
    before, now = kept.read_text(), written({name: messages[name] for name in wanted})
    if version_of(before) != version_of(now):
        kept.with_name("released_before.h").write_text(before)
    kept.write_text(now)


if __name__ == "__main__":
    main()
