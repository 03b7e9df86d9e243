"""`carefulctl measure burst` as text and JSON."""

from __future__ import annotations

from careful._abi import CData, lib
from careful.control.instance.records import name_of
from careful.jsonout import Json


def burst_figures(info: CData) -> dict[str, object]:
    """Returns the path from the peer and its windows, from a `struct careful_peer_info`."""
    return {
        "kind": "burst",
        "burst": name_of("careful_burst_verdict", "CAREFUL_BURST_", info.burst),
        "burst_frames": info.burst_frames,
        "peer_window_buffers": info.window,
        "credits_window": info.credits_window,
        "frame_bytes": info.frame_bytes,
        "path_is_narrow": bool(info.flags & lib.CAREFUL_PEER_IS_NARROW),
    }


def sentence(found: Json, host: str) -> str:
    """Returns two lines: from the host, and to the host."""
    frames, most = found["burst_frames"], found["window_buffers"]
    path = {
        "whole": f"{frames} frames at once all arrived; more were not sent",
        "short": f"the path takes {frames} frames at once, and loses later ones",
        "lossy": f"the path loses frames, but not like a full queue: at most {frames} all arrived",
    }.get(
        found["burst"],
        "not measured: no train arrived. That host's careful is old, or a link on the way drops "
        "frames of that size",
    )
    narrow = ""
    if found["path_is_narrow"]:
        narrow = f"; a link on the way takes frames of {found['frame_bytes']} bytes at most"
    return (
        f"from {host}: {path}; it has a window of {found['peer_window_buffers']} (of {most})\n"
        f"towards {host}: it grants a window of {found['credits_window']}{narrow}"
    )
