"""A captured frame as a line for people."""

from __future__ import annotations

import struct
import time
from ipaddress import ip_address

from careful._abi import enum_names, lib, sizeof, unpack
from careful.control.tracing.capture import Frame
from careful.render.tracing import pcapng

_TYPES = enum_names("careful_type", "CAREFUL_")
_VLANS = (0x8100, 0x88A8)
_SEALED = 0x80  # bit of a version
#: Verdicts after which no field of the frame is valid.
_NO_FRAME = ("drop_short", "drop_version", "drop_check")


def _datagram(data: bytes) -> tuple[str, str, bytes]:
    """Returns sender, receiver and UDP payload.

    Raises struct.error, ValueError or IndexError if the frame is too short.
    """
    at = 12
    while (kind := struct.unpack_from(">H", data, at)[0]) in _VLANS:
        at += 4
    ip = data[at + 2 :]
    if kind == 0x86DD:
        return str(ip_address(ip[8:24])), str(ip_address(ip[24:40])), ip[48:]
    return str(ip_address(ip[12:16])), str(ip_address(ip[16:20])), ip[4 * (ip[0] & 15) + 8 :]


def _content(payload: bytes) -> str:
    kind = _TYPES.get(payload[1], f"type {payload[1]}")
    if payload[1] >= lib.CAREFUL_CTRL_BIT or len(payload) < sizeof("careful_hdr"):
        return kind
    hdr = unpack("careful_hdr", payload)
    text = f"{kind} seq {hdr['seq']}, credits {hdr['credits']}"
    if kind == "data":
        end = hdr["frag_off"] + hdr["frag_bytes"]
        text += f", bytes {hdr['frag_off']} to {end} of {hdr['msg_bytes']}"
    return text + (", sealed" if hdr["version"] & _SEALED else "")


def is_control(frame: Frame) -> bool:
    """Reports whether a frame holds a control message."""
    try:
        return bool(_datagram(frame.data)[2][1] & lib.CAREFUL_CTRL_BIT)
    except (struct.error, ValueError, IndexError):
        return False


def line(frame: Frame) -> str:
    """Returns time, hosts, kind, and an unusual verdict of XDP."""
    seconds, rest_ns = divmod(frame.time_ns, 10**9)
    clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest_ns // 1000:06}"
    try:
        source, target, payload = _datagram(frame.data)
        content = "no frame" if frame.verdict in _NO_FRAME else _content(payload)
        what = f"{source} > {target}: {content}"
    except (struct.error, ValueError, IndexError):
        what = "cut, or not a datagram"
    said = pcapng.comment(frame)
    arrow = "out" if frame.sent else "in "
    return f"{clock} {arrow} {frame.frame_bytes:5} B  {what}{f'; {said}' if said else ''}"
