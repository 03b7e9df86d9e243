"""Measures what it costs a program to share carefuld's interface instead of owning a queue.

`null`: two engines joined in memory, two threads on two cores (tools/bench/attach.c), and the
hand-over of a request between program and carefuld. `veth`: 64-byte requests between two hosts of a
lab, once from and to programs that own their queues, once from and to programs that are attached,
everything waiting adaptively; the two take turns. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from bench_lab import BUILD, HOSTS, LAB, SERVER_IP, built, daemons, lab_up, on, process, run

ROUNDS = 5

COUNT, BYTES = 20000, 64


def asked(here: str, there: str) -> float:
    """The median of a request and its reply, us."""
    rtt = ("env", "RTT_WAIT=adaptive", BUILD / "rtt")
    with process(on("h2", *rtt, "serve", there), ready="ready"):
        found = json.loads(run(*on("h1", *rtt, "ask", here, SERVER_IP, BYTES, COUNT)))
    return float(found["p50_us"])


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """A value a round."""
    built("attach", "rtt")
    null = [json.loads(run(BUILD / "attach", str(COUNT * 5))) for _ in range(args.rounds)]
    own, beside_it = [], []
    with lab_up():
        for _ in range(args.rounds):
            own.append(asked("eth1", "eth1"))
            with daemons("--insecure"):
                socks = (f"/run/careful/{LAB}-{host}/sock" for host in HOSTS)
                beside_it.append(asked(*socks))
    return {"null": null, "veth": {"own_us": own, "attached_us": beside_it}}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians."""
    for name in ("own", "attached", "rings", "handover"):
        each = [one[f"{name}_ns"] for one in kept["null"]]
        print(f"null  {name:<10}{statistics.median(each):>10.0f} ns")
    for name, each in kept["veth"].items():
        print(f"veth  {name.removesuffix('_us'):<10}{statistics.median(each) * 1e3:>10.0f} ns")
    return True
