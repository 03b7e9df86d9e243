"""Measures writes of 1 to 64 KiB into a slow store, planned and otherwise.

The path is P1 section 5.5's: a network five times slower than GAM and a disk of 4 ms, all times 20.

Flat fragmentation uses fragments of one size in every stage and also on the disk: each is its own
write. The plan (P1 section 4.3) uses small frames in the network and blocks on the disk, by the
tune map's store threshold. Also measured are a sweep of frames and thresholds, whose best is chosen
on half of the rounds and judged on the other half, and frames of one size for all messages. Owns a
lab and a FUSE disk (slowfs.c). Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from bench_lab import CTL, LAB, PIPELINES, daemons, lab_up, run
from slow_disk import arm, exports, slow_disk, writes

ROUNDS = 8

SCALE = 20
KIB = 1024
SIZES = [KIB << i for i in range(7)]
#: A frame holds half of the largest message.
OPTIONS = ("--scale", str(SCALE), "--charge", "payload", "--mtu", "40000")
#: Fragments of a message in flat fragmentation.
FLAT = (1, 2, 3, 4, 8, 16)
#: Frames and least writes of the sweep, bytes.
FRAMES = (315, 630, 1260, 2521, 5042, 16384)
PULSES = (1260, 2521, 7563, 15126, 32768, 65536)
#: Frames of one size for all messages (P1 section 5.4), into an untuned store.
STATIC = {"4 KiB": 4096, "128 B": 128, "MTU": 65536}
UNTUNED = 65536
GAIN_MIN = 0.18
AVERAGE_MAX, WORST_MAX = 0.05, 0.10


def pipeline() -> tuple[str, float, float]:
    """Returns the network's stages as a file of links, and g and G of the disk."""
    head, *tables = (PIPELINES / "network-disk.toml").read_text().split("[[stage]]")
    disk = dict(line.split(" = ") for line in tables[-1].strip().splitlines())
    network = "".join("[[stage]]" + table for table in tables[:-1])
    return head + network, float(disk["g_us"]), float(disk["G_us_per_KiB"])


def planned() -> dict[int, dict[str, Any]]:
    """Returns the results of `carefulctl plan` by message size."""
    output = run(CTL, "plan", "--pipeline", "network-disk", "--classes", "--json")
    return {row["message_bytes_max"]: row for row in json.loads(output)["classes"]}


def arms(nbytes: int, frame: int, write: int) -> list[dict[str, Any]]:
    """Returns a message's arms; the sweep has only sizes that make a difference.

    frame, write: planned.
    """
    found = [arm("planned", frame, write, nbytes)]
    found += [arm(name, size, UNTUNED, nbytes) for name, size in STATIC.items()]
    for count in FLAT:
        size = -(-nbytes // count)
        if size >= KIB // 2:
            found.append(arm(f"flat {size}", size, size, size))
    frames = [frame for frame in FRAMES if nbytes <= 64 * frame and frame < nbytes]
    for frame in (*frames, nbytes):
        pulses = [pulse for pulse in PULSES if frame <= pulse < nbytes]
        found += [arm(f"{frame} by {pulse}", frame, pulse, nbytes) for pulse in (*pulses, nbytes)]
    return found


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Measures every round of each size, interleaved."""
    network, g_us, G_us_per_KiB = pipeline()
    rows = planned()
    cost = (g_us * SCALE, G_us_per_KiB * SCALE, SIZES[-1])
    made = []
    with slow_disk(*cost) as top, lab_up(*OPTIONS, hops=network), daemons(own=exports(top)):
        ours = {
            nbytes: (row["plan"]["first_bytes"], row["block_bytes"] or row["plan"]["first_bytes"])
            for nbytes, row in rows.items()
        }
        for nbytes in SIZES:
            tried = arms(nbytes, *ours[nbytes])
            found = writes(LAB, [{"bytes": nbytes, "arms": tried}], args.rounds)[0]
            made.append({"planned": tried[0], "model_us": rows[nbytes]["latency_us"]} | found)
    return {"scale": SCALE, "by": "plan", "sizes": made}


def of_size(size: dict[str, Any]) -> dict[str, float]:
    """Returns one message size's figures.

    These are the planned latency, ms, its regret relative to the sweep, and its gain over the best
    flat fragments.
    """
    back_us = min(size["empty_us"]) / 2
    halves = [
        {name: statistics.median(us[k::2]) - back_us for name, us in size["took_us"].items()}
        for k in (0, 1)
    ]
    found: dict[str, list[float]] = {}
    for choose, judge in (halves, halves[::-1]):  # each half judges once
        best = {
            kind: min((name for name in choose if kind in name), key=lambda name: choose[name])
            for kind in (" by ", "flat ")
        }
        found.setdefault("gain", []).append(judge[best["flat "]] / judge["planned"] - 1)
        for name in ("planned", *STATIC):
            found.setdefault(name, []).append(judge[name] / judge[best[" by "]] - 1)
    return {"ms": (statistics.median(size["took_us"]["planned"]) - back_us) / 1e3} | {
        name: statistics.mean(two) for name, two in found.items()
    }


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether the plan is near the best and gains enough over flat."""
    print(f"{'latency over the best of frames and thresholds':>74}")
    names = ("planned", *STATIC)
    print(f"{'message':>8} {'frame':>6} {'block':>6} {'ms':>8} {'model':>8}", end="")
    print("".join(f"{name:>10}" for name in names), f"{'gain over flat':>16}")
    sizes = kept["sizes"]
    rows = [of_size(size) for size in sizes]
    for size, row in zip(sizes, rows, strict=True):
        ours, model_ms = size["planned"], size["model_us"] * SCALE / 1e3
        print(f"{size['bytes']:>8} {ours['frame']:>6} {ours['write']:>6} ", end="")
        print(f"{row['ms']:>8.1f} {model_ms:>8.1f}", end="")
        print("".join(f"{row[name]:>10.1%}" for name in names), f"{row['gain']:>16.1%}")
    beyond = [row["planned"] for row in rows]
    average, worst, gain = statistics.mean(beyond), max(beyond), rows[-1]["gain"]
    print(f"planned over the best: {average:.1%} on average, {worst:.1%} at worst")
    print(f"gain over flat at 64 KiB: {gain:.1%} (P1, of blocks of one size: 21.3 %)")
    return bool(average <= AVERAGE_MAX and worst <= WORST_MAX and gain >= GAIN_MIN)
