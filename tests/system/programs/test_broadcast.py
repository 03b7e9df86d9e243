"""A broadcast on the wire: one frame to all, or replicated by the sender with a reason."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).with_name("broadcast_program.py")


@pytest.fixture(scope="module")
def lab(lab_possible: None) -> Iterator[Lab]:
    if shutil.which("bpftool") is None:
        pytest.skip("bpftool is missing")
    one = Lab(hosts=4)
    yield one
    one.down()


def run(
    lab: Lab, folder: Path, cases: list[str], hosts: list[str], mode: str = "auto"
) -> list[str]:
    """Runs the program on a host for each case. Returns their output."""
    started = [
        lab.start(host, sys.executable, PROGRAM, case, str(rank), str(folder), mode, *hosts)
        for rank, (host, case) in enumerate(zip(lab.hosts, cases, strict=False))
    ]
    said = [one.communicate(timeout=280) for one in started]
    failed = [text for one, (_, text) in zip(started, said, strict=True) if one.returncode]
    assert not failed, "\n".join(failed)
    return [out.strip() for out, _ in said]


@pytest.mark.parametrize(("mode", "family"), [("native", 4), ("generic", 4), ("native", 6)])
def test_three_hosts__one_frame_and_a_host_that_is_no_member(
    lab: Lab, tmp_path: Path, mode: str, family: int
) -> None:
    hosts = [lab.address(host, family) for host in lab.hosts[:3]]
    run(lab, tmp_path, ["one_frame"] * 3 + ["stranger"], hosts, mode)


def test_a_router_on_the_way__replicated(lab: Lab, tmp_path: Path) -> None:
    """Only the host behind the router is unreachable; the others get one frame."""
    for key, value in {
        "all/send_redirects": 0,
        "eth1/send_redirects": 0,
        "all/forwarding": 1,
    }.items():
        lab.run("h2", "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/{key}")
    lab.run("h1", "ip", "route", "add", "10.77.0.3/32", "via", "10.77.0.2")
    try:
        output = run(lab, tmp_path, ["replicated"] * 3, lab.hosts[:3])
    finally:
        lab.run("h1", "ip", "route", "del", "10.77.0.3/32")
    assert output[0].startswith("replicated: frames to all do not reach every node")
    assert output[1:] == ["one frame"] * 2


def test_an_interface_without_multicast__replicated(lab: Lab, tmp_path: Path) -> None:
    """Its host neither sends nor receives multicast, so the others replicate too."""
    lab.run("h2", "ip", "link", "set", "eth1", "multicast", "off")
    try:
        output = run(lab, tmp_path, ["replicated"] * 3, lab.hosts[:3])
    finally:
        lab.run("h2", "ip", "link", "set", "eth1", "multicast", "on")
    assert [one.split(":")[0] for one in output] == ["replicated"] * 3
    assert "without multicast" in output[0] + output[2]
