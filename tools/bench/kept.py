"""What benches share whose runs are kept as JSON, and judged from what is kept: their options,
what they need, how they end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_lab import ROOT, BenchError, commit


def options(about: str | None, name: str, rounds: int) -> argparse.ArgumentParser:
    """How many rounds, and where they are kept."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"[{rounds}]; 0: the table alone"
    )
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / f"{name}.json")
    return parser


def begin() -> None:
    """Before a lab: SIGTERM takes it down, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of `finally`
    if os.geteuid():
        raise BenchError("needs root, for a lab")


def keep(path: Path, head: dict[str, Any], name: str, rows: list[dict[str, Any]]) -> None:
    """All rows so far under `name`, a line each; the file is whole at any time."""
    before = json.dumps({"schema": 1, "kernel": platform.release(), **head})
    lines = ",\n".join(json.dumps(one) for one in rows)
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{before[:-1]}, {json.dumps(name)}: [\n{lines}\n]}}\n")
    fresh.rename(path)


def verdict(met: bool) -> int:
    """Prints the last line, and returns the exit status: 1 if a bound is not met."""
    print("met" if met else "NOT MET")
    return int(not met)


def judged(
    args: argparse.Namespace,
    measured: Callable[[int], dict[str, Any]],
    report: Callable[[dict[str, Any]], bool],
) -> int:
    """Measures so many rounds, if any, and judges what is kept."""
    if args.rounds:
        begin()
        head = {"schema": 1, "kernel": platform.release(), "commit": commit()}
        args.keep.write_text(json.dumps(head | measured(args.rounds)) + "\n")
    if not args.keep.exists():
        raise BenchError(f"{args.keep}: no runs yet")
    return verdict(report(json.loads(args.keep.read_text())))


def ended(main: Callable[[], int]) -> int:
    """The status of a bench: what stopped it is one line."""
    try:
        return main()
    except (BenchError, OSError, subprocess.TimeoutExpired) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 1
