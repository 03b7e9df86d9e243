"""Many small files between two lab hosts: careful, an rsync daemon, and scp -r.

Owns a lab of two hosts, one core each, and the order of things; prints medians of
rounds. None of them encrypts: rsync speaks to its daemon, scp to an sftp-server behind a
plain TCP socket; scp does not sync files, so --no-sync is given to careful, and rsync
does not either. All files lie in memory. The command alone is timed, from its start
to its end. Each copies once before it counts: careful's first copy opens the session, too, and
the XDP modes are tried in it, once for a path; others' first fill the caches. Needs root;
tools/setup run bench installs what it compares with.
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
from bench_lab import CTL, SERVER_IP, BenchError, beside, daemons, lab_up, pinned, run

ROUNDS = 3


def seconds(host: str, *argv: object) -> float:
    """How long a command takes on a host, without what it takes to get there."""
    clock = 'TIMEFORMAT=%R; { time "$@" 2>&3; } 3>&2 2>&1'
    return float(run(*pinned(host, "bash", "-c", clock, "-", *argv)).split()[-1])


def make(top: Path, files: int, nbytes: int) -> None:
    """A tree with 100 files a directory."""
    rng = random.Random(1)
    for index in range(files):
        folder = top / f"d{index // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{index}").write_bytes(rng.randbytes(nbytes))


def measure(folder: Path, rounds: int, only: str | None) -> dict[str, list[float]]:
    """Seconds of each command and round, interleaved."""
    source, target = folder / "export" / "tree", folder / "to"
    conf = folder / "rsyncd.conf"
    conf.write_text(
        f"[x]\npath = {folder}/export\nuse chroot = no\nread only = no\nuid = root\ngid = root\n"
    )
    pump = folder / "pump"
    pump.write_text(f"#!/bin/sh\nexec socat - TCP:{SERVER_IP}:8022\n")
    pump.chmod(0o755)
    sent = folder / "export" / "sent"
    commands: dict[str, tuple[list[object], Path]] = {
        "careful get": ([CTL, "get", "-q", "-r", "-p", "--no-sync", "h2:tree/", target], target),
        "careful put": ([CTL, "put", "-q", "-r", "-p", "--no-sync", f"{source}/", "h2:sent"], sent),
        "rsync get": (["rsync", "-rpt", f"rsync://{SERVER_IP}/x/tree/", f"{target}/"], target),
        "rsync put": (["rsync", "-rpt", f"{source}/", f"rsync://{SERVER_IP}/x/sent/"], sent),
        "scp get": (
            ["scp", "-q", "-r", "-p", "-S", pump, f"x@{SERVER_IP}:{source}", target],
            target,
        ),
        "scp put": (["scp", "-q", "-r", "-p", "-S", pump, source, f"x@{SERVER_IP}:{sent}"], sent),
    }
    commands = {name: one for name, one in commands.items() if only in (None, name.split()[1])}
    found: dict[str, list[float]] = {name: [] for name in commands}
    count = sum(1 for _ in source.rglob("f*"))
    with (
        daemons("--export", f"{folder / 'export'}:rw", "--insecure", pin=True),
        beside("h2", "rsync", "--daemon", "--no-detach", f"--config={conf}"),
        beside("h2", "socat", "TCP-LISTEN:8022,fork,reuseaddr", yardsticks.SFTP),
    ):
        for number in range(rounds + 1):  # the first does not count
            for name, (command, where) in commands.items():
                shutil.rmtree(where, ignore_errors=True)
                took_s = seconds("h1", *command)
                found[name] += [took_s] if number else []
                if sum(1 for _ in where.rglob("f*")) != count:
                    raise BenchError(f"{name}: files are missing")
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=4096, help="of each file")
    parser.add_argument("--only", choices=("get", "put"), help="one direction alone")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the seconds of all rounds."""
    for program in ("rsync", "scp", "socat"):
        yardsticks.need(program)
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        make(Path(name) / "export" / "tree", args.files, args.bytes)
        seconds_of = measure(Path(name), args.rounds, args.only)
    asked = {"files": args.files, "bytes": args.bytes, "rounds": args.rounds}
    return {"inputs": asked, "seconds": seconds_of}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians; nothing is judged."""
    medians = {name: statistics.median(times) for name, times in kept["seconds"].items()}
    asked = kept["inputs"]
    print(f"{asked['files']} files of {asked['bytes']} bytes, medians of {asked['rounds']} rounds")
    for name, one in medians.items():
        ratio = one / medians[f"careful {name.split()[1]}"]
        print(f"{name:12} {one:7.2f} s {asked['files'] / one:9.0f} files/s {ratio:6.2f} × careful")
    return True
