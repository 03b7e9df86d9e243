"""A remote file over NBD: nbdkit's plugin `careful` beside nbdkit's file plugin over TCP, in turn.

Two hosts of a lab, an image of 256 MiB in h2's page cache. nbdcopy reads all of it; fio reads 4 KiB
at random, one at a time and 16 at a time. Owns a lab. Needs root, and fio; tools/setup run build
test brings the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_lab import ROOT, SERVER_IP, BenchError, daemons, lab_up, on, process, run

ROUNDS = 3

PLUGIN = ROOT / ".venv/lib/nbdkit/plugins/nbdkit-careful-plugin.so"
IMAGE_BYTES = 256 << 20
FIO = (
    "fio --name=read --ioengine=nbd --rw=randread --bs=4k --time_based --runtime={seconds} "
    f"--size={IMAGE_BYTES} --iodepth={{depth}} --output-format=json"
)
SECONDS = 3
PORT = 10809
#: The figures of each arm, and their titles.
FIGURES = {
    "copy_s": "nbdcopy of 256 MiB, s",
    "reads_1": "reads a second",
    "reads_16": "16 at a time",
}


def careful(client: str) -> str:
    """Returns what a client of the plugin prints, on h1."""
    nbdkit = ("nbdkit", "-U", "-", PLUGIN, "host=10.77.0.2", "path=image", "--run", client)
    return run(*on("h1", *nbdkit))


def tcp(client: str) -> str:
    """Returns what a client of h2's nbdkit prints."""
    return run(*on("h1", "sh", "-c", f"uri=nbd://10.77.0.2:{PORT}; {client}"))


def reads(arm: Any, depth: int) -> float:
    """4 KiB reads a second."""
    text = arm(f'{FIO.format(seconds=SECONDS, depth=depth)} --uri="$uri"')
    (job,) = json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"]
    if job["error"]:
        raise BenchError(f"fio: error {job['error']}")
    return float(job["read"]["iops"])


def figures(arm: Any) -> dict[str, float]:
    begun = time.monotonic()
    arm('nbdcopy "$uri" null:')
    copy_s = time.monotonic() - begun
    return {
        "copy_s": round(copy_s, 3),
        "reads_1": round(reads(arm, 1)),
        "reads_16": round(reads(arm, 16)),
    }


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Both, a turn each in a round."""
    for program in ("fio", "nbdkit", "nbdcopy"):
        if not shutil.which(program):
            raise BenchError(f"{program} is not installed")
    found = []
    with lab_up(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "image").write_bytes(os.urandom(IMAGE_BYTES))
        words = ("nbdkit", "-f", "-r", "--ipaddr", SERVER_IP, "-p", PORT, "file", folder / "image")
        with daemons(own={"h2": ("--export", folder, "--insecure")}), process(on("h2", *words)):
            run(
                *on("h1", "sh", "-c", f"until nbdinfo nbd://{SERVER_IP}:{PORT}; do sleep 0.1; done")
            )
            for number in range(args.rounds):
                arms = {"careful": careful, "tcp": tcp}
                turn = dict(reversed(arms.items())) if number % 2 else arms
                one: dict[str, Any] = {way: figures(arm) for way, arm in turn.items()}
                found.append(one | {"load": round(os.getloadavg()[0], 1)})
    return {"image_bytes": IMAGE_BYTES, "rounds": found}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table of medians."""
    print(f"{'':24} {'careful':>10} {'over TCP':>10}")
    for figure, what in FIGURES.items():
        ours, theirs = (
            statistics.median(one[way][figure] for one in kept["rounds"])
            for way in ("careful", "tcp")
        )
        print(f"{what:24} {ours:>10.2f} {theirs:>10.2f}")
    return True
