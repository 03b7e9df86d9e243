"""Compares the model's predictions from a black box with the times of messages (measure model).

P1 section 5.4, Figure 8: a 4 KiB message over GAM in 1 to 10 fragments of one size; the paper's
error averages 5.9 %. Measures stores between two nodes, with plans like `carefulctl tune`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from bench_lab import CTL, HEAD, BenchError, ctl, daemons, fixed, served, within

BYTES = 4096
FRAGMENTS_MAX = 10
#: Stores of each count of fragments per run, and runs before the queue's owner changes.
REPEATS = 20
BATCH = 5
ERROR_MEAN_MAX = 0.03
BEST_MAX = 0.01


def predicted_us(found: dict[str, Any], fragments: int) -> float:
    """Returns the one-way latency with propagation from a black box's figures (P1 eq. 13)."""
    others_g_us: float = found["sum_g_us"] - found["g_b_us"]
    kib = BYTES / 1024
    once_us: float = others_g_us + kib * found["G_b_us_per_KiB"]
    others_us: float = kib / fragments * found["sum_G_others_us_per_KiB"]
    bottleneck_us: float = fragments * found["g_b_us"]
    return bottleneck_us + others_us + once_us


def planned(found: dict[str, Any]) -> int:
    """Returns the planned number of fragments of the message."""
    argv = [str(CTL), "plan", "--pipeline", "-", "--bytes", str(BYTES), "--json"]
    done = subprocess.run(argv, input=json.dumps(found), capture_output=True, text=True)
    if done.returncode:
        raise BenchError(done.stderr.strip())
    count: int = json.loads(done.stdout)["fragments_count"]
    return count


def black_boxes(count: int, *options: str) -> list[dict[str, Any]]:
    """Measures through carefuld, which is down again afterwards; options: of each measurement."""
    with daemons():
        return [ctl("h1", "measure", "blackbox", "h2", *options) for _ in range(count)]


def stores(count: int) -> list[dict[str, Any]]:
    """Returns latencies between two nodes: a line of stores.py for each run."""
    arms = [
        {"name": k, "plan": fixed(-(-BYTES // k)), "net_tx": None}
        for k in range(1, FRAGMENTS_MAX + 1)
    ]
    size = {"bytes": BYTES, "arms": arms}
    return served("sweep", {"sizes": [size] * count, "rounds": REPEATS})


def one(found: dict[str, Any], timed: dict[str, Any]) -> dict[str, Any]:
    """Returns a run's one-way latencies by number of fragments, predicted and measured.

    Takes the least of REPEATS, like a black box: the model has no scheduler.
    """
    back_us = min(timed["empty_us"]) / 2
    measured = {int(count): min(times) - back_us for count, times in timed["arms_us"].items()}
    names = ("g_b_us", "G_b_us_per_KiB", "sum_g_us", "sum_G_others_us_per_KiB", "elapsed_s")
    return {
        **{name: round(found[name], 3) for name in names},
        "back_us": round(back_us, 1),
        "predicted_us": {count: round(predicted_us(found, count), 1) for count in measured},
        "measured_us": {count: round(time_us, 1) for count, time_us in measured.items()},
        "planned_fragments": planned(found),
    }


def runs(count: int) -> Iterator[dict[str, Any]]:
    """Makes this many runs, in batches."""
    while count > 0:
        some = min(count, BATCH)
        for found, timed in zip(black_boxes(some), stores(some), strict=True):
            if found["reason"]:
                raise BenchError(f"black box: {found['reason']}")
            yield one(found, timed)
        count -= some


def judged(made: dict[str, Any]) -> tuple[float, float]:
    """Returns the mean error over the numbers of fragments, and the planned one's distance from the
    least.
    """
    measured = {int(count): time_us for count, time_us in made["measured_us"].items()}
    predicted = {int(count): time_us for count, time_us in made["predicted_us"].items()}
    errors = [abs(predicted[count] / measured[count] - 1) for count in measured]
    return statistics.mean(errors), measured[made["planned_fragments"]] / min(measured.values()) - 1


def report(made: list[dict[str, Any]]) -> bool:
    """Prints the table; reports whether all bounds are met."""
    print(
        f"{'fragments':>9} {'predicted':>10} {'measured':>10} {'error':>8}   medians of {len(made)}"
    )
    for count in made[0]["measured_us"]:
        pair = [
            statistics.median(one[name][count] for one in made)
            for name in ("predicted_us", "measured_us")
        ]
        print(f"{count:>9} {pair[0]:>10.0f} {pair[1]:>10.0f} {pair[0] / pair[1] - 1:>8.2%}")
    errors, beyond = (list(each) for each in zip(*(judged(one) for one in made), strict=True))
    chosen = statistics.multimode(one["planned_fragments"] for one in made)[0]
    print(HEAD)
    met = within("error of the model", made, errors, ERROR_MEAN_MAX)
    return within(f"{chosen} as planned", made, beyond, BEST_MAX) and met
