"""Reads driver settings with ethtool's ioctl and iproute2's dcb; needs no privilege."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import socket
import struct
import subprocess
from dataclasses import dataclass

_SIOCETHTOOL = 0x8946
# <linux/ethtool.h>
_GCHANNELS, _GRINGPARAM, _GPAUSEPARAM = 0x3C, 0x10, 0x12
_GFLAGS, _FLAG_LRO = 0x25, 1 << 15


@dataclass(frozen=True)
class DriverInfo:
    """Settings of an interface's driver; None: the driver does not report the setting.

    Attributes:
        rx_queues: receive queues in use.
        combined: True if a queue both receives and sends.
        rx_ring: receive descriptors of a queue.
        rx_ring_most: most receive descriptors of a queue.
        lro: True if large receive offload is on.
        pause: whether pause frames (IEEE 802.3x) are obeyed, and whether they are sent.
    """

    rx_queues: int
    combined: bool
    rx_ring: int | None
    lro: bool | None
    pause: tuple[bool, bool] | None = None
    rx_ring_most: int | None = None


def _ask(sock: socket.socket, ifname: str, command: int, size: int) -> bytes | None:
    data = array.array("B", struct.pack("=I", command).ljust(size, b"\0"))
    address, _ = data.buffer_info()
    request = struct.pack("16sP16x", ifname.encode(), address)
    with contextlib.suppress(OSError):
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
        return data.tobytes()
    return None


def driver_info(ifname: str) -> DriverInfo:
    """Returns the settings that the driver reports."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        channels = _ask(sock, ifname, _GCHANNELS, 36)
        ring = _ask(sock, ifname, _GRINGPARAM, 36)
        flags = _ask(sock, ifname, _GFLAGS, 8)
        pause = _ask(sock, ifname, _GPAUSEPARAM, 16)
    # ethtool_channels: cmd, four maxima, then rx, tx, other, combined
    counts = struct.unpack("=9I", channels) if channels else (0,) * 9
    rings = struct.unpack("=9I", ring) if ring else (0,) * 9
    # ethtool_pauseparam: cmd, autoneg, rx, tx
    heeded, sent = struct.unpack("=4I", pause)[2:] if pause else (0, 0)
    bits = struct.unpack("=2I", flags)[1] if flags else None
    return DriverInfo(
        rx_queues=max(1, counts[5] + counts[8]),
        combined=counts[8] > 0,
        rx_ring=rings[5] or None,
        lro=None if bits is None else bool(bits & _FLAG_LRO),
        pause=(bool(heeded), bool(sent)) if pause else None,
        rx_ring_most=rings[1] or None,
    )


def pfc(ifname: str) -> frozenset[int] | None:
    """Returns the priorities with flow control (IEEE 802.1Qbb).

    Returns None if the driver has no such setting, or dcb (iproute2) is not installed.
    """
    try:
        done = subprocess.run(
            ["dcb", "-j", "pfc", "show", "dev", ifname],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else priorities(done.stdout)


def priorities(output: str) -> frozenset[int] | None:
    """Parses the output of `dcb -j pfc show`."""
    try:
        states = json.loads(output)["prio-pfc"]
    except (ValueError, KeyError, TypeError):
        return None
    return frozenset(index for index, state in enumerate(states) if state not in (0, False, "off"))
