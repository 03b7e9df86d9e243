"""Figures of the papers: P1's 8 and 9 from kept runs of real frames, P1's 14, P3's 5 and 8 from
the model.

P1 Figure 8: the model's prediction for 4 KiB in 1 to 10 fragments over GAM x 100, next to measured
times (tests/reports/measure-model.json). P1 Figure 9: messages of 1 to 64 KiB there, cut like FM
(128 bytes), like GAM (4 KiB) and as planned (tests/reports/regret.json). P1 Figure 14: the parts of
the time of 64 KiB on the way to a disk, and through it to another network. P3 Figure 5: the
bandwidth of a DMA transfer by size, from the fit. P3 Figure 8: the gain of cut-through by the ratio
of two bandwidths.
Usage: tools/bench/run figures FOLDER      draws p1-figure8.png, -9 and -14, p3-figure5.png and -8
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench_lab import REPORTS
from careful.model.files import load_shipped
from careful.model.planner import plan, rules
from careful.model.pulses import cut_through_speedup
from careful.model.simulation import Message, simulate
from careful.model.stages import KIB
from careful.render import figure

#: P1's names of algorithms, on the pipelines of its Figure 14.
DISKS = {
    "network-disk": {"A": "fixed", "B": "hierarchical", "C": "ramp"},
    "network-disk-network": {"A": "fixed", "B": "hierarchical", "C'": "ramp-up-down"},
}
#: Arms of tools/bench/run regret by P1's names.
NAMES = {"128 B": "FM, 128-byte fragments", "4 KiB": "GAM, 4 KiB fragments", "plan": "planned"}


def draw(
    path: Path,
    texts: tuple[str, str, str],
    x: list[float],
    series: dict[str, list[float]],
    log: bool,
) -> None:
    """Draws lines from zero on; texts: the title and the axes' labels."""
    drawn, pair = figure.axes(*texts)
    figure.lines(pair, x, series)
    if log:
        pair.set_xscale("log", base=2)
        pair.set_xticks(x, [f"{one:g}" for one in x])
    pair.set_ylim(bottom=0)
    if len(series) > 1:
        figure.legend_below(pair)
    figure.save(drawn, path)


def predicted(runs: list[dict[str, Any]], path: Path) -> None:
    """Draws medians of all runs over the number of fragments."""
    counts = list(runs[0]["measured_us"])
    series = {
        name: [
            statistics.median(run[f"{name}_us"][count] for run in runs) / 1e3 for count in counts
        ]
        for name in ("predicted", "measured")
    }
    texts = ("4 KiB over GAM x 100: predicted and measured", "fragments", "latency one way (ms)")
    draw(path, texts, [float(count) for count in counts], series, log=False)


def cut_three_ways(path_of: dict[str, Any], path: Path) -> None:
    """Draws medians of all rounds relative to 4 KiB fragments, over the message size."""
    sizes = path_of["sizes"]
    taken = {
        name: [
            statistics.median(size["arms_us"][name]) - min(size["empty_us"]) / 2 for size in sizes
        ]
        for name in NAMES
    }
    shares = {
        NAMES[name]: [us / gam for us, gam in zip(values, taken["4 KiB"], strict=True)]
        for name, values in taken.items()
    }
    texts = ("Messages over GAM x 100, cut three ways", "message (KiB)", "latency / GAM's")
    draw(path, texts, [size["bytes"] / 1024 for size in sizes], shares, log=True)


def time_parts(path: Path) -> None:
    """Draws P1 equation 4 around the disk, for each algorithm and both pipelines."""
    names, parts = [], []
    for pipeline, strategies in DISKS.items():
        line = load_shipped(pipeline)
        at = [stage.name for stage in line.stages].index("disk")
        for algorithm, strategy in strategies.items():
            made = plan(line, 64 * KIB, strategy)
            found = simulate(line, [Message(64 * KIB)], rules(line, made))
            names.append(f"{algorithm}\n{strategy}")
            own = found.of_stage(at)
            begin, end = own[0].start_us, own[-1].end_us
            each = (begin - found.ready_us[0], end - begin, found.complete_us[0] - end)
            parts.append([us / 1e3 for us in each])
    drawn, pair = figure.axes(
        "64 KiB, to a disk, and through it to another network", "", "latency (ms)", size=(11.0, 5.0)
    )
    places = [0, 1.4, 2.8, 4.8, 6.2, 7.6]
    bottoms = [0.0] * len(parts)
    labels = ("T_f: until the disk begins", "T_b: the disk", "T_l: after the disk")
    for part, label in enumerate(labels):
        heights = [one[part] for one in parts]
        pair.bar(places, heights, 0.9, bottoms, label=label, color=figure.COLOURS[part])
        bottoms = [low + high for low, high in zip(bottoms, heights, strict=True)]
    pair.set_xticks(places, names)
    figure.legend_below(pair)
    figure.save(drawn, path)


def dma(path: Path) -> None:
    """Draws transfers of 64 to 8192 bytes from and to host memory."""
    sizes = [float(2**k) for k in range(6, 14)]
    stages = load_shipped("trapeze").stages
    series = {
        name: [size / stage.time_us(size) for size in sizes]
        for name, stage in (("out of host memory", stages[0]), ("into it", stages[-1]))
    }
    texts = ("DMA of P3's AlphaStation, by the fit", "transfer (bytes)", "bandwidth (MB/s)")
    draw(path, texts, sizes, series, log=True)


def cut_through(path: Path) -> None:
    """Draws 8 KiB without overheads, over the ratio of the I/O bus's bandwidth to the network's."""
    ratios = [0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8]
    texts = (
        "8 KiB, cut-through over store-and-forward, no overheads",
        "I/O bandwidth / network bandwidth (ratio)",
        "speed-up (ratio)",
    )
    series = {"speed-up": [cut_through_speedup(ratio) for ratio in ratios]}
    draw(path, texts, ratios, series, log=False)


def main() -> int:
    """Draws all of them into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    kept = {
        name: json.loads((REPORTS / f"{name}.json").read_text())
        for name in ("measure-model", "regret")
    }
    predicted(kept["measure-model"]["runs"], folder / "p1-figure8.png")
    gam = next(one for one in kept["regret"]["paths"] if one["path"] == "gam")
    cut_three_ways(gam, folder / "p1-figure9.png")
    time_parts(folder / "p1-figure14.png")
    dma(folder / "p3-figure5.png")
    cut_through(folder / "p3-figure8.png")
    return 0
