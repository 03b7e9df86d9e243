"""A directory with slow writes: tools/bench/programs/slowfs.c over FUSE.

Owns the mount and its server; both are gone when the test ends.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "tools/bench/programs/slowfs.c"
START_S = 60.0


def _built(folder: Path) -> Path:
    """Returns the server; skips the test if it cannot be built."""
    compiler, config = shutil.which("cc"), shutil.which("pkg-config")
    if compiler is None or config is None or not Path("/dev/fuse").exists():
        pytest.skip("needs cc, pkg-config and /dev/fuse")
    flags = subprocess.run(
        [config, "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False
    )
    if flags.returncode:
        pytest.skip("no libfuse3 to build with")
    program = folder / "slowfs"
    argv = [compiler, "-O1", "-o", program, SOURCE, *shlex.split(flags.stdout)]
    subprocess.run(argv, check=True, capture_output=True)
    return program


@contextmanager
def slow_disk(
    g_us: float,
    G_us_per_KiB: float,
    top: Path,
    folder: Path,
    reads: tuple[float, float] = (0.0, 0.0),
) -> Iterator[subprocess.Popen[bytes]]:
    """Mounts a slow directory at the existing `top`; its files are in folder/backing. Yields its
    server.

    reads: g and G of a read; the others are a write's.
    """
    program, backing = _built(folder), folder / "backing"
    argv = [program, g_us, G_us_per_KiB, backing, top, *reads]
    with subprocess.Popen([str(one) for one in argv]) as server:
        try:
            end = time.monotonic() + START_S
            while not os.path.ismount(top):
                assert server.poll() is None, "slowfs ended at once"
                assert time.monotonic() < end, "slowfs does not begin"
                time.sleep(0.02)
            yield server
        finally:
            subprocess.run(["umount", "-l", top], check=False, capture_output=True)
            server.terminate()
