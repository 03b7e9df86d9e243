"""Hosts that share a link, and a link that reorders frames.

`python tests/support/incast.py` lets one host get from 2, 4, 8 and 16 others at once, and these put
to it, through one emulated switch queue of 32 frames at 10 Mbit/s. It counts frames from the 50th
round trip on, over 200; a round trip is the time of a full queue. `--reorder ROUNDS` gets a file
over a link where one frame in 20 comes two places late, and over the same link in order. Each ends
with status 1 if a bound is missed, and --report keeps what was seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lossy
from hosts import MIB, Host, make_file, wait_for
from lab import Lab, made

MTU = 1500
QUEUE_FRAMES = 32
FRAME_US = 8 * (MTU + 14) / 10
ROUND_S = QUEUE_FRAMES * FRAME_US * 1e-6
BEFORE, COUNTED = 50, 200
#: Headers of a frame before its body: Ethernet, IPv4, UDP, careful.
HEADER_BYTES = 14 + 20 + 8 + 56
#: h1 has the switch's slow port; the others' links have room for all their windows.
LINKS = f"""
[[stage]]
name = "a port of 10 Mbit/s"
g_us = 0
G_us_per_KiB = 819.2
delay_us = 20
[stage.link]
queue_frames = {QUEUE_FRAMES}
[[stage]]
name = "a port of 1 Gbit/s"
g_us = 0
G_us_per_KiB = 8.192
delay_us = 20
"""
RATE, JAIN = 0.85, 0.9
REORDERED = 0.9
#: Two frames of lossy.LINK.
REORDER = "reorder = 0.05\nreorder_us = 75"
#: Counters of h1 that stay 0 while no session ends.
ENDS = ("lost_frames", "bad_credits", "epochs_broken")


def taken(host: Host) -> tuple[float, dict[str, float], dict[str, Any]]:
    """Returns the time, the bytes of frames that came from each peer, and the status."""
    status, now_s = host.status(), time.monotonic()
    found = {
        one["address"]: one["rx_bytes"] + HEADER_BYTES * one["rx_frames"] for one in status["peers"]
    }
    return now_s, found, status


def incast(senders: int, how: str) -> dict[str, Any]:
    """Runs one incast in a new lab. Returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hops.toml"
        path.write_text(LINKS)
        lab = Lab(hosts=senders + 1, mtu=MTU, hops=path)
        try:
            hosts = [Host(lab, name, Path(folder)) for name in lab.hosts]
            for host in hosts:
                host.up("--peers", str(max(8, senders)))
            for other in hosts[1:]:
                make_file((other.export if how == "get" else other.own) / "big", 24 * MIB)
            for other in hosts[1:]:
                if how == "get":
                    hosts[0].start("get", f"{other.name}:big", "null:")
                else:
                    other.start("put", other.own / "big", "h1:null:")

            def all_move() -> bool:
                return sum(one > 100 * MTU for one in taken(hosts[0])[1].values()) == senders

            wait_for(all_move, "data from every sender")
            time.sleep(BEFORE * ROUND_S)
            began_s, before, _ = taken(hosts[0])
            time.sleep(COUNTED * ROUND_S)
            ended_s, after, status = taken(hosts[0])
            (way,) = (one for one in lab.links()[0]["ways"] if one["way"] == "back")
        finally:
            lab.down()
    each = [after[peer] - before.get(peer, 0) for peer in after]
    return {
        "senders": senders,
        "how": how,
        "rate": 8e-7 * sum(each) / (ended_s - began_s),
        "jain": sum(each) ** 2 / (len(each) * sum(one**2 for one in each)),
        "queue_dropped": way["queue_dropped"],
        "shares": [round(8e-7 * one / (ended_s - began_s), 3) for one in each],
        "windows": [one["window_now_buffers"] for one in status["peers"]],
        "ends": {name: status["counters"][name] for name in ENDS},
    }


def incasts(counts: list[int], report: Path | None) -> bool:
    """Runs all incasts and prints the table. Reports whether the bounds are met."""
    rows: list[dict[str, Any]] = []
    print("senders  how  rate  Jain  dropped  windows")
    for senders in counts:
        for how in ("get", "put"):
            row = incast(senders, how)
            row["met"] = (
                row["rate"] >= RATE and row["jain"] >= JAIN and not any(row["ends"].values())
            )
            rows.append(row)
            print(
                f"{senders:>7}  {how}  {row['rate']:.2f}  {row['jain']:.2f}  "
                f"{row['queue_dropped']:>7}  {row['windows']}{'' if row['met'] else '  NOT MET'}",
                flush=True,
            )
            keep(report, rows)
    return all(row["met"] for row in rows)


def get(mishap: str, nbytes: int) -> dict[str, Any]:
    """Gets a file over a new link. Returns the time, and what the receiver says."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(hops=lossy.hops(Path(folder), mishap))
        try:
            a, b = (Host(lab, name, Path(folder)) for name in lab.hosts)
            took_s = lossy.get_s(a, b, "careful", nbytes)
            status = a.status()
            reordered = sum(way["reordered"] for link in lab.links() for way in link["ways"])
        finally:
            lab.down()
    (peer,) = status["peers"]
    return {
        "reorders": bool(mishap),
        "elapsed_s": took_s,
        "reordered": reordered,
        "window": peer["window_buffers"],
        "window_now": peer["window_now_buffers"],
        "asked_again": peer["asked_again_frames"],
        "ends": {name: status["counters"][name] for name in ENDS},
    }


def reorder(rounds: int, nbytes: int, report: Path | None) -> bool:
    """Compares gets in order and reordered, in turn. Reports whether the bounds are met."""
    rows = [get(mishap, nbytes) for _ in range(rounds) for mishap in ("", REORDER)]
    for row in rows:
        print(row)
    took = {
        kind: statistics.median(row["elapsed_s"] for row in rows if row["reorders"] == kind)
        for kind in (False, True)
    }
    share = took[False] / took[True]
    shrunk = any(row["window_now"] < row["window"] for row in rows)
    ended = any(any(row["ends"].values()) for row in rows)
    print(f"{share:.2f} of the rate in order; windows shrunk: {shrunk}; sessions ended: {ended}")
    keep(report, rows)
    return share >= REORDERED and not shrunk and not ended


def keep(report: Path | None, rows: list[dict[str, Any]]) -> None:
    """Writes the report."""
    if report:
        text = json.dumps({"schema": 1, **made(), "rows": rows}, indent=1)
        report.write_text(text + "\n")


def main() -> int:
    """Runs what the options say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--senders", nargs="+", type=int, default=[2, 4, 8, 16])
    parser.add_argument("--reorder", type=int, metavar="ROUNDS")
    parser.add_argument("--mib", type=int, default=48, help="size of the file of --reorder, MiB")
    parser.add_argument("--report", type=Path, help="JSON")
    options = parser.parse_args()
    if options.reorder:
        return not reorder(options.reorder, options.mib * MIB, options.report)
    return not incasts(options.senders, options.report)


if __name__ == "__main__":
    sys.exit(main())
