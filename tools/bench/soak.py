"""What tools/soak does: pieces of traffic until enough frames have crossed, and a report.

A piece is a run of soak.c, at the end of which both ends say what they counted. Only
pieces that ended so are added to the state, so that a killed run loses one piece and
claims nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from careful.control import maps, tune
from careful.errors import CarefulError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
SOAK = ROOT / "build" / "demo" / "soak"
LAB = f"soak{os.getpid()}"
SERVER_IP = "10.77.0.2"
FRAMES = 1_600_000_000  # P2 reports 1.57e9 frames, none lost
PIECE_FRAMES = 50_000_000
KINDS = ("requests", "stores", "gets")
#: Counters that say that a frame was lost, refused or damaged.
LOSSES = (
    "lost_frames",
    "bad_credits",
    "epochs_broken",
    "drop_malformed",
    "drop_check",
    "drop_cookie",
    "drop_seq",
    "drop_crc",
    "drop_message",
    "digest_bad",
    "device_rx_dropped",
    "device_rx_ring_full",
    "device_rx_fill_ring_empty",
    "device_kicks_failed",
)

Json = dict[str, Any]


class SoakError(Exception):
    """Something did not work; the text is one line."""


def say(text: str) -> None:
    """What is being done, on standard error."""
    print(f"soak: {text}", file=sys.stderr, flush=True)


def in_lab(host: str, *argv: str | Path) -> list[str]:
    """A command as it runs on a host of the lab."""
    return [str(a) for a in (ROOT / "tools" / "lab", "exec", "--name", LAB, host, "--", *argv)]


@contextlib.contextmanager
def lab() -> Iterator[None]:
    """Two hosts on one link."""
    up = [str(ROOT / "tools" / "lab"), "up", "--name", LAB]
    done = subprocess.run(up, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SoakError((done.stderr or done.stdout).strip().splitlines()[-1])
    try:
        yield
    finally:
        down = [str(ROOT / "tools" / "lab"), "down", "--name", LAB, "--kill"]
        subprocess.run(down, capture_output=True, check=False)


def set_fragments(nbytes: int) -> None:
    """Small fragments for bulk payload at both ends: frames are what is counted."""
    change = tune.Change(fragment_bytes=nbytes)
    for host in ("h1", "h2"):
        with maps.tune_map(f"{LAB}-{host}") as entries:
            tune.apply(entries, tune.all_slots(), change)


def start(host: str, *argv: str | Path) -> subprocess.Popen[str]:
    """Start a command on a host; Ctrl-C reaches it only through us."""
    return subprocess.Popen(
        in_lab(host, *argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Stop:
    """Whether a signal asked for the end; passes it on to the piece that runs."""

    def __init__(self) -> None:
        self.asked = False
        self.client: subprocess.Popen[str] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, number: int, frame: object) -> None:
        """End as soon as what is under way has been answered."""
        self.asked = True
        if self.client and self.client.poll() is None:
            os.killpg(self.client.pid, signal.SIGINT)


def last_line(process: subprocess.Popen[str], kept: str) -> Json:
    """What an end said last; an error if it failed otherwise than by counting losses."""
    out, err = process.communicate(timeout=60)
    lines = (kept + out).strip().splitlines()
    found: Json = json.loads(lines[-1]) if lines else {}
    if not found.get("end"):
        raise SoakError((err.strip().splitlines() or ["an end died"])[-1])
    return found


def piece(frames: int, fragment: int, stop: Stop, progress: Callable[[int], None]) -> Json:
    """One run of the pair; what both ends counted."""
    began = time.monotonic()
    server = start("h2", SOAK, "serve", "eth1")
    client = None
    try:
        assert server.stdout is not None
        if not server.stdout.readline():
            raise SoakError(server.communicate()[1].strip() or "the server died")
        client = stop.client = start("h1", SOAK, "send", "eth1", SERVER_IP, str(frames))
        assert client.stdout is not None
        last, done = "", {}
        for line in client.stdout:
            said, last = json.loads(line), line
            if said.get("ready"):
                set_fragments(fragment)
            elif not said.get("end"):
                done = said
                progress(int(said["frames"]))
        ends = {"h1": last_line(client, last), "h2": last_line(server, "")}
    finally:
        for process in (client, server):
            if process and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    counted = ends["h1"]["tx_frames"] + ends["h2"]["tx_frames"]
    arrived = ends["h1"]["rx_frames"] + ends["h2"]["rx_frames"]
    return {
        "seconds": round(time.monotonic() - began, 1),
        "frames": counted,
        "frames_missing": counted - arrived,
        "bytes": ends["h1"]["tx_bytes"] + ends["h2"]["tx_bytes"],
        **{kind: done[kind] for kind in KINDS},
        "lost": {n: v for n in LOSSES if (v := sum(end[n] for end in ends.values()))},
        "xdp_mode": ends["h1"]["xdp_mode"],
        "window_buffers": ends["h1"]["window_buffers"],
        "mtu_bytes": ends["h1"]["mtu_bytes"],
    }


def load(path: Path) -> list[Json]:
    """Pieces of earlier runs."""
    try:
        found: Json = json.loads(path.read_text())
        return list(found["pieces"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise SoakError(f"{path}: no state of a soak: remove it to begin anew") from error


def write(path: Path, what: Json) -> None:
    """A file that is whole or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(what, indent=1) + "\n")
    new.replace(path)


def summary(pieces: list[Json], fragment: int) -> Json:
    """All pieces together."""
    lost: dict[str, int] = {}
    for one in pieces:
        for name, count in one["lost"].items():
            lost[name] = lost.get(name, 0) + count
    seconds = sum(one["seconds"] for one in pieces)
    frames = sum(one["frames"] for one in pieces)
    return {
        "schema": 1,
        "frames": frames,
        "frames_missing": sum(one["frames_missing"] for one in pieces),
        "lost": lost,
        "bytes": sum(one["bytes"] for one in pieces),
        **{kind: sum(one[kind] for one in pieces) for kind in KINDS},
        "seconds": round(seconds, 1),
        "frames_per_second": round(frames / seconds) if seconds else None,
        "pieces": len(pieces),
        "fragment_bytes": fragment,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "xdp_modes": sorted({one["xdp_mode"] for one in pieces}),
        "date": datetime.date.today().isoformat(),
    }


def show(found: Json) -> None:
    """The report for a person."""
    table = Table(title="soak: frames over AF_XDP between two hosts of a lab")
    table.add_column("")
    table.add_column("", justify="right")
    for key, value in found.items():
        if key in ("schema", "lost"):
            continue
        shown = ", ".join(value) if isinstance(value, list) else value
        table.add_row(
            key.replace("_", " "), f"{shown:,}" if isinstance(shown, int | float) else str(shown)
        )
    for name, count in found["lost"].items():
        table.add_row(name, f"{count:,}")
    Console(width=None if sys.stdout.isatty() else 80).print(table)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/soak")
    parser.add_argument("--frames", type=float, default=FRAMES)
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "soak.json")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--fragment-bytes", type=int, default=256)
    options = parser.parse_args()
    if not options.frames >= 1 or options.frames > 1e15:
        parser.error("--frames: 1 at least")
    if not 1 <= options.fragment_bytes <= 1 << 20:
        parser.error("--fragment-bytes: 1 to 1048576")
    return options


def soak(options: argparse.Namespace, stop: Stop) -> list[Json]:
    """Piece after piece; the state is written after each."""
    pieces = load(options.state)
    target = int(options.frames)
    crossed = sum(one["frames"] for one in pieces)
    if crossed:
        say(f"{options.state.name}: {crossed:,} frames have crossed before")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.1f} %"))
    bar = Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with bar, lab():
        task = bar.add_task("frames", total=target, completed=crossed)
        while crossed < target and not stop.asked:
            most = min(PIECE_FRAMES, target - crossed)
            base = crossed
            one = piece(
                most,
                options.fragment_bytes,
                stop,
                lambda n, base=base: bar.update(task, completed=base + n),  # type: ignore[misc]
            )
            pieces.append(one)
            crossed += one["frames"]
            write(options.state, {"pieces": pieces})
            if one["lost"] or one["frames_missing"]:
                say(f"lost: {one['lost']}, frames missing: {one['frames_missing']}")
                break
    return pieces


def main() -> int:
    """Run it; the exit status."""
    options = arguments()
    stop = Stop()
    try:
        pieces = soak(options, stop)
    except (SoakError, CarefulError) as error:
        say(str(error))
        return 1
    found = summary(pieces, options.fragment_bytes)
    show(found)
    if found["lost"] or found["frames_missing"]:
        return 1
    if found["frames"] < options.frames:
        say("interrupted; the same command goes on from here")
        return 130
    if options.report:
        write(options.report, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
