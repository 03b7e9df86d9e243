"""Memory of another host: faults, sequential touching, vectors and write-back.

One program on h1 measures a piece of h2: the fault of a page at random; a touch of each page in
sequence; `readv` of 64 pages and 64 single reads; and `flush` of a map in which each page was
changed. Next to them, in each round: 8 KiB reads by libnbd from nbdkit's memory over TCP, and
carefulctl's get and put of as many bytes. Each host has a core.

Not measured here: programs with a part of their memory local, 64 reads in flight by libnbd, the
bare get beside the fault, and the model of P1.

Needs root; tools/setup run bench installs nbdkit and libnbd.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench_lab import PYTHON, SERVER_IP, beside, big_file, built, ctl, daemons, lab_up, pinned, run

ROUNDS = 9

PORT = 10809
PROGRAM = """
import json, random, sys, time, careful.memory
h2, nbytes, clock = careful.memory.connect("h2"), int(sys.argv[1]), time.perf_counter
pages = range(0, nbytes, 4096)
def took(call, *args):
    began = clock()
    call(*args)
    return clock() - began
def touch(view, some, value=None):
    for at in some:
        if value is None:
            view[at]
        else:
            view[at] = value
with h2.create("bench", nbytes) as piece:
    piece.write(bytes(nbytes))
found = {}
with h2.open("bench") as piece:
    view = piece.map(writable=False)
    faults = sorted(took(view.__getitem__, at) for at in random.sample(pages, 2000))
    found["fault_p50_us"], found["fault_p99_us"] = faults[1000] * 1e6, faults[1980] * 1e6
    del view
with h2.open("bench") as piece:
    view = piece.map(writable=False)
    found["touch_s"] = took(touch, view, pages)
    parts = [(at, bytearray(4096)) for at in random.sample(pages, 64)]
    found["readv_s"] = min(took(piece.readv, parts) for _ in range(50))
    found["single_s"] = min(took(lambda: [piece.readv([one]) for one in parts]) for _ in range(9))
    del view
with h2.open("bench") as piece:
    view = piece.map()
    touch(view, pages, 7)
    found["flush_s"] = took(piece.flush)
    del view
h2.delete("bench")
print(json.dumps(found))
"""
#: Ratio -> its figures, and the bound: at most, or at least.
RATIOS = {
    "fault / libnbd's read, P50": ("fault_p50_us", "nbd_p50_us", "most", 0.30),
    "fault / libnbd's read, P99": ("fault_p99_us", "nbd_p99_us", "most", 0.30),
    "touching / get, rate": ("get_s", "touch_s", "least", 0.6),
    "readv of 64 / 64 reads, rate": ("single_s", "readv_s", "least", 4.0),
    "flush / put, rate": ("put_s", "flush_s", "least", 0.7),
}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the size of the piece."""
    parser.add_argument("--mib", type=int, default=256, help="size of the piece, MiB [256]")


def once(nbytes: int, folder: Path) -> dict[str, float]:
    """Returns the figures of a round."""
    found: dict[str, float] = json.loads(run(*pinned("h1", PYTHON, "-c", PROGRAM, nbytes)))
    nbd = json.loads(run(*pinned("h1", built("nbd") / "nbd", f"nbd://{SERVER_IP}:{PORT}")))
    found |= {f"nbd_{name}": nbd[name] for name in ("p50_us", "p99_us")}
    found["get_s"] = ctl("h1", "get", "h2:big", "null:")["elapsed_s"]
    found["put_s"] = ctl("h1", "put", "-f", folder / "big", "h2:copy")["elapsed_s"]
    return found


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of each round."""
    nbytes = args.mib << 20
    serve = ("nbdkit", "-f", "--ipaddr", SERVER_IP, "-p", PORT, "memory", "256M")
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        big_file(Path(name) / "big", nbytes)
        own = {"h2": ("--lend", 4 * nbytes, "--export", f"{name}:rw", "--insecure")}
        with daemons(own=own, pin=True), beside("h2", *serve):
            return {
                "bytes": nbytes,
                "rounds": [once(nbytes, Path(name)) for _ in range(args.rounds)],
            }


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; returns whether all bounds are met."""
    met = True
    for name in kept["rounds"][0]:
        print(f"{name:32}{statistics.median(one[name] for one in kept['rounds']):10.4g}")
    for name, (above, below, side, bound) in RATIOS.items():
        ratio = statistics.median(one[above] / one[below] for one in kept["rounds"])
        good = ratio <= bound if side == "most" else ratio >= bound
        met &= good
        print(f"{name:32}{ratio:10.2f}  at {side} {bound}{'' if good else '  MISSED'}")
    return met
