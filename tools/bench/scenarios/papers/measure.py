"""Judges `carefulctl measure` by many runs over emulated links and the links' reports.

Owns a lab during its runs, and the file of all runs. Further runs are added to it, so the work can
be done in pieces. Needs root.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import predicted
import signatures
from bench_lab import HEAD, HOSTS, PIPELINES, ctl, lab_up, links, spread, up, within

ROUNDS = 40

ROWS = "runs"
PATHCHAR_ERROR_MAX = 0.05
PATHCHAR_SECONDS_MAX = 30.0
#: Four hops of 10, 5, 2 and 8 Mbit/s, a slow one before a fast one.
PATHCHAR_MBIT = (10, 5, 2, 8)

#: P1 Table 1; its stage 2 has the largest g and the largest G.
GAM = PIPELINES / "gam.toml"
BLACKBOX_BOTTLENECK = 2
BLACKBOX_ERROR_MAX = 0.05
#: P1 Table 3: the CPU is the bottleneck of small fragments, the wire of large ones.
GMS = GAM.with_name("gms.toml")
TRANSITION_STAGES = (3, 1)
TRANSITION_ERROR_MAX = 0.10


def pathchar_file() -> str:
    return "\n".join(
        f'[[stage]]\nname = "{mbit} Mbit/s"\ng_us = 50\nG_us_per_KiB = {8192 / mbit}\n'
        f"delay_us = {200 * number}\n"
        for number, mbit in enumerate(PATHCHAR_MBIT, 1)
    )


def pathchar_once() -> dict[str, Any]:
    """Returns a measurement and the links' applied figures."""
    links("--reset")
    found = ctl("h1", "measure", "pathchar", "h2")
    hops = []
    for number, link in enumerate(links(), 1):
        way = link["ways"][0]
        hop = next((one for one in found["hops"] if one["hops"] == [number]), None)
        hops.append(
            {
                "punctual_G_us_per_KiB": (way["punctual"] or {}).get("G_us_per_KiB"),
                **{
                    key: hop[key] if hop else None
                    for key in ("G_us_per_KiB", "G_low_us_per_KiB", "G_high_us_per_KiB")
                },
            }
        )
    keys = ("elapsed_s", "probes_count", "settled")
    return {"hops": hops, **{key: found[key] for key in keys}}


def pathchar_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the table of errors relative to each link's punctual frames."""
    met = all(one["elapsed_s"] < PATHCHAR_SECONDS_MAX for one in runs)
    print(HEAD)
    for number, mbit in enumerate(PATHCHAR_MBIT):
        hops = [one["hops"][number] for one in runs]
        known = [hop for hop in hops if hop["G_us_per_KiB"] and hop["punctual_G_us_per_KiB"]]
        errors = [abs(hop["G_us_per_KiB"] / hop["punctual_G_us_per_KiB"] - 1) for hop in known]
        held = sum(
            hop["G_low_us_per_KiB"] <= hop["punctual_G_us_per_KiB"] <= hop["G_high_us_per_KiB"]
            for hop in known
        )
        met &= within(f"{mbit} Mbit/s", runs, errors, PATHCHAR_ERROR_MAX, held)
    probes = statistics.median(one["probes_count"] for one in runs)
    print(f"a path took {spread(one['elapsed_s'] for one in runs)} s, and {probes:.0f} probes")
    return met


def unit(name: str) -> str:
    """Returns the unit of a black box's figure."""
    return "us" if name.startswith("g_b") else "us_per_KiB"


def blackbox_once() -> dict[str, Any]:
    """Returns a measurement and the links' applied figures."""
    links("--reset")
    found = ctl("h1", "measure", "blackbox", "h2")
    after = links()
    asked = [link["asked"] for link in after]
    # A lone frame sees each link's real times, a train the bottleneck's schedule. The black box
    # subtracts the second line's G from the first one's.
    lone = [link["ways"][0]["lone"] for link in after]
    truth = {}
    for name, one in (("asked", asked), ("applied", lone)):
        truth[f"{name}_g_b_us"] = one[BLACKBOX_BOTTLENECK]["g_us"]
        others = sum(link["G_us_per_KiB"] for link in one)
        others -= asked[BLACKBOX_BOTTLENECK]["G_us_per_KiB"]
        truth[f"{name}_sum_G_others_us_per_KiB"] = others
    keys = ("elapsed_s", "frames_count", "settled", "notes", "reason")
    names = [f"{name}{end}" for name in ("g_b", "sum_G_others") for end in ("", "_low", "_high")]
    return {
        **truth,
        **{name: found.get(f"{name}_{unit(name)}") for name in names},
        **{key: found[key] for key in keys},
    }


def blackbox_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the table; reports whether all is met."""
    met = True
    print(HEAD)
    # Trains see the schedule, which late frames do not move; single frames see the links' real
    # times.
    judged = {("g_b", "asked"), ("sum_G_others", "applied")}
    for name, against in itertools.product(("g_b", "sum_G_others"), ("asked", "applied")):
        known = [one for one in runs if one[name] is not None]
        truth = f"{against}_{name}_{unit(name)}"
        errors = [abs(one[name] / one[truth] - 1) for one in known]
        held = sum(one[f"{name}_low"] <= one[truth] <= one[f"{name}_high"] for one in known)
        in_interval = held if (name, against) in judged else None
        met &= within(f"{name} {against}", runs, errors, BLACKBOX_ERROR_MAX, in_interval)
    print(f"one took {spread(one['elapsed_s'] for one in runs)} s")
    return met


def transition_once() -> dict[str, Any]:
    """Measures the size at which one bottleneck replaces another; the links' figures give the
    truth.
    """
    links("--reset")
    found = ctl("h1", "measure", "blackbox", "h2", "--time", "8")
    asked = [link["asked"] for link in links()]
    low, high = (asked[k] for k in TRANSITION_STAGES)
    bend = high["G_us_per_KiB"] - low["G_us_per_KiB"]
    return {
        "asked_bytes": (low["g_us"] - high["g_us"]) / bend * 1024,
        "transitions_bytes": [one["high_bytes"] for one in found["regimes"][:-1]],
        **{key: found[key] for key in ("elapsed_s", "settled", "notes", "reason")},
    }


def transition_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the errors of runs with exactly one transition."""
    errors: list[float] = [
        abs(one["transitions_bytes"][0] / one["asked_bytes"] - 1)
        for one in runs
        if len(one["transitions_bytes"]) == 1
    ]
    print(HEAD)
    return within("transition", runs, errors, TRANSITION_ERROR_MAX)


def each(once: Callable[[], dict[str, Any]]) -> Callable[[int], Iterator[dict[str, Any]]]:
    """Makes one run after the other."""
    return lambda count: (once() for _ in range(count))


def nothing() -> None:
    """Prepares nothing: pathchar needs no carefuld."""


def both_up() -> None:
    """Starts carefuld on both hosts; the lab's end ends it."""
    for host in HOSTS:
        up(host)


@dataclass(frozen=True)
class Measurement:
    """hops: returns the links' file; options: of `tools/lab up`; the others in order of use.

    made: yields this many runs; where: a command that pins the links to a processor.
    """

    hops: Callable[[], str]
    options: tuple[str, ...]
    prepare: Callable[[], None]
    made: Callable[[int], Iterator[dict[str, Any]]]
    report: Callable[[list[dict[str, Any]]], bool]
    where: tuple[str, ...] = ()


#: P1's pipelines times 100.
P1 = ("--scale", "100", "--charge", "payload")
MEASUREMENTS = {
    "pathchar": Measurement(pathchar_file, (), nothing, each(pathchar_once), pathchar_report),
    "blackbox": Measurement(GAM.read_text, P1, both_up, each(blackbox_once), blackbox_report),
    "transition": Measurement(GMS.read_text, P1, both_up, each(transition_once), transition_report),
    "model": Measurement(
        GAM.read_text, (*P1, "--mtu", "9000"), nothing, predicted.runs, predicted.report
    ),
    "logp": Measurement(
        signatures.access_file,
        (),
        signatures.prompt(2, signatures.ISSUES, signatures.OTHERS),
        each(signatures.logp_once),
        signatures.logp_report,
        signatures.OTHERS,
    ),
    "bulk": Measurement(
        signatures.bulk_file,
        ("--charge", "payload", "--mtu", "4000"),
        signatures.prompt(2, signatures.ISSUES, signatures.OTHERS),
        each(signatures.bulk_once),
        signatures.bulk_report,
        signatures.OTHERS,
    ),
    "contention": Measurement(
        signatures.access_file,
        ("--hosts", str(signatures.HOSTS)),
        signatures.contention_ready,
        each(signatures.contention_once),
        signatures.contention_report,
    ),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measurement", choices=list(MEASUREMENTS))


def variant(args: argparse.Namespace) -> str:
    """Returns the measurement that is kept."""
    return str(args.measurement)


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Makes this many further runs."""
    chosen = MEASUREMENTS[args.measurement]
    with lab_up(*chosen.options, hops=chosen.hops(), where=chosen.where):
        chosen.prepare()
        yield from chosen.made(args.rounds)


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether the measurement meets its bounds."""
    return MEASUREMENTS[kept.get("variant") or kept["measurement"]].report(kept["runs"])
