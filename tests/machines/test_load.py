"""The oldest supported kernel accepts the XDP program, in an emulated machine, in CI too.

Newer kernels accept programs that the verifier of Linux 6.1 refuses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from guests import MARKS, Machines

pytestmark = MARKS

ROOT = Path(__file__).parents[2]
BUILT = [ROOT / "build/gcc" / one.stem for one in sorted(ROOT.glob("tests/ebpf/test_xdp*.c"))]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    one = Machines(f"load{os.getpid()}", "--kernel", "6.1", "--hosts", "1")
    yield one
    one.down()


def test_load__linux_6_1(machines: Machines) -> None:
    assert machines.run("h1", "uname", "-r").startswith("6.1.")
    found = machines.up("h1")
    assert (found["xdp_mode"], found["zerocopy"]) == ("native", False)
    assert " name careful_" in machines.run("h1", "ip", "link", "show", "eth1")
    machines.run("h1", "carefulctl", "down", "eth1")


def test_mtu__linux_6_1_has_frames_of_one_buffer(machines: Machines) -> None:
    """A larger MTU is no error there: careful reports the longest frame, and which kernel allows
    more.
    """
    machines.run("h1", "ip", "link", "set", "eth1", "mtu", "4000")
    for output in (machines.said_up("h1"), machines.run("h1", "carefulctl", "status", "eth1")):
        assert "  frames have at most " in output
        assert ", not the MTU's 4014: one buffer each. Several buffers need Linux 6.6" in output
    machines.run("h1", "carefulctl", "down", "eth1")
    machines.run("h1", "ip", "link", "set", "eth1", "mtu", "1500")


def test_frames__linux_6_1(machines: Machines) -> None:
    """Runs the tests of tests/ebpf there."""
    if missing := [one.name for one in BUILT if not one.exists()]:
        pytest.skip(f"not built: {', '.join(missing)}: tools/test c")
    for one in BUILT:
        machines.run("h1", str(one))
