"""The traditional protocol between real daemons: files move over it despite losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, Hosts, make_file
from lossy import hops


def count(found: dict[str, Any], name: str) -> int:
    """A counter of a status."""
    return int(found["counters"][name])


#: Time limit of one transfer on a busy machine, seconds.
LONG_S = 300


@pytest.mark.timeout(3 * LONG_S)
@pytest.mark.parametrize(
    ("mishap", "nbytes"),
    [
        ("loss = 0", 8 * MIB),
        ("loss = 0.01", 4 * MIB),
        ("loss = 0.1", 2 * MIB),
        ("reorder = 0.05\nreorder_us = 300\nduplicate = 0.05", 2 * MIB),
        ("corrupt = 0.02", MIB),
    ],
)
def test_traditional__files_there_and_back(
    hosts: Hosts, tmp_path: Path, mishap: str, nbytes: int
) -> None:
    a, b = hosts(hops=hops(tmp_path, mishap))
    for host in (a, b):
        host.up("--protocol", "traditional")
    kept = make_file(b.export / "big", nbytes)
    a.ctl("get", "h2:big", a.own / "big", timeout=LONG_S)
    assert (a.own / "big").read_bytes() == kept
    a.ctl("put", a.own / "big", "h2:back", timeout=LONG_S)
    assert (b.export / "back").read_bytes() == kept
    found = [host.status() for host in (a, b)]
    again = sum(count(one, "sent_again") for one in found)
    for one in found:
        assert one["protocol"] == "traditional"
        assert count(one, "lost_frames") == 0
        assert count(one, "epochs_broken") == 0
    if mishap != "loss = 0":  # without it a time-out may be too short for a busy machine
        assert again > 0
    assert "protocol traditional" in a.ctl("status", "-v", "eth1").stdout


def test_protocols__a_peer_with_the_other_is_refused_by_name(hosts: Hosts) -> None:
    a, b = hosts()
    a.up("--protocol", "traditional")
    b.up()
    for one, other in ((a, b), (b, a)):
        failed = one.ctl("ls", f"{other.name}:", check=False)
        assert failed.returncode == 1
        assert "one end speaks careful, the other traditional" in failed.stderr
        assert count(other.status(), "ctrl_protocol") > 0
    assert b.status()["protocol"] == "careful"
