"""Writes frames as a pcapng file for Wireshark and tshark (draft-ietf-opsawg-pcapng).

Blocks: a section, its interface with times in nanoseconds, and an enhanced packet block for each
frame, with its direction and XDP's verdict as a comment.
"""

from __future__ import annotations

import struct
import sys
from typing import BinaryIO

from careful.control.tracing.capture import SNAP_BYTES, Frame

#: Why XDP drops a frame, by the counter's name in `status`.
WHY = {
    "drop_short": "truncated: no whole header, or less than it announces",
    "drop_fragment": "an IP fragment",
    "drop_version": "another wire version",
    "drop_check": "the header's check is wrong",
    "drop_type": "unknown type, or flags or a limit that the type cannot have",
    "drop_node": "its node number names no slot",
    "drop_cookie": "not the cookie of an open session",
    "drop_seq": "a replay, or beyond the window",
    "drop_credit": "it would fill more buffers than its sender may",
    "drop_ping": "a ping for no stage, or a repeated one",
    "drop_redirect": "no socket to hand it to",
}
#: Frames that bypass the engine without a fault.
MEANT = {
    "drop_train": "part of a train: counted and dropped, as intended",
    "pass_control": "control message, to the kernel's socket",
    "pass_queue": "on a queue that is not careful's, to the kernel",
    "pass_ping": "a ping that ends in XDP",
}

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_COMMENT, _FLAGS, _IF_NAME, _IF_TSRESOL = 1, 2, 2, 9
_INBOUND, _OUTBOUND = 1, 2
_ETHERNET = 1
#: A packet block up to its data: kind, length, interface, time, bytes kept, bytes.
_FIXED = struct.Struct("=7I")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, data: bytes) -> bytes:
    return struct.pack("=HH", code, len(data)) + _padded(data)


def _block(kind: int, body: bytes, options: bytes = b"") -> bytes:
    if options:
        options += struct.pack("=HH", 0, 0)
    length = struct.pack("=I", 12 + len(body) + len(options))
    return struct.pack("=I", kind) + length + body + options + length


def comment(frame: Frame) -> str:
    """Describes XDP's verdict on a frame; "" if it was admitted or sent."""
    if frame.verdict in WHY:
        return f"XDP dropped it ({frame.verdict}): {WHY[frame.verdict]}"
    return MEANT.get(frame.verdict, "")


class Writer:
    """Writes frames to a file; writes the header at once.

    Args:
        file: opened for writing; unbuffered, or flushed by its owner.
        ifname: the interface of the frames.
        snap_bytes: the most that is kept of a frame.
    """

    def __init__(self, file: BinaryIO, ifname: str, snap_bytes: int = SNAP_BYTES) -> None:
        self._file = file
        self._ends: dict[tuple[bool, str], bytes] = {}  # options by (sent, verdict)
        section = struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1)
        interface = struct.pack("=HHI", _ETHERNET, 0, snap_bytes)
        options = _option(_IF_NAME, ifname.encode()) + _option(_IF_TSRESOL, b"\x09")
        file.write(_block(_SECTION, section) + _block(_INTERFACE, interface, options))

    def write(self, frame: Frame) -> None:
        time_ns, data, frame_bytes, sent, verdict = frame
        end = self._ends.get((sent, verdict)) or self._end(frame)
        data = _padded(data)
        length = _FIXED.size + len(data) + len(end) + 4
        high, low = time_ns >> 32, time_ns & 0xFFFFFFFF
        fixed = _FIXED.pack(_PACKET, length, 0, high, low, len(frame.data), frame_bytes)
        self._file.write(fixed + data + end + length.to_bytes(4, sys.byteorder))

    def _end(self, frame: Frame) -> bytes:
        said = comment(frame)
        options = _option(_COMMENT, said.encode()) if said else b""
        direction = _OUTBOUND if frame.sent else _INBOUND
        options += _option(_FLAGS, struct.pack("=I", direction)) + bytes(4)
        return self._ends.setdefault((frame.sent, frame.verdict), options)
