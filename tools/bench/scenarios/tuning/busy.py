"""Measures what `tune auto` finds on a path that live messages use.

h1 reads messages of 1 to 64 KiB from h2 one after the other, writes them, or both at once. Each
message is followed by a pause that leaves a share of the time busy. The host that sends the data is
tuned. A row has the path's first figures with their intervals, and the number of messages until
then of the class with most. It has the times from the start of `tune auto` until the figures were
there and until the plans changed, and what measuring added to the messages' time. The report
compares the figures with the links'. Owns a lab for each run. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from auto import READER, careful_up
from bench_lab import PYTHON, SERVER_IP, STORES, ctl, given_as, known, on, pinned, process
from careful.model.files import load_pipeline
from careful.model.stages import Pipeline
from scenarios.tuning.regret import PATHS, path_up

ROUNDS = 2
ROWS = "runs"
#: Paths whose links have figures, and their pipelines.
NAMES = ("gam", "gms", "equal", "slow")
KINDS = ("reads", "writes", "both")
BUSY = (0.5, 0.9, 1.0)
SIZES = [1024 << i for i in range(7)]
#: The other host's address, by the tuned host.
OTHER = {"h1": SERVER_IP, "h2": READER}
#: The links are this many times slower than their pipelines.
SCALE = 100.0
#: The longest run, and the time for trains of the session's begin, seconds.
RUN_S, BEGIN_S = 150.0, 10.0
#: The time before `tune auto` in which messages are timed, seconds.
BEFORE_S = 20.0
#: Fragments whose bottleneck is compared, bytes; largest error, and share of runs.
AT_BYTES = 2048
ERROR_MAX, SHARE = 0.10, 0.9
#: The figures are there in this time, seconds, or after so many messages of a class.
FIGURES_S, FIGURES_MESSAGES = 30.0, 200
#: A figure and its unit.
FIGURES = {"g_b": "us", "G_b": "us_per_KiB", "sum_G_others": "us_per_KiB"}


def truth(path: str) -> dict[str, float]:
    """Returns the figures of a path's links."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(PATHS[path][0])
        file.flush()
        pipeline = load_pipeline(file.name)
        assert isinstance(pipeline, Pipeline)
        stages = pipeline.stages
    one = max(stages, key=lambda stage: stage.g_us + stage.G_us_per_KiB * AT_BYTES / 1024)
    others = sum(stage.G_us_per_KiB for stage in stages) - one.G_us_per_KiB
    found = zip(FIGURES, (one.g_us, one.G_us_per_KiB, others), strict=True)
    return {name: SCALE * value for name, value in found}


def one_run(path: str, kind: str, busy: float) -> dict[str, Any]:
    """Runs `tune auto` under live messages until it has figures and has used them."""
    host = "h1" if kind == "writes" else "h2"
    with (
        path_up(path),
        tempfile.TemporaryDirectory() as folder,
        careful_up("--export", f"{folder}:rw", "--insecure"),
    ):
        (Path(folder) / "file").write_bytes(bytes(max(SIZES)))
        log = Path(folder) / "log"
        with (
            given_as({"sizes": SIZES, "kind": kind, "busy": busy, "log": str(log)}) as name,
            process(pinned("h1", PYTHON, STORES, "mix", name), ready="ready"),
        ):
            time.sleep(BEGIN_S + BEFORE_S)
            with process(on(host, "carefulctl", "tune", "auto", "eth1"), quiet=True):
                began = time.monotonic()
                row = {"path": path, "kind": kind, "busy": busy, **followed(host, began)}
            return {**row, **added(log.read_text(), began, row["at_s"].get("figures", RUN_S))}


def added(log: str, began: float, figures_s: float) -> dict[str, float]:
    """Returns what measuring added to the messages' time: a share of it, and seconds in all.

    log: of `mix`. The messages that began until the figures were there are compared with those of
        the same kind and size before `tune auto` began.
    """
    before: dict[tuple[str, str], list[float]] = {}
    usual_s = longer_s = 0.0
    for line in log.splitlines():
        start, kind, size, took = line.split()
        at_s = float(start) - began
        if -BEFORE_S <= at_s < 0:
            before.setdefault((kind, size), []).append(float(took))
        elif 0 <= at_s < figures_s and (known_s := before.get((kind, size))):
            usual_s += statistics.fmean(known_s)
            longer_s += float(took) - statistics.fmean(known_s)
    return {"added": longer_s / usual_s, "added_s": longer_s} if usual_s else {}


def messages(host: str) -> dict[int, int]:
    """Returns the live messages of each class so far that the host's latencies count."""
    rows = ctl(host, "tune", "explain", "eth1")["paths"][0]["classes"]
    return {row["class"]: row["live_count"] for row in rows}


def followed(host: str, began: float) -> dict[str, Any]:
    """Returns the first figures of the host's controller, and when it did what."""
    figures: dict[str, Any] = {}
    at_s: dict[str, float] = {}
    before, count = messages(host), 0
    while (now_s := time.monotonic() - began) < RUN_S and not {"figures", "changed"} <= at_s.keys():
        path = known(host, OTHER[host])
        if path.get("figures") and not figures:
            figures, at_s["figures"] = path["figures"], now_s
            count = max(now - before[one] for one, now in messages(host).items())
        for one in path.get("decisions", ()):
            at_s.setdefault(one["what"], now_s)
        time.sleep(0.2)
    regimes = figures.get("regimes", [])
    at: dict[str, Any] = next((one for one in regimes if one["high_bytes"] >= AT_BYTES), {})
    ends = ("_low_", "_", "_high_")
    kept = {
        name: [at.get(f"{name}{end}{unit}") for end in ends] for name, unit in FIGURES.items() if at
    }
    return {"at_s": at_s, "messages": count, **kept}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", choices=[*NAMES, []], help="[all]")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="[all]")
    parser.add_argument(
        "--busy", nargs="+", type=float, default=BUSY, help="shares of time [0.5 0.9 1]"
    )


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for _ in range(args.rounds):
        for run in product(args.paths or NAMES, args.kinds, args.busy):
            yield one_run(*run)


def is_near(row: dict[str, Any], name: str, value: float) -> bool:
    found = row.get(name, [None] * 3)[1]
    return found is not None and abs(found / value - 1) <= ERROR_MAX


def holds(row: dict[str, Any], name: str, value: float) -> bool:
    low, _, high = row.get(name, [None] * 3)
    return low is not None and low <= value <= high


def is_in_time(row: dict[str, Any]) -> bool:
    at_s = row["at_s"].get("figures")
    return at_s is not None and (at_s <= FIGURES_S or row["messages"] <= FIGURES_MESSAGES)


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Returns how many runs are near the truth, contain it, and are in time."""
    found = dict.fromkeys((*FIGURES, "interval", "in time"), 0)
    for row in rows:
        pairs = truth(row["path"]).items()
        for name, value in pairs:
            found[name] += is_near(row, name, value)
        found["interval"] += sum(holds(row, *pair) for pair in pairs)
        found["in time"] += is_in_time(row)
    return found


def shown_added(rows: list[dict[str, Any]]) -> str:
    share, seconds = ([row[name] for row in rows if name in row] for name in ("added", "added_s"))
    share, seconds = share or [0], seconds or [0]
    return f"{statistics.median(share):.0%}, {max(share):.0%}; {max(seconds):.1f} s"


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether 9 in 10 runs of each load meet each bound."""
    rows, loads = kept[ROWS], sorted({(one["kind"], one["busy"]) for one in kept[ROWS]})
    print(f"figures within {ERROR_MAX:.0%}; intervals with the truth, of three a run; figures in")
    print(f"{FIGURES_S:.0f} s or {FIGURES_MESSAGES} messages of a class; seconds, median and most")
    print("what measuring added to the time of the messages until then, median and most; the sum")
    print(f"{'':>6} {'':>6} busy runs   g_b   G_b others    hold in time  seconds  added")
    met = True
    for path, load in product((*NAMES, "all"), loads):
        some = [one for one in rows if path in (one["path"], "all")]
        some = [one for one in some if (one["kind"], one["busy"]) == load]
        if not some:
            continue
        n, found = len(some), counts(some)
        at_s = [one["at_s"].get("figures", RUN_S) for one in some]
        print(
            f"{path:>6} {load[0]:>6} {load[1]:>4.0%} {n:>4} {found['g_b']:>5} {found['G_b']:>5} "
            f"{found['sum_G_others']:>6} {found['interval']:>3}/{3 * n:<3} {found['in time']:>7}  "
            f"{statistics.median(at_s):>3.0f}, {max(at_s):<3.0f} {shown_added(some)}"
        )
        if path == "all":
            near = min(found[name] for name in (*FIGURES, "in time"))
            met &= near >= SHARE * n and found["interval"] >= SHARE * 3 * n
    return met
