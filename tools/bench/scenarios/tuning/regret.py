"""Measures the distance of planned fragments from the best ones, by stores over paths of the lab.

The planner's choice for each path comes from a black box's measurement. It is compared with a sweep
of fragment sizes and with static choices, all interleaved in random order. The best of the sweep is
chosen on half of the rounds and judged on the other half; intervals come from redrawn rounds
(regrets.py). With --auto, `tune auto` runs on the path next to a mix of the messages until it has
decided, and its settings replace the planner's.
Owns a lab for each path. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import auto
from bench_lab import PIPELINES, SCALED, equal_hops, fixed, lab_up, plans, served
from careful.plan import Limits, Plan
from careful.tuning.search.candidates import effect
from careful.tuning.settings import Kick
from regrets import choices

ROUNDS = 12

KIB = 1024
SIZES = [KIB << i for i in range(7)]
#: Fragments per message in the sweep.
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
FRAGMENT_BYTES_MIN = 128
#: Static choices, payload bytes: GAM's and FM's (P1 section 5.4), and a full frame.
STATIC = {"4 KiB": 4096, "128 B": 128, "MTU": 1 << 20}
#: Gain of the planned fragments over one at 4 KiB with 90 bytes of headers per frame: the model's
#: (`carefulctl plan --pipeline gam --bytes 4KiB --header-bytes 90`), and the least share of it.
GAIN_PATH, GAIN_BYTES, GAIN_MODEL, GAIN_SHARE = "gam-headers", 4096, 0.451, 0.90
#: The least share of predicted gains that agree with the live ones.
PREDICTED_SHARE = 0.9
#: Like SCALED, but headers are charged with G too.
FRAMES = ("--scale", "100", "--charge", "frame", "--mtu", "9000")

#: netTx's threshold in all arms, that of an untuned path: on an emulated link, with milliseconds
#: per frame, the time of the kick makes no difference.
NET_TX = Kick(65536)
ROWS = "paths"
#: Links of a path, and options of `tools/lab up`.
PATHS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gam": ((PIPELINES / "gam.toml").read_text(), SCALED),
    "gam-headers": ((PIPELINES / "gam.toml").read_text(), FRAMES),
    "gms": ((PIPELINES / "gms.toml").read_text(), SCALED),
    "equal": (equal_hops(20, 20, 20, 20, 20), SCALED),
    "slow": (equal_hops(20, 20, 60, 20, 20), SCALED),
}


def planned_for(nbytes: int, planned: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the plan for messages of a size."""
    row = next((one for one in planned if one["message_bytes_max"] >= nbytes), None)
    return {"plan": row["plan"] if row else fixed(1 << 20), "net_tx": None}


def sweep(nbytes: int, payload_bytes: int) -> list[dict[str, Any]]:
    """Returns the fragments of the sweep, without equivalent ones.

    payload_bytes: of a frame.
    """
    found: dict[Any, dict[str, Any]] = {}
    for count in COUNTS:
        size = -(-nbytes // count)
        if size >= min(FRAGMENT_BYTES_MIN, nbytes):
            limits = Limits(min(64, nbytes), payload_bytes)
            same = effect(Plan.fixed(size), NET_TX, nbytes, limits)
            found.setdefault(same, {"name": f"{count}", "plan": fixed(size), "net_tx": None})
    return list(found.values())


def arms(nbytes: int, ours: dict[str, Any], payload_bytes: int) -> list[dict[str, Any]]:
    """Returns a message's arms: planned, static, and the sweep."""
    found = [{"name": "plan", **ours}]
    found += [{"name": name, "plan": fixed(size), "net_tx": None} for name, size in STATIC.items()]
    return found + sweep(nbytes, payload_bytes)


def path_up(path: str) -> AbstractContextManager[None]:
    """Makes a lab with the links of a path."""
    hops, more = PATHS[path]
    return lab_up(*more, hops=hops)


def one_path(path: str, rounds: int) -> dict[str, Any]:
    """Measures a path in its own lab."""
    with path_up(path):
        found, planned, payload_bytes = plans()
        sizes = [
            {"bytes": n, "arms": arms(n, planned_for(n, planned), payload_bytes)} for n in SIZES
        ]
        made = served("sweep", {"sizes": sizes, "rounds": rounds})
    plain = {key: value for key, value in found.items() if not isinstance(value, dict | list)}
    first_bytes = [row["plan"]["first_bytes"] for row in planned]
    return {
        "path": path,
        "reason": found.get("reason"),
        "measured": plain,
        "planned": first_bytes,
        "sizes": made,
    }


def tuned_path(path: str, rounds: int, limit_s: float) -> dict[str, Any]:
    """Measures a path like one_path(), with the settings of `tune auto`."""
    with path_up(path):
        found = auto.swept(SIZES, arms, rounds, limit_s)
    reason = None if found["decided_s"] else f"undecided after {limit_s:.0f} s"
    return {"path": f"{path}, by tune auto", "reason": reason, **found}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", choices=[*PATHS, []], help="[all]")
    parser.add_argument("--auto", action="store_true", help="what tune auto leaves in effect")
    parser.add_argument("--limit-s", type=float, default=900.0, help="longest `tune auto` [900]")


def stays(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Reports whether a kept path is not measured again."""
    suffix = ", by tune auto" if args.auto else ""
    return row["path"] not in [path + suffix for path in args.paths or PATHS]


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures the named paths in turn."""
    for path in args.paths or PATHS:
        if args.auto:
            yield tuned_path(path, args.rounds, args.limit_s)
        else:
            yield one_path(path, args.rounds)


def report(kept: dict[str, Any]) -> bool:
    """Prints the tables; reports whether the plan meets the bounds on each path."""
    paths = kept["paths"]
    names = ("plan", *STATIC)
    found = {one["path"]: choices(one["sizes"], names) for one in paths}
    print(f"{'latency over the best: average, worst':<38}" + "".join(f"{n:>16}" for n in names))
    for path, each in found.items():
        cells = (f"{one.average.value:>7.1%} {one.worst.value:>7.1%} " for one in each.values())
        print(f"{path:<38}" + "".join(cells))
    print(f"\n{'the plan':<22}{'average, 95 % interval':<28}{'worst':<28}{'of':>7}")
    met = True
    for one in paths:
        ours = found[one["path"]]["plan"]
        note = f"; not planned: {one['reason']}" if one["reason"] else ""
        print(
            f"{one['path']:<22}{ours.average!s:<28}{ours.worst!s:<28}"
            f"{ours.worst_bytes // KIB:>3} KiB  {ours.judged}{note}"
        )
        met &= ours.judged == "met"
        if one["path"] == GAIN_PATH:
            gained = gain(next(size for size in one["sizes"] if size["bytes"] == GAIN_BYTES))
            print(f"  4 KiB, over one fragment: {gained:.1%} (model: {GAIN_MODEL:.1%})")
            met &= gained >= GAIN_SHARE * GAIN_MODEL
    predicted = [one for path in paths for one in path.get("verdicts", ()) if one["predicted_us"]]
    if predicted:
        held = sum(is_held(one) for one in predicted)
        print(f"predicted gains with a verdict of live messages: {held} of {len(predicted)} agree")
        met &= held >= PREDICTED_SHARE * len(predicted)
    return met


def is_held(verdict: dict[str, Any]) -> bool:
    """Reports whether the live gain may be the predicted one: their intervals overlap."""
    (low, high), (live_low, live_high) = verdict["predicted_us"], verdict["live_us"]
    return bool(low <= live_high and live_low <= high)


def gain(size: dict[str, Any]) -> float:
    """Returns the gain of the plan over one fragment."""
    back_us = min(size["empty_us"]) / 2
    one, ours = (statistics.median(size["arms_us"][name]) - back_us for name in ("1", "plan"))
    return float(one / ours - 1)
