"""The parts of the speed scenario: each method of Bench returns the figures of one round."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yardsticks
from bench_lab import (
    BUILD,
    CLIENT,
    CTL,
    HOSTS,
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
from scenarios.applications import trees
from speed_figures import REQUEST_MOST, SIZES, trip

#: A fragment of the default plan with headers, and its payload, bytes.
FRAME_BYTES, FRAME_PAYLOAD = 3784, 3640
#: careful_am, bytes.
HEADERS = 48
#: A message of 64 bytes as a frame: Ethernet, IP and UDP, careful_hdr, careful_am, payload.
SMALL_FRAME_BYTES = 14 + 28 + 48 + HEADERS + 64
#: Round trips of a size.
COUNT = 20_000


def _named(name: str, one: Callable[[int], float], size: int) -> dict[str, float]:
    return {name: one(size)}


class Bench:
    """A method for each part returns the figures of a round."""

    def __init__(self, work: Path, nbytes: int, xdp: str) -> None:
        self.work, self.nbytes, self.xdp = work, nbytes, xdp
        self.missing: list[str] = []

    def settle(self) -> None:
        """Finds the XDP mode that carefuld's trial prefers, if the mode is `auto`.

        Only carefuld tries modes; a program that owns its queue uses the driver's.
        """
        if self.xdp == "auto":
            with self._daemons():
                run(*pinned(CLIENT, CTL, "get", "-q", "h2:big", self.work / "out" / "first"))
                (self.work / "out" / "first").unlink()
                self.xdp = status(CLIENT)["xdp_mode"]

    def _daemons(
        self, *options: str, hosts: tuple[str, ...] = HOSTS
    ) -> contextlib.AbstractContextManager[None]:
        """Starts carefuld on each host's core, in the mode; each exports the file."""
        words = ("--xdp", self.xdp, "--export", self.work / "in", *options)
        return daemons(*words, hosts=hosts, pin=True)

    def _found(self, argv: list[str], **env: str) -> dict[str, float]:
        """Returns the output of one of our programs, which must have used the XDP mode."""
        found: dict[str, float] = json.loads(run(*argv, env={"CAREFUL_XDP": self.xdp, **env}))
        if found.get("xdp", self.xdp) != self.xdp:
            raise BenchError(f"{argv[-1]}: XDP mode {found['xdp']} in place of {self.xdp}")
        return found

    @contextlib.contextmanager
    def _served(self, protocol: str = "careful") -> Iterator[Callable[..., dict[str, float]]]:
        """Serves by pair.c, and yields a function that calls its client."""
        env = {"CAREFUL_XDP": self.xdp, "CAREFUL_PROTOCOL": protocol}
        with beside(SERVER, BUILD / "pair", "serve", "eth1", ready="ready", env=env):

            def ask(what: str, nbytes: int, count: int) -> dict[str, float]:
                argv = (BUILD / "pair", what, "eth1", SERVER_IP, nbytes, count)
                return self._found(pinned(CLIENT, *argv), **env)

            yield ask

    def _best(self, *arms: tuple[str, Callable[[Path], float]]) -> dict[str, float]:
        """Returns each arm's fastest rate of three copies to new files, in turn.

        A virtual machine gives free pages back to its host within seconds, and the first touch of
        such a page costs several times the copy into it. In a row, a copy finds the pages that the
        previous copy has just freed.
        """
        rates: dict[str, list[float]] = {what: [] for what, _ in arms}
        for k in range(3):
            for what, once in arms:
                target = self.work / "out" / str(k)
                rates[what].append(once(target))
                target.unlink()
        return {f"{what}_gbit": max(each) for what, each in rates.items()}

    def _timed(self, *argv: object) -> Callable[[Path], float]:
        """Returns a function that copies by a command, with the target last, and returns Gbit/s."""

        def once(target: Path) -> float:
            start = time.monotonic()
            run(*pinned(CLIENT, *argv, target))
            return self.nbytes * 8 / (time.monotonic() - start) / 1e9

        return once

    def _yardstick(self, found: dict[str, float], one: Callable[[], dict[str, float]]) -> None:
        """Skips a yardstick that is not installed or fails, and names it once."""
        try:
            found.update(one())
        except (BenchError, subprocess.TimeoutExpired) as error:
            if str(error) not in self.missing:
                self.missing.append(str(error))
                print(f"run: {error}", file=sys.stderr)

    def _bare(
        self, echo_bytes: int, frame_bytes: int, frames: int = 1, how: str = "each"
    ) -> dict[str, float]:
        """Runs the device layer alone on its own pair."""
        argv = (BUILD / "bare", echo_bytes, frames, frame_bytes, how)
        found = self._found([str(word) for word in argv])
        if found["stream_lost_frames"]:
            raise BenchError(f"bare: {found['stream_lost_frames']} frames lost")
        if not found["echo_count"]:
            raise BenchError("bare: fewer than 2000 echoes in time: is the machine loaded?")
        return found

    def bare(self) -> dict[str, float]:
        found = self._bare(64 + HEADERS, FRAME_BYTES)
        return {
            "bare_echo_us": found["p50_us"],
            "bare_echo_p99_us": found["p99_us"],
            "bare_stream_gbit": found["stream_Gbit_per_s"],
        }

    def request(self) -> dict[str, float]:
        """Measures two programs with libcareful."""
        with self._served() as ask:
            found = ask("ask", 64, 50_000)
        return {"request_us": found["p50_us"], "request_p99_us": found["p99_us"]}

    def tcp(self) -> dict[str, float]:
        return {"tcp_spin_us": yardsticks.tcp_trip(64)}

    def trips(self) -> dict[str, float]:
        """Measures round trips of all sizes by program: requests if they fit, else stores."""
        found: dict[str, float] = {}
        for protocol in ("careful", "traditional"):
            self._yardstick(found, partial(self._own_trips, protocol))
        others: dict[str, Callable[[int], float]] = {
            "bare": lambda size: self._bare_trip(size, "each"),
            "whole": lambda size: self._bare_trip(size, "whole"),
            "ucx": yardsticks.ucx_trip,
            "libfabric": yardsticks.libfabric_trip,
            "tcp_spin": yardsticks.tcp_trip,
        }
        for size in SIZES:
            for who, one in others.items():
                if who != "whole" or size > REQUEST_MOST:
                    self._yardstick(found, partial(_named, trip(who, size), one, size))
        return found

    def _own_trips(self, protocol: str) -> dict[str, float]:
        found = {}
        with self._served(protocol) as ask:
            for size in SIZES:
                word = "ask" if size <= REQUEST_MOST else "trips"
                found[trip(protocol, size)] = ask(word, size, COUNT)["p50_us"]
        return found

    def _bare_trip(self, nbytes: int, how: str) -> float:
        """Sends as many frames as careful needs, returned one by one or all together."""
        frames = -(-nbytes // FRAME_PAYLOAD)
        return self._bare(-(-nbytes // frames) + HEADERS, 1024, frames, how)["p50_us"]

    def streams(self) -> dict[str, float]:
        """Measures the rate in one direction."""
        with self._served() as ask:
            found = {
                "stream_gbit": ask("stream", 1 << 20, 600)["stream_Gbit_per_s"],
                "small_mps": ask("small", 64, 600)["messages_per_s"],
                "packed_mps": ask("packed", 64, 600)["messages_per_s"],
            }
        with self._served("traditional") as ask:
            found["traditional_gbit"] = ask("stream", 1 << 20, 600)["stream_Gbit_per_s"]
        bare = self._bare(64 + HEADERS, SMALL_FRAME_BYTES)
        found["bare_small_mps"] = bare["stream_frames_per_s"]
        self._yardstick(found, yardsticks.iperf)
        self._yardstick(found, lambda: {"ucx_gbit": yardsticks.ucx_gbit()})
        return found

    def copies(self) -> dict[str, float]:
        """Copies the file by rsync and scp."""
        found: dict[str, float] = {}

        def rsync() -> dict[str, float]:
            with yardsticks.rsync_daemon(self.work / "in"):
                copy = ("rsync", "-W", "--inplace", f"rsync://{SERVER_IP}/x/big")
                return self._best(("rsync", self._timed(*copy)))

        def scp() -> dict[str, float]:
            with yardsticks.sftp_server(self.work) as command:
                copy = (*command, f"x@{SERVER_IP}:{self.work}/in/big")
                return self._best(("scp", self._timed(*copy)))

        self._yardstick(found, rsync)
        self._yardstick(found, scp)
        return found

    def trees(self) -> dict[str, float]:
        """Copies many small files (the trees scenario), in three rounds."""
        found: dict[str, float] = {}

        def one() -> dict[str, float]:
            folder = self.work / "trees"
            trees.make(folder / "export" / "tree", trees.FILES, trees.FILE_BYTES)
            took = trees.measure(folder, 3, "get")
            return {
                f"tree_{who}_s": statistics.median(took[f"{who} get"])
                for who in ("careful", "rsync", "scp")
            }

        self._yardstick(found, one)
        return found

    def fetch(self) -> dict[str, float]:
        """Fetches blocks from a carefuld by a program that owns its queue; the file is in the page
        cache.
        """
        took_us: list[float] = []

        def once(target: Path) -> float:
            argv = (BUILD / "fetch", "eth1", SERVER_IP, "big", target, "10000")
            found = self._found(pinned(CLIENT, *argv))
            took_us.append(found["fetch_8KiB_p50_us"])
            return found["file_Gbit_per_s"]

        with self._daemons("--wait", "spin", hosts=(SERVER,)):
            copied = self._best(("own_get", once))
        return {"fetch_us": statistics.median(took_us), **copied}

    def get(self) -> dict[str, float]:
        """Runs carefulctl get between two carefulds, with the bare device before and after."""

        def by(digest: str) -> Callable[[Path], float]:
            def once(target: Path) -> float:
                get = (CTL, "get", "--json", "--digest", digest, "h2:big", target)
                return float(json.loads(run(*on(CLIENT, *get)))["rate_gbit_per_s"])

            return once

        before = self.bare()
        arms = (("get_blake3", "blake3"), ("get", "xxh3"), ("get_plain", "none"))
        with self._daemons():
            copied = self._best(*((name, by(digest)) for name, digest in arms))
        after = self.bare()
        return {**copied, **{name: (value + after[name]) / 2 for name, value in before.items()}}

    def nbd(self) -> dict[str, float]:
        """Measures nbdkit: reads from memory by fio, and a copy of the file."""
        found: dict[str, float] = {}
        self._yardstick(found, lambda: {"fio_us": yardsticks.fio_us()})
        serve = ("nbdkit", "-f", "-r", "--ipaddr", SERVER_IP, "file", self.work / "in" / "big")
        with beside(SERVER, *serve):
            return found | self._best(("nbdcopy", self._timed("nbdcopy", f"nbd://{SERVER_IP}")))
