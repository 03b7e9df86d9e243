"""A slow disk at h2 of a lab, and writes from h1 to a file on it.

The slow_store and trapeze scenarios share it. The disk is a FUSE file system
(slowfs.c); the writes go through carefuld of both hosts.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import PYTHON, STORES, BenchError, built, given_as, on, process, run


@contextmanager
def slow_disk(
    g_us: float, G_us_per_KiB: float, nbytes: int, reads: tuple[float, float] = (0.0, 0.0)
) -> Iterator[Path]:
    """Yields a directory with slow writes and reads, and a file of this many bytes."""
    program = built("slowfs") / "slowfs"  # needs libfuse3
    with tempfile.TemporaryDirectory() as folder:
        backing, top = Path(folder) / "backing", Path(folder) / "top"
        backing.mkdir()
        top.mkdir()
        (backing / "file").write_bytes(bytes(nbytes))
        argv = [program, g_us, G_us_per_KiB, backing, top, *reads]
        with process([str(one) for one in argv]) as server:
            try:
                while not os.path.ismount(top):
                    if server.poll() is not None:
                        raise BenchError("slowfs: ended at once")
                    time.sleep(0.05)
                yield top
            finally:
                subprocess.run(["umount", "-l", top], check=False, capture_output=True)


def exports(top: Path) -> dict[str, tuple[object, ...]]:
    """Returns each host's options of `up`: h2 exports the disk."""
    peers = ("--peers", 2)
    return {"h1": peers, "h2": (*peers, "--export", f"{top}:rw", "--insecure")}


def arm(name: str, frame: int, write: int, piece: int) -> dict[str, Any]:
    """Returns an arm: payload of a frame, least write of the store, and bytes per write."""
    return {"name": name, "frame": frame, "write": write, "piece": piece}


def writes(lab: str, sizes: list[dict[str, Any]], rounds: int) -> list[dict[str, Any]]:
    """Returns the output of stores.py for writes to the file, by message size."""
    with given_as({"store": f"{lab}-h2", "sizes": sizes, "rounds": rounds}) as name:
        output = run(*on("h1", PYTHON, STORES, "write", name, lab=lab))
    return [json.loads(line) for line in output.splitlines()]
