"""Measures how much time the receiver's engine saves if the kernel's workers write files.

Each round gets a file from memory to memory twice: first the engine copies it into the page cache,
then the workers do (`up --file-writes`). Both ends block when idle, so processor time is work. The
engine's time for a GiB bounds the rate of one queue with several hosts, if the workers have other
processors. Two hosts of a lab share two cores, so here they do not. Owns the lab. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_lab import (
    CLIENT,
    CTL,
    HOSTS,
    SERVER,
    SERVER_IP,
    big_file,
    daemons,
    lab_up,
    pinned,
    run,
    status,
)

ROUNDS = 5

WHO = ("engine", "workers")
NBYTES = 1 << 30
#: The bound on the receiver's engine time with workers, relative to without.
RATIO_MAX = 0.95


def threads_s(pid: int) -> tuple[float, float]:
    """Returns the processor time of carefuld's own thread, and of the kernel's workers for it."""
    own, workers = 0.0, 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        took_s = int((task / "schedstat").read_text().split()[0]) / 1e9
        if int(task.name) == pid:
            own = took_s
        elif (task / "comm").read_text().startswith("iou-"):
            workers += took_s
    return own, workers


def got(work: Path) -> float:
    """Returns the time of another get of the file."""
    (work / "out").unlink(missing_ok=True)
    began = time.monotonic()
    run(*pinned(CLIENT, CTL, "get", f"{SERVER_IP}:big", work / "out"))
    return time.monotonic() - began


def costs(work: Path, who: str) -> dict[str, Any]:
    """Returns the costs of the second of two files: the first one finds buffers untouched."""
    said = ("--xdp", "native", "--wait", "block", "--file-writes", who)
    with daemons("--export", work, *said, pin=True):
        got(work)
        pids = {host: int(status(host)["pid"]) for host in HOSTS}
        before = {host: threads_s(pid) for host, pid in pids.items()}
        row: dict[str, Any] = {"got_s": got(work)}
        for host, pid in pids.items():
            own, workers = (a - b for a, b in zip(threads_s(pid), before[host], strict=True))
            row |= {f"{host}_engine_s": own, f"{host}_workers_s": workers}
    return row


def measured(args: argparse.Namespace) -> dict[str, Any]:
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        big_file(Path(name) / "big", NBYTES)
        rows = [{who: costs(Path(name), who) for who in WHO} for _ in range(args.rounds)]
    return {"rounds": rows}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether the receiver's engine has less to do."""
    rounds = kept["rounds"]
    rows = {
        f"{what}, {part}": f"{host}_{part}_s"
        for host, what in ((SERVER, "sender"), (CLIENT, "receiver"))
        for part in ("engine", "workers")
    }
    print("s a GiB, medians   engine writes   workers write")
    for name, key in (rows | {"on the clock": "got_s"}).items():
        each = [statistics.median(one[who][key] for one in rounds) for who in WHO]
        print(f"{name:18} {each[0]:13.2f}   {each[1]:13.2f}")
    key = f"{CLIENT}_engine_s"
    ratios = [one["workers"][key] / one["engine"][key] for one in rounds]
    ratio = statistics.median(ratios)
    low, high = min(ratios), max(ratios)
    print(f"the receiver's engine, with workers / without: {ratio:.2f} ({low:.2f} to {high:.2f})")
    return bool(ratio <= RATIO_MAX)
