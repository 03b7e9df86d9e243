"""Measures how much a transfer keeps of its speed if something next to it does not move.

A file is got to null: alone, next to a get of the same host whose disk is frozen, and next to one
whose disk is frozen for nine tenths of the time. It must keep 80 % of its speed. Then both daemons
share one core, with each way to wait, and so do two programs that time a round trip. Adaptive must
be as good as blocking, because it notices that its spinning keeps the other end from running. Owns
a lab of two hosts, and a small ext4 on a loop device. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bench_lab import (
    HOSTS,
    SERVER_IP,
    BenchError,
    big_file,
    built,
    ctl,
    daemons,
    lab_up,
    on,
    process,
    run,
    status,
)

ROUNDS = 3

BYTES, HELD_BYTES = 1 << 30, 1 << 30
#: On one core some ways to wait are slow.
CORE_BYTES = 64 << 20
CORE = 1
FROZEN_S, THAWED_S = 0.09, 0.01
KEPT_MIN = 0.8
#: The least share of blocking's speed that adaptive has, and the most of its round trip.
ADAPTIVE_MIN, ADAPTIVE_MORE_MAX = 0.9, 1.5
DISKS = ("alone", "frozen", "frozen 90 %")
WAITS = ("spin", "adaptive", "block")


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """An ext4 of its own, mounted."""
    image, top = folder / "image", folder / "disk"
    image.touch()
    os.truncate(image, HELD_BYTES + HELD_BYTES // 4)
    run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    device = run("losetup", "--show", "-f", image).strip()
    top.mkdir()
    try:
        run("mount", "-t", "ext4", device, top)
        yield top
    finally:
        subprocess.run(["umount", "-l", top], check=False, capture_output=True)
        run("losetup", "-d", device)


@contextmanager
def freezing(arm: str, top: Path) -> Iterator[None]:
    """The disk stands, or nearly, meanwhile."""
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            run("fsfreeze", "-f", top)
            over.wait(3600 if arm == "frozen" else FROZEN_S)
            run("fsfreeze", "-u", top)
            time.sleep(THAWED_S)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        over.set()
        thread.join()


def got() -> float:
    """Seconds of a get to nowhere."""
    return float(ctl("h1", "get", "h2:big", "null:")["elapsed_s"])


def neighbour(arm: str, top: Path) -> float:
    """The same, while the other get waits for its disk."""
    if arm == "alone":
        return got()
    argv = on("h1", "carefulctl", "get", "--force", "--restart", "h2:held", str(top / "held"))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as other:
        try:
            before = status("h1")["counters"]["rx_frames"]
            while status("h1")["counters"]["rx_frames"] < before + 200:
                time.sleep(0.01)
            with freezing(arm, top):
                took_s = got()
                if other.poll() is not None:
                    raise BenchError("the other get ended first")
        finally:
            other.kill()
    for part in top.glob(".*.part"):
        part.unlink()
    return took_s


def spun(folder: Path, wait: str) -> AbstractContextManager[None]:
    """Starts careful on both hosts with a way to wait; h2 exports the files."""
    export = ("--export", folder / "export")
    return daemons("--xdp", "native", "--wait", wait, own={"h2": export})


def one_core(folder: Path, wait: str) -> dict[str, float]:
    """Speed of a get between daemons on one core, and a round trip between programs there."""
    with spun(folder, wait):
        for host in HOSTS:
            run("taskset", "-a", "-p", "-c", CORE, status(host)["pid"])
        took_s = float(ctl("h1", "get", "h2:little", "null:")["elapsed_s"])
    program = built("rtt") / "rtt"
    pinned = ("env", f"RTT_WAIT={wait}", "RTT_ASK=wait", "taskset", "-c", CORE, program)
    with process(on("h2", *pinned, "serve", "eth1"), ready="ready"):
        count = 200 if wait == "spin" else 5000
        said = json.loads(run(*on("h1", *pinned, "ask", "eth1", SERVER_IP, 64, count)))
    return {"gbit_per_s": CORE_BYTES * 8 / took_s / 1e9, "round_trip_us": said["p50_us"]}


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds; the files lie in memory."""
    rng = random.Random(1)
    built("rtt")
    if os.cpu_count() == 1:
        raise BenchError("needs two CPUs")
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "export").mkdir()
        for file, nbytes in (("big", BYTES), ("held", HELD_BYTES), ("little", CORE_BYTES)):
            big_file(folder / "export" / file, nbytes)
        with disk(folder) as top, spun(folder, "adaptive"):
            got()
            disks = [
                {arm: neighbour(arm, top) for arm in rng.sample(DISKS, len(DISKS))}
                for _ in range(args.rounds)
            ]
        cores = [
            {wait: one_core(folder, wait) for wait in rng.sample(WAITS, len(WAITS))}
            for _ in range(args.rounds)
        ]
    return {"bytes": BYTES, "disks": disks, "cores": cores}


def report(kept: dict[str, Any]) -> bool:
    """Prints both tables; whether the bounds are met."""
    met = True
    alone_s = statistics.median(one["alone"] for one in kept["disks"])
    print(f"{'the other disk':>16} {'s':>7} {'Gbit/s':>7} {'of alone':>9}")
    for arm in DISKS:
        took_s = statistics.median(one[arm] for one in kept["disks"])
        share = statistics.median(one["alone"] / one[arm] for one in kept["disks"])
        met = met and share >= KEPT_MIN
        speed = kept["bytes"] * 8 / took_s / 1e9
        print(f"{arm:>16} {took_s:>7.3f} {speed:>7.2f} {share:>9.2f}")
    print(f"one get alone: {alone_s:.3f} s\n")
    print(f"{'on one core':>16} {'Gbit/s':>7} {'round trip, us':>15}")
    of = {
        wait: [
            statistics.median(one[wait][what] for one in kept["cores"])
            for what in ("gbit_per_s", "round_trip_us")
        ]
        for wait in WAITS
    }
    for wait, (speed, trip) in of.items():
        print(f"{wait:>16} {speed:>7.2f} {trip:>15.1f}")
    met = met and of["adaptive"][0] >= ADAPTIVE_MIN * of["block"][0]
    return met and of["adaptive"][1] <= ADAPTIVE_MORE_MAX * of["block"][1]
