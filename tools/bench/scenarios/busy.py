"""Measures what `tune auto` finds on a path that live messages use.

h1 reads messages of 1 to 64 KiB from h2 one after the other, writes them, or both at once. Each
message is followed by a pause that leaves a share of the time busy. The host that sends the data is
tuned. A row has the first figures of the path, and the times from the start of `tune auto` until
they were there, until the plans changed, and until a change was kept. The report compares the
figures with the links'. Owns a lab for each run. Needs root.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from auto import READER, careful_up
from bench_lab import PYTHON, SERVER_IP, STORES, given_as, known, on, pinned, process
from careful.model.files import load_pipeline
from careful.model.stages import Pipeline
from scenarios.regret import PATHS, path_up

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
RUN_S, BEGIN_S = 150.0, 15.0
#: Fragments whose bottleneck is compared, bytes; largest error, share of runs, and time, seconds.
AT_BYTES = 2048
ERROR_MAX, SHARE, FIGURES_S = 0.10, 0.9, 30.0
FIGURES = ("g_b_us", "G_b_us_per_KiB", "sum_G_others_us_per_KiB")


def truth(path: str) -> dict[str, float]:
    """Returns the figures of a path's links."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(PATHS[path][0] or "")
        file.flush()
        pipeline = load_pipeline(file.name)
        assert isinstance(pipeline, Pipeline)
        stages = pipeline.stages
    one = max(stages, key=lambda stage: stage.g_us + stage.G_us_per_KiB * AT_BYTES / 1024)
    others = sum(stage.G_us_per_KiB for stage in stages) - one.G_us_per_KiB
    found = dict(zip(FIGURES, (one.g_us, one.G_us_per_KiB, others), strict=True))
    return {name: SCALE * value for name, value in found.items()}


def one_run(path: str, kind: str, busy: float) -> dict[str, Any]:
    """Runs `tune auto` under live messages until a change is kept."""
    host = "h1" if kind == "writes" else "h2"
    with (
        path_up(path),
        tempfile.TemporaryDirectory() as folder,
        careful_up("--export", f"{folder}:rw", "--insecure"),
    ):
        (Path(folder) / "file").write_bytes(bytes(max(SIZES)))
        with (
            given_as({"sizes": SIZES, "kind": kind, "busy": busy}) as name,
            process(pinned("h1", PYTHON, STORES, "mix", name), ready="ready"),
        ):
            time.sleep(BEGIN_S)
            with process(on(host, "carefulctl", "tune", "auto", "eth1"), quiet=True):
                row = {"path": path, "kind": kind, "busy": busy}
                return {**row, **followed(host, time.monotonic())}


def followed(host: str, began: float) -> dict[str, Any]:
    """Returns the first figures of the host's controller, and when it did what."""
    figures: dict[str, Any] = {}
    at_s: dict[str, float] = {}
    while (now_s := time.monotonic() - began) < RUN_S and "kept" not in at_s:
        path = known(host, OTHER[host])
        if path.get("figures") and not figures:
            figures, at_s["figures"] = path["figures"], now_s
        for one in path.get("decisions", ()):
            at_s.setdefault(one["what"], now_s)
        time.sleep(0.2)
    regimes = figures.get("regimes", [])
    at: dict[str, Any] = next((one for one in regimes if one["high_bytes"] >= AT_BYTES), {})
    kept = [name for name in at if name.startswith(("g_b", "G_b", "sum_G_others"))]
    return {"at_s": at_s, **{name: at[name] for name in kept}}


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
    found = row.get(name)
    return found is not None and abs(found / value - 1) <= ERROR_MAX


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether enough runs are near the truth, and in time."""
    met = True
    print(f"{'':>6} {'':>6} {'busy':>4} {'g_b':>7} {'G_b':>7} {'others':>7}", end="")
    print(f"  runs within {ERROR_MAX:.0%}, of all")
    for run in product(NAMES, KINDS, sorted({one["busy"] for one in kept[ROWS]})):
        rows = [one for one in kept[ROWS] if (one["path"], one["kind"], one["busy"]) == run]
        if not rows:
            continue
        near = [sum(is_near(one, *pair) for one in rows) for pair in truth(run[0]).items()]
        times = [one["at_s"].get("figures", RUN_S) for one in rows]
        cells = "".join(f"{one:>5}/{len(rows):<2}" for one in near)
        path, kind, busy = run
        print(f"{path:>6} {kind:>6} {busy:>4.0%} {cells}", end="")
        print(f"  figures after {min(times):.0f} to {max(times):.0f} s")
        met &= min(near) >= SHARE * len(rows) and max(times) <= FIGURES_S
    return met
