"""Measures the answer time of 64 bytes after an idle second, and the cost of waiting.

In each round a program that owns its queue and waits adaptively answers (pair.c), then a program
that blocks on a TCP connection (in Python, which adds a few µs). Then an idle carefuld on each host
has a session with the other. Two hosts of a lab, one core each. Owns the lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from bench_lab import (
    BUILD,
    CLIENT,
    CTL,
    HOSTS,
    PYTHON,
    SERVER,
    SERVER_IP,
    beside,
    built,
    daemons,
    lab_up,
    on,
    pinned,
    run,
    status,
)

ROUNDS = 5

BYTES, IDLE_MS, COUNT = 64, 1000, 8
#: Both ends of careful's exchange wait.
ADAPTIVE = {"PAIR_WAIT": "adaptive", "PAIR_ASK": "wait"}
#: The two ends of a TCP connection. sockperf would spin between two messages.
ECHO = """
import socket
with socket.create_server(("10.77.0.2", 8023)) as listener:
    print("ready", flush=True)
    one, _ = listener.accept()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := one.recv(4096):
        one.sendall(data)
"""
ASK = """
import socket, statistics, sys, time
nbytes, count, took_ns = int(sys.argv[1]), int(sys.argv[2]), []
with socket.create_connection(("10.77.0.2", 8023)) as one:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(count):
        time.sleep(1)
        began = time.perf_counter_ns()
        one.sendall(bytes(nbytes))
        one.recv(nbytes, socket.MSG_WAITALL)
        took_ns.append(time.perf_counter_ns() - began)
print(statistics.median(took_ns) / 1e3)
"""
SETTLE_S, WATCH_S = 2.0, 5.0
RATIO_MAX, SHARE_MAX = 0.8, 0.01


def answered_us() -> float:
    """Returns the median of some round trips, each after an idle second, µs."""
    words = (BUILD / "pair", "ask", "eth1", SERVER_IP, BYTES, COUNT)
    with beside(SERVER, BUILD / "pair", "serve", "eth1", ready="ready", env=ADAPTIVE):
        env = ADAPTIVE | {"PAIR_IDLE_MS": str(IDLE_MS)}
        return float(json.loads(run(*pinned(CLIENT, *words), env=env))["p50_us"])


def on_cpu_ns(pid: int) -> int:
    """Returns the processor time of all threads of a process."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in stats)


def shares() -> dict[str, float]:
    """Returns the share of a core that an idle carefuld uses, by host."""
    with daemons("--xdp", "native", "--export", "/dev/shm", pin=True):
        run(*on(CLIENT, CTL, "ls", f"{SERVER_IP}:"))
        pids = {host: int(status(host)["pid"]) for host in HOSTS}
        time.sleep(SETTLE_S)
        began, before = time.monotonic(), {host: on_cpu_ns(pid) for host, pid in pids.items()}
        time.sleep(WATCH_S)
        took_ns = (time.monotonic() - began) * 1e9
        return {host: (on_cpu_ns(pid) - before[host]) / took_ns for host, pid in pids.items()}


def measured(args: argparse.Namespace) -> dict[str, Any]:
    built("pair")
    rows = []
    with lab_up():
        for _ in range(args.rounds):
            row: dict[str, Any] = {"careful_us": answered_us()}
            with beside(SERVER, PYTHON, "-c", ECHO, ready="ready"):
                row["tcp_us"] = float(run(*pinned(CLIENT, PYTHON, "-c", ASK, BYTES, COUNT)))
            rows.append(row | {"share": shares()})
    return {"bytes": BYTES, "idle_ms": IDLE_MS, "count": COUNT, "rounds": rows}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether both are within their bounds."""
    rounds = kept["rounds"]
    ratios = [one["careful_us"] / one["tcp_us"] for one in rounds]
    shares = [share for one in rounds for share in one["share"].values()]
    for name, key in (("careful, adaptive", "careful_us"), ("TCP, blocking", "tcp_us")):
        values = [one[key] for one in rounds]
        print(f"{name:18} {statistics.median(values):7.1f} µs ({min(values):.1f} to", end=" ")
        print(f"{max(values):.1f}), {kept['bytes']} bytes after an idle second")
    ratio, share = statistics.median(ratios), statistics.median(shares)
    print(f"careful / TCP {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; target {RATIO_MAX})")
    least = min(one["careful_us"] for one in rounds) / min(one["tcp_us"] for one in rounds)
    print(f"the least of each {least:.2f}")
    print(f"an idle carefuld {share:.2%} of a core (at most {max(shares):.2%}; target 1 %)")
    return bool(ratio <= RATIO_MAX and max(shares) < SHARE_MAX)
