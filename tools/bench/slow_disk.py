"""A slow disk behind h2 of a lab, and writes into a file of it from h1, cut as they are told.

What tools/bench/slow_store and tools/bench/trapeze share. The disk is a FUSE file system
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

from bench_lab import ROOT, TOOL, BenchError, run
from paths import PYTHON, STORES

CTL = PYTHON.with_name("carefulctl")


@contextmanager
def slow_disk(g_us: float, G_us_per_KiB: float, nbytes: int) -> Iterator[Path]:
    """A directory whose writes take so long, with a file of so many bytes."""
    program = ROOT / "build" / "bench" / "slowfs"
    with tempfile.TemporaryDirectory() as folder:
        backing, top = Path(folder) / "backing", Path(folder) / "top"
        backing.mkdir()
        top.mkdir()
        (backing / "file").write_bytes(bytes(nbytes))
        figures = (str(g_us), str(G_us_per_KiB))
        with subprocess.Popen([str(program), *figures, str(backing), str(top)]) as server:
            try:
                while not os.path.ismount(top):
                    if server.poll() is not None:
                        raise BenchError("slowfs: ended at once")
                    time.sleep(0.05)
                yield top
            finally:
                subprocess.run(["umount", "-l", top], check=False)
                server.terminate()


def on(lab: str, host: str, *argv: str | Path) -> str:
    """What a program prints on a host."""
    return run(TOOL, "exec", "--name", lab, host, "--", *argv)


def up(lab: str, top: Path) -> None:
    """Careful on both hosts; h2 exports the disk."""
    on(lab, "h1", CTL, "up", "eth1", "--peers", "2")
    on(lab, "h2", CTL, "up", "eth1", "--peers", "2", "--export", f"{top}:rw")


def tune(lab: str, fragment_bytes: int, block_bytes: int) -> None:
    """Frames at the sender, and the least write at the store."""
    on(lab, "h1", CTL, "tune", "set", "eth1", "--fragment-bytes", str(fragment_bytes))
    pulse = ("--sink", "store", "--minpulse-bytes", str(block_bytes))
    on(lab, "h2", CTL, "tune", "set", "eth1", *pulse)


def writes(lab: str, nbytes: int, piece_bytes: int) -> dict[str, list[float]]:
    """What stores.py says of three writes into the file, a piece each a write of its own."""
    words = ("write", "file", str(nbytes), str(piece_bytes))
    found: dict[str, list[float]] = json.loads(on(lab, "h1", PYTHON, STORES, *words))
    return found
