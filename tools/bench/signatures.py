"""LogP over emulated links: predicted bursts, bulk transfers, senders that share a link (P4).

For `tools/bench/run measure logp`, `bulk` and `contention`, which own the labs and reports.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Callable
from typing import Any

from bench_lab import HEAD, SHARE, BenchError, ctl, links, on, run, spread, within

#: P4: bounds of the error of a burst's predicted time, and of K times the gap of one sender.
LOGP_ERROR_MAX = 0.05
LOGP_S = "12"
LOGP_BURSTS = ("2", "3", "5", "10", "20", "50")
#: Stored figures; os_D is os of a request after a pause.
NAMES = ("os", "os_D", "or", "g", "L")
#: P4 Figures 7 and 10: a transfer's gap and time over its size have the link's slope; the bounds.
BULK_G_US_PER_KIB = 300
BULK_ERROR_MAX = {"g": 0.05, "T": 0.10}
CONTENTION_ERROR_MAX = 0.10
CONTENTION_K = (2, 3, 5, 7)
HOSTS = max(CONTENTION_K) + 1
#: The issuing host has its own processor. Links have priority on the other; on the issuer's, each
#: request would wait for them.
_CPUS = sorted(os.sched_getaffinity(0))
ISSUES, OTHERS = (("taskset", "-c", str(cpu)) for cpu in (_CPUS[0], _CPUS[-1]))
#: Time of a frame on an emulated link, so long that links contend and not this machine's cores.
ACCESS_GAP_US = 1000
#: Seconds that floods last, and that each of the senders may need to start beside the others.
FLOOD_S, START_S = 4, 1.5
FLOOD_TRIES, FLOOD_SLICES_MIN = 4, 5


def access_file(G_us_per_KiB: int = 0) -> str:
    """Returns the hops file of a link with this gap, between two hosts or for each host."""
    costs = f"g_us = {ACCESS_GAP_US}\nG_us_per_KiB = {G_us_per_KiB}"
    return f'[[stage]]\nname = "access"\n{costs}\ndelay_us = 500\n'


def bulk_file() -> str:
    """Returns the hops file of a link that also charges for bytes."""
    return access_file(BULK_G_US_PER_KIB)


def logp_once() -> dict[str, Any]:
    """Returns a signature over one link, and the bursts that it predicts."""
    links("--reset")
    found = ctl("h1", "measure", "logp", "h2", "--time", LOGP_S)
    names = [f"{name}{end}_us" for name in NAMES for end in ("", "_low", "_high")]
    return {
        "asked_g_us": ACCESS_GAP_US,
        "lateness_p99_us": links()[0]["ways"][0]["lateness_p99_us"],
        "errors": {str(one["messages"]): one["error"] for one in found["trials"]},
        "regimes": [
            found["curves"][0][key] for key in ("send_only_until_messages", "steady_from_messages")
        ],
        **{name: found.get(name) for name in names},
        **{key: found[key] for key in ("elapsed_s", "bursts_count", "settled", "notes")},
    }


def logp_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the table; reports whether all is met."""
    print(HEAD)
    met = True
    for messages in LOGP_BURSTS:
        found = [one["errors"].get(messages) for one in runs]
        errors = [abs(error) for error in found if error is not None]
        met &= within(f"burst of {messages}", runs, errors, LOGP_ERROR_MAX)
    print(f"{'µs':>8} {'runs':>5} {'median':>9} {'nine of ten runs':>20} {'half of one run':>16}")
    for name in NAMES:
        known = [one for one in runs if one.get(f"{name}_us") is not None]
        if known:
            print(f"{name:>8} {len(known):>5} {between(name, known)}")
    settled: int = sum(one["settled"] for one in runs)
    print(f"settled: {settled} of {len(runs)} runs")
    print(f"one took {spread(one['elapsed_s'] for one in runs)} s")
    return met and settled >= SHARE * len(runs)


def bulk_once() -> dict[str, Any]:
    """Returns the lines of stores' and gets' gaps and times over their sizes, a frame at most."""
    found = ctl("h1", "measure", "logp", "h2", "--bulk", "--max-bytes", "3072", "--time", "16")
    return {
        "asked_G_us_per_KiB": BULK_G_US_PER_KIB,
        "elapsed_s": found["elapsed_s"],
        **{
            f"{bulk['kind']} {name}": {
                key: value for key, value in bulk[name].items() if "_us" in key
            }
            for bulk in found["bulk"]
            for name in BULK_ERROR_MAX
        },
    }


def bulk_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the table; reports whether all is met."""
    print(HEAD)
    met = True
    for kind in ("store", "get"):
        for name, most in BULK_ERROR_MAX.items():
            lines = [one[f"{kind} {name}"] for one in runs]
            slopes = [one["G_us_per_KiB"] for one in lines if one.get("G_us_per_KiB")]
            errors = [abs(slope / BULK_G_US_PER_KIB - 1) for slope in slopes]
            met &= within(f"{kind}: slope of {name}", runs, errors, most)
    return met


def between(name: str, runs: list[dict[str, Any]]) -> str:
    """Returns a figure's change between runs, and its interval in one run."""
    values = [one[f"{name}_us"] for one in runs]
    halves = [one[f"{name}_high_us"] - one[f"{name}_us"] for one in runs]
    twentieths = statistics.quantiles(values, n=20) if len(values) > 1 else values
    apart = f"{twentieths[0]:.3f} to {twentieths[-1]:.3f}"
    return f"{statistics.median(values):>9.3f} {apart:>20} {statistics.median(halves):>16.3f}"


def floods(pairs: list[tuple[str, str]]) -> list[float]:
    """Returns the gap of each sender, µs, while all of them sent.

    A sender may start after the others' end, so floods are repeated.
    """
    for _ in range(FLOOD_TRIES):
        if gaps := _gaps(pairs):
            return gaps
    raise BenchError("the senders hardly met: is the machine loaded?")


def _gaps(pairs: list[tuple[str, str]]) -> list[float]:
    """Returns nothing if the senders hardly met."""
    running = []
    seconds = FLOOD_S + START_S * len(pairs)
    for sender, receivers in pairs:
        words = [*receivers.split(), "--gap-for", str(seconds), "--json"]
        # Without priority it would start late beside the others' carefulds.
        argv = on(sender, "nice", "-n", "-20", "carefulctl", "measure", "logp", *words)
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
    shown = [one.communicate(timeout=60)[0] for one in running]
    if any(one.returncode for one in running):
        raise BenchError("a sender failed")
    slices = [json.loads(text)["slices"] for text in shown]
    begin = max(one[1]["ended_s"] for one in slices)
    end = min(one[-1]["ended_s"] for one in slices)
    gaps = []
    for one in slices:
        inside = [part for part in one if begin <= part["ended_s"] <= end]
        if len(inside) < FLOOD_SLICES_MIN:
            return []
        took_s = inside[-1]["ended_s"] - inside[0]["ended_s"]
        gaps.append(took_s * 1e6 / sum(part["messages"] for part in inside[1:]))
    return gaps


def prompt(hosts: int, *where: tuple[str, ...]) -> Callable[[], None]:
    """Starts careful on this many hosts with priority, since its o and L are measured.

    where: the processor of each, or their own choice.
    """

    def prepare() -> None:
        for k, pin in enumerate(where or [()] * hosts, 1):
            run(*on(f"h{k}", *pin, "nice", "-n", "-20", "carefulctl", "up", "eth1"))

    return prepare


def contention_ready() -> None:
    """Starts careful, and begins all sessions."""
    prompt(HOSTS)()
    floods([(f"h{k}", "h1") for k in range(2, HOSTS + 1)])


def contention_once() -> dict[str, Any]:
    """Measures one to one, K to one, one to many, and half of the hosts to the other half."""
    found: dict[str, Any] = {"1 to 1": floods([("h2", "h1")])}
    for K in CONTENTION_K:
        found[f"{K} to 1"] = floods([(f"h{k}", "h1") for k in range(2, K + 2)])
    others = [f"h{k}" for k in range(2, HOSTS + 1)]
    found[f"1 to {len(others)}"] = floods([("h1", " ".join(others))])
    half = HOSTS // 2
    found["half to half"] = floods([(f"h{k}", f"h{half + k}") for k in range(1, half + 1)])
    return {"gaps_us": found}


def contention_report(runs: list[dict[str, Any]]) -> bool:
    """Prints the table; reports whether all is met."""
    print(HEAD)
    met = True
    for name in list(runs[0]["gaps_us"])[1:]:
        asked = int(name.split()[0]) if name.endswith("to 1") else 1
        ratios = [
            statistics.mean(one["gaps_us"][name]) / one["gaps_us"]["1 to 1"][0] for one in runs
        ]
        errors = [abs(ratio / asked - 1) for ratio in ratios]
        what = f"{name}: {statistics.median(ratios):.2f} times"
        met &= within(what, runs, errors, CONTENTION_ERROR_MAX)
    alone = spread(one["gaps_us"]["1 to 1"][0] for one in runs)
    print(f"gap of one sender: {alone} µs, asked {ACCESS_GAP_US}")
    return met
