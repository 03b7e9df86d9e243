"""Draws P5's Figure 3 from a running engine: a burst falls back to large transfers.

Bursts of 8 KiB stores, planned in fragments of 1 KiB, over a bare veth: the first store leaves in
small pulses, the backlog in full frames. Owns a lab. Needs root and bcc.
Usage: tools/bench/run packet_flow FILE      draws the largest burst of five seconds, .png or .svg
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench_lab import LAB, BenchError, ctl, fixed, lab_up, served

BYTES, FRAGMENT_BYTES, BURST, BURSTS = 8192, 1024, 4, 5000


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", metavar="FILE", help=".png or .svg")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Traces both hosts while the bursts run, and draws the largest one."""
    arm = {
        "name": "pulses",
        "piece_bytes": None,
        "plan": fixed(FRAGMENT_BYTES),
        "net_tx": FRAGMENT_BYTES,
    }
    work = {"bytes": BYTES, "messages": 0, "stream": BURST, "under_way": BURST}
    words = ("--also", f"{LAB}-h2", "--plot", args.picture)
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
    return {"picture": args.picture}


def report(kept: dict[str, Any]) -> bool:
    """Prints the picture's file name."""
    print(kept["picture"])
    return True
