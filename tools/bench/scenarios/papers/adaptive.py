"""P5's Table 1 on real frames: low latency when idle and high bandwidth, with one setting.

Messages of 8 KiB cross five equal hops, alone and in a stream. Fixed pulses are stores of that size
in sequence, which are never joined. Adaptive is one store with the planned fragments, which the
engine enlarges when they wait. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bench_lab import SCALED, BenchError, equal_hops, fixed, lab_up, plans, served

ROUNDS = 5

BYTES = 8192
#: Fixed pulses, bytes; the whole message is store-and-forward.
PULSES = (256, 512, 1024, 1366, 2048, 4096, 8192)
MESSAGES, STREAM, UNDER_WAY = 4, 120, 32
NEAR_MAX, APART_MIN = 0.05, 0.20


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns all rounds, with the plan."""
    with lab_up(*SCALED, hops=equal_hops(20, 20, 20, 20, 20)):
        found, planned, _ = plans()
        if found["reason"]:
            raise BenchError(f"not planned: {found['reason']}")
        plan = next(row["plan"] for row in planned if row["message_bytes_max"] >= BYTES)
        whole = {"plan": fixed(1 << 20), "net_tx": None}
        arms: list[dict[str, Any]] = [
            {"name": f"{size}", "piece_bytes": size, **whole} for size in PULSES
        ]
        arms.append({"name": "adaptive", "piece_bytes": None, "plan": plan, "net_tx": None})
        work = {"bytes": BYTES, "messages": MESSAGES, "stream": STREAM, "under_way": UNDER_WAY}
        made = served("both", {**work, "arms": arms, "rounds": args.rounds})
    return {"planned_bytes": plan["first_bytes"], **work, "rounds": made}


def table(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Returns each setting's latency of a single message, µs, and bandwidth, KiB/s."""
    rounds = found["rounds"]
    back_us = min(one["empty_us"] for one in rounds) / 2
    kib = found["bytes"] * found["stream"] / 1024
    return {
        name: (
            statistics.median(us for one in rounds for us in one["idle_us"][name]) - back_us,
            kib / statistics.median(one["stream_us"][name] for one in rounds) * 1e6,
        )
        for name in rounds[0]["idle_us"]
    }


def report(found: dict[str, Any]) -> bool:
    """Prints the table; reports whether adaptive is near both best values."""
    rows = table(found)
    print(f"8 KiB over five equal hops, medians of {len(found['rounds'])} rounds")
    print(f"{'pulses':>12}  {'idle':>9}  {'stream':>11}")
    for name, (idle_us, stream) in rows.items():
        note = "  store-and-forward" if name == str(found["bytes"]) else ""
        print(f"{name:>12}  {idle_us / 1e3:>6.1f} ms  {stream:>5.1f} KiB/s{note}")
    idle_us, stream = rows.pop("adaptive")
    quick, wide = min(rows, key=lambda n: rows[n][0]), max(rows, key=lambda n: rows[n][1])
    slower, narrower = idle_us / rows[quick][0] - 1, 1 - stream / rows[wide][1]
    apart = (rows[wide][0] / rows[quick][0] - 1, 1 - rows[quick][1] / rows[wide][1])
    print(
        f"adaptive: latency {slower:+.1%} of the best ({quick}), "
        f"bandwidth {-narrower:+.1%} of the best ({wide}); "
        f"those two are {apart[0]:.0%} and {apart[1]:.0%} apart"
    )
    return slower <= NEAR_MAX and narrower <= NEAR_MAX and min(apart) >= APART_MIN
