"""A remote file as a disk, by nbdkit's plugin `careful`: three measurements.

compare: next to nbdkit's file plugin over TCP, in turn. Two hosts of a lab, an image of 256 MiB in
h2's page cache. nbdcopy reads all of it; fio reads 4 KiB at random, one at a time and 16 at a time.
verify: fio's verify workload in the lab. It writes blocks of 4 to 256 KiB at random, reads each
back, and flushes after 64 writes.
client: a file system by Linux's own NBD client, in two emulated machines (tools/machines), because
this kernel may have no module nbd. h1 makes an ext4 on h2's export, fills it, unmounts it and
disconnects. It connects again, runs e2fsck, compares each file's digest and trims the file system;
then h2 checks its image. Needs tools/setup machines, and nbd-client (or --client FILE, below this
checkout: a machine has another /tmp).

Needs root, and fio; tools/setup run build test brings the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import ROOT, SERVER_IP, BenchError, daemons, lab_up, on, process, run
from yardsticks import need

ROUNDS = 3

PLUGIN = ROOT / ".venv/lib/nbdkit/plugins/nbdkit-careful-plugin.so"
#: Serves h2's image to a command at h1, which finds it by $uri.
NBDKIT = ("nbdkit", "-U", "-", PLUGIN, "host=10.77.0.2", "path=image", "--run")
IMAGE_BYTES, PORT, SECONDS = 256 << 20, 10809, 3
#: Each arm's figures and their titles.
FIGURES = {
    "copy_s": "nbdcopy of 256 MiB, s",
    "reads_1": "reads a second",
    "reads_16": "16 at a time",
}
WORKLOAD = (
    "--name=verify --ioengine=nbd --iodepth=16 --rw=randwrite --bsrange=4k-256k --fsync=64 "
    "--time_based --verify=crc32c --verify_fatal=1 --verify_backlog=256 --randrepeat=0 "
    "--output-format=json"
)
MACHINES, NAME, KERNEL = ROOT / "tools/machines", f"nbd{os.getpid()}", "6.18"
DISK_BYTES, LARGE_MIB, SMALL = 128 << 20, 32, 500
MODULES = ROOT / "build/machines/kernels" / KERNEL / "usr"
#: On h2.
SERVE = f"""
mkdir -p /srv/nbd; truncate -s {DISK_BYTES} /srv/nbd/image
carefulctl up eth1 --export /srv/nbd:rw --insecure
"""
#: On h1, with the client's name.
BEGIN = f"""
carefulctl up eth1 --insecure
modprobe -d "{MODULES}" nbd; modprobe -d "{MODULES}" ext4
nbdkit -U /run/nbd.sock "{PLUGIN}" host=10.77.0.2 path=image instance=eth1
CLIENT -unix /run/nbd.sock /dev/nbd0
mkfs.ext4 -q /dev/nbd0
mkdir -p /mnt/nbd; mount /dev/nbd0 /mnt/nbd; cd /mnt/nbd
dd if=/dev/urandom of=large bs=1M count={LARGE_MIB} status=none
mkdir small; for i in $(seq {SMALL}); do echo $i > small/$i; done; rm small/1*
find . -type f -exec sha256sum {{}} + > /run/sums
cd /; umount /mnt/nbd; CLIENT -d /dev/nbd0
"""
AGAIN = """
echo 3 > /proc/sys/vm/drop_caches
CLIENT -unix /run/nbd.sock /dev/nbd0
e2fsck -fn /dev/nbd0 > /run/fsck
mount /dev/nbd0 /mnt/nbd; cd /mnt/nbd
sha256sum --quiet -c /run/sums; wc -l < /run/sums
fstrim /mnt/nbd; cd /; umount /mnt/nbd; CLIENT -d /dev/nbd0
"""
CHECKED = "e2fsck -fn /srv/nbd/image > /run/fsck; du -k /srv/nbd/image | cut -f1"


def job_of(text: str) -> dict[str, Any]:
    """Returns the figures of fio's only job."""
    (job,) = json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"]
    return dict(job)


@contextmanager
def exported(*options: str) -> Iterator[Path]:
    """Yields h2's exported folder with an image; careful is up on both hosts of a lab."""
    need("fio", "nbdkit", "nbdcopy")
    with lab_up(), tempfile.TemporaryDirectory() as name:
        (Path(name) / "image").write_bytes(os.urandom(IMAGE_BYTES))
        with daemons(own={"h2": ("--export", f"{name}{''.join(options)}", "--insecure")}):
            yield Path(name)


def careful(client: str) -> str:
    """Returns the output of a client of the plugin on h1."""
    return run(*on("h1", *NBDKIT, client))


def tcp(client: str) -> str:
    """Returns the output of a client of h2's nbdkit."""
    return run(*on("h1", "sh", "-c", f"uri=nbd://{SERVER_IP}:{PORT}; {client}"))


def reads(arm: Callable[[str], str], depth: int) -> float:
    """Returns 4 KiB reads a second."""
    words = f"--name=read --ioengine=nbd --rw=randread --bs=4k --time_based --runtime={SECONDS}"
    words += f" --size={IMAGE_BYTES} --iodepth={depth} --output-format=json"
    job = job_of(arm(f'fio {words} --uri="$uri"'))
    if job["error"]:
        raise BenchError(f"fio: error {job['error']}")
    return float(round(job["read"]["iops"]))


def figures(arm: Callable[[str], str]) -> dict[str, float]:
    begun = time.monotonic()
    arm('nbdcopy "$uri" null:')
    copy_s = time.monotonic() - begun
    return {"copy_s": copy_s, "reads_1": reads(arm, 1), "reads_16": reads(arm, 16)}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of both arms, which take turns."""
    found = []
    with exported() as folder:
        serve = ("nbdkit", "-f", "-r", "--ipaddr", SERVER_IP, "-p", PORT, "file", folder / "image")
        with process(on("h2", *serve)):
            tcp('until nbdinfo "$uri"; do sleep 0.1; done')
            for number in range(args.rounds):
                arms = [("careful", careful), ("tcp", tcp)]
                turn = arms[::-1] if number % 2 else arms
                one: dict[str, Any] = {way: figures(arm) for way, arm in turn}
                found.append(one | {"load": round(os.getloadavg()[0], 1)})
    return {"image_bytes": IMAGE_BYTES, "rounds": found}


def verify(args: argparse.Namespace) -> dict[str, Any]:
    """Returns fio's report."""
    with exported(":rw") as folder:
        out = folder / "fio.json"
        fio = f"fio {WORKLOAD} --size={IMAGE_BYTES} --runtime={args.seconds} --output={out}"
        argv = on("h1", *NBDKIT, f'{fio} --uri="$uri"')
        done = subprocess.run(argv, capture_output=True, text=True, cwd=folder)
        if not out.exists():
            raise BenchError(done.stderr.strip() or f"fio ended with {done.returncode}")
        print(done.stderr.strip(), file=sys.stderr)
        job = job_of(out.read_text())
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


def machines(*words: str) -> str:
    argv = ["nice", "-n", "10", str(MACHINES), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
        raise BenchError(f"machines {words[0]}: {why}")
    return done.stdout


def inside(host: str, script: str, client: Path | None = None) -> str:
    """Runs a script on a machine and returns its output; each command must succeed."""
    text = script.replace("CLIENT", str(client))
    return machines("exec", "--name", NAME, host, "--", "sh", "-ec", text)


def client(args: argparse.Namespace) -> dict[str, Any]:
    """Writes and checks a file system; raises BenchError if e2fsck or a digest complains."""
    if not args.client:
        raise BenchError("needs nbd-client: apt install nbd-client")
    program = Path(args.client).resolve()
    output = subprocess.run([program, "--version"], capture_output=True, text=True)
    version = (output.stdout + output.stderr).strip().splitlines()[0]
    head = {"client": version, "image_bytes": DISK_BYTES, "load": round(os.getloadavg()[0], 1)}
    try:
        machines("up", "--name", NAME, "--kernel", KERNEL)
        inside("h2", SERVE)
        began = time.monotonic()
        inside("h1", BEGIN, program)
        files = int(inside("h1", AGAIN, program).splitlines()[-1])
        took_s = time.monotonic() - began
        left_kib = int(inside("h2", CHECKED))
        (instance,) = json.loads(inside("h1", "carefulctl status eth1 --json"))["instances"]
        release = inside("h1", "uname -r").strip()
    finally:
        machines("down", "--name", NAME)
    counters = instance["counters"]
    return head | {
        "machines_kernel": release,
        "files": files,
        "after_trim_kib": left_kib,
        "seconds": round(took_s, 1),
        "counters": {
            key: counters.get(key, 0) for key in ("tx_frames", "rx_frames", "epochs_broken")
        },
    }


MEASUREMENTS = {"compare": compare, "verify": verify, "client": client}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument("--seconds", type=int, default=600, help="of verify [600]")
    parser.add_argument("--client", default=shutil.which("nbd-client"), metavar="FILE")


def variant(args: argparse.Namespace) -> str:
    """Returns the measurement that is kept."""
    return str(args.measurement)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    return MEASUREMENTS[args.measurement](args)


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians, or the reports of fio and the file system; reports whether there were no
    errors.
    """
    if "rounds" not in kept:
        print(json.dumps(kept, indent=2))
        return bool(kept.get("status", 0) == kept.get("errors", 0) == 0)
    print(f"{'':24} {'careful':>10} {'over TCP':>10}")
    for figure, what in FIGURES.items():
        both = (
            statistics.median(one[way][figure] for one in kept["rounds"])
            for way in ("careful", "tcp")
        )
        print(f"{what:24}" + "".join(f" {value:>10.2f}" for value in both))
    return True
