"""`up --reserve` between real daemons: large transfers get grants and pay them back.

The simulator tests the rule (tests/sim/link/test_sim_reserve.c).
"""

from __future__ import annotations

import pytest
from hosts import MIB, SLOWLY, Host, Hosts, make_file, moving, wait_for

pytestmark = pytest.mark.lab
#: All of 512 buffers except windows of 8 for each of 8 peers.
RESERVE = 448


def free(host: Host) -> int:
    """Returns the free buffers of its reserve."""
    found = host.status()
    assert found["reserve_buffers"] == RESERVE
    return int(found["reserve_free_buffers"])


def granted(host: Host) -> int:
    """Returns the buffers granted so far."""
    return int(host.status()["counters"]["granted"])


def assert_whole(host: Host) -> None:
    """Checks that all grants are paid back."""
    wait_for(lambda: free(host) == RESERVE, f"whole reserve of {host.name}")


def up(hosts: Hosts) -> tuple[Host, Host]:
    a, b = hosts()
    for host in (a, b):
        host.up("--rx-buffers", "512", "--peers", "8", "--reserve", str(RESERVE))
        assert granted(host) == 0
        assert free(host) == RESERVE
    return a, b


def test_reserve__a_large_file_is_granted_buffers_and_gives_them_back(hosts: Hosts) -> None:
    a, b = up(hosts)
    kept = make_file(a.own / "big", 16 * MIB)
    a.ctl("put", a.own / "big", "h2:big")
    assert (b.export / "big").read_bytes() == kept
    assert granted(b) > 0
    assert_whole(b)
    a.ctl("get", "h2:big", a.own / "again")
    assert (a.own / "again").read_bytes() == kept
    for host in (a, b):
        found = host.assert_nothing_lost()
        assert found["counters"]["grants_ended"] == 0
        assert_whole(host)
    shown = b.ctl("status", "-v", "eth1").stdout
    assert f"{RESERVE} of the {RESERVE} in reserve free" in " ".join(shown.split())


def test_reserve__comes_back_from_a_transfer_that_is_killed(hosts: Hosts) -> None:
    a, b = up(hosts)
    make_file(a.own / "big", 64 * MIB)
    put = a.start("put", *SLOWLY, a.own / "big", "h2:big")
    moving(b)
    wait_for(lambda: granted(b) > 0, "grant")
    put.kill()
    put.communicate()
    assert_whole(b)
    small = make_file(a.own / "next", 2 * MIB)
    a.ctl("put", a.own / "next", "h2:next")
    assert (b.export / "next").read_bytes() == small
    assert_whole(b)
    b.assert_nothing_lost()
