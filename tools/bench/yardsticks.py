"""Runs other programs on the same two hosts: each function is one, and returns its figures.

BenchError is raised where a program is not installed, or fails: the run goes on without it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench_lab import CLIENT, SERVER, SERVER_IP, BenchError, beside, pinned, run
from speed_lab import busiest, stream_costs

#: Round trips of ucx_perftest and fi_pingpong.
COUNT = 20_000
#: Messages of ucx_perftest's stream of 1 MiB, and of its warm-up (20 GB by default).
UCX_STREAM = ("2000", "-w", "500")
#: The most that sockperf sends at once: 29 bytes less than 64 KiB.
SOCKPERF_MOST = 65507
SFTP = "EXEC:/usr/lib/openssh/sftp-server"
#: Shows a host its own devices in /sys: a lab host has its own network, and nothing else.
_SYSFS = ["unshare", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "-"]
_UCX = [*_SYSFS, "env", "UCX_TLS=tcp", "UCX_NET_DEVICES=eth1", "ucx_perftest"]


def need(program: str) -> None:
    """A program of somebody else's must be there."""
    if not shutil.which(program):
        raise BenchError(f"{program} is not installed: tools/setup run bench")


def sockperf(nbytes: int, *options: str) -> dict[str, float]:
    """Quantiles of a round trip; `--tcp`, `--nonblocked`."""
    need("sockperf")
    with beside(SERVER, "sockperf", "sr", "-i", SERVER_IP, *options):
        ping = ["sockperf", "pp", "-i", SERVER_IP, "-t", "1", "--full-rtt"]
        ping += ["-m", str(min(nbytes, SOCKPERF_MOST))]
        text = run(*pinned(CLIENT, *ping, *options))
    names = {
        "p50": r"percentile 50\.\d*",
        "p99": r"percentile 99\.0\d*",
        "p999": r"percentile 99\.90\d*",
        "max": "<MAX> observation",
    }
    found = {key: re.search(rf"{name} *= *([\d.]+)", text) for key, name in names.items()}
    if not all(found.values()):
        raise BenchError("sockperf: no percentile in its output")
    return {key: float(match[1]) for key, match in found.items() if match}


def _last_number(text: str, pattern: str, who: str) -> float:
    found = re.findall(pattern, text)
    if not found:
        raise BenchError(f"{who}: no figure in its output")
    return float(found[-1])


def _ucx(test: str, nbytes: int, *count: str) -> str:
    need("ucx_perftest")
    words = ["-t", test, "-s", str(nbytes), "-n", *count]
    with beside(SERVER, *_UCX, *words):
        return run(*pinned(CLIENT, *_UCX, SERVER_IP, *words))


def ucx_trip(nbytes: int) -> dict[str, float]:
    """The median: it prints half of a round trip."""
    half = _last_number(
        _ucx("tag_lat", nbytes, str(COUNT)), r"Final: +\d+ +([\d.]+)", "ucx_perftest"
    )
    return {"p50": 2 * half}


def ucx_gbit() -> float:
    """A stream of 1 MiB messages: the overall figure, of MB of 2**20 bytes."""
    pattern = r"Final: +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)"
    text = _ucx("tag_bw", 1 << 20, *UCX_STREAM)
    return _last_number(text, pattern, "ucx_perftest") * (1 << 20) * 8 / 1e9


def libfabric_trip(nbytes: int) -> dict[str, float]:
    """The mean, counted as its P50: it prints nothing else, and half of a round trip."""
    need("fi_pingpong")
    words = ["-p", "tcp", "-e", "msg", "-S", str(nbytes), "-I", str(COUNT)]
    with beside(SERVER, "fi_pingpong", *words):
        text = run(*pinned(CLIENT, "fi_pingpong", *words, SERVER_IP))
    return {"p50": 2 * _last_number(text, r"([\d.]+) +[\d.]+ *$", "fi_pingpong")}


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Neither end cuts or joins segments for TCP."""
    try:
        for host in (CLIENT, SERVER):
            run(*pinned(host, "ethtool", "-K", "eth1", "tso", "off", "gso", "off", "gro", "off"))
        yield
    finally:
        for host in (CLIENT, SERVER):
            run(*pinned(host, "ethtool", "-K", "eth1", "tso", "on", "gso", "on", "gro", "on"))


def _iperf(name: str) -> dict[str, float]:
    need("iperf3")
    with beside(SERVER, "iperf3", "-s", "-1"), busiest() as share:
        text = run(*pinned(CLIENT, "iperf3", "-c", SERVER_IP, "-t", "1", "-O", "1", "-J"))
    gbit = float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e9
    return stream_costs(name, gbit, share)


def iperf() -> dict[str, float]:
    """With what the kernel does for TCP, and at the same frames as we send."""
    found = _iperf("iperf_gso")
    with _plain():
        return found | _iperf("iperf")


def fio() -> dict[str, float]:
    """One 8 KiB read at a time, of nbdkit's memory."""
    need("fio")
    need("nbdkit")
    words = ["--name=x", "--ioengine=nbd", f"--uri=nbd://{SERVER_IP}", "--rw=randread", "--bs=8k"]
    words += ["--iodepth=1", "--size=64M", "--time_based", "--runtime=1", "--lat_percentiles=1"]
    with beside(SERVER, "nbdkit", "-f", "--ipaddr", SERVER_IP, "memory", "64M"):
        text = run(*pinned(CLIENT, "fio", *words, "--output-format=json"))
    of = json.loads(text[text.index("{") :])["jobs"][0]["read"]["lat_ns"]["percentile"]
    return {"fio_us": of["50.000000"] / 1e3, "fio_p99_us": of["99.000000"] / 1e3}


@contextlib.contextmanager
def rsync_daemon(work: Path) -> Iterator[list[str]]:
    """The command that copies the file `big`, but for where to."""
    need("rsync")
    conf = work / "rsyncd.conf"
    conf.write_text(f"[x]\npath = {work}/in\nuse chroot = no\nuid = root\ngid = root\n")
    with beside(SERVER, "rsync", "--daemon", "--no-detach", f"--config={conf}"):
        yield ["rsync", "-W", "--inplace", f"rsync://{SERVER_IP}/x/big"]


@contextlib.contextmanager
def sftp_server(work: Path) -> Iterator[list[str]]:
    """The same of scp, over plain TCP."""
    need("scp")
    need("socat")
    pump = work / "pump"
    pump.write_text(f"#!/bin/sh\nexec socat - TCP:{SERVER_IP}:8022\n")
    pump.chmod(0o755)
    with beside(SERVER, "socat", "TCP-LISTEN:8022,fork,reuseaddr", SFTP):
        yield ["scp", "-q", "-S", str(pump), f"x@{SERVER_IP}:{work}/in/big"]
