"""Sends frames on an interface at a steady rate: flood.py IFNAME FILE RATE SECONDS.

FILE holds frames, each after its length (4 bytes, big-endian). Prints how many were
sent. Runs in a host's network namespace; bounded in time and number.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path


def frames_of(data: bytes) -> list[bytes]:
    """The frames in a file."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def main() -> None:
    """Sends the frames in turn, some milliseconds' worth at a time."""
    ifname, path, rate, seconds = sys.argv[1:]
    frames = frames_of(Path(path).read_bytes())
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind((ifname, 0))
    start = time.monotonic()
    sent = 0
    while (spent := time.monotonic() - start) < float(seconds):
        while sent < spent * int(rate):
            try:
                out.send(frames[sent % len(frames)])
            except OSError:  # the queue is full: skips a frame
                time.sleep(0.001)
            sent += 1
        time.sleep(0.002)
    print(sent, flush=True)


if __name__ == "__main__":
    main()
