"""A program and a transfer next to a program that misbehaves at the same carefuld.

On the first of two hosts a program asks one of the other host (64 bytes there and back,
tools/bench/rtt), and a file is fetched: alone, and next to each misdeed of
tests/support/rogue_program.py. A rogue may use the cores and the path like any program. So a rogue
that computes all the time is compared with two processes that spin, and one that keeps both
carefulds at work with an honest program that stores. Neither the request nor the file may take more
than 1.5 times as long as next to those, or alone. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import (
    BUILD,
    HOSTS,
    LAB,
    PYTHON,
    ROOT,
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

ROUNDS = 5

COUNT, FILE_BYTES, MOST = 2000, 256 << 20, 1.5
ROGUE = ROOT / "tests" / "support" / "rogue_program.py"
#: No program has it: carefuld answers.
NOBODY = 120
SPIN = "import os; print('begun', flush=True); os.fork()\nwhile True: pass"
#: The base that each arm is compared with.
BASES = {
    "rubbish": "spin",
    "changing": "spin",
    "requests": "honest",
    "one-way": "honest",
    "stores": "honest",
    "gets": "honest",
    "dies": "spin",
    "stopped": "alone",
}
ARMS = ("alone", "spin", "honest", *BASES)
#: As much as a program may have under way, by the library.
HONEST = """
import careful, collections
with careful.connect(name="honest", memory_bytes=1 << 20) as node:
    h2, mine = node.connect("10.77.0.2"), node.memory(1 << 20)
    table, flying = h2.region(h2.request(101).result().payload), collections.deque()
    print("begun", flush=True)
    while True:
        while len(flying) < 8:
            flying.append(table.store(mine, 0))
        flying.popleft().result()
"""
#: The other host's, for rogues.
SERVES = """
import asyncio, careful
async def never(message):
    await asyncio.sleep(1e6)
async def main():
    async with careful.connect(name="serves") as node:
        table = node.register(node.memory(1 << 20))
        node.handle(101, lambda message: table)
        node.handle(103, never)
        print("ready", flush=True)
        await node.serve_forever()
asyncio.run(main())
"""


def sock(host: str) -> str:
    """Returns the socket of a host's carefuld."""
    return f"/run/careful/{LAB}-{host}/sock"


def programs() -> dict[str, Any]:
    """Returns the programs at the first host's carefuld, by name."""
    return {one["name"]: one for one in status("h1")["programs"]}


@contextmanager
def misdeed(arm: str) -> Iterator[None]:
    """Runs the arm's other program as long as the block."""
    if arm == "alone":
        yield
        return
    if arm == "spin":
        argv = on("h1", PYTHON, "-c", SPIN)
    elif arm == "honest":
        argv = on("h1", PYTHON, "-c", HONEST)
    else:
        deed = "fills" if arm == "stopped" else arm
        argv = on("h1", PYTHON, ROGUE, sock("h1"), SERVER_IP, deed, NOBODY)
    with process(argv, ready="begun"):
        if arm == "stopped":
            while programs()["fills"]["operations"] < 128:
                time.sleep(0.05)
            os.kill(programs()["fills"]["pid"], signal.SIGSTOP)
        yield


def one_round(rng: random.Random) -> dict[str, Any]:
    """Each arm once, in any order; after each all of it is gone."""
    made: dict[str, Any] = {}
    rtt = ("env", "RTT_WAIT=adaptive", BUILD / "rtt", "ask", sock("h1"), "10.77.0.2", 64, COUNT)
    for arm in rng.sample(ARMS, len(ARMS)):
        with misdeed(arm):
            trip = json.loads(run(*on("h1", *rtt)))
            fetched = ctl("h1", "get", "h2:big", "null:")
        until = time.monotonic() + 30
        while programs():
            if time.monotonic() > until:
                raise BenchError(f"{arm}: the program is there yet")
            time.sleep(0.05)
        made[arm] = {"trip_us": trip["p50_us"], "get_s": fetched["elapsed_s"]}
    return made


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds; the file lies in memory."""
    rng = random.Random(1)
    built("rtt")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, lab_up():
        big_file(Path(folder, "big"), FILE_BYTES)
        serve = on("h2", "env", "RTT_WAIT=adaptive", BUILD / "rtt", "serve", sock("h2"))
        table = on("h2", PYTHON, "-c", SERVES)
        with (
            daemons("--insecure", own={"h2": ("--export", f"{folder}:rw")}),
            process(serve, ready="ready"),
            process(table, ready="ready"),
        ):
            ctl("h1", "get", "h2:big", "null:")
            kept = [one_round(rng) for _ in range(args.rounds)]
            lost = [status(host)["counters"] for host in HOSTS]
    names = ("lost_frames", "epochs_broken", "drop_crc")
    counted = {name: sum(one[name] for one in lost) for name in names}
    return {"rounds": kept, "lost": counted}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; whether the bound is met, and no frame was lost."""
    rounds = kept["rounds"]
    met = not any(kept["lost"].values())
    print(f"{'':>10} {'trip, us':>9} {'of alone':>9} {'of base':>8}", end="")
    print(f" {'get, s':>7} {'of alone':>9} {'of base':>8}")
    for arm in ARMS:
        print(f"{arm:>10}", end="")
        for name, width, digits in (("trip_us", 9, 1), ("get_s", 7, 3)):
            took = statistics.median(one[arm][name] for one in rounds)
            alone, base = (
                statistics.median(one[arm][name] / one[of][name] for one in rounds)
                for of in ("alone", BASES.get(arm, arm))
            )
            met = met and base <= MOST
            print(f" {took:>{width}.{digits}f} {alone:>9.2f} {base:>8.2f}", end="")
        print(f"  ({BASES[arm]})" if arm in BASES else "")
    print("lost: " + ", ".join(f"{name} {count}" for name, count in kept["lost"].items()))
    return met
