"""A Dask cluster of four lab hosts over careful:// and over tcp://, in turn: a shuffle and a move.

The scheduler and the client run on h1, a worker on each other host. `shuffle`: an array in bands of
rows becomes one in bands of columns, so that each worker sends to each. `move`: arrays of one
worker are computed with on another. Owns a lab. Needs root; tools/setup run build test brings Dask.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench_lab import PYTHON, lab_up, on, process, run, up

ROUNDS = 3

DASK_HOSTS, PORT = ("h1", "h2", "h3", "h4"), 8786
WAYS = ("careful", "tcp")
JOB = """
import json, sys, time
import dask.array, numpy
from distributed import Client, wait

address, mib, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PART = 16 << 20

def made(seed):
    return numpy.full(PART // 8, float(seed))

def used(array):
    return float(array[0] + array[-1])

found = {"shuffle_s": [], "move_s": []}
with Client(address) as client:
    client.wait_for_workers(3, timeout=120)
    first, second = sorted(client.scheduler_info()["workers"])[:2]
    side = int((mib * 2**20 / 8) ** 0.5) // 12 * 12
    for one in range(rounds + 1):
        rows = dask.array.ones((side, side), chunks=(side // 12, side)).persist()
        wait(rows)
        began = time.monotonic()
        columns = rows.rechunk((side, side // 12)).persist()
        wait(columns)
        shuffle_s = time.monotonic() - began
        del rows, columns
        seeds = range(one * 1000, one * 1000 + max(1, mib * 2**20 // PART))
        arrays = client.map(made, seeds, workers=[first], pure=False)
        wait(arrays)
        began = time.monotonic()
        ends = client.gather(client.map(used, arrays, workers=[second], pure=False))
        move_s = time.monotonic() - began
        assert ends == [2.0 * seed for seed in seeds]
        del arrays
        if one:  # the first connects
            found["shuffle_s"].append(shuffle_s)
            found["move_s"].append(move_s)
print(json.dumps(found))
"""


def round_of(way: str, mib: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Returns how long a cluster over one way takes."""
    address = f"{way}://10.77.0.1"
    dask = (PYTHON, "-m", "dask")
    with ExitStack() as stack:
        scheduler = on("h1", *dask, "scheduler", "--host", address, "--port", PORT)
        stack.enter_context(process(scheduler, quiet=True))
        for host in DASK_HOSTS[1:]:
            worker = ("worker", f"{address}:{PORT}", "--nthreads", "1", "--no-nanny")
            own = ("--no-dashboard", "--memory-limit", "0", "--local-directory", folder / host)
            stack.enter_context(process(on(host, *dask, *worker, *own), quiet=True))
        said = run(*on("h1", PYTHON, "-c", JOB, f"{address}:{PORT}", mib, rounds))
    found: dict[str, list[float]] = json.loads(said)
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="of both ways [4]")
    parser.add_argument("--mib", type=int, default=1024, help="of the arrays [1024]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns every turn, and the medians of all."""
    turns: list[dict[str, Any]] = []
    with lab_up("--hosts", len(DASK_HOSTS)), tempfile.TemporaryDirectory() as folder:
        for host in DASK_HOSTS:
            up(host, "--insecure")
        for turn in range(args.turns):
            one: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                one[way] = round_of(way, args.mib, args.rounds, Path(folder))
            turns.append(one)
    found: dict[str, Any] = {"inputs": {"mib": args.mib, "rounds": args.rounds}}
    for what in ("shuffle_s", "move_s"):
        medians = {
            way: statistics.median(one for turn in turns for one in turn[way][what]) for way in WAYS
        }
        found[what] = {way: round(value, 3) for way, value in medians.items()}
        found[what]["careful_by_tcp"] = round(medians["careful"] / medians["tcp"], 3)
    return found | {"turns": turns}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians; nothing is judged."""
    for what in ("shuffle_s", "move_s"):
        print(f"{what:10}" + "".join(f"  {name} {value}" for name, value in kept[what].items()))
    return True
