"""The newest pathchar measurement of each peer, in the state directory, for `tune explain`."""

from __future__ import annotations

import time

from careful.control.state_dir import StateDir
from careful.jsonout import Json

FILE = "pathchar.json"
#: Most peers that are kept: those measured last.
PEERS_MAX = 64
_KEPT = ("kind", "reached", "hops", "stages", "bottleneck")


def keep(directory: StateDir, ip: str, figures: Json) -> None:
    """Keeps what `measure pathchar` found; nothing if the directory cannot be written."""
    kept = {key: figures[key] for key in _KEPT if key in figures} | {"at_s": time.time()}
    peers = _peers(directory) | {ip: kept}
    newest = sorted(peers, key=lambda one: -peers[one]["at_s"])[:PEERS_MAX]
    directory.write(FILE, {one: peers[one] for one in newest})


def newest(directory: StateDir, ip: str) -> Json | None:
    """Returns the figures of a peer with `ago_s`, or None."""
    found = _peers(directory).get(ip)
    return found and found | {"ago_s": round(max(0.0, time.time() - found["at_s"]), 1)}


def _peers(directory: StateDir) -> Json:
    """Returns the whole entries: another version may have written others."""
    return {
        ip: one
        for ip, one in directory.read(FILE).items()
        if isinstance(one, dict) and isinstance(one.get("at_s"), (int, float))
    }
