"""Memory of another host: faults, sequential touching, vectors, programs and write-back.

Programs on h1 use a piece of h2 (memory_work.py), over a queue of their own, and attached to a
carefuld. The same programs run next to them, in the same round, with a handler over libnbd and TCP
from nbdkit's memory (nbd_pages.c). So do carefulctl's get and put of as many bytes, reads of 4 KiB
without a map, and faults from local memory. Each host has a core. --part runs one part and adds its
rounds to the kept ones. The bounds are for programs with a queue.

Needs root; tools/setup run bench installs nbdkit and libnbd.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_lab import (
    CPU,
    PYTHON,
    ROOT,
    SERVER_IP,
    beside,
    big_file,
    built,
    ctl,
    daemons,
    lab_up,
    on,
    pinned,
    run,
    untuned_bytes,
    up,
)

ROUNDS, ROWS = 5, "rounds"

PORT, MIB = 10809, 1 << 20
URI = f"nbd://{SERVER_IP}:{PORT}"
WORK = ROOT / "tools" / "bench" / "memory_work.py"
BEHIND = (0, 1, 3, 7, 15)  # pages
ONES, TRAINS = (64, 1024, 2048, 3072), (12, 20, 28)  # bytes of one fragment; full fragments
PROGRAMS = ("sum", "tree", "sqlite")
ATTACHED = "attached_"  # before the figures of programs that share carefuld's queue
Figures = dict[str, float]

#: Ratio -> its two figures, and the bound: at most, or at least.
RATIOS = {
    "fault / libnbd's, P50": ("fault_p50_us", "nbd_fault_p50_us", "most", 0.30),
    "fault / libnbd's, P99": ("fault_p99_us", "nbd_fault_p99_us", "most", 0.30),
    "fault / (read + local fault), P50": ("fault_p50_us", "sum_p50_us", "most", 1.10),
    "touching / get, rate": ("get_s", "touch_s", "least", 0.6),
    "readv of 64 / 64 reads, rate": ("single_s", "readv_s", "least", 4.0),
    "readv of 64 / libnbd's 64, rate": ("burst_s", "readv_s", "least", 5.0),
    "flush / put, rate": ("put_s", "flush_s", "least", 0.7),
    "model: largest error": ("error", "one", "most", 0.05),
} | {
    f"{name}, a quarter local / libnbd's": (f"{name}_s", f"nbd_{name}_s", "most", 0.4)
    for name in PROGRAMS
}


def work(arm: str, what: str, where: str, *words: object) -> Figures:
    """Returns the figures of a program on h1, the arm before each name."""
    found = json.loads(run(*pinned("h1", PYTHON, WORK, what, where, *words)))
    return {f"{arm}{name}": one for name, one in found.items()}


def both(what: str, name: object, nbytes: int, *words: object) -> Figures:
    """Returns the figures of a program with a queue of its own, and of an attached one."""
    if name == what:
        ctl("h1", "memory", "create", f"h2:{name}", nbytes)
    attached = work(ATTACHED, what, "h2", name, nbytes, *words)
    run(*on("h1", "carefulctl", "down", "eth1"))
    try:
        return attached | work("", what, "own:h2", name, nbytes, *words)
    finally:
        up("h1", "--insecure", "--cpu", CPU["h1"])


def nbdkit(*words: object) -> Any:
    """Serves over NBD as long as the block."""
    return beside("h2", "nbdkit", "-f", "--ipaddr", SERVER_IP, "-p", PORT, *words)


def faults(_: Path) -> Figures:
    """Returns quantiles of faults and reads."""
    found = both("faults", "faults", 256 * MIB) | work("local_", "faults", "://", "", 256 * MIB)
    for way in ("", ATTACHED):
        found[f"{way}sum_p50_us"] = found[f"{way}get_p50_us"] + found["local_fault_p50_us"]
    with nbdkit("memory", "256M"):
        return found | work("nbd_", "faults", URI, "", 256 * MIB)


def touch(folder: Path) -> Figures:
    """Returns how long touching 1 GiB takes, and a get of as much."""
    big_file(folder / "big", 1024 * MIB)
    found = both("touch", "touch", 1024 * MIB)
    return found | {"get_s": ctl("h1", "get", "h2:big", "null:")["elapsed_s"]}


def vectors(_: Path) -> Figures:
    """Returns how long 64 reads take: at once, one by one, and by libnbd."""
    found = both("vectors", "vectors", 256 * MIB)
    with nbdkit("memory", "256M"):
        return found | work("", "vectors", URI, "", 256 * MIB)


def writes(folder: Path) -> Figures:
    """Returns how long a changed map of 256 MiB takes to write back, and a put of as much."""
    big_file(folder / "big", 256 * MIB)
    found = both("writes", "writes", 256 * MIB)
    return found | {"put_s": ctl("h1", "put", "-f", folder / "big", "h2:copy")["elapsed_s"]}


def programs(folder: Path) -> Figures:
    """Returns how long programs take, with a quarter of their memory local, or all of it."""
    found: Figures = {}
    for name, nbytes in json.loads(run(PYTHON, WORK, "make", folder)).items():
        ctl("h1", "memory", "put", folder / name, f"h2:{name}")
        took = both("program", folder / name, nbytes)
        took |= work("local_", "program", "local", folder / name, nbytes)
        with nbdkit("-r", "file", folder / name):
            took |= work("nbd_", "program", URI, folder / name, nbytes)
        found |= {key.replace("program", name): value for key, value in took.items()}
    return found


def predicted_us(at: dict[int, float], frame_bytes: int, nbytes: int) -> float:
    """Returns P1's latency of a read: of its last fragment, behind full ones at the bottleneck.

    at: reads of one fragment, and of TRAINS full ones, as measured: P1's two regressions.
    """
    ones, trains = ([x for x in at if (x > frame_bytes) == k] for k in (False, True))
    alone, gap = (
        statistics.linear_regression(some, [at[x] for x in some]) for some in (ones, trains)
    )
    before = -(-nbytes // frame_bytes) - 1
    last = nbytes - before * frame_bytes
    return alone.intercept + alone.slope * last + gap.slope * before * frame_bytes


def model(_: Path) -> Figures:
    """Returns how long a page takes with n pages behind it, as measured and as predicted."""
    frame_bytes = untuned_bytes("h2")
    known = [*ONES, frame_bytes, *(k * frame_bytes for k in TRAINS)]
    reads = both("model", "model", 64 * MIB, *known, *((1 + n) * 4096 for n in BEHIND))
    found = {"one": 1.0}
    for way in ("", ATTACHED):
        at = {nbytes: reads[f"{way}{nbytes}_us"] for nbytes in known}
        for n in BEHIND:
            found[f"{way}behind_{n}_us"] = us = reads[f"{way}{(1 + n) * 4096}_us"]
            found[f"{way}predicted_{n}_us"] = predicted_us(at, frame_bytes, (1 + n) * 4096)
            error = abs(found[f"{way}predicted_{n}_us"] / us - 1)
            found[f"{way}error"] = max(error, found.get(f"{way}error", 0))
    return found


def draw(kept: dict[str, Any], path: Path) -> None:
    """Draws what the pages behind a fault cost."""
    from careful.render import figure

    drawn, pair = figure.axes("4 KiB and pages behind them", "pages behind", "latency (µs)")
    names, rows = {"measured": "behind", "predicted": "predicted"}, kept[ROWS]
    series = {k: [median_of(rows, f"{v}_{n}_us") for n in BEHIND] for k, v in names.items()}
    figure.lines(pair, [float(n) for n in BEHIND], series)
    figure.legend_below(pair)
    figure.save(drawn, path)


def median_of(rows: list[dict[str, Any]], name: str) -> float:
    """Returns the median of a figure."""
    return float(statistics.median(one[name] for one in rows if name in one))


PARTS: dict[str, Callable[[Path], Figures]] = {
    one.__name__: one for one in (faults, touch, vectors, writes, programs, model)
}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the parts, and the lab's MTU."""
    parser.add_argument("--part", choices=PARTS, help="this part alone")
    parser.add_argument("--mtu", type=int, default=3826, help="of the lab")


def stays(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Keeps the rounds of other parts."""
    return bool(args.part) and row["part"] != args.part


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the figures of each part of each round."""
    built("nbd_pages")
    with lab_up("--mtu", args.mtu):
        for number in range(args.rounds):
            for name in [args.part] if args.part else PARTS:
                with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                    own = {"h2": ("--lend", "2560MiB", "--export", f"{folder}:rw")}
                    with daemons("--insecure", own=own, pin=True):
                        found = PARTS[name](Path(folder))
                print(name, number, found, file=sys.stderr)
                yield {"part": name, "mtu": args.mtu, "load": round(os.getloadavg()[0])} | found


def ratio_of(rows: list[dict[str, Any]], above: str, below: str, way: str = "") -> float:
    """Returns the median of the rounds' ratios of two figures; way: prefix of the figures."""
    pairs = [[one.get(way + name, one.get(name, 0.0)) for name in (above, below)] for one in rows]
    return float(statistics.median([one[0] / one[1] for one in pairs if all(one)] or [math.nan]))


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; returns whether all bounds are met."""
    met, rows = True, kept[ROWS]
    for name in dict.fromkeys(key for row in rows for key in row if key[-2:] in ("us", "_s")):
        print(f"{name:46}{median_of(rows, name):10.4g}")
    for name, (above, below, side, bound) in RATIOS.items():
        ratio, attached = (ratio_of(rows, above, below, way) for way in ("", ATTACHED))
        good = ratio <= bound if side == "most" else ratio >= bound
        met &= good
        said = f"at {side} {bound}{'' if good else '  MISSED'}"
        print(f"{name:46}{ratio:10.2f}  {said}; attached: {attached:.2f}")
    for name in PROGRAMS:
        ratio = ratio_of(rows, f"{name}_s", f"local_{name}_s")
        print(f"{f'{name}, time over all local':46}{ratio:10.2f}")
    return met
