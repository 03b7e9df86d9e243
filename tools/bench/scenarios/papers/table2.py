"""P1 Table 2 on a bare veth: figures from probes inside and from the ends.

Each run is a clear-box and a black-box measurement, one after the other. The clear box times frames
in trains, like the black box, because a processor needs longer for a single frame. Its g_b is the
sender thread's whole time for a frame, with the time between the stages. Both carefulds spin,
because a black box cannot time trains that wait for a receiver to wake. So the scenario needs two
idle cores.

With --links the frames cross GAM's four stages as emulated links, a hundred times slower. Each link
is instrumented like GAM's stages in P1, with a line through the times of its frames; the hosts'
stages add their own. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

from bench_lab import PIPELINES, SHARE, BenchError, ctl, daemons, lab_up, links

ROUNDS = 40

#: The paper's figures differ by 1.3 % and 5.5 %. On a bare veth the others' G is below a tenth of a
#: microsecond, and a black box withholds it.
DIFFERENCE_MAX = {"g_b_us": 0.06, "sum_G_others_us_per_KiB": 0.055}
VETH_FIGURES = ("g_b_us",)
FIGURES = ("g_b_us", "G_b_us_per_KiB", "sum_G_others_us_per_KiB")
METHODS = {"direct": ("clearbox", "--trains"), "indirect": ("blackbox",)}
#: P1 Table 1, as links; its stage 2 is the bottleneck.
GAM, BOTTLENECK = PIPELINES / "gam.toml", 2
ROWS = "runs"
LINKS = ("--scale", "100", "--charge", "payload")


def once(seconds: float, emulated: bool) -> dict[str, Any]:
    """Returns both measurements, each about this long."""
    found: dict[str, Any] = {}
    for method, command in METHODS.items():
        if emulated and method == "indirect":
            links("--reset")
        shown = ctl("h1", "measure", *command, "h2", "--time", str(seconds))
        found[method] = {name: shown[name] for name in (*FIGURES, "settled", "notes", "xdp_mode")}
        if method == "direct":
            keys = ("name", "g_us", "G_us_per_KiB", "time_p50_us", "residual_us", "reason")
            parts = [*shown["stages"], shown["sender"]]
            found["stages"] = [{key: one[key] for key in keys} for one in parts]
    if emulated:
        found["direct"] |= _of_links(found["stages"])
    return found


def _of_links(stages: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the bottleneck link's line, and the sum of G of all other links and the hosts'
    stages.

    A host's stage without a figure counts as zero: it is below a thousandth of a link's.
    """
    lines = [link["ways"][0]["punctual"] for link in links()]
    if not all(lines):
        raise BenchError("a link had too few frames to tell: is the machine loaded?")
    G = [line["G_us_per_KiB"] for line in lines]
    hosts = sum(stage["G_us_per_KiB"] or 0 for stage in stages if stage["name"] != "all of it")
    found = (lines[BOTTLENECK]["g_us"], G[BOTTLENECK], sum(G) - G[BOTTLENECK] + hosts)
    return dict(zip(FIGURES, found, strict=True))


def known(runs: list[dict[str, Any]], method: str, name: str) -> list[float]:
    """Returns a figure of the runs that have it by both methods."""
    both = [one for one in runs if all(one[each][name] is not None for each in METHODS)]
    return [one[method][name] for one in both]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--links", action="store_true", help="GAM's stages as emulated links")
    parser.add_argument("--seconds", type=float, help="of a measurement [25; with --links 5]")


def variant(args: argparse.Namespace) -> str:
    """Returns the name of the stored runs."""
    return "links" if args.links else ""


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures by both methods, again and again."""
    more, hops = (LINKS, GAM.read_text()) if args.links else ((), None)
    wait = () if args.links else ("--wait", "spin")
    with lab_up(*more, hops=hops), daemons(*wait):
        for _ in range(args.rounds):
            yield once(args.seconds or (5 if args.links else 25), args.links)


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether nine of ten runs agree as well as in the paper."""
    runs = kept["runs"]
    met = True
    print(f"{'':10} {'g_b (µs)':>10} {'G_b (µs/KiB)':>14} {'others G (µs/KiB)':>18}")
    for method in METHODS:
        row = [known(runs, method, name) for name in FIGURES]
        cells = [f"{statistics.median(one):.3f}" if one else "-" for one in row]
        print(f"{method:10} {cells[0]:>10} {cells[1]:>14} {cells[2]:>18}")
    judged = DIFFERENCE_MAX if kept.get("variant") == "links" else VETH_FIGURES
    for name, most in DIFFERENCE_MAX.items():
        direct, indirect = (known(runs, method, name) for method in METHODS)
        each = [abs(b / a - 1) for a, b in zip(direct, indirect, strict=True)]
        within = sum(one <= most for one in each)
        met &= name not in judged or within >= SHARE * len(runs)
        apart = statistics.median(indirect) / statistics.median(direct) - 1 if direct else None
        medians = (
            "no run has it by both methods" if apart is None else f"medians differ {apart:+.1%}"
        )
        print(f"{name}: {medians}; {within} of {len(runs)} runs within {most:.1%}")
    return met
