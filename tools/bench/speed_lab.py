"""Tells how busy each host's core was, and what a stream cost it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench_lab import CLIENT, CPU, SERVER

#: How often busiest() looks, and the span that it looks for.
LOOK_S, SPAN_S = 0.05, 0.5


def busy_s() -> dict[str, float]:
    """Seconds that each host's core was busy since the machine began: with what, is all one."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        for host, cpu in CPU.items():
            if name == f"cpu{cpu}":
                user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
                found[host] = (user + nice + system + irq + softirq) / tick
    return found


def share_of(seen: list[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Which part of the busiest half second each host's core was busy, by looks at busy_s()."""
    spans = [
        (at - began, before, then)
        for began, before in seen
        for at, then in seen
        if SPAN_S <= at - began < 2 * SPAN_S
    ]
    return {host: max((then[host] - now[host]) / s for s, now, then in spans) for host in CPU}


@contextlib.contextmanager
def busiest() -> Iterator[dict[str, float]]:
    """share_of() the block, at its end; the block takes longer than half a second.

    A stream begins some time after its program, and its program ends some time after it.
    """
    seen = [(time.monotonic(), busy_s())]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            seen.append((time.monotonic(), busy_s()))

    looks = threading.Thread(target=look)
    share: dict[str, float] = {}
    looks.start()
    try:
        yield share
    finally:
        ended.set()
        looks.join()
    share.update(share_of(seen))


def stream_costs(name: str, gbit: float, share: dict[str, float]) -> dict[str, float]:
    """A stream's rate, and what a GiB of it takes of each core, by busiest()."""
    gib_s = (8 << 30) / 1e9 / gbit
    return {
        f"{name}_gbit": gbit,
        f"cpu_{name}_client_s": share[CLIENT] * gib_s,
        f"cpu_{name}_server_s": share[SERVER] * gib_s,
    }
