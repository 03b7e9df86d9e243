"""How fast, beside what else: every yardstick and we, interleaved, medians of rounds.

Owns a lab of two hosts, one core each, and the order of things; prints tables of figures and of
ratios and, with --json, every figure of every round; with --plot it draws them. Nothing else
should run.
Needs root and two CPUs; tools/setup installs what it compares with.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_lab import ROOT, BenchError, big_file, built, commit, lab_up, run
from scenarios import summary
from speed_figures import BOUNDS, FIGURES
from speed_parts import Bench

#: In this order: what is compared stands side by side.
PARTS = (
    *("tcp", "request", "get", "fetch", "nbd", "fio"),
    *("copies", "trips", "streams", "trees"),
)
#: Those that no XDP program takes part in.
WITHOUT_XDP = ("tcp", "nbd", "fio", "copies", "trees")
#: What --xdp both compares.
BOTH = ("native", "generic")
#: Figures of all rounds, by name; None in a round in which a yardstick failed.
Rounds = dict[str, list[float | None]]


def prepare(work: Path, nbytes: int) -> None:
    """The file to move, and what nbdkit's memory is filled with."""
    (work / "in").mkdir()
    (work / "out").mkdir()
    big_file(work / "in" / "big", nbytes)
    big_file(work / "first", 64 << 20)


def build() -> None:
    """The programs, from this checkout."""
    run(ROOT / "tools" / "setup", "run", "build", "bench", timeout_s=1800)
    built("bare", "fetch", "passes", "rtt", "nbd")


def one_round(benches: dict[str, Bench], parts: Sequence[str], rounds: dict[str, Rounds]) -> None:
    """Each part in all modes, one right after the other: they see one state of the machine.

    benches, rounds: by mode; rounds are added to. The modes take turns to be first.
    """
    modes = list(benches)
    number = max((len(values) for values in rounds[modes[0]].values()), default=0)
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
        for values in found_in.values():
            values += [None] * (number + 1 - len(values))


def quotients(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """Returns the ratios of the rounds that have both."""
    return [a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]


def between(rounds: dict[str, Rounds]) -> list[dict[str, Any]]:
    """Generic / native of each figure, by round: the median, and from which to which."""
    native, generic = (rounds[mode] for mode in BOTH)
    found = []
    for name in FIGURES:
        # A part without XDP has the same figure twice.
        if name in native and native[name] != generic[name]:
            each = quotients(generic[name], native[name])
            found.append(
                {
                    "figure": name,
                    "ratio": round(statistics.median(each), 3),
                    "ratio_min": round(min(each), 3),
                    "ratio_max": round(max(each), 3),
                }
            )
    return found


def report_between(rounds: dict[str, Rounds]) -> list[dict[str, Any]]:
    """Prints between()'s table; returns it."""
    found = between(rounds)
    print(f"\n{'generic / native, same round':42} {'median':>6} {'min':>6} {'max':>6}")
    for one in found:
        low, high = one["ratio_min"], one["ratio_max"]
        print(f"{one['figure']:42} {one['ratio']:6.3f} {low:6.3f} {high:6.3f}")
    return found


def ratios(rounds: Rounds) -> list[dict[str, Any]]:
    """Each bound with what was found: the median of the rounds' own ratios.

    A shared machine drifts between rounds more than within one. `met` is None where
    there is no bound.
    """
    found = []
    for figure, yardstick, bound, at_most in BOUNDS:
        if figure not in rounds or yardstick not in rounds:
            continue
        each = quotients(rounds[figure], rounds[yardstick])
        if not each:
            continue
        ratio = statistics.median(each)
        met = None if bound is None else ratio <= bound if at_most else ratio >= bound
        found.append(
            {
                "figure": figure,
                "yardstick": yardstick,
                "ratio": round(ratio, 3),
                "ratio_min": round(min(each), 3),
                "ratio_max": round(max(each), 3),
                "bound": bound,
                "at_most": at_most,
                "met": met,
            }
        )
    return found


def missed(modes: list[dict[str, Any]], is_whole: bool = False) -> int:
    """Returns the exit status: 1 if a bound is not met in one of the modes.

    Args:
        modes: what was found in each.
        is_whole: each bound must have been judged; those that were not are printed.
    """
    rows = [one for mode in modes for one in mode["ratios"]]
    judged = {(one["figure"], one["yardstick"]) for one in rows}
    lacking = [one for one in BOUNDS if one.bound is not None and one[:2] not in judged]
    for one in lacking if is_whole else []:
        print(f"NOT JUDGED: {one.figure} / {one.yardstick}: not measured")
    return int(any(one["met"] is False for one in rows) or (is_whole and bool(lacking)))


def main() -> int:
    """Measures, and prints the tables. Returns 1 if a bound is not met or not judged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="size of the file [1 GiB]")
    parser.add_argument(
        "--xdp",
        choices=("auto", *BOTH, "both"),
        default="auto",
        help="XDP mode of every program of ours, at both ends; both: each part in native and "
        "generic mode in turn within each round, so that one state of the machine is compared, "
        "and a table of generic / native [auto]",
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)} [all]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures of all rounds")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="bars; of both modes: native")
    args = parser.parse_args()
    parts = [p for p in PARTS if p in args.only.split(",")]
    if os.geteuid():
        raise BenchError("needs root, for a lab")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`
    if len(os.sched_getaffinity(0)) < 2:
        raise BenchError("needs two CPUs")
    at = commit()
    build()
    modes = BOTH if args.xdp == "both" else (args.xdp,)
    rounds: dict[str, Rounds] = {mode: {} for mode in modes}
    work = Path(tempfile.mkdtemp(prefix="careful-bench.", dir="/dev/shm"))
    benches = {mode: Bench(work, args.bytes, mode) for mode in modes}
    try:
        with lab_up():
            prepare(work, args.bytes)
            if set(parts) - set(WITHOUT_XDP):
                for bench in benches.values():
                    bench.settle()
            for k in range(args.rounds):
                one_round(benches, parts, rounds)
                print(f"round {k + 1} of {args.rounds}", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    whole = {
        "schema": 1,
        "commit": at,
        "kernel": platform.release(),
        "file_bytes": args.bytes,
        "missing": sorted({one for bench in benches.values() for one in bench.missing}),
    }
    found = [
        {
            "xdp": mode,
            "xdp_modes": bench.modes,
            "rounds": rounds[mode],
            "ratios": ratios(rounds[mode]),
            "memory": bench.memory,
        }
        for mode, bench in benches.items()
    ]
    whole |= found[0] if len(found) == 1 else {"modes": found, "between": report_between(rounds)}
    if args.json:
        args.json.write_text(json.dumps(whole, indent=1) + "\n")
    shown = whole | found[0]
    print(summary.section(shown))
    if args.plot:
        summary.draw(summary.panels(shown), str(args.plot))
    return missed(found, set(parts) == set(PARTS))
