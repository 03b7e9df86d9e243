"""Times the operations on a frame that only one protocol needs, ns (P2's appendix A).

Sends requests and replies of 4 bytes over a device in memory, with both protocols in turn. Link is
built with timers (datapath/link/operation_timer.h). The time of each clock reading is subtracted.
Prints the median over the rounds of each round's mean without outliers, and draws histograms.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench_lab import built, run
from careful.render import figure

ROUNDS = 5

PROTOCOLS = ("careful", "traditional")
#: Operations of link/operation_timer.h: name -> its work with careful, and with the other.
OPERATIONS = {
    "send": ("number, credits, window update", "number, kept copy, acknowledgement"),
    "left": ("free the send buffers", "keep the send buffers"),
    "heed": ("", "free the acknowledged buffers"),
    "take": ("number, credits", "number, buffers, order"),
    "check": ("", "check the bytes (careful: above link)"),
    "tell": ("send an update if due", "send an acknowledgement if due"),
    "tick": ("", "repeat requests"),
}
#: Not counted, since both protocols do it.
_BOTH = ("check",)
COUNT = 100_000
WITHOUT_LAB = True


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the rounds of both protocols."""
    program = built("null_operations") / "null_operations"
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PROTOCOLS}
    for _ in range(args.rounds):
        for name, runs in found.items():
            words = [str(program), "operations", str(COUNT), "4"]
            words += ["traditional"] if name == "traditional" else []
            runs.append(json.loads(run(*words).splitlines()[-1]))
    return {"rounds": found}


def cost_ns(runs: list[dict[str, Any]], operation: str) -> float:
    """Returns the cost of a request and its reply in the median round, ns."""
    return float(
        statistics.median(one[operation]["each"] * one[operation]["mean_ns"] for one in runs)
    )


def report(kept: dict[str, Any]) -> bool:
    """Prints a row for each operation, and the sums."""
    rounds = kept["rounds"]
    total = dict.fromkeys(PROTOCOLS, 0.0)
    print("a request and its reply of 4 bytes: ns that each operation takes in all")
    for operation, texts in OPERATIONS.items():
        row = f"  {operation:6}"
        for name, text in zip(PROTOCOLS, texts, strict=True):
            each = statistics.median(one[operation]["each"] for one in rounds[name])
            cost = cost_ns(rounds[name], operation)
            total[name] += 0.0 if operation in _BOTH else cost
            row += f"  {cost:6.1f} ({each:.1f} times) {text:38}" if each else " " * 59
        print(row.rstrip())
    careful, other = (total[name] for name in PROTOCOLS)
    print(
        f"together, without {', '.join(_BOTH)}: careful {careful:.0f}, traditional {other:.0f}, "
        f"{(other - careful) / 2:.0f} ns more a frame"
    )
    return True


def _most(counts: list[int]) -> int:
    """Returns the 99th percentile."""
    left = sum(counts) // 100
    for at in range(len(counts) - 1, -1, -1):
        left -= counts[at]
        if left < 0:
            return at + 1
    return 1


def draw(kept: dict[str, Any], path: Path) -> None:
    """Draws the first round's histograms, a row for each operation."""
    count = len(OPERATIONS)
    drawn, rows = figure.grid(count, 2, size=(14.0, 2.6 * count), widths=(1.0, 1.0))
    for (operation, texts), pairs in zip(OPERATIONS.items(), rows, strict=True):
        runs = [kept["rounds"][name][0][operation] for name in PROTOCOLS]
        widest = max(_most(one["counts"]) for one in runs)
        for k, (one, pair) in enumerate(zip(runs, pairs, strict=True)):
            title = f"{operation}, {PROTOCOLS[k]}: {texts[k] or 'none'}"
            figure.label(pair, title, "time (ns)", "times")
            pair.title.set_fontsize(11)
            if one["counts"]:
                pair.bar(range(len(one["counts"])), one["counts"], 1.0, color=figure.COLOURS[k])
                pair.axvline(one["median_ns"], color="black", linewidth=1.0)
            pair.set_xlim(0, widest)
    figure.save(drawn, path)
