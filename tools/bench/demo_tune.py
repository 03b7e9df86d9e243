"""What `tools/demo --tune FILE` shows: a path changes under its traffic, and tune auto follows.

h2 reads 4 KiB from h1 again and again, over the pipeline of P1's GAM, fifty times as slow. Once
the first plan has held, a fragment on the third link costs eight times as much. Owns its lab;
everything but FILE, the plot, is gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from careful.extras import MissingExtraError
from careful.report import figure
from careful.report.explain import decision
from demo import LAB, ROOT, DemoError, on, run, say

GAM = ROOT / "ctrl/careful/model/pipelines/gam.toml"
CHANGE = "\n[[stage.link.changes]]\nat_s = 12\ng_us = 60\nG_us_per_KiB = 24.9\n\n"
KEPT = Path(f"/run/careful/{LAB}-h1/tuning.json")
MOST_S = 120.0
#: Reads that a point of the plot is the mean of.
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
    lab = [str(ROOT / "tools/lab"), "exec", "--name", LAB, host, "--"]
    with out.open("wb") as file:
        return subprocess.Popen([*lab, *argv], stdout=file, stderr=file)


def decisions() -> list[dict[str, object]]:
    """What tune auto has decided so far."""
    if not KEPT.exists():
        return []
    (path,) = json.loads(KEPT.read_text())["paths"].values()
    return list(path["decisions"])


def until(count: int, *, hold: bool) -> None:
    """Wait until so many changes have held; hold: the path stays as it is meanwhile."""
    end = time.monotonic() + MOST_S
    while sum(one["what"] == "kept" for one in decisions()) < count:
        if time.monotonic() > end:
            raise DemoError(f"no change held within {MOST_S:.0f} s: the machine is too busy")
        if hold:
            run(ROOT / "tools/lab", "links", "--name", LAB, "--reset")
        time.sleep(0.5)


def draw(reads: Path, plot: Path) -> None:
    """What reads took, over time, and what was decided when."""
    lines = [line.split() for line in reads.read_text().splitlines()]
    whole = [(float(line[0]), float(line[1])) for line in lines if len(line) == 2]
    zero = whole[0][0]
    points = [whole[i : i + POINT_READS] for i in range(0, len(whole), POINT_READS)]
    at = [sum(one[0] for one in each) / len(each) - zero for each in points]
    took_ms = [1e3 * sum(one[1] for one in each) / len(each) for each in points]
    drawn, pair = figure.axes("A path changes; tune auto follows", "time (s)", "a read (ms)")
    pair.plot(at, took_ms, color=figure.COLOURS[0], label=f"4 KiB, mean of {POINT_READS} reads")
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
    """The lab is up when this is called."""
    (work / "file").write_bytes(bytes(8192))
    for host in ("h1", "h2"):
        on(host, "carefulctl", "up", "eth1", "--export", work)
    started = [start("h2", work / "reads", sys.executable, "-c", READ)]
    try:
        time.sleep(2)
        started.append(start("h1", work / "said", "carefulctl", "tune", "auto", "eth1"))
        say("the path is measured, a plan is tried on live reads")
        until(1, hold=True)
        say("the path changes within 12 s")
        until(2, hold=False)
        time.sleep(5)
        draw(work / "reads", plot)
        for one in decisions():
            print(decision(one))
        say(f"{plot}: what reads took meanwhile")
    finally:
        for process in started:
            process.kill()
            process.wait()
        for host in ("h1", "h2"):
            on(host, "carefulctl", "down", "eth1")


def show(plot: Path) -> None:
    """Make the lab, play, and take it away."""
    figure.check_path(plot)
    with tempfile.TemporaryDirectory(prefix="careful-demo-") as name:
        work = Path(name)
        stages = GAM.read_text().split("[[stage]]")
        stages[3] = stages[3].rstrip() + CHANGE
        hops = work / "hops.toml"
        hops.write_text("[[stage]]".join(stages))
        options = ["--scale", "50", "--charge", "payload", "--mtu", "4000"]
        try:
            run(ROOT / "tools/lab", "up", "--name", LAB, "--hops", hops, *options)
            play(plot, work)
        finally:
            run(ROOT / "tools/lab", "down", "--name", LAB, "--kill")


def main() -> int:
    """Status 0: two changes held, and the plot is there."""
    parser = argparse.ArgumentParser(prog="tools/demo --tune")
    parser.add_argument("plot", type=Path, metavar="FILE", help="the plot, .svg or .png")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        show(args.plot)
    except (DemoError, MissingExtraError, OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
