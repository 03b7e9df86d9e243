"""Plays `tools/demo --tune FILE`: a path changes under traffic, and tune auto follows.

h2 reads 4 KiB from h1 again and again, over P1's GAM pipeline, fifty times slower. After the first
plan has held, a fragment on the third link costs eight times as much. FILE is the plot.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_lab import (
    LAB,
    PIPELINES,
    TOOL,
    daemons,
    known,
    lab_up,
    on,
    process,
    run,
    wait_until,
)
from careful.render import figure
from careful.render.tuning.explain import decision

CHANGE_S, MOST_S = 12, 120.0
CHANGE = f"\n[[stage.link.changes]]\nat_s = {CHANGE_S}\ng_us = 60\nG_us_per_KiB = 24.9\n\n"
#: Reads per point of the plot, which is their median.
POINT_READS = 10
#: Decisions that the plot shows.
DRAWN = ("changed", "kept", "undone", "path changed")
READ = """
import time
import careful.files

with careful.files.connect("10.77.0.1") as host:
    while True:
        began = time.monotonic()
        host.read("file", 0, 4096)
        print(began, time.monotonic() - began, flush=True)
"""


def decisions() -> list[dict[str, Any]]:
    return list(known("h1").get("decisions", []))


def held(count: int) -> bool:
    """Reports whether this many changes have held."""
    kept = [one for one in decisions() if one["what"] == "kept"]
    return len(kept) >= count


def draw(reads: str, plot: Path, changed: float) -> None:
    """Draws the reads' times, the change of the path, and the decisions."""
    lines = [line.split() for line in reads.splitlines()]
    took = [(float(one[0]), float(one[1])) for one in lines if len(one) == 2]
    zero = took[0][0]
    points = [took[i : i + POINT_READS] for i in range(0, len(took), POINT_READS)]
    at = [statistics.mean(one[0] for one in each) - zero for each in points]
    took_ms = [1e3 * statistics.median(one[1] for one in each) for each in points]
    drawn, pair = figure.axes("A path changes; tune auto follows", "time (s)", "a read (ms)")
    pair.plot(at, took_ms, color=figure.COLOURS[0], label=f"4 KiB, median of {POINT_READS} reads")
    marks = [(changed, "the path changes", "black")]
    marks += [
        (one["at_s"], one["what"], figure.COLOURS[1]) for one in decisions() if one["what"] in DRAWN
    ]
    for number, (when, what, colour) in enumerate(marks):
        pair.axvline(when - zero, color=colour, linestyle="--", linewidth=1)
        height = 0.96 - 0.06 * (number % 5)
        where = pair.get_xaxis_transform()
        pair.text(when - zero, height, f" {what}", transform=where, fontsize=10)
    pair.set_ylim(bottom=0)
    figure.legend_below(pair)
    figure.save(drawn, plot)


def play(plot: Path, reads: Path, say: Callable[[str], None]) -> None:
    """Plays all steps; the lab and both daemons are up."""
    changes = 0.0

    def held_back() -> bool:
        """Puts the change off; reports whether the first plan has held."""
        nonlocal changes
        run(TOOL, "links", "--name", LAB, "--reset")
        changes = time.monotonic() + CHANGE_S
        time.sleep(0.4)
        return held(1)

    with (
        reads.open("wb") as out,
        subprocess.Popen(on("h2", sys.executable, "-c", READ), stdout=out, stderr=out) as reader,
    ):
        try:
            with process(on("h1", "carefulctl", "tune", "auto", "eth1"), quiet=True):
                say("the path is measured, a plan is tried on live reads")
                wait_until(held_back, MOST_S, "change that held: the machine is too busy")
                say(f"the path changes within {CHANGE_S} s")
                wait_until(lambda: held(2), MOST_S, "second change that held")
                time.sleep(5)
        finally:
            reader.kill()
    draw(reads.read_text(), plot, changes)
    pushed = [one["at_s"] for one in decisions() if one["what"] == "changed"]
    delay_s = next(at for at in pushed if at > changes) - changes
    say(f"plans followed {delay_s:.1f} s after the change")
    for one in decisions():
        print(decision(one))
    say(f"{plot}: what reads took meanwhile")


def show(plot: Path, say: Callable[[str], None]) -> None:
    """Plays all in a lab; FILE is `plot`. say: reports progress."""
    figure.check_path(plot)
    stages = (PIPELINES / "gam.toml").read_text().split("[[stage]]")
    stages[3] = stages[3].rstrip() + CHANGE
    options = ("--scale", "50", "--charge", "payload", "--mtu", "4000")
    with tempfile.TemporaryDirectory(prefix="careful-demo-") as name:
        (Path(name) / "file").write_bytes(bytes(8192))
        with lab_up(*options, hops="[[stage]]".join(stages)), daemons("--export", name):
            play(plot, Path(name) / "reads", say)
