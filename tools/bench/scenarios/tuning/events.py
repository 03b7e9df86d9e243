"""P1's gain for events: messages of the event service, untuned and as planned, over GAM x 100.

h1 sends an event of 1 to 16 KiB to h2, which answers with an event of a byte. Untuned, an event
leaves in as few frames as possible, and a frame has one send buffer: 4 KiB are two frames. The plan
comes from a black box's measurement, the model's gain from its figures. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bench_lab import (
    PYTHON,
    STORES,
    BenchError,
    beside,
    fixed,
    given_as,
    lab_up,
    pinned,
    plans,
    run,
)
from predicted import BYTES, planned, predicted_us
from scenarios.tuning.regret import PATHS, planned_for

ROUNDS = 12

SIZES = (1024, 2048, 4096, 8192, 16384)
#: The least share of the model's gain at 4 KiB, P1's case.
GAIN_SHARE = 0.90


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the times of all rounds by size, and the planned fragments."""
    hops, options = PATHS["gam"]
    with lab_up(*options, hops=hops):
        found, classes, _ = plans()
        if found["reason"]:
            raise BenchError(f"not planned: {found['reason']}")
        sizes = []
        for nbytes in SIZES:
            untuned = {"name": "untuned", "plan": fixed(1 << 20), "net_tx": None}
            plan = {"name": "plan", **planned_for(nbytes, classes)}
            sizes.append({"bytes": nbytes, "arms": [untuned, plan]})
        with (
            given_as({"sizes": sizes, "rounds": args.rounds}) as name,
            beside("h2", PYTHON, STORES, "answer-events"),
        ):
            head, *lines = run(*pinned("h1", PYTHON, STORES, "events", name)).splitlines()
    counts = [-(-BYTES // json.loads(head)["frame_bytes"]), planned(found)]
    untuned_us, planned_us = (predicted_us(found, count) for count in counts)
    return {
        "fragments": counts,
        "model_gain": 1 - planned_us / untuned_us,
        "sizes": [json.loads(line) for line in lines],
    }


def report(found: dict[str, Any]) -> bool:
    """Prints the table; reports whether the gain at 4 KiB is near the model's."""
    print(f"{'event':>7} {'untuned':>10} {'planned':>10} {'gain':>6}   least of all rounds")
    gains: dict[int, float] = {}
    for size in found["sizes"]:
        back_us = min(size["empty_us"]) / 2
        took_us = [min(size["arms_us"][name]) - back_us for name in ("untuned", "plan")]
        gains[size["bytes"]] = gain = 1 - took_us[1] / took_us[0]
        cells = " ".join(f"{one / 1e3:>7.1f} ms" for one in took_us)
        print(f"{size['bytes'] // 1024:>3} KiB {cells} {gain:>6.1%}")
    untuned, count = found["fragments"]
    print(f"model at 4 KiB, {untuned} and {count} fragments: {found['model_gain']:.1%}")
    return bool(gains[BYTES] >= GAIN_SHARE * found["model_gain"])
