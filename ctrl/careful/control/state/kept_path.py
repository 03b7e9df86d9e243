"""The newest pathchar measurement of each peer, in the state directory, for tuning."""

from __future__ import annotations

import time

from careful.control.state.state_dir import StateDir
from careful.jsonout import Json

FILE = "pathchar.json"
#: Most peers that are kept: those measured last.
PEERS_MAX = 64
_KEPT = ("kind", "reached", "hops", "stages", "bottleneck")


def keep(directory: StateDir, ip: str, figures: Json) -> None:
    """Stores the result of `measure pathchar`, if the directory can be written."""
    entry = {key: figures[key] for key in _KEPT if key in figures} | {"at_s": time.time()}
    peers = _peers(directory) | {ip: entry}
    newest = sorted(peers, key=lambda peer: -peers[peer]["at_s"])[:PEERS_MAX]
    directory.write(FILE, {peer: peers[peer] for peer in newest})


def newest(directory: StateDir, ip: str) -> Json | None:
    """Returns the figures of a peer with `ago_s`, or None."""
    entry = _peers(directory).get(ip)
    return entry and entry | {"ago_s": round(max(0.0, time.time() - entry["at_s"]), 1)}


def _peers(directory: StateDir) -> Json:
    """Returns the valid entries: another version may have written the file."""
    return {
        ip: entry
        for ip, entry in directory.read(FILE).items()
        if isinstance(entry, dict) and isinstance(entry.get("at_s"), (int, float))
    }
