"""Runs other programs on the same two hosts; each function returns a program's figures.

BenchError is raised if a program is not installed, or fails.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench_lab import CLIENT, SERVER, SERVER_IP, BenchError, beside, pinned, run

#: Round trips of ucx_perftest and fi_pingpong.
COUNT = 20_000
#: Messages of ucx_perftest's stream of 1 MiB, and of its warm-up (20 GB by default).
UCX_STREAM = ("2000", "-w", "500")
#: The largest message of sockperf: 29 bytes less than 64 KiB.
SOCKPERF_MOST = 65507
#: Shows a host its own devices in /sys, since a lab host shares all but the network.
_SYSFS = ["unshare", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "-"]
_UCX = [*_SYSFS, "env", "UCX_TLS=tcp", "UCX_NET_DEVICES=eth1", "ucx_perftest"]


def need(*programs: str) -> None:
    """Raises BenchError if a program is missing."""
    for program in programs:
        if not shutil.which(program):
            raise BenchError(f"{program} is not installed: tools/setup run bench")


def _last_number(text: str, pattern: str, who: str) -> float:
    found = re.findall(pattern, text)
    if not found:
        raise BenchError(f"{who}: no figure in its output")
    return float(found[-1])


def tcp_trip(nbytes: int) -> float:
    """Returns the median of a round trip, both ends spinning, µs."""
    need("sockperf")
    how = ("--tcp", "--nonblocked")
    with beside(SERVER, "sockperf", "sr", "-i", SERVER_IP, *how):
        ping = ["sockperf", "pp", "-i", SERVER_IP, "-t", "1", "--full-rtt"]
        text = run(*pinned(CLIENT, *ping, "-m", min(nbytes, SOCKPERF_MOST), *how))
    return _last_number(text, r"percentile 50\.\d* *= *([\d.]+)", "sockperf")


def _ucx(test: str, nbytes: int, *count: str) -> str:
    need("ucx_perftest")
    words = ["-t", test, "-s", str(nbytes), "-n", *count]
    with beside(SERVER, *_UCX, *words):
        return run(*pinned(CLIENT, *_UCX, SERVER_IP, *words))


def ucx_trip(nbytes: int) -> float:
    """Returns the median, µs; the program prints half of a round trip."""
    text = _ucx("tag_lat", nbytes, str(COUNT))
    return 2 * _last_number(text, r"Final: +\d+ +([\d.]+)", "ucx_perftest")


def ucx_gbit() -> float:
    """Returns the overall rate of a stream of 1 MiB messages; UCX prints MB of 2**20 bytes."""
    pattern = r"Final: +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)"
    text = _ucx("tag_bw", 1 << 20, *UCX_STREAM)
    return _last_number(text, pattern, "ucx_perftest") * (1 << 20) * 8 / 1e9


def libfabric_trip(nbytes: int) -> float:
    """Returns the mean, µs; the program prints only that, for half of a round trip."""
    need("fi_pingpong")
    words = ["-p", "tcp", "-e", "msg", "-S", str(nbytes), "-I", str(COUNT)]
    with beside(SERVER, "fi_pingpong", *words):
        text = run(*pinned(CLIENT, "fi_pingpong", *words, SERVER_IP))
    return 2 * _last_number(text, r"([\d.]+) +[\d.]+ *$", "fi_pingpong")


def _offloads(state: str) -> None:
    for host in (CLIENT, SERVER):
        words = [word for name in ("tso", "gso", "gro") for word in (name, state)]
        run(*pinned(host, "ethtool", "-K", "eth1", *words))


def _iperf() -> float:
    with beside(SERVER, "iperf3", "-s", "-1"):
        text = run(*pinned(CLIENT, "iperf3", "-c", SERVER_IP, "-t", "1", "-O", "1", "-J"))
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e9


def iperf() -> dict[str, float]:
    """Returns TCP's rate with the kernel's offloads, and with frames like ours."""
    need("iperf3")
    found = {"iperf_gso_gbit": _iperf()}
    try:
        _offloads("off")
        return found | {"iperf_gbit": _iperf()}
    finally:
        _offloads("on")


def fio_us() -> float:
    """Returns the median of 8 KiB reads from nbdkit's memory, one at a time."""
    need("fio", "nbdkit")
    words = ["--name=x", "--ioengine=nbd", f"--uri=nbd://{SERVER_IP}", "--rw=randread", "--bs=8k"]
    words += ["--iodepth=1", "--size=64M", "--time_based", "--runtime=1", "--lat_percentiles=1"]
    with beside(SERVER, "nbdkit", "-f", "--ipaddr", SERVER_IP, "memory", "64M"):
        text = run(*pinned(CLIENT, "fio", *words, "--output-format=json"))
    of = json.loads(text[text.index("{") :])["jobs"][0]["read"]["lat_ns"]["percentile"]
    return float(of["50.000000"]) / 1e3


@contextlib.contextmanager
def rsync_daemon(folder: Path) -> Iterator[None]:
    """Serves a folder as rsync://SERVER_IP/x."""
    need("rsync")
    conf = folder.parent / "rsyncd.conf"
    how = "use chroot = no\nread only = no\nuid = root\ngid = root\n"
    conf.write_text(f"[x]\npath = {folder}\n{how}")
    with beside(SERVER, "rsync", "--daemon", "--no-detach", f"--config={conf}"):
        yield


@contextlib.contextmanager
def sftp_server(folder: Path) -> Iterator[list[str]]:
    """Yields a command of scp over plain TCP, without encryption."""
    need("scp", "socat")
    pump = folder / "pump"
    pump.write_text(f"#!/bin/sh\nexec socat - TCP:{SERVER_IP}:8022\n")
    pump.chmod(0o755)
    serve = ("TCP-LISTEN:8022,fork,reuseaddr", "EXEC:/usr/lib/openssh/sftp-server")
    with beside(SERVER, "socat", *serve):
        yield ["scp", "-q", "-S", str(pump)]
