"""Transfers over a lossy link: duration, losses, and correctness.

`python tests/support/lossy.py` moves a file there and back over an emulated link for each
fault and rate, prints a table, and with --report keeps it. test_lossy.py uses the
same link for a few small ones. `--compare` gets a file over links that lose frames: with careful,
with `--repair off` and with TCP. It compares each rate with the one without loss, and ends with
status 1 if a bound is missed.
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

from hosts import MIB, Host, hosts_up, make_file
from lab import Lab, made

LINK = """
name = "a link with mishaps"
[[stage]]
name = "wire"
g_us = 5
G_us_per_KiB = 8
[stage.link]
seed = 7
queue_frames = 1000
{mishap}
"""
#: Mishaps for a share of the frames in both directions, control messages too.
FAULTS = {
    "loss": "loss = {rate}",
    "duplication": "duplicate = {rate}",
    "reordering": "reorder = {rate}\nreorder_us = 300",
    "corruption": "corrupt = {rate}",
    "all four": "loss = {rate}\nduplicate = {rate}\nreorder = {rate}\nreorder_us = 300\n"
    "corrupt = {rate}",
}
RATES = (0.0001, 0.01, 0.1)
#: The fields that distinguish the rows of a report.
WHICH = ("bytes", "family", "fault", "rate", "command")
COLUMNS = ("family", "fault", "rate", "command", "status", "right", "elapsed_s", "lost_frames")
COLUMNS += ("new_epochs_count", "retries_count")


def hops(folder: Path, mishap: str) -> Path:
    """Writes a link with a mishap, for Lab(hops=…)."""
    path = folder / "hops.toml"
    path.write_text(LINK.format(mishap=mishap))
    return path


def with_ipv6(lab: Lab) -> str:
    """Gives a lab with emulated links IPv6 too. Returns h2's address for carefulctl."""
    macs = {}
    for host in lab.hosts:
        lab.run(host, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6")
        lab.run(host, "ip", "addr", "add", f"{lab.address(host, 6)}/64", "dev", "eth1", "nodad")
        (link,) = json.loads(lab.run(host, "ip", "-json", "link", "show", "eth1").stdout)
        macs[host] = link["address"]
    for host, other in (lab.hosts, lab.hosts[::-1]):
        reported = (lab.address(other, 6), "lladdr", macs[other], "dev", "eth1", "nud", "permanent")
        lab.run(host, "ip", "neigh", "replace", *reported)
    return f"[{lab.address('h2', 6)}]"


def move(a: Host, b: Host, server: str, command: str, limit_s: float) -> dict[str, Any]:
    """Gets the file or puts it back. Returns the result."""
    ours, theirs = a.own / "big", b.export / ("big" if command == "get" else "back")
    args = [f"{server}:big", ours] if command == "get" else [ours, f"{server}:back"]
    done = a.ctl(command, "--json", *args, check=False, timeout=limit_s)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    right = ours.exists() and theirs.exists() and ours.read_bytes() == theirs.read_bytes()
    row = {name: found.get(name) for name in COLUMNS[6:]}
    return {"status": done.returncode, "right": right, "error": done.stderr, **row}


def there_and_back(
    fault: str, rate: float, nbytes: int, limit_s: float, ipv6: bool = False
) -> list[dict[str, Any]]:
    """Runs both commands over a new link."""
    with tempfile.TemporaryDirectory() as folder:
        path = hops(Path(folder), FAULTS[fault].format(rate=rate))
        with hosts_up(Path(folder), hops=path) as (a, b):
            make_file(b.export / "big", nbytes)
            server = with_ipv6(a.lab) if ipv6 else b.name
            found = []
            for command in ("get", "put"):
                what = {"commit": made()["commit"], "family": 6 if ipv6 else 4, "bytes": nbytes}
                what |= {"fault": fault, "rate": rate, "command": command}
                found.append(what | move(a, b, server, command, limit_s))
            return found


#: `--compare`: lost frames, and the least share of careful's rate without loss.
BOUNDS = {0.0001: 0.98, 0.001: 0.95, 0.01: 0.80}
#: Share of TCP's rate that is enough, since medians of a few rounds differ.
NOISE = 0.95
ARMS = ("careful", "repair off", "traditional", "cubic", "bbr")
#: Options of `up` for the arms of careful.
UP = {"repair off": ("--repair", "off"), "traditional": ("--protocol", "traditional")}
TCPS = ("cubic", "bbr")
#: One end of a TCP connection: sends or receives bytes; the receiver prints the seconds.
TCP = """
import socket, sys, time
role, address, kind, nbytes = sys.argv[1], sys.argv[2], sys.argv[3].encode(), int(sys.argv[4])
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, kind)
if role == "send":
    one.bind((address, 7000))
    one.listen()
    print("ready", flush=True)
    peer = one.accept()[0]
    peer.recv(1)
    peer.sendall(bytes(nbytes))
    peer.recv(1)
else:
    one.connect((address, 7000))
    began = time.monotonic()
    one.sendall(b"g")
    left, into = nbytes, bytearray(1 << 20)
    while left:
        left -= one.recv_into(into) or sys.exit("the connection ended early")
    print(time.monotonic() - began)
"""


def tcp_s(a: Host, b: Host, kind: str, nbytes: int) -> float:
    """Returns TCP's seconds for the bytes, in packets of one MTU."""
    for host in (a, b):
        host.lab.run(host.name, "ethtool", "-K", "eth1", "tso", "off", "gso", "off", "gro", "off")
    args = (a.lab.address("h2"), kind, str(nbytes))
    with b.lab.start(b.name, sys.executable, "-c", TCP, "send", *args) as sender:
        assert sender.stdout is not None
        try:
            assert sender.stdout.readline() == "ready\n"
            return float(a.lab.run(a.name, sys.executable, "-c", TCP, "take", *args).stdout)
        finally:
            sender.kill()


def get_s(a: Host, b: Host, arm: str, nbytes: int) -> float:
    """Returns careful's seconds for the bytes, from the other host's page cache to memory."""
    for host in (a, b):
        host.up(*UP.get(arm, ()))
    make_file(b.export / "big", nbytes)
    a.ctl("get", "h2:big", "null:")
    found = json.loads(a.ctl("get", "--json", "h2:big", "null:", timeout=600).stdout)
    return float(found["elapsed_s"])


def compared(arm: str, rate: float, nbytes: int) -> dict[str, Any]:
    """Runs one transfer over a new link. Returns the result and the link's report."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(hops=hops(Path(folder), f"loss = {rate}"))
        try:
            a, b = (Host(lab, name, Path(folder)) for name in lab.hosts)
            took_s = (tcp_s if arm in TCPS else get_s)(a, b, arm, nbytes)
            ways = [way for link in lab.links() for way in link["ways"]]
        finally:
            lab.down()
    frames, lost = (sum(way[name] for way in ways) for name in ("frames", "lost"))
    return {
        "arm": arm,
        "loss": rate,
        "bytes": nbytes,
        "elapsed_s": took_s,
        "frames": frames,
        "lost": lost,
    }


def compare(nbytes: int, rounds: int, report: Path | None) -> bool:
    """Runs all arms and rates in turn and prints the table. Reports whether the bounds are met."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    arms = [arm for arm in ARMS if arm not in TCPS or arm in known]
    runs: list[dict[str, Any]] = []
    for _ in range(rounds):
        for rate in (0.0, *BOUNDS):
            runs += [compared(arm, rate, nbytes) for arm in arms]

    def mib_s(arm: str, rate: float) -> float:
        took = [one["elapsed_s"] for one in runs if (one["arm"], one["loss"]) == (arm, rate)]
        return float(nbytes / MIB / statistics.median(took))

    met = True
    print(f"{'MiB/s':>8}" + "".join(f"{arm:>12}{'share':>7}" for arm in arms))
    for rate in (0.0, *BOUNDS):
        shares = {arm: mib_s(arm, rate) / mib_s(arm, 0.0) for arm in arms}
        cells = [f"{mib_s(arm, rate):>12.1f}{shares[arm]:>7.2f}" for arm in arms]
        tcp_share = max(shares[arm] for arm in arms if arm in known)
        wanted = max(BOUNDS.get(rate, 1.0), min(tcp_share, 1.0) * NOISE)
        missed = shares["careful"] < wanted
        met &= not missed
        print(f"{rate:>8.2%}" + "".join(cells) + (f"  NOT MET: {wanted:.2f}" if missed else ""))
    if report:
        kept = {"schema": 3, **made(), "runs": runs}
        report.write_text(json.dumps(kept, indent=1) + "\n")
    return met


def draw(report: Path, path: Path) -> None:
    """Draws the rates of a report over the share of lost frames."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    runs = json.loads(report.read_text())["runs"]
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    rates = sorted({one["loss"] for one in runs})
    for arm, mark in zip(ARMS, "osv^D", strict=True):
        took_s = [
            [one["elapsed_s"] for one in runs if (one["arm"], one["loss"]) == (arm, rate)]
            for rate in rates
        ]
        if all(took_s):
            mib_s = [runs[0]["bytes"] / MIB / statistics.median(one) for one in took_s]
            label = f"TCP, {arm.upper()}" if arm in TCPS else arm
            axes.plot(range(len(rates)), mib_s, marker=mark, label=label)
    axes.set_xticks(range(len(rates)), [f"{rate:.2%}" if rate else "none" for rate in rates])
    axes.set(xlabel="frames lost", ylabel="MiB/s", ylim=(0, None))
    axes.set_title(f"A get of {runs[0]['bytes'] // MIB} MiB over an emulated link")
    axes.legend()
    figure.savefig(path, dpi=100)


def line(row: dict[str, Any]) -> str:
    """Returns a row of the table."""
    cells = [row[name] for name in COLUMNS]
    texts = [
        f"{one:.1f}" if name == "elapsed_s" and one is not None else str(one)
        for name, one in zip(COLUMNS, cells, strict=True)
    ]
    return "  ".join(f"{text:>{len(name)}}" for name, text in zip(COLUMNS, texts, strict=True))


def main() -> int:
    """Runs all faults and rates, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=100, help="size of the file, MiB")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--ipv6", action="store_true", help="over IPv6 instead of IPv4")
    parser.add_argument("--limit-s", type=float, default=1800, help="of one command")
    parser.add_argument("--report", type=Path, help="JSON; rows of an earlier run stay")
    parser.add_argument("--compare", type=int, metavar="ROUNDS", help="loss alone, next to TCP")
    parser.add_argument("--plot", type=Path, help="draws the report of --compare, and no more")
    options = parser.parse_args()
    if options.plot:
        draw(options.report, options.plot)
        return 0
    if options.compare:
        return not compare(options.mib * MIB, options.compare, options.report)
    rows: list[dict[str, Any]] = []
    if options.report and options.report.exists():
        rows = json.loads(options.report.read_text())["rows"]
    print("  ".join(COLUMNS))
    began = time.monotonic()
    for rate in options.rates:
        for fault in options.faults:
            size = options.mib * MIB
            for row in there_and_back(fault, rate, size, options.limit_s, options.ipv6):
                rows = [one for one in rows if any(one[key] != row[key] for key in WHICH)] + [row]
                print(line(row), flush=True)
            if options.report:
                text = json.dumps({"schema": 2, "rows": rows}, indent=1)
                options.report.write_text(text + "\n")
    print(f"{time.monotonic() - began:.0f} s")
    return any(row["status"] or not row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
