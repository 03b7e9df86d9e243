"""Draws P5's Figure 3 from a running engine: a burst falls back to large transfers.

Bursts of 8 KiB stores, planned in fragments of 1 KiB, over a bare veth: the first store leaves in
small pulses, the backlog in full frames. With --machines, a page between emulated machines
(`pulses`), where the disks and the card work by themselves, so that all stages overlap. Their times
come from the logs of the disks and the link; clocks are aligned by the least delay between stages.
Owns a lab or two machines. Needs root, and bcc or the packages of `tools/setup machines`.
Usage: tools/bench/run packet_flow FILE      draws the largest burst of five seconds, .png or .svg
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

from bench_lab import LAB, BenchError, ctl, fixed, lab_up, served
from careful.measure.inside.packet_flow import Burst, Transfer
from careful.model.pulses import PAGE_BYTES
from careful.render.tracing import trace_plots
from scenarios.papers import pulses
from scenarios.papers.trapeze import TRAPEZE

BYTES, FRAGMENT_BYTES, BURST, BURSTS = 8192, 1024, 4, 5000
#: The arm of `pulses` between machines.
ARM = "eager 512"


class Work(NamedTuple):
    """A stage's work on some bytes, ns of its own clock."""

    ready: int  # the earliest time at which it could have begun
    begin: int
    end: int
    nbytes: int


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", metavar="FILE", help=".png or .svg")
    parser.add_argument("--machines", action="store_true", help="between emulated machines")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Draws a burst on the veth, or one between machines."""
    if args.machines:
        trace_plots.frames(between_machines(), args.picture)
    else:
        on_veth(args.picture)
    return {"picture": args.picture}


def on_veth(picture: str) -> None:
    """Traces both hosts while bursts run, and draws the largest one."""
    arm = {
        "name": "pulses",
        "piece_bytes": None,
        "plan": fixed(FRAGMENT_BYTES),
        "net_tx": FRAGMENT_BYTES,
    }
    work = {"bytes": BYTES, "messages": 0, "stream": BURST, "under_way": BURST}
    words = ("--also", f"{LAB}-h2", "--plot", picture)
    with lab_up("--mtu", "9000"), ThreadPoolExecutor(1) as pool:
        sent = pool.submit(served, "both", {**work, "arms": [arm], "rounds": BURSTS})
        while True:
            try:
                ctl("h1", "trace", "frames", *words)
                break
            except BenchError:  # until both nodes are up
                if sent.done():
                    raise
        sent.result()


def between_machines() -> Burst:
    """Sends a page. Returns the work of the first disk, the link and the last disk."""
    (arm,) = [one for one in pulses.arms() if one["name"] == ARM]
    job = {"bytes": PAGE_BYTES, "rounds": 0, "arms": [arm | {"stream": 0}]}
    with pulses.machines(logs=True):
        pulses.timed(job)
        logs = [pulses.on(host, "cat", pulses.FILE_LOG) for host in pulses.HOSTS]
        frames = pulses.LINK_LOG.read_text()
    reads, writes = disk_work(logs[0], "r"), disk_work(logs[1], "w")
    return aligned([reads, link_work(frames, arm["frame"]), writes])


def disk_work(log: str, kind: str) -> list[Work]:
    rows = [line.split() for line in log.splitlines()]
    times = [(int(row[1]), int(row[2]), int(row[3])) for row in rows if row[0] == kind]
    return [Work(begin, begin, end, nbytes) for begin, end, nbytes in times]


def link_work(log: str, fragment_bytes: int) -> list[Work]:
    """Returns the link's work on a page: the last large frames from h1 to h2, after trains."""
    net = TRAPEZE.stages[1]
    found = []
    for line in log.splitlines():
        row = line.split()
        if len(row) == 4 and row[0] == "0" and int(row[3]) >= fragment_bytes:
            ready, end, nbytes = map(int, row[1:])
            took_us = pulses.SCALE * (net.g_us + net.G_us_per_KiB * nbytes / 1024)
            found.append(Work(ready, end - round(took_us * 1e3), end, nbytes))
    at, rest = len(found), PAGE_BYTES
    while at and rest > 0:
        at -= 1
        rest -= found[at].nbytes
    return found[at:]


def aligned(stages: list[list[Work]]) -> Burst:
    """Returns all stages' work by one clock. A byte is ready when the stage before has sent it."""
    names = (("hostTx", "h1"), ("netTx", "link"), ("store", "h2"))
    transfers, before, shift = list[Transfer](), list[Work](), stages[0][0].begin
    for (stage, owner), works in zip(names, stages, strict=True):
        if sum(one.nbytes for one in works) != PAGE_BYTES:
            raise BenchError(f"{stage}: the log has other bytes than those of a page")
        ends = [*zip(accumulate(one.nbytes for one in before), before, strict=True)]
        lasts = accumulate(one.nbytes for one in works)
        delays = [
            one.ready - next(earlier.end for byte, earlier in ends if byte >= last)
            for one, last in zip(works, lasts, strict=True)
            if ends
        ]
        shift += min(delays, default=0)
        for one in works:
            begin_us, end_us = ((ns - shift) / 1e3 for ns in (one.begin, one.end))
            transfers.append(Transfer(stage, owner, begin_us, end_us, one.nbytes, 1, (1,)))
        before = works
    return Burst(transfers, list(names), 1, 0)


def report(kept: dict[str, Any]) -> bool:
    """Prints the picture's file name."""
    print(kept["picture"])
    return True
