"""Plays tests/soak/run: pieces of traffic until enough frames have crossed, and a report.

A piece is a run of soak.c; at its end both sides report their counters. Ended pieces are added to
the state. A failed piece records its failure and losses, and its frames do not count. A killed run
loses only the piece under way.
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
from pathlib import Path

from bench_lab import BUILD, ROOT, SERVER_IP, BenchError, built, lab_up, on
from careful._abi import lib
from careful.control.instance import maps
from careful.control.plans import tune_entry
from careful.errors import CarefulError
from laboratory.report import Json, commit, made, read, write

SOAK = BUILD / "soak"
LAB = f"soak{os.getpid()}"
FRAMES = 1_600_000_000  # P2 reports 1.57e9 frames, none lost
PIECE_FRAMES = 50_000_000
KINDS = ("requests", "stores", "gets")
#: Counters of lost, refused or damaged frames; then the device's.
COUNTERS = (
    *("asked_again", "lost_frames", "bad_credits", "epochs_broken", "drop_malformed", "drop_check"),
    *("drop_cookie", "drop_seq", "drop_crc", "drop_message", "digest_bad"),
)
DEVICE = (
    *("device_rx_dropped", "device_rx_ring_full"),
    *("device_rx_fill_ring_empty", "device_kicks_failed"),
)
FRAMES_OF = ("tx_frames", "rx_frames", "tx_bytes")


def say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)


def set_fragments(nbytes: int) -> None:
    """Sets small fragments at both ends, since frames are counted."""
    change = tune_entry.change(fragment_bytes=nbytes)
    for host in ("h1", "h2"):
        with maps.tune_map(f"{LAB}-{host}") as entries:
            tune_entry.apply(entries, tune_entry.all_slots(), change)


def start(host: str, *argv: str | Path) -> subprocess.Popen[str]:
    """Starts a command on a host; Ctrl-C reaches it only through us."""
    return subprocess.Popen(
        on(host, *argv, lab=LAB),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Stop:
    """Records a signal and passes it on to the running piece."""

    def __init__(self) -> None:
        self.asked = False
        self.client: subprocess.Popen[str] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.ask)

    def ask(self, number: int, frame: object) -> None:
        """Ends after the operations under way."""
        self.asked = True
        if self.client and self.client.poll() is None:
            os.killpg(self.client.pid, signal.SIGINT)


def last_words(name: str, process: subprocess.Popen[str], kept: str) -> tuple[Json, str]:
    """Returns an end's counters, {} if it crashed, and its failure, or ""."""
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        return {}, f"{name}: it does not end"
    errors = (err.strip().splitlines() or [""])[-1].removeprefix("soak: ")
    lines = (kept + out).strip().splitlines()
    with contextlib.suppress(ValueError):  # killed while it wrote
        found: Json = json.loads(lines[-1]) if lines else {}
        if found.get("end"):
            return found, f"{name}: {errors}" if errors else ""
    return {}, f"{name}: {errors or f'died ({process.returncode})'}"


def kill(process: subprocess.Popen[str] | None) -> None:
    """Kills the process if it still runs."""
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def piece(frames: int, fragment: int, stop: Stop) -> Json | None:
    """Runs the pair once. Returns both ends' counters; None: a signal came first."""
    began = time.monotonic()
    server = start("h2", SOAK, "serve", "eth1")
    client = None
    try:
        assert server.stdout is not None
        if not server.stdout.readline():
            raise BenchError(server.communicate()[1].strip() or "the server died")
        client = stop.client = start("h1", SOAK, "send", "eth1", SERVER_IP, str(frames))
        assert client.stdout is not None
        last, done = "", {}
        for last in client.stdout:
            with contextlib.suppress(ValueError):
                report = json.loads(last)
                if report.get("ready"):
                    set_fragments(fragment)
                elif "frames" in report:
                    done = report
        local, failed = last_words("h1", client, last)
        if stop.asked and client.returncode == -signal.SIGINT:
            return None
        if failed:
            server.terminate()
        remote, failed_there = last_words("h2", server, "")
    finally:
        kill(client)
        kill(server)
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "seconds": round(time.monotonic() - began, 1),
        **counted(local, remote),
        **{kind: done.get(kind, 0) for kind in KINDS},
        "failed": "; ".join(one for one in (failed, failed_there) if one),
    }


def counted(*ends: Json) -> Json:
    """Returns the counters of both ends; a crashed end has none."""
    names = (*COUNTERS, *DEVICE, *FRAMES_OF)
    sums = dict.fromkeys(names, 0)
    for end in filter(None, ends):
        by_name = {
            name: end["counters"][getattr(lib, f"CAREFUL_C_{name.upper()}")]
            for name in (*COUNTERS, *FRAMES_OF)
        }
        for name, value in (by_name | dict(zip(DEVICE, end["device"], strict=True))).items():
            sums[name] += value
    shown = next((end for end in ends if end), {})
    return {
        "frames": sums["tx_frames"],
        "frames_missing": sums["tx_frames"] - sums["rx_frames"],
        "bytes": sums["tx_bytes"],
        "lost": {name: sums[name] for name in (*COUNTERS, *DEVICE) if sums[name]},
        **{name: shown.get(name) for name in ("xdp_mode", "window_buffers", "mtu_bytes")},
    }


def spoilt(one: Json) -> bool:
    """Reports whether a piece has a loss or a failure."""
    return bool(one.get("failed") or one["lost"] or one["frames_missing"])


def load(path: Path) -> list[Json]:
    """Returns the pieces of earlier runs."""
    try:
        found = read(path)
        return list(found["pieces"]) if path.exists() else []
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path}: not a soak's state: remove it to begin anew") from error


def summary(pieces: list[Json], fragment: int) -> Json:
    """Returns the sums of all pieces; failed ones are listed separately, and only their lost frames
    count.
    """
    lost: dict[str, int] = {}
    for one in pieces:
        for name, count in one["lost"].items():
            lost[name] = lost.get(name, 0) + count
    failures = [one for one in pieces if one.get("failed")]
    commits = sorted({str(one.get("commit", "unknown")) for one in pieces})
    pieces = [one for one in pieces if not one.get("failed")]
    seconds = sum(one["seconds"] for one in pieces)
    frames = sum(one["frames"] for one in pieces)
    return {
        "schema": 2,
        "frames": frames,
        "frames_missing": sum(one["frames_missing"] for one in pieces),
        "lost": lost,
        "failures": failures,
        "bytes": sum(one["bytes"] for one in pieces),
        **{kind: sum(one[kind] for one in pieces) for kind in KINDS},
        "seconds": round(seconds, 1),
        "frames_per_second": round(frames / seconds) if seconds else None,
        "pieces": len(pieces),
        "fragment_bytes": fragment,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "xdp_modes": sorted({one["xdp_mode"] for one in pieces}),
        "commits": commits,
        "date": datetime.date.today().isoformat(),
    }


def show(found: Json) -> None:
    rows = {key.replace("_", " "): value for key, value in found.items() if key != "schema"}
    del rows["lost"], rows["failures"]
    for key, value in (rows | found["lost"]).items():
        text = ", ".join(value) if isinstance(value, list) else value
        print(f"{key:28}", f"{text:,}" if isinstance(text, int | float) else text)
    for one in found["failures"]:
        print(f"failed after {one['frames']:,} frames: {one['failed']}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/soak/run")
    parser.add_argument("--frames", type=float, default=FRAMES)
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "soak.json")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--hops", type=Path)
    parser.add_argument("--fragment-bytes", type=int, default=256)
    options = parser.parse_args()
    if not options.frames >= 1 or options.frames > 1e15:
        parser.error("--frames must be at least 1")
    if not 1 <= options.fragment_bytes <= 1 << 20:
        parser.error("--fragment-bytes: 1 to 1048576")
    return options


def soak(options: argparse.Namespace, stop: Stop) -> list[Json]:
    """Runs pieces; writes the state after each."""
    pieces = load(options.state)
    target = int(options.frames)
    crossed = sum(one["frames"] for one in pieces if not one.get("failed"))
    if crossed:
        say(f"{options.state.name}: {crossed:,} frames have crossed before")
    for path in filter(None, (options.state, options.report)):
        path.parent.mkdir(parents=True, exist_ok=True)
    with lab_up(hops=options.hops and options.hops.read_text(), lab=LAB):
        while crossed < target and not stop.asked:
            one = piece(min(PIECE_FRAMES, target - crossed), options.fragment_bytes, stop)
            if one is None:
                break
            pieces.append(one)
            crossed += one["frames"]
            write(options.state, {"pieces": pieces})
            say(f"{crossed:,} of {target:,} frames have crossed")
            if spoilt(one):
                missing = f"lost: {one['lost']}, frames missing: {one['frames_missing']}"
                say(f"{one['failed']}; {missing}" if one["failed"] else missing)
                break
    return pieces


def main() -> int:
    options = arguments()
    stop = Stop()
    try:
        built("soak")
        pieces = soak(options, stop)
    except (BenchError, CarefulError) as error:
        say(str(error))
        return 1
    found = summary(pieces, options.fragment_bytes)
    show(found)
    bad = any(spoilt(one) for one in pieces)
    if found["frames"] < options.frames and not bad:
        say("interrupted; run the same command to resume from here")
        return 130
    if options.report:
        write(options.report, made() | found)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
