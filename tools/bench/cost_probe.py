"""Probes of the cost scenario: `push COUNT`, `seen`, `trips HOST PID BLOCKS TRIPS`.

`push` owns a queue and stores into h2's region, which stores.py serves there; `trips` asks
carefuld, and stops and continues the process PID. Each prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time

import careful
from careful.address import resolve
from careful.control import instances, live, maps, tune_entry
from careful.daemon.route import Route
from careful.measure.probes.exchange import ProbeSession
from careful.plan import Plan
from stores import HANDLE

MESSAGE = bytes(4096)
#: One message in 2 ms is measured: the first one after this pause is.
PAUSE_S = 0.004
#: Messages that are not measured cost so many tries at most.
TRIES = 4


def counts(entries: maps.PinnedMap, slot: int) -> dict[int, int]:
    """How many messages were measured, by version."""
    found: dict[int, int] = {}
    for (_, _, version), cell in live.cells_of(entries, [slot]).items():
        found[version] = found.get(version, 0) + cell.count
    return found


def push(count: int) -> list[dict[str, float]]:
    """Returns how long each push took until the call ended, and until a message used it, µs."""
    name = os.environ["CAREFUL_INSTANCE"]
    found: list[dict[str, float]] = []
    with careful.open("eth1") as node, maps.tune_map(name) as tune, maps.live_map(name) as measured:
        peer = node.connect("h2")
        region = peer.region(peer.request(HANDLE).result().payload)
        (slot,) = maps.sessions(name)
        for _ in range(100):
            region.store(MESSAGE).result()
        used: list[int] = []
        for number in range(TRIES * count):
            if len(found) == count:
                break
            time.sleep(PAUSE_S)
            node.poll()
            before = counts(measured, slot)
            plan = Plan.fixed(1024 + 512 * (number % 2))
            began = time.monotonic_ns()
            with tune_entry.one_writer(maps.pins(name)):
                tune_entry.apply(tune, [slot], {6: tune_entry.Setting(plan, {})})
            called = time.monotonic_ns()
            region.store(MESSAGE).result()
            ended = time.monotonic_ns()
            after = counts(measured, slot)
            rose = [one for one in after if after[one] > before.get(one, 0)]
            if not rose:  # nothing was measured
                used = []
                continue
            if len(rose) != 1 or rose == used:
                raise RuntimeError(f"the message used version {rose}, the one before {used}")
            used = rose
            found.append({"call_us": (called - began) / 1e3, "used_us": (ended - began) / 1e3})
    return found


def trips(host: str, pid: int, blocks: int, count: int) -> dict[str, list[float]]:
    """Medians of blocks of round trips of 64 bytes, µs, while a process runs and is stopped."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    one = instances.choose(os.environ["CAREFUL_INSTANCE"])
    try:
        with ProbeSession(Route(one.socket, one.name, resolve(host), host), 64) as to:
            to.round_trips(64, count)
            for block in range(2 * blocks):
                arm = "with" if block % 4 in (0, 3) else "without"  # neither is always first
                os.kill(pid, signal.SIGCONT if arm == "with" else signal.SIGSTOP)
                time.sleep(0.05)
                took = [each.round_us for each in to.round_trips(64, count)]
                found[arm].append(round(statistics.median(took), 3))
    finally:
        os.kill(pid, signal.SIGCONT)
    return found


def seen() -> int:
    """How many live messages of an instance were measured so far."""
    return sum(one.count for one in live.cells(os.environ["CAREFUL_INSTANCE"]).values())


if __name__ == "__main__":
    if sys.argv[1] == "push":
        print(json.dumps(push(int(sys.argv[2]))))
    elif sys.argv[1] == "seen":
        print(seen())
    else:
        print(json.dumps(trips(sys.argv[2], *map(int, sys.argv[3:]))))
