"""Memory of another host: faults, sequential touching, vectors, programs and write-back.

Programs on h1 use a piece of h2 (memory_work.py). The same programs run next to them, in the same
round, with a handler over libnbd and TCP from nbdkit's memory (nbd_pages.c). So do carefulctl's get
and put of as many bytes, reads of 4 KiB without a map, and faults from local memory. Each host has
a core. --part runs one part and adds its rounds to the kept ones.

Needs root; tools/setup run bench installs nbdkit and libnbd.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_lab import (
    CTL,
    PYTHON,
    ROOT,
    SERVER_IP,
    BenchError,
    beside,
    big_file,
    built,
    ctl,
    daemons,
    lab_up,
    pinned,
    run,
    untuned_bytes,
)

ROUNDS, ROWS = 5, "rounds"

PORT, MIB = 10809, 1 << 20
URI = f"nbd://{SERVER_IP}:{PORT}"
LOCAL = "://"  # nbd_pages.c without a server
WORK = ROOT / "tools" / "bench" / "memory_work.py"
BEHIND = (0, 1, 3, 7, 15)  # pages
PROGRAMS = ("sum", "tree", "sqlite")
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


def work(what: str, where: str, *words: object) -> Figures:
    """Returns the figures of a program on h1."""
    found: Figures = json.loads(run(*pinned("h1", PYTHON, WORK, what, where, *words)))
    return found


def nbdkit(*words: object) -> Any:
    """Serves over NBD as long as the block."""
    return beside("h2", "nbdkit", "-f", "--ipaddr", SERVER_IP, "-p", PORT, *words)


def piece(name: str, nbytes: int) -> None:
    """Makes a piece of zeros."""
    ctl("h1", "memory", "create", f"h2:{name}", nbytes)


def faults(_: Path) -> Figures:
    """Returns quantiles of faults and reads."""
    piece("faults", 256 * MIB)
    found = work("faults", "h2", "faults", 256 * MIB)
    local = work("faults", LOCAL, "", 256 * MIB)
    with nbdkit("memory", "256M"):
        nbd = work("faults", URI, "", 256 * MIB)
    return (
        found
        | {f"nbd_{name}": one for name, one in nbd.items()}
        | {f"local_{name}": one for name, one in local.items()}
        | {"sum_p50_us": found["get_p50_us"] + local["fault_p50_us"]}
    )


def touch(folder: Path) -> Figures:
    """Returns how long touching 1 GiB takes, and a get of as much."""
    piece("touch", 1024 * MIB)
    big_file(folder / "big", 1024 * MIB)
    return work("touch", "h2", "touch", 1024 * MIB) | {
        "get_s": ctl("h1", "get", "h2:big", "null:")["elapsed_s"]
    }


def vectors(_: Path) -> Figures:
    """Returns how long 64 reads take: at once, one by one, and by libnbd."""
    piece("vectors", 256 * MIB)
    found = work("vectors", "h2", "vectors", 256 * MIB)
    with nbdkit("memory", "256M"):
        return found | work("vectors", URI, "", 256 * MIB)


def writes(folder: Path) -> Figures:
    """Returns how long a changed map of 256 MiB takes to write back, and a put of as much."""
    piece("writes", 256 * MIB)
    big_file(folder / "big", 256 * MIB)
    return work("writes", "h2", "writes", 256 * MIB) | {
        "put_s": ctl("h1", "put", "-f", folder / "big", "h2:copy")["elapsed_s"]
    }


def programs(folder: Path) -> Figures:
    """Returns how long programs take, with a quarter of their memory local, or all of it."""
    found: Figures = {}
    sizes: dict[str, int] = json.loads(run(PYTHON, WORK, "make", folder))
    for name, nbytes in sizes.items():
        ctl("h1", "memory", "put", folder / name, f"h2:{name}")
        arms = {"": "h2", "local_": "local", "nbd_": URI}
        with nbdkit("-r", "file", folder / name):
            for arm, where in arms.items():
                took = work("program", where, folder / name, nbytes)
                found[f"{arm}{name}_s"] = took["program_s"]
    return found


def latency_us(pipeline: dict[str, Any], nbytes: int, frame_bytes: int) -> float:
    """Returns P1's latency of a message in whole frames, one way."""
    argv = [str(CTL), "plan", "--pipeline", "-", "--bytes", str(nbytes), "--json"]
    argv += ["--strategy", "fixed", "--fragments", str(-(-nbytes // frame_bytes))]
    done = subprocess.run(argv, input=json.dumps(pipeline), capture_output=True, text=True)
    if done.returncode:
        raise BenchError(done.stderr.strip())
    return float(json.loads(done.stdout)["latency_us"])


def model(_: Path) -> Figures:
    """Returns how long a page takes with n pages behind it, as measured and as predicted."""
    piece("model", 64 * MIB)
    found = work("behind", "h2", "model", 64 * MIB, *BEHIND)
    pipeline, frame_bytes = ctl("h1", "measure", "clearbox", "h2"), untuned_bytes("h1")
    one_way = [latency_us(pipeline, (1 + n) * 4096, frame_bytes) for n in BEHIND]
    # The request and the wakeups: the same for each n.
    rests_us = [found[f"behind_{n}_us"] - us for n, us in zip(BEHIND, one_way, strict=True)]
    rest_us = statistics.median(rests_us)
    predicted = {f"predicted_{n}_us": us + rest_us for n, us in zip(BEHIND, one_way, strict=True)}
    errors = [abs(predicted[f"predicted_{n}_us"] / found[f"behind_{n}_us"] - 1) for n in BEHIND]
    return found | predicted | {"one": 1.0, "error": max(errors)}


def draw(kept: dict[str, Any], path: Path) -> None:
    """Draws what the pages behind a fault cost."""
    from careful.render import figure

    drawn, pair = figure.axes("4 KiB and pages behind them", "pages behind", "latency (us)")
    series = {
        name: [statistics.median(kept_of(kept, f"{name}_{n}_us")) for n in BEHIND]
        for name in ("behind", "predicted")
    }
    figure.lines(pair, [float(n) for n in BEHIND], series)
    figure.legend_below(pair)
    figure.save(drawn, path)


def kept_of(kept: dict[str, Any], name: str) -> list[float]:
    """Returns a figure of all rounds that have it."""
    return [one[name] for one in kept[ROWS] if name in one]


PARTS: dict[str, Callable[[Path], Figures]] = {
    one.__name__: one for one in (faults, touch, vectors, writes, programs, model)
}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the parts."""
    parser.add_argument("--part", choices=PARTS, help="this part alone")


def stays(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Keeps the rounds of other parts."""
    return bool(args.part) and row["part"] != args.part


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the figures of each part of each round."""
    built("nbd_pages")
    with lab_up():
        for number in range(args.rounds):
            for name in [args.part] if args.part else PARTS:
                with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                    own = {"h2": ("--lend", "2560MiB", "--export", f"{folder}:rw")}
                    with daemons("--insecure", own=own, pin=True):
                        found = PARTS[name](Path(folder))
                print(name, number, found, file=sys.stderr)
                yield {"part": name, "load": round(os.getloadavg()[0], 1)} | found


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; returns whether all bounds are met."""
    met = True
    rows: list[dict[str, Any]] = kept[ROWS]
    for name in dict.fromkeys(key for row in rows for key in row if key[-2:] in ("us", "_s")):
        print(f"{name:36}{statistics.median(kept_of(kept, name)):10.4g}")
    for name, (above, below, side, bound) in RATIOS.items():
        found = [one[above] / one[below] for one in rows if above in one]
        ratio = statistics.median(found) if found else float("nan")
        good = ratio <= bound if side == "most" else ratio >= bound
        met &= good
        print(f"{name:36}{ratio:10.2f}  at {side} {bound}{'' if good else '  MISSED'}")
    for name in PROGRAMS:
        over = [one[f"{name}_s"] / one[f"local_{name}_s"] for one in rows if f"{name}_s" in one]
        if over:
            print(f"{f'{name}, time over all local':36}{statistics.median(over):10.2f}")
    return met
