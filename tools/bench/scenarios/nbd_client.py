"""A file system on a file of another host, by Linux's own NBD client over nbdkit's plugin.

It runs in two emulated machines (tools/machines), because this kernel may have no module nbd. h1
makes an ext4 on h2's export, fills it, unmounts it and disconnects. It connects anew, runs e2fsck,
compares each file's digest and trims the file system; then h2 checks its image. Needs root,
tools/setup machines, and nbd-client (apt install nbd-client; or --client FILE, below this checkout:
a machine has another /tmp).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from bench_lab import ROOT, BenchError

MACHINES, NAME, KERNEL = ROOT / "tools/machines", f"nbd{os.getpid()}", "6.18"
PLUGIN = ROOT / ".venv/lib/nbdkit/plugins/nbdkit-careful-plugin.so"
IMAGE_BYTES, LARGE_MIB, SMALL = 128 << 20, 32, 500
MODULES = ROOT / "build/machines/kernels" / KERNEL / "usr"
#: On h2.
SERVE = f"""
mkdir -p /srv/nbd; truncate -s {IMAGE_BYTES} /srv/nbd/image
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


def machines(*words: str) -> str:
    argv = ["nice", "-n", "10", str(MACHINES), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
        raise BenchError(f"machines {words[0]}: {why}")
    return done.stdout


def inside(host: str, script: str, client: Path | None = None) -> str:
    """Runs a script on a machine and returns what it prints; all its commands must succeed."""
    text = script.replace("CLIENT", str(client))
    return machines("exec", "--name", NAME, host, "--", "sh", "-ec", text)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", default=shutil.which("nbd-client"), metavar="FILE")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Writes and checks a file system; raises BenchError if e2fsck or a digest complains."""
    if not args.client:
        raise BenchError("needs nbd-client: apt install nbd-client")
    client = Path(args.client).resolve()
    said = subprocess.run([client, "--version"], capture_output=True, text=True)
    version = (said.stdout + said.stderr).strip().splitlines()[0]
    head = {"client": version, "image_bytes": IMAGE_BYTES, "load": round(os.getloadavg()[0], 1)}
    try:
        machines("up", "--name", NAME, "--kernel", KERNEL)
        inside("h2", SERVE)
        began = time.monotonic()
        inside("h1", BEGIN, client)
        files = int(inside("h1", AGAIN, client).splitlines()[-1])
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


def report(kept: dict[str, Any]) -> bool:
    """Prints what came of it."""
    print(json.dumps(kept, indent=2))
    return True
