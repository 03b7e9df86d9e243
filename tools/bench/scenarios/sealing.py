"""The cost of sealing a frame, next to WireGuard's packet and TLS 1.3's record on the same machine.

Builds build/bench/records (tools/bench/records.c) and runs it for several payloads. Each of the
three protects and checks as many bytes as one frame, packet or record holds, in turn, ns there and
back, without its other work. `openssl speed` of the same ciphers is one way. WireGuard's tunnel is
not measured: moving its packets is another work. `tools/bench/run instructions --only
store,store-auth,store-encrypt` counts what the engine adds. Needs no privilege; a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench_lab import built, run

ROUNDS = 31

#: Payloads, bytes: a small request, Ethernet's, a veth frame's, a TLS record's at most.
WITHOUT_LAB = True
SIZES = (64, 1400, 3712, 16384)
CIPHERS = ("aes-256-gcm", "chacha20-poly1305")


def yardstick(nbytes: int, seconds: int) -> dict[str, float]:
    """Returns how long openssl speed takes to encrypt so many bytes, ns by cipher."""
    found = {}
    for cipher in CIPHERS if shutil.which("openssl") else ():
        argv = ["openssl", "speed", "-evp", cipher, "-bytes", str(nbytes), "-seconds", str(seconds)]
        done = subprocess.run([*argv, "-mr"], capture_output=True, text=True, check=False)
        if rate := re.search(r"^\+F:\d+:[^:]+:([\d.]+)$", done.stdout, re.M):
            found[cipher] = nbytes / float(rate[1]) * 1e9
    return found


def cpu() -> str:
    """This machine's, as it calls itself."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return found[1] if found else platform.machine()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=1, help="of openssl speed; 0: not run [1]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what each size took."""
    program = built("records") / "records"
    runs = []
    for size in SIZES:
        found: dict[str, Any] = json.loads(run(program, size, args.rounds))
        found["openssl_ns"] = yardstick(size, args.seconds) if args.seconds else {}
        runs.append(found)
    return {"cpu": cpu(), "runs": runs}


def report(kept: dict[str, Any]) -> bool:
    """Prints a row for each of them, a column for each size."""
    runs = kept["runs"]
    print(f"{'ns a frame, there and back':36}" + "".join(f"{one['bytes']:>10}" for one in runs))
    for what, of in (("ns", ""), ("openssl_ns", "openssl speed, one way: ")):
        for name in runs[0][what]:
            row = "".join(f"{one[what].get(name, float('nan')):10.0f}" for one in runs)
            print(f"{of + name:36}{row}")
    return True
