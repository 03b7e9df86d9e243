"""Status records have the fields of carefuld's structs under their own names."""

from __future__ import annotations

import socket
import struct

from careful._abi import ffi, lib
from careful.control.instance import records
from careful.control.options.config import Config


def test_peer__takes_a_field_before_one_without_the_unit() -> None:
    info = ffi.new(
        "struct careful_peer_info *",
        {"burst": lib.CAREFUL_BURST_SHORT, "burst_frames": 40, "window": 64, "lost_here": 3},
    )
    ffi.memmove(ffi.addressof(info, "address"), struct.pack("=H", socket.AF_INET), 2)
    peer = records.peer(info, ffi.new("struct careful_info *"), Config())
    assert (peer.burst, peer.burst_frames) == ("short", 40)
    assert (peer.window_buffers, peer.lost_here_frames) == (64, 3)
