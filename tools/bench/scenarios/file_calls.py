"""System calls that carefuld of both hosts makes for the files of a transfer, a MiB.

A file of 64 MiB is got and put over a bare veth, and written in parts of 16 KiB, many at a time.
The file lies in memory, and then on a disk. perf counts the calls of both processes by name. With
--before another checkout's careful does the same in turn. The table has today's operations, too
(`status`: file_ops): a call may be of several. Owns a lab. Needs root, and perf.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench_lab import HOSTS, ROOT, BenchError, lab_up, pinned, run

ROUNDS = 3

MIB = 64
FILE_BYTES = MIB << 20
#: Calls that move bytes of files, or ask about them; what a version does not make is 0.
CALLS = (
    "io_uring_enter",
    "io_uring_register",
    "preadv2",
    "pwritev2",
    "preadv",
    "pwritev",
    "pread64",
    "pwrite64",
    "fcntl",
)
FOLDERS = {"memory": Path("/dev/shm"), "disk": ROOT / "build"}
#: So many calls for an operation at most: what asks about a file is one, too.
CALLS_MAX = 1.02
PARTS = """
import asyncio
from careful import files

async def main():
    async with files.aconnect("h2") as host, await host.open("back", "r+") as file:
        limit = asyncio.Semaphore(64)

        async def write(at):
            async with limit:
                await file.write(bytes(16384), at)

        await asyncio.gather(*(write(at) for at in range(0, {nbytes}, 16384)))

asyncio.run(main())
"""


def told(ctl: Path, host: str) -> dict[str, Any]:
    """Returns what an instance reports of itself."""
    found: dict[str, Any] = json.loads(run(*pinned(host, ctl, "status", "eth1", "--json")))
    return dict(found["instances"][0]) if "instances" in found else found


@contextmanager
def version_up(ctl: Path, export: Path) -> Iterator[dict[str, int]]:
    """Starts a version's careful on both hosts, of h2 a folder, and returns their processes."""
    run(*pinned("h2", ctl, "up", "eth1", "--export", f"{export}:rw", "--insecure"))
    run(*pinned("h1", ctl, "up", "eth1"))
    try:
        yield {host: int(told(ctl, host)["pid"]) for host in HOSTS}
    finally:
        for host in HOSTS:
            run(*pinned(host, ctl, "down", "eth1"))


@contextmanager
def counted(pids: dict[str, int], into: dict[str, dict[str, int]]) -> Iterator[None]:
    """System calls of processes meanwhile, by host and name."""
    events = ",".join(f"syscalls:sys_enter_{name}" for name in CALLS)
    with ExitStack() as stack:
        perfs = {}
        for host, pid in pids.items():
            argv = ["perf", "stat", "-x", ",", "-e", events, "-p", str(pid)]
            perfs[host] = stack.enter_context(
                subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
            )
        yield
        for host, perf in perfs.items():
            perf.send_signal(signal.SIGINT)
            assert perf.stderr
            rows = [line.split(",") for line in perf.stderr.read().splitlines()]
            found = {row[2].rpartition("enter_")[2]: row[0] for row in rows if len(row) > 2}
            if not all(found.get(name, "").isdigit() for name in CALLS):
                raise BenchError(f"perf: {host} is not counted: {found}")
            into[host] = {name: int(found[name]) for name in CALLS if int(found[name])}


def operations(ctl: Path) -> dict[str, int | None]:
    """Reads and writes of files so far, by host; None: this version does not count them."""
    return {host: told(ctl, host).get("counters", {}).get("file_ops") for host in HOSTS}


def transfers(ctl: Path, folder: Path) -> list[dict[str, Any]]:
    """A get and a put of a file, and writes into it."""
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here, there = Path(name) / "here", Path(name) / "there"
        here.mkdir()
        there.mkdir()
        (there / "file").write_bytes(bytes(range(256)) * (FILE_BYTES // 256))
        with version_up(ctl, there) as pids:
            parts = (ctl.with_name("python"), "-c", PARTS.format(nbytes=FILE_BYTES))
            words: dict[str, tuple[str | Path, ...]] = {
                "get": (ctl, "get", "h2:file", here / "file", "--no-sync"),
                "put": (ctl, "put", here / "file", "h2:back", "--no-sync"),
                "parts": parts,
            }
            for kind, argv in words.items():
                calls: dict[str, dict[str, int]] = {}
                before = operations(ctl)
                with counted(pids, calls):
                    run(*pinned("h1", *argv))
                after = operations(ctl)
                ops = {
                    host: None if was is None else int(after[host] or 0) - was
                    for host, was in before.items()
                }
                found.append({"kind": kind, "calls": calls, "operations": ops})
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, help="another checkout, set up")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Every round of each version and folder, in turn."""
    trees = {"now": ROOT} | ({"before": args.before} if args.before else {})
    rows = []
    with lab_up("--mtu", "9000"):
        for _ in range(args.rounds):
            for version, tree in trees.items():
                for where, folder in FOLDERS.items():
                    for one in transfers(tree / ".venv" / "bin" / "carefulctl", folder):
                        rows.append({"version": version, "where": where, **one})
    return {"MiB": MIB, "rows": rows}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; whether there is a call an operation at most."""
    print(f"{'a MiB':>33} {'its reader':>12} {'its writer':>12}")
    sums: dict[tuple[str, ...], float] = {}
    keys = {(row["where"], row["kind"], row["version"]): None for row in kept["rows"]}
    for key in keys:
        rows = [row for row in kept["rows"] if key == (row["where"], row["kind"], row["version"])]
        ends = ("h2", "h1") if key[1] == "get" else ("h1", "h2")  # who reads, who writes
        for what in ("calls", "operations"):
            values = [[_sum(row[what][host]) for host in ends] for row in rows]
            if any(value is None for row in values for value in row):
                continue
            middle = [
                statistics.median(row[end] or 0 for row in values) / kept["MiB"] for end in (0, 1)
            ]
            sums[(*key, what)] = sum(middle)
            print(f"{key[0]:>7} {key[1]:>6} {key[2]:>7} {what:>10}", end="")
            print("".join(f"{value:>13.2f}" for value in middle))
    made = {key: calls for key, calls in sums.items() if key[2:] == ("now", "calls")}
    return bool(made) and all(
        calls <= CALLS_MAX * sums[(*key[:3], "operations")] for key, calls in made.items()
    )


def _sum(calls: dict[str, int] | int | None) -> int | None:
    return sum(calls.values()) if isinstance(calls, dict) else calls
