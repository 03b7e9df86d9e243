"""Remembers which directories of a source were mount points when its tree was last moved.

A disk that is not mounted looks like an empty directory, and --delete would empty the copy.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from careful.control.options.config import Config
from careful.control.state.state_dir import StateDir, place


def _directory(config: Config) -> Path:
    """Returns the state directory, or a user's own if the user may not write there."""
    path = place(config)
    if os.access(path if path.exists() else path.parent, os.W_OK, effective_ids=True):
        return path
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(home) / "careful"


class Mounts:
    """The recorded mount points of each pair of trees; see careful.transfer.options.Mounts."""

    def __init__(self, config: Config) -> None:
        self._state = StateDir(_directory(config))

    def read(self, trees: tuple[str, str]) -> set[str]:
        return set(self._state.read(_file(trees)).get("names", ()))

    def write(self, trees: tuple[str, str], names: set[str]) -> None:
        self._state.path.parent.mkdir(parents=True, exist_ok=True)
        self._state.write(_file(trees), {"trees": trees, "names": sorted(names)})


def _file(trees: tuple[str, str]) -> str:
    raw = "\0".join(trees).encode(errors="surrogateescape")
    return f"mounts-{hashlib.sha256(raw).hexdigest()[:16]}.json"
