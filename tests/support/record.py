"""Records frames on an interface: record.py IFNAME FRAMES, until standard input ends.

Writes "r" when it is ready, and at the end the first frames, each after its length (4 bytes,
big-endian), in flood.py's format.
"""

from __future__ import annotations

import select
import socket
import sys


def main() -> None:
    """Records frames of both directions."""
    source = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    source.bind((sys.argv[1], 3))
    kept: list[bytes] = []
    sys.stdout.buffer.write(b"r")
    sys.stdout.buffer.flush()
    while True:
        ready, _, _ = select.select([source, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        frame = source.recv(1 << 16)
        if len(kept) < int(sys.argv[2]):
            kept.append(frame)
    for frame in kept:
        sys.stdout.buffer.write(len(frame).to_bytes(4, "big") + frame)


main()
