"""Trapeze's page transfer on real frames: P3 section 4, a thousand times slower.

8 KiB cross the sender's DMA engine, the network's and the receiver's. The first two are emulated
links; the third is a store: h2 writes to a slow disk, and the engine's least write is P3's receive
threshold. Store-and-forward moves a page at once. Fixed pulses are frames of one size, each its own
write. Eager pulses are frames of 64 bytes, and an idle stage takes all waiting bytes: links and the
engine's store join frames. The table has careful.model's predictions, too. Owns two labs and a FUSE
disk (slowfs.c). Needs root.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bench_lab import CTL, LAB, lab_up, on, run
from careful.model.files import load_shipped
from careful.model.pulses import PAGE_BYTES, pulse_latency_us
from slow_disk import arm, exports, slow_disk, writes

ROUNDS = 5

SCALE = 1000
OPTIONS = ("--scale", str(SCALE), "--charge", "payload", "--mtu", "9000")
WHOLE = "store-and-forward"
#: Fixed pulses, bytes.
FIXED = (512, 768, 1024, 1152, 1280, 1376, 1664, 2048, 2736)
#: Frames of the eager arms, and the store's least writes there, bytes.
QUANTUM = 64
EAGER = (64, 128, 256, 512)
#: Least saving of eager pulses relative to store-and-forward (P3: 43 %), and least share of the
#: model's saving relative to the best fixed pulses.
SAVED_MIN, MODEL_SHARE = 0.40, 0.90
TRAPEZE = load_shipped("trapeze")


def hops(eager: bool) -> str:
    """Returns the links' file: the sender's DMA engine and the network.

    The first stage takes a page as one transfer in all arms, so its g is a delay. The control
    message's delay counts for the whole path.
    """
    first, second, last = TRAPEZE.stages
    joined = "[stage.link]\neager = 1\n" if eager else ""
    return "".join(
        f'[[stage]]\nname = "{stage.name}"\ng_us = {g_us}\n'
        f"G_us_per_KiB = {stage.G_us_per_KiB}\ndelay_us = {delay_us}\n{more}"
        for stage, g_us, delay_us, more in (
            (first, 0, first.g_us, ""),
            (second, second.g_us, last.delay_us, joined),
        )
    )


def arms(eager: bool) -> list[dict[str, Any]]:
    """Returns the ways to write a page, over links that join frames or do not."""
    if eager:
        return [arm(f"eager {pulse}", QUANTUM, pulse, PAGE_BYTES) for pulse in EAGER]
    fixed = [arm(f"fixed {pulse}", pulse, pulse, pulse) for pulse in FIXED]
    return [arm(WHOLE, PAGE_BYTES, PAGE_BYTES, PAGE_BYTES), *fixed]


def predicted_us(name: str) -> float:
    """Returns the model's latency of an arm, not scaled."""
    kind, _, pulse = name.partition(" ")
    if kind == "eager":
        return pulse_latency_us(TRAPEZE, PAGE_BYTES, kind, [QUANTUM, int(pulse)])
    return pulse_latency_us(TRAPEZE, PAGE_BYTES, kind, [int(pulse)] if pulse else [1])


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns every round of each arm, µs, interleaved."""
    disk = TRAPEZE.stages[-1]
    cost = (disk.g_us * SCALE, disk.G_us_per_KiB * SCALE, PAGE_BYTES)
    labs = {False: LAB, True: f"{LAB}e"}
    took: dict[str, list[float]] = {}
    empty: dict[str, list[float]] = {}
    with (
        slow_disk(*cost) as top,
        lab_up(*OPTIONS, hops=hops(False), lab=labs[False]),
        lab_up(*OPTIONS, hops=hops(True), lab=labs[True]),
    ):
        for lab in labs.values():
            for host, words in exports(top).items():
                run(*on(host, CTL, "up", "eth1", *words, lab=lab))
        for _ in range(args.rounds):
            for eager, lab in labs.items():
                size = {"bytes": PAGE_BYTES, "arms": arms(eager)}
                found = writes(lab, [size], 3)[0]
                for name, us in found["took_us"].items():
                    took.setdefault(name, []).extend(us)
                    empty.setdefault(name, []).extend(found["empty_us"])
    return {"scale": SCALE, "took_us": took, "empty_us": empty}


def latencies_us(found: dict[str, Any]) -> dict[str, float]:
    """Returns one-way latencies, not scaled, minus half of an empty request's time."""
    back_us = {name: statistics.median(us) / 2 for name, us in found["empty_us"].items()}
    return {
        name: (statistics.median(us) - back_us[name]) / SCALE
        for name, us in found["took_us"].items()
    }


def savings(latency_us: dict[str, float]) -> tuple[float, float]:
    """Returns what the best eager arm saves of store-and-forward, and of the best fixed pulses."""
    whole, fixed, eager = (
        min(us for name, us in latency_us.items() if name.startswith(kind))
        for kind in (WHOLE, "fixed", "eager")
    )
    return 1 - eager / whole, 1 - eager / fixed


def report(found: dict[str, Any]) -> bool:
    """Prints the table; reports whether eager pulses save enough."""
    ours = latencies_us(found)
    model = {name: predicted_us(name) for name in ours}
    print(f"{'us':<20}{'measured':>10}{'model':>10}{'error':>8}")
    for name, us in ours.items():
        print(f"{name:<20}{us:>10.1f}{model[name]:>10.1f}{us / model[name] - 1:>8.1%}")
    saved = {}
    for which, latency_us in (("measured", ours), ("model", model)):
        saved[which] = savings(latency_us)
        print(
            f"{which}: eager saves {saved[which][0]:.1%} of store-and-forward (P3: 43 %), "
            f"{saved[which][1]:.1%} of the best fixed (P3: 9 %)"
        )
    share = saved["measured"][1] / saved["model"][1]
    print(f"gain over the best fixed: {share:.0%} of the model's")
    return bool(saved["measured"][0] >= SAVED_MIN and share >= MODEL_SHARE)
