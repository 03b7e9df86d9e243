"""Measures many small files between two lab hosts: careful, an rsync daemon, and scp -r, in turn.

Two hosts, one core each. None encrypts: rsync uses its daemon, scp an sftp-server behind a plain
TCP socket. None syncs (--fsync none). All files are in memory. Only the command is timed.
Each makes one uncounted copy first: careful's opens the session and tries the XDP modes, the
others' fill the caches. Owns a lab. Needs root; tools/setup run bench installs the other programs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import yardsticks
from bench_lab import CTL, SERVER_IP, BenchError, daemons, lab_up, pinned, run

ROUNDS = 3

FILES, FILE_BYTES = 10_000, 4096


def seconds(host: str, *argv: object) -> float:
    """Returns the time of a command on a host, without the time to start it there."""
    clock = 'TIMEFORMAT=%R; { time "$@" 2>&3; } 3>&2 2>&1'
    return float(run(*pinned(host, "bash", "-c", clock, "-", *argv)).split()[-1])


def make(top: Path, files: int, nbytes: int) -> None:
    """Makes a tree with 100 files per directory."""
    rng = random.Random(1)
    for index in range(files):
        folder = top / f"d{index // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{index}").write_bytes(rng.randbytes(nbytes))


def measure(folder: Path, rounds: int, only: str | None) -> dict[str, list[float]]:
    """Returns the seconds of each command and round, interleaved."""
    source, target, sent = (folder / name for name in ("export/tree", "to", "export/sent"))
    careful = ["-q", "-r", "-p", "--fsync", "none"]
    rsync = f"rsync://{SERVER_IP}/x"
    with (
        daemons("--export", f"{folder / 'export'}:rw", "--insecure", pin=True),
        yardsticks.rsync_daemon(folder / "export"),
        yardsticks.sftp_server(folder) as scp,
    ):
        scp += ["-r", "-p"]
        commands: dict[str, list[object]] = {
            "careful get": [CTL, "get", *careful, "h2:tree/", target],
            "careful put": [CTL, "put", *careful, f"{source}/", "h2:sent"],
            "rsync get": ["rsync", "-rpt", f"{rsync}/tree/", f"{target}/"],
            "rsync put": ["rsync", "-rpt", f"{source}/", f"{rsync}/sent/"],
            "scp get": [*scp, f"x@{SERVER_IP}:{source}", target],
            "scp put": [*scp, source, f"x@{SERVER_IP}:{sent}"],
        }
        found: dict[str, list[float]] = {
            name: [] for name in commands if only in (None, name.split()[1])
        }
        count = sum(1 for _ in source.rglob("f*"))
        for number in range(rounds + 1):  # the first does not count
            for name, took in found.items():
                where = target if name.endswith("get") else sent
                shutil.rmtree(where, ignore_errors=True)
                took_s = seconds("h1", *commands[name])
                took += [took_s] if number else []
                if sum(1 for _ in where.rglob("f*")) != count:
                    raise BenchError(f"{name}: files are missing")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--bytes", type=int, default=FILE_BYTES, help="of each file")
    parser.add_argument("--only", choices=("get", "put"), help="one direction alone")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        make(Path(name) / "export" / "tree", args.files, args.bytes)
        seconds_of = measure(Path(name), args.rounds, args.only)
    asked = {"files": args.files, "bytes": args.bytes, "rounds": args.rounds}
    return {"inputs": asked, "seconds": seconds_of}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians; there are no bounds."""
    medians = {name: statistics.median(times) for name, times in kept["seconds"].items()}
    asked = kept["inputs"]
    print(f"{asked['files']} files of {asked['bytes']} bytes, medians of {asked['rounds']} rounds")
    for name, one in medians.items():
        ratio = one / medians[f"careful {name.split()[1]}"]
        print(f"{name:12} {one:7.2f} s {asked['files'] / one:9.0f} files/s {ratio:6.2f} × careful")
    return True
