"""A transfer next to strangers: frames of no session, handshakes, and peers that misbehave.

Each flood goes to careful's port, and unchanged to an unused port. careful may add at most 10 % to
the transfer's time. Next to a peer with a session that repeats one of the misdeeds of
tests/support/rogue.py, the transfer may take at most 1.5 times its time alone. In no round may a
stranger take a credit, or leave a peer or a lost frame behind. With --seal all three hosts have
keys, also the flooding host, and the misbehaving peer is tests/support/rogue_keyed.py. Owns a lab
of three hosts. Needs root; tools/setup run build test brings scapy.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rogue
from bench_lab import HOSTS, ROOT, SERVER_IP, BenchError, big_file, ctl, lab_up, on, run, status, up
from careful._abi import lib
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy_layers import CarefulAm, CarefulCtrl, CarefulHdr

ROUNDS = 7

RATE, FLOOD_S = 100_000, 6.0
#: Time until a flood, or a program in Python, has begun, seconds.
BEGUN_S, ROGUE_BEGUN_S = 0.5, 1.5
BYTES = 1 << 30
FLOOD_MORE_MAX, MISDEED_MAX = 1.10, 1.5
SUPPORT = ROOT / "tests" / "support"
PORT = int(lib.CAREFUL_PORT_DEFAULT)
ELSEWHERE = PORT + 1
SOURCES, FRAMES = 200, 1000
#: Floods, and the port of each.
FLOODS = {
    f"{kind}{where}": (kind, port)
    for kind in ("frames", "handshakes")
    for where, port in (("", PORT), (" elsewhere", ELSEWHERE))
}


#: A carefuld with `--xdp native` never asks for the measurement lock, so no peer can answer late.
#: hello-flood takes a core for itself, whatever its port; the flood of handshakes has a comparison.
MISDEEDS = tuple(one for one in rogue.MISDEEDS if one not in (*rogue.APART, "hello-flood"))
#: With keys: all misdeeds that a program can request.
KEYED = "asks-anything"
BAD = {*MISDEEDS, KEYED}


def arms(seal: str) -> tuple[str, ...]:
    """Returns the arms; seal: "" without keys, else the word of `up --seal`."""
    return ("alone", *FLOODS, *([KEYED] if seal else MISDEEDS))


def datagram(mac: str, port: int, source_port: int, payload: Packet) -> bytes:
    """Returns a frame from h3 to h1."""
    ip = IP(src="10.77.0.3", dst="10.77.0.1", flags="DF")
    udp = UDP(sport=source_port, dport=port, chksum=0)
    return bytes(Ether(src="02:00:00:00:00:99", dst=mac) / ip / udp / payload)


def frame(rng: random.Random) -> Packet:
    """Returns a frame of the datapath that is valid except for its cookie."""
    whole = int(lib.CAREFUL_F_FIRST | lib.CAREFUL_F_LAST)
    head = CarefulHdr(type=int(lib.CAREFUL_DATA), flags=whole, cookie=rng.getrandbits(63), seq=1)
    return head / CarefulAm(kind=1)


def hello(rng: random.Random) -> Packet:
    """Returns a HELLO that begins an attempt, or has an invented token."""
    token = rng.choice((0, rng.getrandbits(63)))
    values = {"window": 64, "buffer_bytes": 4096, "frame_bytes": 3840, "cookie": 1, "token": token}
    values |= {"type": int(lib.CAREFUL_HELLO), "protocol": int(lib.CAREFUL_SAYS_REPAIRS)}
    return CarefulCtrl(**values, nonce=rng.getrandbits(63))


def write_frames(folder: Path) -> None:
    """Writes the frames that flood.py sends, a file for each flood."""
    mac = json.loads(run(*on("h1", "ip", "-json", "link", "show", "eth1")))[0]["address"]
    rng = random.Random(18)
    for name, (kind, port) in FLOODS.items():
        made = [
            datagram(mac, port, PORT + n % SOURCES, (frame if kind == "frames" else hello)(rng))
            for n in range(FRAMES)
        ]
        data = b"".join(len(one).to_bytes(4, "big") + one for one in made)
        (folder / name).write_bytes(data)


@contextmanager
def stranger(arm: str, folder: Path, seal: str) -> Iterator[None]:
    """Runs a stranger during the block; it ends by itself."""
    if arm == "alone":
        yield
        return
    server, seconds = SERVER_IP, str(FLOOD_S)
    program: tuple[str | Path, ...]
    if arm == KEYED:
        program = (SUPPORT / "rogue_keyed.py", server, folder / "h3", seal, seconds)
    elif arm in MISDEEDS:
        program = (SUPPORT / "rogue.py", server, arm, seconds)
    else:
        program = (SUPPORT / "flood.py", "eth1", folder / arm, str(RATE), seconds)
    argv = on("h3", sys.executable, *program)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        try:
            time.sleep(ROGUE_BEGUN_S if arm in BAD else BEGUN_S)
            yield
            _, errors = one.communicate(timeout=120)
            if one.returncode:
                raise BenchError(f"{arm}: {(errors.strip() or 'failed').splitlines()[-1]}")
        finally:
            one.kill()


def arrived(found: dict[str, Any]) -> int:
    """Returns the frames that XDP saw."""
    return sum(found["xdp_counters"].values())


def left(found: dict[str, Any]) -> dict[str, int]:
    """Returns the figures of h1 that strangers may not change."""
    counters = found["counters"]
    names = ("lost_frames", "bad_credits", "epochs_broken", "credits_withheld")
    kept = sum(one["buffers_kept"] for one in found["peers"])
    more = {"peers": len(found["peers"]), "buffers_kept": kept}
    return {name: counters[name] for name in names} | more


def one_round(folder: Path, rng: random.Random, seal: str) -> dict[str, Any]:
    """Runs each arm once, in random order."""
    made: dict[str, Any] = {}
    for arm in rng.sample(arms(seal), len(arms(seal))):
        before = status("h1")
        with stranger(arm, folder, seal):
            took_s = ctl("h1", "get", "h2:big", "null:")["elapsed_s"]
        after = status("h1")
        made[arm] = {
            "s": took_s,
            "arrived": arrived(after) - arrived(before),
            "limited": after["counters"]["ctrl_limited"] - before["counters"]["ctrl_limited"],
            "left": left(after),
        }
    return made


def make_keys(folder: Path) -> None:
    """Makes each host a key that the others trust."""
    hosts = ("h1", "h2", "h3")
    public = {one: ctl(one, "key", "new", "--keys", str(folder / one))["key"] for one in hosts}
    for one in hosts:
        for other in public.keys() - {one}:
            ctl(one, "key", "trust", other, public[other], "--keys", str(folder / one))


def options(parser: argparse.ArgumentParser) -> None:
    how = "with keys, and frames sealed so; [without keys]"
    parser.add_argument("--seal", choices=("off", "auth", "encrypt"), default="", help=how)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns all rounds in a lab of three hosts, with files in memory."""
    rng, seal = random.Random(1), args.seal
    with lab_up("--hosts", 3), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "export").mkdir()
        big_file(folder / "export" / "big", BYTES)
        if seal:
            make_keys(folder)
        secure = [
            ("--keys", folder / host, "--seal", seal) if seal else ("--insecure",) for host in HOSTS
        ]
        up("h1", "--xdp", "native", *secure[0], "--peers", 4)
        export = ("--export", f"{folder / 'export'}:rw")
        up("h2", "--xdp", "native", *secure[1], "--peers", 16, *export)
        write_frames(folder)
        ctl("h1", "get", "h2:big", "null:")
        made = [one_round(folder, rng, seal) for _ in range(args.rounds)]
    return {"rate": RATE, "seal": seal, "rounds": made}


def report(kept: dict[str, Any]) -> bool:
    """Prints the table; reports whether both bounds are met and nothing was left."""
    rounds = kept["rounds"]
    names = [arm for arm in arms(kept.get("seal", "")) if arm in rounds[0]]
    alone = statistics.median(one["alone"]["s"] for one in rounds)
    print(
        f"{'':>24} {'s':>7} {'of alone':>9} {'of elsewhere':>13} {'frames/s':>9} {'limited/s':>10}"
    )
    met = True
    for arm in names:
        took_s = statistics.median(one[arm]["s"] for one in rounds)
        seen = statistics.median(one[arm]["arrived"] for one in rounds) / FLOOD_S
        limited = statistics.median(one[arm]["limited"] for one in rounds) / FLOOD_S
        ratio = f"{took_s / alone:.2f}"
        base = ""
        if f"{arm} elsewhere" in FLOODS:
            more = statistics.median(one[arm]["s"] / one[f"{arm} elsewhere"]["s"] for one in rounds)
            base, met = f"{more:.2f}", met and more <= FLOOD_MORE_MAX
        if arm in BAD:
            met = met and took_s / alone <= MISDEED_MAX
        print(f"{arm:>24} {took_s:>7.3f} {ratio:>9} {base:>13} {seen:>9.0f} {limited:>10.0f}")
    states = [one[arm]["left"] for one in rounds for arm in names]
    clean = {"peers": 1}
    spoilt = [one for one in states if any(one[name] != clean.get(name, 0) for name in one)]
    print(f"left behind in {len(spoilt)} of {len(states)}" + (f": {spoilt[0]}" if spoilt else ""))
    return met and not spoilt
