"""`carefulctl fleet` on the hosts of a lab, for real: up, status, measure, tune, put and down.

Each host hangs on the switch by an emulated link; from one host to one other the switch is slow
while `measure` is to say which pair that is. Keeps what each command said, and beside it the matrix
as a picture. Owns a lab. Needs root, and a kernel with HTB.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_lab import LAB, TOOL, BenchError, lab_up, on, run

ROUNDS = 1

#: Each link has 100 Mbit/s.
LINK = '[[stage]]\nname = "link"\ng_us = 20\nG_us_per_KiB = 80\n'
#: From, to.
SLOW = ("h2", "h4")
NBYTES = 2 << 20


#: On the switch, and its port to the host.
TC = ("ip", "netns", "exec", f"careful-{LAB}-sw", "tc")
PORT = f"p{SLOW[1][1:]}"


def slow_down(mbit_per_s: float) -> None:
    """Makes the switch slow from one host to one other."""
    there, here = (f"10.77.0.{host[1:]}/32" for host in reversed(SLOW))
    rate = (f"{mbit_per_s:g}mbit", "burst", "4k", "cburst", "4k")
    run(*TC, "qdisc", "replace", "dev", PORT, "root", "handle", "1:", "htb", "default", "1")
    fast = ("htb", "rate", "10gbit", "burst", "1m", "cburst", "1m")
    run(*TC, "class", "add", "dev", PORT, "parent", "1:", "classid", "1:1", *fast)
    run(*TC, "class", "add", "dev", PORT, "parent", "1:", "classid", "1:2", "htb", "rate", *rate)
    match = ("u32", "match", "ip", "src", here, "match", "ip", "dst", there)
    where = ("dev", PORT, "parent", "1:", "protocol", "ip")
    run(*TC, "filter", "add", *where, *match, "flowid", "1:2")


def prepare(folder: Path, hosts: int) -> None:
    """The hosts as `fleet` reads them: all, and all but the one that sends a file."""
    tables = []
    for k in range(1, hosts + 1):
        (folder / f"h{k}").mkdir()
        tables.append(f'[host.h{k}]\nup = "--export {folder}/h{k}:rw --insecure"\n')
    on = f'on = "{shlex.quote(str(TOOL))} exec --name {LAB} {{}} --"\n'
    (folder / "all.toml").write_text(on + "".join(tables))
    (folder / "others.toml").write_text(on + "".join(tables[1:]))


def fleet(folder: Path, name: str, *words: str | Path, hosts: str = "all") -> dict[str, Any]:
    """Returns what a command reports, and how long it took."""
    argv = ("carefulctl", "fleet", name, "--json", "--hosts", folder / f"{hosts}.toml", *words)
    begun = time.monotonic()
    found: dict[str, Any] = json.loads(run(*on("h1", *argv)))
    found.pop("inputs", None)
    for one in found["hosts"]:
        one.pop("figures", None)  # all that each host says of itself
    return found | {"seconds": round(time.monotonic() - begun, 1)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="4 or more [4]")
    parser.add_argument("--time", type=float, default=3.0, help="of a pair's measurement, s [3]")
    parser.add_argument("--mbit", type=float, default=1.0, help="of the slow pair, Mbit/s [1]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what each command reports."""
    found: dict[str, Any] = {}
    load = round(os.getloadavg()[0], 1)
    with (
        lab_up("--hosts", args.hosts, hops=LINK),
        tempfile.TemporaryDirectory(prefix="careful-pairs-") as text,
    ):
        folder = Path(text)
        picture = folder / "pairs.png"
        prepare(folder, args.hosts)
        found["up"] = fleet(folder, "up")
        slow_down(args.mbit)
        words = ("--time", f"{args.time}s", "--plot", picture)
        found["measure"] = fleet(folder, "measure", *words)
        run(*TC, "qdisc", "replace", "dev", PORT, "root", "pfifo")
        found["tune"] = fleet(folder, "tune")
        (folder / "file").write_bytes(os.urandom(NBYTES))
        found["put"] = fleet(folder, "put", folder / "file", hosts="others")
        for k in range(2, args.hosts + 1):
            if (folder / f"h{k}/file").read_bytes() != (folder / "file").read_bytes():
                raise BenchError(f"h{k} has another file")
        found["status"] = fleet(folder, "status")
        found["down"] = fleet(folder, "down")
        args.keep.with_suffix(".png").write_bytes(picture.read_bytes())
    asked = {"hosts": args.hosts, "time_s": args.time, "slow_mbit_per_s": args.mbit}
    return asked | {"load": load, "slow": list(SLOW), "commands": found}


def report(found: dict[str, Any]) -> bool:
    """Reports whether all that was asked succeeded, and the slow pair is odd and no other."""
    commands = found["commands"]
    for name, one in commands.items():
        print(f"{name:8} {one['failed_count']} failed, {one['seconds']:5.1f} s")
    for one in commands["measure"]["odd"]:
        print(f"odd: {one['from']} to {one['to']}: {one['figure']} {one['value']:.1f}, ", end="")
        print(f"the median {one['median']:.1f}, {one['score']:.1f} deviations")
    pairs = [[one["from"], one["to"]] for one in commands["measure"]["odd"]]
    only = bool(pairs) and all(pair == found["slow"] for pair in pairs)
    return only and not any(one["failed_count"] for one in commands.values())
