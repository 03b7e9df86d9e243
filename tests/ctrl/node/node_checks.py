"""Checks of the cases in node_traffic.py and node_life.py."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from careful.node import Peer, RemoteRegion
from node_handlers import Handlers
from node_server import NBYTES

sys.path.append(str(Path(__file__).resolve().parents[2] / "support"))

from expects import beside_ticks, fails, raises

__all__ = ["beside_ticks", "fails", "raises"]

WANTED = np.arange(NBYTES, dtype=np.uint8)
HOST = sys.argv[2] if len(sys.argv) > 2 else "h2"


def regions_of(peer: Peer) -> list[RemoteRegion]:
    """Returns its array, its empty array, and its file."""
    handles = peer.request(Handlers.REGIONS).result(30).payload
    return [peer.region(handles[at : at + 16]) for at in range(0, len(handles), 16)]


def report(peer: Peer) -> list[Any]:
    found: list[Any] = json.loads(peer.request(Handlers.REPORT).result(30).payload)
    return found


@contextmanager
def said_by_log() -> Iterator[io.StringIO]:
    """Collects the log within the block."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("careful.node").addHandler(handler)
    yield heard
    logging.getLogger("careful.node").removeHandler(handler)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
