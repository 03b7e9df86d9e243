"""`tune auto` on paths that are busy, in another XDP mode, and two at a time.

A busy machine may hide all figures, so that a measurement is repeated; an answer may find the path
unchanged.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import RUN, Host, Hosts, finish, wait_for
from lab import tool

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

GAM = Path(__file__).parents[3] / "ctrl/careful/model/pipelines/gam.toml"
#: GAM twenty times slower, so that the links dominate, not this machine.
SLOWLY = {"hops": GAM, "mtu": 4000, "options": ["--scale", "20", "--charge", "payload"]}
#: A failed measurement is repeated after 30 s, and an answer delays the next one.
LONG_S = 240.0

READ = """
import sys
import careful.files

with careful.files.connect(sys.argv[1]) as host:
    print("ready", flush=True)
    while True:
        host.read("file", 0, int(sys.argv[2]))
"""


def reader(of: Host, by: str, nbytes: int = 4096) -> subprocess.Popen[str]:
    """Makes a host read from another again and again, until the process or the lab ends."""
    file = of.export / "file"
    if not file.exists():  # an earlier reader may use it
        file.write_bytes(bytes(max(nbytes, 8192)))
    job = of.lab.start(by, sys.executable, "-c", READ, of.lab.address(of.name), str(nbytes))
    assert job.stdout
    assert job.stdout.readline() == "ready\n", job.communicate()[1]
    return job


def kept(host: Host, peer: str) -> dict[str, Any]:
    """Returns the controller's record of its path to a peer; {}: nothing yet."""
    path = RUN / host.lab.instance(host.name) / "tuning.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())["paths"]
    return dict(found.get(host.lab.address(peer), {}))


def said(host: Host, peer: str) -> list[str]:
    """Returns the tuner's decisions with reasons, oldest first."""
    return [f"{each['what']}: {each['why']}" for each in kept(host, peer).get("decisions", [])]


def answers(host: Host, peer: str) -> int:
    """Returns how often live messages' times made the tuner examine the path."""
    return sum("live messages of class" in each for each in said(host, peer))


def tuned(host: Host) -> subprocess.Popen[str]:
    return host.start("tune", "auto", "eth1")


def measured(host: Host, peer: str) -> None:
    """Waits until the path has figures."""
    wait_for(lambda: kept(host, peer).get("figures"), f"figures: {said(host, peer)}", LONG_S)


def ended(job: subprocess.Popen[str]) -> None:
    """Checks that a process still runs, and ends it."""
    assert job.poll() is None, job.communicate()[1]
    job.terminate()
    _, _, errors = finish(job)
    assert "Traceback" not in errors


def changing(folder: Path, at_s: float) -> dict[str, Any]:
    """Returns SLOWLY, with a third stage whose overhead grows eightfold."""
    change = f"[[stage.link.changes]]\nat_s = {at_s}\ng_us = 60\nG_us_per_KiB = 24.9\n"
    stages = GAM.read_text().split("[[stage]]")
    stages[3] += change
    file = folder / "changing.toml"
    file.write_text("[[stage]]".join(stages))
    return {**SLOWLY, "hops": file}


def test_busy_all_the_time__is_measured_and_answered(hosts: Hosts, tmp_path: Path) -> None:
    """Three read at once, so that a message is always under way; then the path changes."""
    h1, h2 = hosts(**changing(tmp_path, 6.0))
    for one in (h1, h2):
        one.up()
    jobs = [reader(h1, "h2") for _ in range(3)]
    job = tuned(h1)

    def figures() -> bool:
        tool("links", "--name", h1.lab.name, "--reset")  # so that the path does not change yet
        return bool(kept(h1, "h2").get("figures"))

    wait_for(figures, "measurement", LONG_S)
    before = answers(h1, "h2")
    wait_for(lambda: answers(h1, "h2") > before, "answer", LONG_S)
    assert all(each.poll() is None for each in jobs)
    ended(job)
    h1.assert_nothing_lost()


@pytest.mark.parametrize("is_busy", [False, True])
def test_xdp_mode__changes_while_it_runs(hosts: Hosts, is_busy: bool) -> None:
    """carefuld tries both modes with the first peer: the record is for the mode that stays.

    A trial needs a quiet peer. If the peer's own client never rests, six attempts may find none,
    and then the driver's mode stays and the log names the reason.
    """
    h1, h2 = hosts(**SLOWLY, measures_xdp=True)
    h1.up()
    job = tuned(h1)
    wait_for(lambda: h1.status()["tuner_pid"] == job.pid, "tuner")
    h2.up("--xdp", "native")
    if is_busy:
        reader(h1, "h2")
    else:
        h1.ctl("ls", "h2:")
    wait_for(lambda: h1.status()["xdp_by"] != "pending", "mode", LONG_S)
    mode, by = h1.status()["xdp_mode"], h1.status()["xdp_by"]
    if not is_busy:
        reader(h1, "h2")

    def known() -> bool:
        state = kept(h1, "h2")
        return bool(state.get("figures")) and state["identity"]["xdp_mode"] == mode

    wait_for(known, "measurement in that mode", LONG_S)
    ended(job)
    assert is_busy or "XDP: measuring native and generic" in h1.log
    ends = ("XDP, measured with peer", "XDP: not measured")
    last = [line for line in h1.log.splitlines() if any(end in line for end in ends)][-1]
    assert mode in last
    assert mode == "native" or by == "measured"
    assert by != "measured" or ends[0] in last


def test_two_peers__both_are_tuned(hosts: Hosts, tmp_path: Path) -> None:
    """One is measured while the other's A/B runs, under traffic to both."""
    link = tmp_path / "link.toml"
    link.write_text('[[stage]]\nname = "link"\ng_us = 300\nG_us_per_KiB = 400\n')
    h1, h2, h3 = hosts(hosts=3, hops=link, mtu=4000)
    for one in (h1, h2, h3):
        one.up()
    for peer in ("h2", "h3"):
        reader(h1, peer)
    job = tuned(h1)
    for peer in ("h2", "h3"):
        measured(h1, peer)
    ended(job)
    for peer in ("h2", "h3"):
        assert not kept(h1, peer)["on_trial"], "an A/B was left open"
    h1.assert_nothing_lost()
