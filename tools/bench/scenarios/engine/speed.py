"""Compares the speed of careful with other programs, in turn, by medians of rounds.

Prints the table of README and `help performance`, the ratios with their bounds, and all figures.
Two hosts of a lab, one core each; nothing else should run. Owns the lab. Needs root and two CPUs;
tools/setup run bench installs the other programs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench_lab import ROOT, BenchError, big_file, built, lab_up, run
from speed_figures import BOUNDS, DEVICE, FIGURES, MODELESS, OWN, Bound, trip
from speed_parts import Bench

ROUNDS = 7

#: Ordered so that compared parts are neighbours.
PARTS = ("tcp", "request", "get", "fetch", "nbd", "copies", "trips", "streams", "trees")
#: Parts without an XDP program.
WITHOUT_XDP = ("tcp", "nbd", "copies", "trees")
#: The modes of --xdp both.
BOTH = ("native", "generic")
#: Figures of all rounds by name; None if a yardstick failed.
Rounds = dict[str, list[float | None]]
#: Comparisons of the table and the plot: title, unit, and figures, careful's first.
PANELS = (
    (
        "64-byte request and reply, spinning",
        "µs",
        {
            "careful": "request_us",
            "AF_XDP echo without a protocol": "bare_echo_us",
            "TCP (sockperf)": "tcp_spin_us",
        },
    ),
    (
        "8 KiB block",
        "µs",
        {
            "careful": "fetch_us",
            "NBD (nbdkit, fio)": "fio_us",
            "TCP echo (sockperf)": trip("tcp_spin", 8192),
        },
    ),
    (
        "file of {size}",
        "Gbit/s",
        {
            "carefulctl get": "get_gbit",
            "AF_XDP stream without a protocol": "bare_stream_gbit",
            "nbdcopy": "nbdcopy_gbit",
            "rsync from its daemon": "rsync_gbit",
        },
    ),
    (
        "10,000 files of 4 KiB",
        "s",
        {
            "carefulctl get -r": "tree_careful_s",
            "rsync from its daemon": "tree_rsync_s",
            "scp -r, without encryption": "tree_scp_s",
        },
    ),
)


class Ratio(NamedTuple):
    """The median, least and largest of the rounds' ratios."""

    median: float
    least: float
    most: float


def ratio(rounds: Rounds, ours: str, theirs: str) -> Ratio | None:
    """Returns the ratio over rounds with both figures; None: there are none.

    A shared machine drifts more between rounds than within a round.
    """
    pairs = zip(rounds.get(ours, []), rounds.get(theirs, []), strict=False)
    each = [a / b for a, b in pairs if a is not None and b is not None]
    return Ratio(statistics.median(each), min(each), max(each)) if each else None


def values(rounds: Rounds, figure: str) -> list[float]:
    """Returns the figure's values, without missing ones."""
    return [one for one in rounds.get(figure, []) if one is not None]


def one_round(benches: dict[str, Bench], parts: Sequence[str], rounds: dict[str, Rounds]) -> None:
    """Adds a round: each part in all modes in a row.

    benches, rounds: by mode. The modes take turns to be first.
    """
    modes = list(benches)
    number = max((len(each) for each in rounds[modes[0]].values()), default=0)
    if number % 2:
        modes.reverse()
    for part in parts:
        found: dict[str, float] = {}
        for k, mode in enumerate(modes):
            if k == 0 or part not in WITHOUT_XDP:
                found = getattr(benches[mode], part)()
            for name, value in found.items():
                rounds[mode].setdefault(name, [None] * number).append(value)
    for found_in in rounds.values():
        for each in found_in.values():
            each += [None] * (number + 1 - len(each))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the file [1 GiB]")
    parser.add_argument(
        "--xdp",
        choices=("auto", *BOTH, "both"),
        default="auto",
        help="XDP mode of every program of ours, at both ends; both: each part in native and "
        "generic mode in turn within each round, and a column generic / native [auto]",
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)} [all]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns all figures of all rounds, by XDP mode."""
    parts = [part for part in PARTS if part in args.only.split(",")]
    if len(os.sched_getaffinity(0)) < 2:
        raise BenchError("needs two CPUs")
    run(ROOT / "tools" / "setup", "run", "build", "bench", timeout_s=1800)
    built("bare", "fetch", "pair")
    modes = BOTH if args.xdp == "both" else (args.xdp,)
    rounds: dict[str, Rounds] = {mode: {} for mode in modes}
    work = Path(tempfile.mkdtemp(prefix="careful-bench.", dir="/dev/shm"))
    benches = {mode: Bench(work, args.bytes, mode) for mode in modes}
    try:
        with lab_up():
            for name in ("in", "out", "trees"):
                (work / name).mkdir()
            big_file(work / "in" / "big", args.bytes)
            if set(parts) - set(WITHOUT_XDP):
                for bench in benches.values():
                    bench.settle()
            for k in range(args.rounds):
                one_round(benches, parts, rounds)
                print(f"round {k + 1} of {args.rounds}", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    missing = sorted({one for bench in benches.values() for one in bench.missing})
    by_mode = {benches[mode].xdp: rounds[mode] for mode in modes}
    whole = len(parts) == len(PARTS)
    return {"file_bytes": args.bytes, "missing": missing, "whole": whole, "modes": by_mode}


def _row(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def _head(*words: str) -> list[str]:
    return [_row(*words), "|" + "---|" * len(words)]


def table(kept: dict[str, Any]) -> list[str]:
    """Returns the lines of README's table: medians of the first mode, and their ratios."""
    rounds = next(iter(kept["modes"].values()))
    lines = _head("", "careful", "compared with", "ratio")
    for title, unit, (ours, *others), names in (
        (title, unit, list(series.values()), list(series)[1:]) for title, unit, series in PANELS
    ):
        for name, theirs in zip(names, others, strict=True):
            if both := ratio(rounds, ours, theirs):
                own, other = (statistics.median(values(rounds, one)) for one in (ours, theirs))
                what = title.format(size=f"{kept['file_bytes'] / (1 << 30):g} GiB")
                cells = (what, f"{own:.3g} {unit}", f"{name}: {other:.3g} {unit}")
                lines.append(_row(*cells, f"{both.median:.2f}"))
    return [line.replace("|  |", "| |") for line in lines]


def draw(kept: dict[str, Any], path: Path) -> None:
    """Draws the first mode's medians as bars, and rounds as points."""
    from careful.render import figure

    rounds = next(iter(kept["modes"].values()))
    drawn, rows = figure.grid(2, 2, size=(13.0, 6.8), widths=(1, 1))
    axes = [axis for row in rows for axis in row]
    for axis, (title, unit, series) in zip(axes, PANELS, strict=True):
        names = {name: one for name, key in series.items() if (one := values(rounds, key))}
        for row, (name, each) in enumerate(names.items()):
            colour = figure.COLOURS[min(row, 1)]
            axis.barh(row, statistics.median(each), color=colour, height=0.6, alpha=0.75)
            axis.plot(each, [row] * len(each), ".", color="black", markersize=5)
            axis.text(0, row - 0.34, f" {name}", va="bottom", fontsize=12)
        better = "more is better" if unit == "Gbit/s" else "less is better"
        what = title.format(size=f"{kept['file_bytes'] / (1 << 30):g} GiB")
        figure.label(axis, what, f"{better} ({unit})", "")
        axis.set_ylim(len(names) - 0.5, -0.75)
        axis.set_yticks([])
    figure.save(drawn, path)


def _places(value: float, bound: Bound) -> int:
    """Returns the decimal places that distinguish a ratio from a missed bound."""
    near = bound.bound is not None and round(value, 2) == round(bound.bound, 2)
    return 3 if near else 2


def device(rounds: Rounds, bound: Bound) -> str:
    """Returns the bare device's ratio to the same yardstick, over complete rounds."""
    parts = [rounds.get(name, []) for name in DEVICE.get(bound.figure, ())]
    of_device = bound.yardstick in OWN or FIGURES[bound.yardstick][1].startswith("AF_XDP")
    if of_device or not parts or not all(parts):
        return "-"
    each = zip(rounds.get(bound.yardstick, []), *parts, strict=True)
    ratios = [statistics.mean(own) / other for other, *own in each if None not in (other, *own)]
    if not ratios:
        return "-"
    return f"{(middle := statistics.median(ratios)):.{_places(middle, bound)}f}"


def targets(kept: dict[str, Any]) -> list[str]:
    """Returns the lines of the table of ratios and targets."""
    modes = kept["modes"]
    names = list(modes) if len(modes) > 1 else ["ratio"]
    lines = _head("careful / other", *names, "device", "target")
    for bound in BOUNDS:
        found = [one for rounds in modes.values() if (one := ratio(rounds, *bound[:2]))]
        if not found:
            continue
        said = []
        for one in found[:1] if bound.figure in MODELESS else found:
            verdict = {True: ": met", False: ": no", None: ""}[bound.met(round(one.median, 3))]
            places = _places(one.median, bound)
            said.append(f"{one.median:.{places}f} ({one.least:.2f} to {one.most:.2f}){verdict}")
        said += ["-"] * (len(modes) - len(said))
        alone = ", ".join(dict.fromkeys(device(rounds, bound) for rounds in modes.values()))
        places = max(_places(one.median, bound) for one in found)
        sign = "≤" if bound.at_most else "≥"
        target = "-" if bound.bound is None else f"{sign} {bound.bound:.{places}f}"
        what = " / ".join(FIGURES[name][1] for name in bound[:2])
        lines.append(_row(what, *said, alone, target))
    return lines


def figures(kept: dict[str, Any]) -> list[str]:
    """Returns the lines of the table of all figures, of the first mode."""
    rounds, *others = kept["modes"].values()
    lines = _head("", "median", "from", "to", *(["generic / native"] if others else []))
    for name, (text, _, unit) in FIGURES.items():
        if each := values(rounds, name):
            scale, said = (1e6, "million/s") if unit == "1/s" else (1.0, unit)
            three = [one / scale for one in (statistics.median(each), min(each), max(each))]
            cells = [text, f"{three[0]:.2f} {said}", *(f"{one:.2f}" for one in three[1:])]
            for other in others:  # a part without XDP has the same figure twice
                pair = {"generic": other.get(name, []), "native": rounds[name]}
                both = ratio(pair, "generic", "native")
                same = pair["generic"] == pair["native"]
                cells.append(f"{both.median:.2f}" if both and not same else "-")
            lines.append(_row(*cells))
    return lines


def section(kept: dict[str, Any]) -> str:
    """Returns the tables of tests/reports/speed.md."""
    kernel = ".".join(kept["kernel"].split(".")[:2])
    count = max(len(one) for one in next(iter(kept["modes"].values())).values())
    text = (
        f"At commit {kept['commit']}, kernel {kernel}, two cores of a shared virtual machine, "
        f"{count} rounds, a file of {kept['file_bytes'] / (1 << 30):g} GiB. Each ratio is the "
        "median of the rounds' own, with the least and the largest of them."
    )
    if len(kept["modes"]) > 1:
        text += " Each part ran in both XDP modes in turn; the second table is of native mode."
    else:
        text += f" All programs of careful's ran in {next(iter(kept['modes']))} XDP mode."
    return "\n\n".join([text, "\n".join(targets(kept)), "\n".join(figures(kept))])


def missed(kept: dict[str, Any]) -> list[str]:
    """Returns the bounds that a mode misses, and in a complete run also unjudged ones."""
    faults = []
    for bound in BOUNDS:
        found = [ratio(rounds, *bound[:2]) for rounds in kept["modes"].values()]
        what = " / ".join(bound[:2])
        if any(one and bound.met(one.median) is False for one in found):
            faults.append(f"{what}: not met")
        elif bound.bound is not None and kept.get("whole", True) and not all(found):
            faults.append(f"{what}: not measured")
    return faults


def report(kept: dict[str, Any]) -> bool:
    """Prints all tables; reports whether each bound is met in each mode."""
    print("\n".join(table(kept)), section(kept), sep="\n\n")
    print(*(f"missing: {one}" for one in kept["missing"]), *missed(kept), sep="\n")
    return not missed(kept)
