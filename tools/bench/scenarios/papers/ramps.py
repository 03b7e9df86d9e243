"""P1's ramps on real frames: messages of 2 to 8 KiB in equal fragments and in a ramp, times 100.

Over GMS (P1 Table 3) fragments grow (theorem 4); over a slow stage between two fast ones they grow,
then shrink (theorem 5). Both plans are the model's, from the links' own figures. Owns a lab for
each path. Needs root.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from bench_lab import PIPELINES, SCALED, lab_up, served
from careful.model import Pipeline, parse_pipeline
from careful.model.tunemap import fixed_plan, ramp_plan
from careful.plan import Limits, Plan

ROUNDS = 12
ROWS = "paths"

SIZES = (2048, 4096, 8192)
PATHS = {
    "gms": (PIPELINES / "gms.toml").read_text(),
    "fast-slow-fast": "\n".join(
        f'[[stage]]\nname = "stage {k}"\ng_us = {g_us}\nG_us_per_KiB = {G}\n'
        for k, (g_us, G) in enumerate(((2, 8), (10, 20), (2, 8)), 1)
    ),
}
#: Payload of a frame in the lab, so that the model's ramps fit.
LIMITS = Limits(64, 3750)
#: The largest difference between a measured gain and the model's, as shares of the time.
GAIN_ERROR_MAX = 0.01


def cuts(pipeline: Pipeline, nbytes: int) -> dict[str, tuple[Plan, float]]:
    """Returns the best plan of equal fragments and the best ramp, with their latencies in µs."""
    return {
        "equal": fixed_plan(pipeline, nbytes, LIMITS),
        "ramp": ramp_plan(pipeline, nbytes, LIMITS),
    }


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the times of all rounds over each path, and the model's."""
    for name, hops in PATHS.items():
        pipeline, sizes, more = parse_pipeline(hops), [], []
        for nbytes in SIZES:
            chosen = cuts(pipeline, nbytes)
            sizes.append(
                {
                    "bytes": nbytes,
                    "arms": [
                        {"name": arm, "plan": plan.as_dict(), "net_tx": None}
                        for arm, (plan, _) in chosen.items()
                    ],
                }
            )
            more.append(
                {
                    "fragments": {
                        arm: plan.sizes(nbytes, LIMITS) for arm, (plan, _) in chosen.items()
                    },
                    "model_us": {arm: us for arm, (_, us) in chosen.items()},
                }
            )
        with lab_up(*SCALED, hops=hops):
            found = served("sweep", {"sizes": sizes, "rounds": args.rounds})
        pairs = zip(found, more, strict=True)
        yield {"path": name, "sizes": [one | also for one, also in pairs]}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether all gains are the model's."""
    met = True
    print(f"{'path':<15}{'message':>8}{'equal':>10}{'ramp':>10}{'gain':>8}{'model':>8}   ramp")
    for path in kept["paths"]:
        for size in path["sizes"]:
            back_us = min(size["empty_us"]) / 2
            took = {arm: min(us) - back_us for arm, us in size["arms_us"].items()}
            gain, model = (one["equal"] / one["ramp"] - 1 for one in (took, size["model_us"]))
            met &= abs(gain - model) <= GAIN_ERROR_MAX
            cells = "".join(f"{took[arm] / 1e3:>7.2f} ms" for arm in ("equal", "ramp"))
            ramp = " ".join(map(str, size["fragments"]["ramp"]))
            print(
                f"{path['path']:<15}{size['bytes'] // 1024:>4} KiB{cells}{gain:>8.1%}{model:>8.1%}"
                f"   {ramp}"
            )
    return met
