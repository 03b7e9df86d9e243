"""Plays tools/demo: moves files between two lab hosts and prints a table.

Owns its lab, its work folder and the order of steps. Afterwards all are removed, also after an
interrupt. Figures are carefulctl's own, so the seconds are the transfer's, without the command's
start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_lab import (
    SERVER_IP,
    BenchError,
    big_file,
    built,
    ctl,
    daemons,
    lab_up,
    on,
    run,
    status,
)
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from scenarios.applications import trees

TREE_FILES, TREE_FILE_BYTES = 1000, 8192
FETCHES = 20000
WIDTH = 80
COUNTS = ("frames", "lost")


def say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def work_folder(nbytes: int) -> Iterator[Path]:
    """Yields a folder in memory if three copies of the file fit there, else on disk."""
    memory = Path("/dev/shm")
    need = 3 * nbytes + (256 << 20)
    folder = None
    if memory.is_dir() and os.access(memory, os.W_OK):
        free = os.statvfs(memory)
        folder = memory if free.f_bavail * free.f_frsize > need else None
    work = Path(tempfile.mkdtemp(prefix="careful-demo.", dir=folder))
    try:
        room = os.statvfs(work)
        if room.f_bavail * room.f_frsize < need:
            raise BenchError(f"{work.parent}: {need >> 20} MiB are needed; --bytes N for less")
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def transfer(what: str, *argv: str | Path) -> dict[str, Any]:
    """Runs a get or put on h1. Returns a row of the table."""
    say(what)
    before = status("h1")["counters"]
    found = ctl("h1", *argv)
    after = status("h1")
    moved = after["counters"]
    frames = sum(moved[name] - before[name] for name in ("rx_frames", "tx_frames"))
    lost = moved["lost_frames"] + status("h2")["counters"]["lost_frames"]
    return {
        "what": what,
        "files": found["files_count"],
        "bytes": found["total_bytes"],
        "seconds": found["elapsed_s"],
        "gbit": found["rate_gbit_per_s"],
        "frames": frames,
        "lost": lost,
    }


def copy(source: Path, target: Path) -> dict[str, Any]:
    """Times cp of the same file, without a network, as a yardstick."""
    say("cp 1 file, to compare with")
    start = time.monotonic()
    run("cp", "--reflink=never", "--sparse=never", source, target)
    spent = time.monotonic() - start
    target.unlink()
    nbytes = source.stat().st_size
    return {
        "what": "cp, no network",
        "files": 1,
        "bytes": nbytes,
        "seconds": spent,
        "gbit": nbytes * 8 / spent / 1e9,
    }


def compare(a: Path, *others: Path) -> None:
    """Raises BenchError unless names and contents are the same."""
    for other in others:
        if subprocess.run(["diff", "-rq", a, other], stdout=subprocess.DEVNULL).returncode:
            raise BenchError(f"{other.name} differs from {a.name}")


def show(rows: list[dict[str, Any]], fetch: dict[str, Any]) -> None:
    """Prints the table, and the time of a block fetch."""
    title = "careful between two hosts of a lab"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("", "files", "bytes", "seconds", "Gbit/s", "frames", "lost"):
        table.add_column(name, justify="right" if name else "left")
    for r in rows:
        figures = f"{r['files']:,}", f"{r['bytes']:,}", f"{r['seconds']:.2f}", f"{r['gbit']:.2f}"
        counts = [f"{r[k]:,}" if k == "frames" else str(r[k]) for k in COUNTS if k in r]
        table.add_row(r["what"], *figures, *counts)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    p50, p99 = fetch["fetch_8KiB_p50_us"], fetch["fetch_8KiB_p99_us"]
    print(f"8 KiB block fetch, {FETCHES:,} of them: P50 {p50:.1f} µs, P99 {p99:.1f} µs")


def play(work: Path, nbytes: int) -> None:
    """Plays all steps in a running lab."""
    export, back = work / "export", work / "back"
    export.mkdir()
    back.mkdir()
    say(f"making a file of {nbytes:,} bytes and a tree")
    big_file(export / "big", nbytes)
    trees.make(export / "tree", TREE_FILES, TREE_FILE_BYTES)
    files = f"{TREE_FILES} files"
    rows = []
    say("carefulctl up eth1, on both hosts")
    with daemons("--export", f"{export}:rw", "--insecure", hosts=("h2",)):
        with daemons(hosts=("h1",)):
            ctl("h1", "ls", "h2:")  # frames of the XDP trial do not belong to a transfer
            rows.append(transfer("get 1 file", "get", "h2:big", back / "big"))
            rows.append(transfer("put 1 file", "put", back / "big", "h2:big2"))
            rows.append(copy(export / "big", back / "copy"))
            rows.append(transfer(f"get {files}", "get", "-r", "h2:tree/", back / "tree"))
            rows.append(transfer(f"put {files}", "put", "-r", f"{back}/tree/", "h2:tree2"))
        say("comparing contents")
        compare(export / "big", back / "big", export / "big2")
        compare(export / "tree", back / "tree", export / "tree2")
        say("8 KiB fetches")
        fetch = run(
            *on("h1", built("fetch") / "fetch", "eth1", SERVER_IP, "big", "/dev/null", FETCHES)
        )
    show(rows, json.loads(fetch))
    if any(row.get("lost") for row in rows):
        raise BenchError("frames were lost: carefulctl status says where")
    print("contents: equal at both ends, all files")


def main() -> int:
    """Returns 0 if all data arrived and no frame was lost, or with --tune if two changes held."""
    parser = argparse.ArgumentParser(prog="tools/demo")
    parser.add_argument("--bytes", type=int, default=1 << 30, help="the large file [1 GiB]")
    parser.add_argument("--tune", type=Path, metavar="FILE", help="a path changes; draws FILE")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    try:
        if args.tune:
            import demo_tune  # needs matplotlib

            demo_tune.show(args.tune, say)
        else:
            with work_folder(args.bytes) as work, lab_up():
                play(work, args.bytes)
    except (BenchError, ImportError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    say(f"done in {time.monotonic() - start:.0f} s; nothing is left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
