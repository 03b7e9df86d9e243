"""The parts of the speed scenario: each method of Bench returns the figures of one round."""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yardsticks
from bench_lab import (
    BUILD,
    CLIENT,
    CTL,
    HOSTS,
    PYTHON,
    ROOT,
    SERVER,
    SERVER_IP,
    BenchError,
    beside,
    daemons,
    on,
    pinned,
    run,
    status,
)
from speed_figures import REQUEST_MOST, SIZES
from speed_lab import busiest, busy_s, stream_costs

#: A fragment of the default plan with its headers, and what of it is payload, bytes.
FRAME_BYTES, FRAME_PAYLOAD = 3784, 3640
#: careful_am, bytes.
HEADERS = 48
#: A message of 64 bytes as a frame: Ethernet, IP and UDP, careful_hdr, careful_am, payload.
SMALL_FRAME_BYTES = 14 + 28 + 48 + HEADERS + 64
#: Round trips of a size.
COUNT = 20_000
#: Options of sockperf.
SOCKETS = {
    "tcp_spin": ("--tcp", "--nonblocked"),
    "tcp_block": ("--tcp",),
    "udp_spin": ("--nonblocked",),
    "udp_block": (),
}


class Bench:
    """One method for each of PARTS, which returns the figures of one round."""

    def __init__(self, work: Path, nbytes: int, xdp: str) -> None:
        self.work, self.nbytes, self.xdp = work, nbytes, xdp
        self.env = {"CAREFUL_XDP": xdp}
        self.memory: dict[str, float] = {}
        self.missing: list[str] = []
        #: The XDP mode in effect, by program; several where it changed.
        self.modes: dict[str, list[str]] = {}

    def in_mode(self, program: str, mode: str) -> None:
        """Notes it."""
        seen = self.modes.setdefault(program, [])
        if mode not in seen:
            seen.append(mode)

    def daemons(
        self, *options: str, hosts: tuple[str, ...] = HOSTS
    ) -> contextlib.AbstractContextManager[None]:
        """Starts carefuld on each host's core, in the mode; each exports the file."""
        words = ("--xdp", self.xdp, "--export", self.work / "in", *options)
        return daemons(*words, hosts=hosts, pin=True)

    def settle(self) -> None:
        """With `auto`: all are in the mode that carefuld's trial finds the better one.

        Only a carefuld tries modes: what owns its queue takes the driver's.
        """
        if self.xdp != "auto":
            return
        with self.daemons():
            run(*pinned(CLIENT, CTL, "get", "-q", "h2:big", self.work / "out" / "first"))
            (self.work / "out" / "first").unlink()
            self.xdp = status(CLIENT)["xdp_mode"]
        self.env = {"CAREFUL_XDP": self.xdp}

    def best(self, *arms: tuple[str, Callable[[Path], float]]) -> dict[str, float]:
        """Returns each arm's fastest of three copies to new files, and what all cost the cores.

        A virtual machine gives free pages back to its host within seconds, and the
        first touch of such a page costs several times the copy into it. In a row, a
        copy finds the pages that the one before has just freed. All are treated alike.
        """
        rates: dict[str, list[float]] = {what: [] for what, _ in arms}
        cost = {what: dict.fromkeys((CLIENT, SERVER), 0.0) for what, _ in arms}
        copied = 3 * self.nbytes / (1 << 30)
        for k in range(3):
            for what, once in arms:
                target = self.work / "out" / str(k)
                before = busy_s()
                rates[what].append(once(target))
                target.unlink()
                for host, busy in busy_s().items():
                    cost[what][host] += (busy - before[host]) / copied
        found = {}
        for what, _ in arms:
            found[f"{what}_gbit"] = max(rates[what])
            found[f"cpu_{what}_client_s"] = cost[what][CLIENT]
            found[f"cpu_{what}_server_s"] = cost[what][SERVER]
        return found

    def _bare(
        self, echo_bytes: int, frame_bytes: int, frames: int = 1, how: str = "each"
    ) -> dict[str, float]:
        """Runs the device layer alone, on a pair of its own."""
        argv = (BUILD / "bare", echo_bytes, frames, frame_bytes, how)
        found: dict[str, float] = json.loads(run(*argv, env=self.env))
        if found["stream_lost_frames"]:
            raise BenchError(f"bare: {found['stream_lost_frames']} frames lost")
        if not found["echo_count"]:
            raise BenchError("bare: no echo in time")
        self.in_mode("bare", str(found["xdp"]))
        return found

    def bare(self) -> dict[str, float]:
        """The device layer alone, on a pair of its own."""
        found = self._bare(64 + HEADERS, FRAME_BYTES)
        return {
            "bare_echo_us": found["p50_us"],
            "bare_echo_p99_us": found["p99_us"],
            "bare_stream_gbit": found["stream_Gbit_per_s"],
        }

    @contextlib.contextmanager
    def _serving(self, program: str, **more: str) -> Iterator[dict[str, str]]:
        """One of our programs at the server; the environment of both ends."""
        env = {**self.env, **more}
        with beside(SERVER, BUILD / program, "serve", "eth1", ready="ready", env=env):
            yield env

    def request(self) -> dict[str, float]:
        """Two programs with libcareful."""
        with self._serving("rtt") as env:
            ask: list[str | Path] = [BUILD / "rtt", "ask", "eth1", SERVER_IP, "64", "50000"]
            found = json.loads(run(*pinned(CLIENT, *ask), env=env))
        self.in_mode("request", found["xdp"])
        return {"request_us": found["p50_us"], "request_p99_us": found["p99_us"]}

    def tcp(self) -> dict[str, float]:
        """Kernel TCP, both ways of waiting."""
        return {
            "tcp_spin_us": yardsticks.sockperf(64, "--tcp", "--nonblocked")["p50"],
            "tcp_block_us": yardsticks.sockperf(64, "--tcp")["p50"],
        }

    def trips(self) -> dict[str, float]:
        """Round trips of all sizes, by whom they are made."""
        found: dict[str, float] = {}

        def note(who: str, nbytes: int, quantiles: dict[str, float]) -> None:
            for key, value in quantiles.items():
                found[f"trip_{who}_{nbytes}_{key}_us"] = value

        def noted(who: str, nbytes: int, trip: Callable[..., dict[str, float]], *how: str) -> None:
            self._with(lambda: note(who, nbytes, trip(nbytes, *how)))

        for protocol in ("careful", "traditional"):
            self._with(partial(self._own_trips, protocol, note))
        for nbytes in SIZES:
            noted("bare", nbytes, self._bare_trip)
            if nbytes > REQUEST_MOST:
                noted("whole", nbytes, self._bare_trip, "whole")
            noted("ucx", nbytes, yardsticks.ucx_trip)
            noted("libfabric", nbytes, yardsticks.libfabric_trip)
            for who, options in SOCKETS.items():
                noted(who, nbytes, yardsticks.sockperf, *options)
        return found

    def _own_trips(self, protocol: str, note: Callable[[str, int, dict[str, float]], None]) -> None:
        """Requests where they fit one frame, else stores there and back."""
        quantiles = ("p50", "p99", "p999", "max")

        def ask(env: dict[str, str], *words: str | Path) -> dict[str, float]:
            got = json.loads(run(*pinned(CLIENT, *words), env=env))
            self.in_mode(Path(words[0]).stem, got["xdp"])
            return {key: got[f"{key}_us"] for key in quantiles}

        count = str(COUNT)
        program = ROOT / "tools" / "bench" / "trips.py"
        with self._serving("rtt", CAREFUL_PROTOCOL=protocol) as env:
            for nbytes in (n for n in SIZES if n <= REQUEST_MOST):
                words = ("ask", "eth1", SERVER_IP, str(nbytes), count)
                note(protocol, nbytes, ask(env, BUILD / "rtt", *words))
                if protocol == "careful":
                    got = ask(env, PYTHON, program, SERVER_IP, str(nbytes), count)
                    note("python", nbytes, got)
        with self._serving("passes", CAREFUL_PROTOCOL=protocol) as env:
            for nbytes in (n for n in SIZES if n > REQUEST_MOST):
                words = ("trips", "eth1", SERVER_IP, str(nbytes), count)
                note(protocol, nbytes, ask(env, BUILD / "passes", *words))

    def _bare_trip(self, nbytes: int, *how: str) -> dict[str, float]:
        """As many frames as careful needs, each sent back as it comes, or as told."""
        frames = -(-nbytes // FRAME_PAYLOAD)
        each = -(-nbytes // frames) + HEADERS
        got = self._bare(each, 1024, frames, *how)
        return {key: got[f"{key}_us"] for key in ("p50", "p99", "p999", "max")}

    def _with(self, yardstick: Callable[[], None]) -> None:
        """Leaves out a yardstick that is not installed or fails, and names it once."""
        try:
            yardstick()
        except (BenchError, subprocess.TimeoutExpired) as error:
            if str(error) not in self.missing:
                self.missing.append(str(error))
                print(f"run: {error}", file=sys.stderr)

    def streams(self) -> dict[str, float]:
        """One way, as fast as it goes."""

        def one_way(env: dict[str, str], *words: str) -> dict[str, float]:
            argv: list[str | Path] = [BUILD / "passes", words[0], "eth1", SERVER_IP, *words[1:]]
            got: dict[str, float] = json.loads(run(*pinned(CLIENT, *argv), env=env))
            return got

        stores = ("stream", str(1 << 20), "600")
        with self._serving("passes") as env:
            with busiest() as share:
                got = one_way(env, *stores)
            self.in_mode("passes", str(got["xdp"]))
            found = stream_costs("stream", got["stream_Gbit_per_s"], share)
            for words, name in (("small", "small_mps"), ("packed", "packed_mps")):
                found[name] = one_way(env, words, "64", "600")["messages_per_s"]
        with self._serving("passes", CAREFUL_PROTOCOL="traditional") as env:
            found["traditional_gbit"] = one_way(env, *stores)["stream_Gbit_per_s"]
        small = self._bare(64 + HEADERS, SMALL_FRAME_BYTES)
        found["bare_small_mps"] = small["stream_frames_per_s"]
        self._with(lambda: found.update(yardsticks.iperf()))
        self._with(lambda: found.update(ucx_gbit=yardsticks.ucx_gbit()))
        return found

    def fio(self) -> dict[str, float]:
        """Blocks over NBD, as fio reads them."""
        found: dict[str, float] = {}
        self._with(lambda: found.update(yardsticks.fio()))
        return found

    def copies(self) -> dict[str, float]:
        """The file by rsync and scp."""
        found: dict[str, float] = {}
        for what, server in (("rsync", yardsticks.rsync_daemon), ("scp", yardsticks.sftp_server)):

            def copy(what: str = what, server: Any = server) -> None:
                with server(self.work) as command:

                    def once(target: Path) -> float:
                        start = time.monotonic()
                        run(*pinned(CLIENT, *command, target))
                        return self.nbytes * 8 / (time.monotonic() - start) / 1e9

                    found.update(self.best((what, once)))

            self._with(copy)
        return found

    def trees(self) -> dict[str, float]:
        """Many small files (tools/bench/run trees), of three rounds."""
        found: dict[str, float] = {}

        def one() -> None:
            for program in ("rsync", "scp", "socat"):
                yardsticks.need(program)
            kept = self.work / "trees.json"
            words = ("trees", "--rounds", "3", "--only", "get", "--keep", kept)
            run(ROOT / "tools" / "bench" / "run", *words, timeout_s=600)
            of = json.loads(kept.read_text())["seconds"]
            for who in ("careful", "rsync", "scp"):
                found[f"tree_{who}_s"] = statistics.median(of[f"{who} get"])

        self._with(one)
        return found

    def fetch(self) -> dict[str, float]:
        """A program that owns its queue against carefuld, file in the page cache."""
        fetches: dict[str, list[float]] = {"p50": [], "p99": []}

        def once(target: Path) -> float:
            argv: list[str | Path] = [BUILD / "fetch", "eth1", SERVER_IP, "big", target, "10000"]
            found = json.loads(run(*pinned(CLIENT, *argv), env=self.env))
            for key, values in fetches.items():
                values.append(found[f"fetch_8KiB_{key}_us"])
            self.in_mode("fetch", found["xdp"])
            return float(found["file_Gbit_per_s"])

        with self.daemons("--wait", "spin", hosts=(SERVER,)):
            copied = self.best(("own_get", once))
        p50, p99 = (statistics.median(values) for values in fetches.values())
        return {"fetch_us": p50, "fetch_p99_us": p99, **copied}

    def get(self) -> dict[str, float]:
        """Both ends a carefuld: what a user sees; the bare device before and after."""

        def by(digest: str) -> Callable[[Path], float]:
            def once(target: Path) -> float:
                get = (CTL, "get", "--json", "--digest", digest, "h2:big", target)
                return float(json.loads(run(*on(CLIENT, *get)))["rate_gbit_per_s"])

            return once

        before = self.bare()
        arms = (("get_blake3", "blake3"), ("get", "xxh3"), ("get_plain", "none"))
        with self.daemons():
            copied = self.best(*((name, by(digest)) for name, digest in arms))
            self.look()
        after = self.bare()
        found = {name: (value + after[name]) / 2 for name, value in before.items()}
        return {**copied, **found}

    def look(self) -> None:
        """Notes the memory of the daemons after a large transfer."""
        for host in (CLIENT, SERVER):
            one = status(host)
            self.in_mode("carefuld", one["xdp_mode"])
            pid = one["pid"]
            text = Path(f"/proc/{pid}/status").read_text()
            for key in ("VmHWM", "RssAnon", "HugetlbPages"):
                match = re.search(rf"{key}:\s+(\d+) kB", text)
                name = f"{host}_{key}_KiB"
                self.memory[name] = max(self.memory.get(name, 0), float(match[1] if match else 0))
            for counter in ("lost_frames", "tx_buffers_held"):
                name = f"{host}_{counter}"
                value = float(one["counters"][counter])
                self.memory[name] = max(self.memory.get(name, 0), value)

    def nbd(self) -> dict[str, float]:
        """nbdkit: reads from memory, then a copy of the same file."""
        big = self.work / "in" / "big"
        uri = f"nbd://{SERVER_IP}"
        memory = ["nbdkit", "-f", "--ipaddr", SERVER_IP, "memory", "64M"]
        with beside(SERVER, *memory):
            first = self.work / "first"
            run(*pinned(CLIENT, "nbdcopy", first, uri))
            found = json.loads(run(*pinned(CLIENT, BUILD / "nbd", uri, "10000")))

        def once(target: Path) -> float:
            start = time.monotonic()
            run(*pinned(CLIENT, "nbdcopy", uri, target))
            return self.nbytes * 8 / (time.monotonic() - start) / 1e9

        with beside(SERVER, "nbdkit", "-f", "-r", "--ipaddr", SERVER_IP, "file", str(big)):
            copied = self.best(("nbdcopy", once))
        return {"nbd_us": found["p50_us"], "nbd_p99_us": found["p99_us"], **copied}
