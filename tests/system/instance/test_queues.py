"""Peers spread over several queues of an interface."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, MakeLab

RUN, PINS = Path("/run/careful"), Path("/sys/fs/bpf/careful")
DATA = os.urandom(3 << 20)


def up(lab: Lab, host: str, tree: Path, *options: str) -> None:
    lab.run(host, "carefulctl", "up", "eth1", "--export", f"{tree}:rw", "--insecure", *options)


def status(lab: Lab, host: str) -> dict[str, Any]:
    shown = lab.run(host, "carefulctl", "status", "eth1", "--json").stdout
    found: dict[str, Any] = json.loads(shown)["instances"][0]
    return found


def places(found: dict[str, Any]) -> dict[str, int]:
    """Returns the queue of each peer that is up, by address."""
    peers = (one for one in found["peers"] if one["state"] == "up")
    return {one["address"]: one["queue"] for one in peers}


def left(instance: str) -> list[str]:
    found = [*RUN.glob(f"{instance}*"), *PINS.glob(f"{instance}*")]
    return sorted(map(str, found))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(DATA)
    return tmp_path


def test_four_and_four__a_session_is_on_one_queue_of_both(make_lab: MakeLab, tree: Path) -> None:
    lab = make_lab(queues=(4, 4))
    for host in lab.hosts:
        up(lab, host, tree, "--queues", "4", "--peers", "8")
    for family in (4, 6):
        target = tree / f"got{family}"
        source = lab.address("h2", family)
        source = f"[{source}]:file" if family == 6 else f"{source}:file"
        lab.run("h1", "carefulctl", "get", source, target)
        assert target.read_bytes() == DATA
    local, remote = status(lab, "h1"), status(lab, "h2")
    ours, theirs = places(local), places(remote)
    # Each address is a host with its own queue, which is the same at both ends.
    assert len(ours) == 2
    assert len(set(ours.values())) == 2
    assert sorted(ours.values()) == sorted(theirs.values())
    assert local["peers_max"] == 8
    assert [one["peers_max"] for one in local["queues"]] == [2] * 4
    counted = [one["rx_frames"] for one in local["queues"]]
    assert sum(counted) == local["counters"]["rx_frames"]
    assert {k for k, frames in enumerate(counted) if frames} == set(ours.values())
    assert not remote["counters"]["lost_frames"]
    assert not remote["xdp_counters"]["pass_queue"]
    # The other direction uses the existing sessions.
    lab.run("h2", "carefulctl", "put", tree / "file", f"{lab.address('h1')}:put")
    assert (tree / "put").read_bytes() == DATA
    assert places(status(lab, "h2")) == theirs
    one_peer = ["--peer", lab.address("h2"), "--fragment-bytes", "1024"]
    lab.run("h1", "carefulctl", "tune", "set", "eth1", *one_peer)
    shown = json.loads(lab.run("h1", "carefulctl", "tune", "show", "eth1", "--json").stdout)
    assert len(shown["peers"]) == 1 + len(ours)
    for host in lab.hosts:
        lab.run(host, "carefulctl", "down", "eth1")
        assert not left(lab.instance(host))


def test_four_and_one__the_first_queue_serves(make_lab: MakeLab, tree: Path) -> None:
    lab = make_lab(queues=(4, 1))
    up(lab, "h1", tree, "--queues", "4")
    up(lab, "h2", tree)
    lab.run("h1", "carefulctl", "get", f"{lab.address('h2')}:file", tree / "one")
    lab.run("h2", "carefulctl", "get", f"{lab.address('h1')}:file", tree / "two")
    assert (tree / "one").read_bytes() == (tree / "two").read_bytes() == DATA
    assert set(places(status(lab, "h1")).values()) == {0}
    lab.run("h2", "carefulctl", "down", "eth1")
    refused = lab.run("h2", "carefulctl", "up", "eth1", "--queues", "2", check=False)
    assert refused.returncode
    assert "--queues: eth1 has 1 receive and 1 send queues: use at most 1" in refused.stderr


@pytest.mark.parametrize("queue", [0, 2])
def test_killed__all_end_and_the_next_up_clears(make_lab: MakeLab, tree: Path, queue: int) -> None:
    lab = make_lab(queues=(4, 4))
    up(lab, "h1", tree, "--queues", "4")
    queues = status(lab, "h1")["queues"]
    os.kill(queues[queue]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{one['pid']}/fd").exists() for one in queues):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "carefuld died" in lab.run("h1", "carefulctl", "status", check=False).stderr
    up(lab, "h1", tree, "--queues", "4")
    assert len(status(lab, "h1")["queues"]) == 4
    lab.run("h1", "carefulctl", "down", "eth1")
    assert not left(lab.instance("h1"))


def test_stopped__the_service_manager_hears_no_more(
    make_lab: MakeLab, tree: Path, tmp_path: Path
) -> None:
    """The manager watches the first queue's process, which reports for all queues."""
    lab = make_lab(queues=(2, 2))
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    argv = ["carefulctl", "up", "eth1", "--foreground", "--queues", "2", "--peers", "4"]
    process = lab.start("h1", *argv, env=env)
    said = manager.recv(4096).decode()
    assert "READY=1" in said
    assert "0 of 4 peers up" in said
    up(lab, "h2", tree, "--queues", "2")
    lab.run("h1", "carefulctl", "get", f"{lab.address('h2')}:file", tree / "got")
    queues = status(lab, "h1")["queues"]
    while "1 of 4 peers up" not in said:  # whichever queue has it
        said = manager.recv(4096).decode()
    os.kill(queues[1]["pid"], signal.SIGSTOP)
    manager.settimeout(5)
    with pytest.raises(TimeoutError):
        list(itertools.islice(iter(lambda: manager.recv(4096), b""), 30))
    os.kill(queues[1]["pid"], signal.SIGCONT)
    manager.settimeout(60)
    while "WATCHDOG=1" not in manager.recv(4096).decode():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    manager.close()


def test_generic__is_refused(make_lab: MakeLab, tree: Path) -> None:
    """Its frames would arrive at another queue than the sender's."""
    lab = make_lab(queues=(2, 2))
    done = lab.run(
        "h1", "carefulctl", "up", "eth1", "--queues", "2", "--xdp", "generic", check=False
    )
    assert done.returncode
    assert "need native XDP" in done.stderr
    assert not left(lab.instance("h1"))
