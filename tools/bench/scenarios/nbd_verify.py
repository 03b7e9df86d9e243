"""fio's verify workload over nbdkit's plugin: fio reads back what it has written.

In a lab of two hosts h2 exports an image, which h1 serves to fio as an NBD disk. fio writes blocks
of 4 to 256 KiB at random, reads each back, and flushes after 64 writes. (Its NBD engine cannot trim
at the same time.) Owns a lab. Needs root, and fio; tools/setup run build test brings the rest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_lab import ROOT, BenchError, daemons, lab_up, on

PLUGIN = ROOT / ".venv/lib/nbdkit/plugins/nbdkit-careful-plugin.so"
IMAGE_BYTES = 256 << 20
WORKLOAD = (
    "--name=verify --ioengine=nbd --iodepth=16 --rw=randwrite --bsrange=4k-256k --fsync=64 "
    "--time_based --verify=crc32c --verify_fatal=1 --verify_backlog=256 --randrepeat=0 "
    "--output-format=json"
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=600, help="[600]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what fio reports."""
    if not shutil.which("fio"):
        raise BenchError("needs fio: apt install fio")
    with lab_up(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "image").open("xb") as file:
            file.truncate(IMAGE_BYTES)
        out = folder / "fio.json"
        fio = f"fio {WORKLOAD} --size={IMAGE_BYTES} --runtime={args.seconds} --output={out}"
        nbdkit = (
            "nbdkit",
            "-U",
            "-",
            PLUGIN,
            "host=10.77.0.2",
            "path=image",
            "--run",
            f'{fio} --uri="$uri"',
        )
        with daemons(own={"h2": ("--export", f"{folder}:rw", "--insecure")}):
            done = subprocess.run(on("h1", *nbdkit), capture_output=True, text=True, cwd=folder)
        if not out.exists():
            raise BenchError(done.stderr.strip() or f"fio ended with {done.returncode}")
        print(done.stderr.strip(), file=sys.stderr)
        text = out.read_text()
        (job,) = json.loads(text[text.index("{") :])["jobs"]
    return {
        "workload": WORKLOAD,
        "image_bytes": IMAGE_BYTES,
        "status": done.returncode,
        "errors": job["error"],
        "seconds": round(job["job_runtime"] / 1000),
        "read_bytes": job["read"]["io_bytes"],
        "written_bytes": job["write"]["io_bytes"],
        "flushes": job["sync"]["total_ios"],
    }


def report(kept: dict[str, Any]) -> bool:
    """Reports whether fio found no error, and read back what it had written."""
    print(json.dumps(kept, indent=2))
    return kept["status"] == kept["errors"] == 0 and bool(kept["read_bytes"])
