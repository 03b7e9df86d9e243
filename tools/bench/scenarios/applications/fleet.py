"""`carefulctl fleet put` to 8 lab hosts next to 1, whose links are emulated.

Owns a lab with a link for each host. Puts to one host and to all take turns; the ratio of their
medians counts. Prints one JSON object, stored with --keep; it has the load. The links mostly sleep.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench_lab import LAB, TOOL, BenchError, ctl, lab_up, on, run, up

ROUNDS = 3


#: The bound on the time of eight hosts relative to one.
RATIO_MAX = 1.5


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=8, metavar="N", help="besides one [8]")
    parser.add_argument("--mbit", type=float, default=20.0, help="of each link, Mbit/s [20]")
    parser.add_argument("--mib", type=int, default=32, help="of the file [32]")


def prepare(folder: Path, hosts: int) -> None:
    """Starts careful on all hosts: h1 by itself, the others by `fleet up`."""
    text = f'on = "{shlex.quote(str(TOOL))} exec --name {LAB} {{}} --"\n'
    for k in range(2, hosts + 2):
        (folder / f"h{k}").mkdir()
        text += f'[host.h{k}]\nup = "--export {folder}/h{k}:rw --insecure --peers 4"\n'
    (folder / "fleet.toml").write_text(text)
    up("h1")
    words = ("fleet", "up", "--timeout", "120s", "--hosts", folder / "fleet.toml")
    run(*on("h1", "carefulctl", *words))


def put(folder: Path, file: Path, to: str) -> dict[str, Any]:
    """Puts the file to a host or all, and compares each copy."""
    found = ctl("h1", "fleet", "put", "--hosts", folder / "fleet.toml", "--to", to, file)
    wanted = file.read_bytes()
    for one in found["hosts"]:
        if one["error"]:
            raise BenchError(f"{one['host']}: {one['error']}")
        copy = folder / one["host"] / file.name
        if copy.read_bytes() != wanted:
            raise BenchError(f"{one['host']} has another file")
        copy.unlink()
    return found


def measured(args: argparse.Namespace) -> dict[str, Any]:
    link = f'[[stage]]\nname = "link"\ng_us = 10\nG_us_per_KiB = {8192 / args.mbit}\n'
    rounds: list[dict[str, Any]] = []
    with (
        lab_up("--hosts", args.hosts + 1, hops=link),
        tempfile.TemporaryDirectory(prefix="careful-fleet-") as name,
    ):
        folder = Path(name)
        file = folder / "image"
        file.write_bytes(os.urandom(args.mib << 20))
        prepare(folder, args.hosts)
        for _ in range(args.rounds):
            one, every = put(folder, file, "h2"), put(folder, file, "all")
            rounds.append({"one": one, "all": every, "load": round(os.getloadavg()[0], 1)})
    ones, alls = (
        statistics.median(each[key]["took_s"] for each in rounds) for key in ("one", "all")
    )
    asked = {"hosts": args.hosts, "link_mbit_per_s": args.mbit, "file_bytes": args.mib << 20}
    figures = {"one_s": round(ones, 3), "all_s": round(alls, 3), "ratio": round(alls / ones, 3)}
    return {"inputs": asked, **figures, "rounds": rounds}


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians; reports whether eight hosts are within the bound."""
    print(f"one host {kept['one_s']} s, all {kept['all_s']} s: {kept['ratio']} times as long")
    return bool(kept["ratio"] <= RATIO_MAX)
