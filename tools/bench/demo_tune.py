"""What `tools/demo --tune FILE` shows: a path changes under its traffic, and tune auto follows.

h2 reads 4 KiB from h1 again and again, over the pipeline of P1's GAM, fifty times as slow. Once
the first plan has held, a fragment on the third link costs eight times as much. Afterwards some
sizes are set by hand on either path, one after the other: the best of them is the oracle. Owns
its lab; everything but FILE, the plot, is gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_lab import LAB, ROOT, TOOL, BenchError, daemons, lab_up, on, run
from careful.control import maps, tune_entry
from careful.extras import MissingExtraError
from careful.plan import Plan
from careful.render import figure
from careful.render.explain import decision
from demo import say

GAM = ROOT / "ctrl/careful/model/pipelines/gam.toml"
CHANGE_S = 12
CHANGE = f"\n[[stage.link.changes]]\nat_s = {CHANGE_S}\ng_us = 60\nG_us_per_KiB = 24.9\n\n"
KEPT = Path(f"/run/careful/{LAB}-h1/tuning.json")
MOST_S = 120.0
READ_BYTES = 4096
#: The oracle's: in so many fragments each message, and reads with each.
COUNTS = (1, 2, 3, 4, 5, 6, 8)
SWEPT_READS = 25
#: Reads that a point of the plot is the median of.
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


def start(host: str, out: Path, *argv: str) -> subprocess.Popen[bytes]:
    """Start a command on a host of the lab, its output into a file."""
    with out.open("wb") as file:
        return subprocess.Popen(on(host, *argv), stdout=file, stderr=file)


def decisions() -> list[dict[str, object]]:
    """Returns tune auto's decisions so far."""
    if not KEPT.exists():
        return []
    (path,) = json.loads(KEPT.read_text())["paths"].values()
    return list(path["decisions"])


def reset() -> float:
    """The path is the first one again; when it changes."""
    run(TOOL, "links", "--name", LAB, "--reset")
    return time.monotonic() + CHANGE_S


def pushed(decision: dict[str, object]) -> float:
    """When a decision put plans into effect; 0: it did not."""
    return float(str(decision["at_s"])) if decision["what"] == "changed" else 0.0


def until(count: int, *, hold: bool) -> float:
    """Wait until so many changes have held; hold: the path stays as it is meanwhile, and when it
    changes is returned.
    """
    changes = 0.0
    end = time.monotonic() + MOST_S
    while sum(one["what"] == "kept" for one in decisions()) < count:
        if time.monotonic() > end:
            raise BenchError(f"no change held within {MOST_S:.0f} s: the machine is too busy")
        if hold:
            changes = reset()
        time.sleep(0.5)
    return changes


def took(reads: Path) -> list[tuple[float, float]]:
    """When each read began, and what it took, seconds."""
    lines = [line.split() for line in reads.read_text().splitlines()]
    return [(float(line[0]), float(line[1])) for line in lines if len(line) == 2]


def best_s(reads: Path) -> float:
    """Returns the median time of a read with the best of some sizes, on the path as it is now."""
    found = []
    with maps.tune_map(f"{LAB}-h1") as entries:
        for count in COUNTS:
            plan = Plan.fixed(-(-READ_BYTES // count))
            setting = tune_entry.Setting(plan, {})
            tune_entry.apply(entries, maps.sessions(f"{LAB}-h1"), {6: setting})
            began, end = time.monotonic(), time.monotonic() + MOST_S
            while len(some := [one for at, one in took(reads) if at > began]) < SWEPT_READS:
                if time.monotonic() > end:
                    raise BenchError("h2 does not read")
                time.sleep(0.05)
            found.append(statistics.median(some))
    return min(found)


def oracle(reads: Path) -> tuple[float, float]:
    """The least that a read takes before the path changes, and after: with nobody tuning."""
    changes = reset()
    before = best_s(reads)
    if time.monotonic() > changes:
        raise BenchError("the machine is too busy for the oracle")
    time.sleep(max(0.0, changes + 1 - time.monotonic()))
    return before, best_s(reads)


def draw(
    reads: Path, plot: Path, changes: float, least_s: tuple[float, float], until_s: float
) -> None:
    """Draws how long reads took over time, and the decisions.

    changes: when the path did; least_s: the oracle's, before and after; until_s: when the oracle
    was asked.
    """
    whole = [one for one in took(reads) if one[0] < until_s]
    zero = whole[0][0]
    points = [whole[i : i + POINT_READS] for i in range(0, len(whole), POINT_READS)]
    at = [sum(one[0] for one in each) / len(each) - zero for each in points]
    took_ms = [1e3 * statistics.median(one[1] for one in each) for each in points]
    drawn, pair = figure.axes("A path changes; tune auto follows", "time (s)", "a read (ms)")
    pair.plot(at, took_ms, color=figure.COLOURS[0], label=f"4 KiB, median of {POINT_READS} reads")
    steps = ([0, changes - zero], [changes - zero, whole[-1][0] - zero])
    for span, least in zip(steps, least_s, strict=True):
        label = "oracle: the best of 1 to 8 fragments, swept afterwards"
        pair.plot(
            span,
            [1e3 * least] * 2,
            color=figure.COLOURS[2],
            linewidth=3,
            label=label if span is steps[0] else None,
        )
    pair.axvline(changes - zero, color="black", linewidth=1)
    across = pair.get_xaxis_transform()
    pair.text(changes - zero, 0.02, " the path changes", transform=across, fontsize=10)
    drawn_ones = [one for one in decisions() if one["what"] in DRAWN]
    for number, one in enumerate(drawn_ones):
        when, height = float(str(one["at_s"])) - zero, 0.96 - 0.06 * (number % 4)
        pair.axvline(when, color=figure.COLOURS[1], linestyle="--", linewidth=1)
        where = pair.get_xaxis_transform()
        pair.text(when, height, f" {one['what']}", transform=where, fontsize=10)
    pair.set_ylim(bottom=0)
    figure.legend_below(pair)
    figure.save(drawn, plot)


def play(plot: Path, work: Path) -> None:
    """Plays all of it; the lab and both daemons are up."""
    started = [start("h2", work / "reads", sys.executable, "-c", READ)]
    try:
        time.sleep(2)
        started.append(start("h1", work / "said", "carefulctl", "tune", "auto", "eth1"))
        say("the path is measured, a plan is tried on live reads")
        changes = until(1, hold=True)
        say(f"the path changes within {CHANGE_S} s")
        until(2, hold=False)
        time.sleep(5)
        tuner = started.pop()
        tuner.terminate()
        tuner.wait()
        until_s, decided = time.monotonic(), decisions()
        say("the oracle: sizes set by hand, before and after the change")
        draw(work / "reads", plot, changes, oracle(work / "reads"), until_s)
        answered = next(at for at in map(pushed, decided) if at > changes)
        say(f"plans followed {answered - changes:.1f} s after the path changed")
        for one in decisions():
            print(decision(one))
        say(f"{plot}: what reads took meanwhile")
    finally:
        for process in started:
            process.kill()
            process.wait()


def show(plot: Path) -> None:
    """Make the lab, play, and take it away."""
    figure.check_path(plot)
    with tempfile.TemporaryDirectory(prefix="careful-demo-") as name:
        work = Path(name)
        stages = GAM.read_text().split("[[stage]]")
        stages[3] = stages[3].rstrip() + CHANGE
        (work / "file").write_bytes(bytes(8192))
        options = ("--scale", "50", "--charge", "payload", "--mtu", "4000")
        with lab_up(*options, hops="[[stage]]".join(stages)), daemons("--export", work):
            play(plot, work)


def main() -> int:
    """Status 0: two changes held, and the plot is there."""
    parser = argparse.ArgumentParser(prog="tools/demo --tune")
    parser.add_argument("plot", type=Path, metavar="FILE", help="the plot, .svg or .png")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        show(args.plot)
    except (BenchError, MissingExtraError, OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
