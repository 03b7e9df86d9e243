"""Measures a program's cost of sharing carefuld's interface instead of owning a queue.

64-byte requests between two hosts of a lab: between programs that own their queues and between
programs attached to carefuld, in turn. All wait adaptively. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from bench_lab import BUILD, HOSTS, LAB, SERVER_IP, built, daemons, lab_up, on, process, run

ROUNDS = 5

COUNT, BYTES = 5000, 64


def asked(here: str, there: str) -> float:
    """Returns the median of a request and its reply, us."""
    pair = ("env", "PAIR_WAIT=adaptive", BUILD / "pair")
    with process(on("h2", *pair, "serve", there), ready="ready"):
        found = json.loads(run(*on("h1", *pair, "ask", here, SERVER_IP, BYTES, COUNT)))
    return float(found["p50_us"])


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns a value per round for both ways."""
    built("pair")
    took: dict[str, list[float]] = {"own_us": [], "attached_us": []}
    with lab_up():
        for _ in range(args.rounds):
            took["own_us"].append(asked("eth1", "eth1"))
            with daemons("--insecure"):
                took["attached_us"].append(
                    asked(*(f"/run/careful/{LAB}-{host}/sock" for host in HOSTS))
                )
    return {"veth": took}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians."""
    for name, each in kept["veth"].items():
        print(f"{name.removesuffix('_us'):<10}{statistics.median(each):>8.1f} us")
    return True
