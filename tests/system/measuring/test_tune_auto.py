"""`tune auto` and `tune explain` next to running instances, over emulated links."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import RUN, Host, alive, finish, wait_for
from lab import Lab, MakeLab, tool
from slow_disk import slow_disk

pytestmark = pytest.mark.lab

GAM = Path(__file__).parents[3] / "ctrl/careful/model/pipelines/gam.toml"
PEER = "10.77.0.2"
#: The class of 4 KiB messages, which are best in five fragments over GAM.
CLASS = 6


@pytest.fixture(scope="module")
def slow_lab(lab_possible: None) -> Iterator[Lab]:
    """Yields two hosts with P1's GAM between them, fifty times slower."""
    options = ["--scale", "50", "--charge", "payload"]
    one = Lab(hops=GAM, mtu=4000, options=options)
    yield one
    one.down()


@pytest.fixture
def host(slow_lab: Lab, tmp_path: Path) -> Iterator[Host]:
    """Returns the first host; both are up."""
    first, second = (Host(slow_lab, name, tmp_path) for name in ("h1", "h2"))
    slow_lab.run("h1", "sh", "-c", 'rm -rf "$CAREFUL_STATE_DIR"')  # of the test before
    first.up()
    second.up()
    yield first
    for one in (first, second):
        one.ctl("down", "eth1", check=False)


def explained(host: Host) -> dict[str, Any]:
    """Returns the only path of `tune explain`."""
    found = json.loads(host.ctl("tune", "explain", "eth1", "--json").stdout)
    (one,) = found["paths"]
    return dict(one)


def once(host: Host) -> dict[str, Any]:
    """Returns the record after a round, or after a few if a busy machine hid the path's times."""
    for _ in range(4):
        host.ctl("tune", "auto", "eth1", "--peer", PEER, "--once")
        path = explained(host)
        if path["decisions"][-1]["what"] != "not measured":
            break
    return path


def decided(path: dict[str, Any]) -> list[str]:
    """Returns the decisions in words, without failed measurements."""
    return [each["what"] for each in path["decisions"] if each["what"] != "not measured"]


def fragment_bytes(host: Host) -> int:
    """Returns the first fragment of the peer's class in the tune map."""
    shown = json.loads(host.ctl("tune", "show", "eth1", "--peer", PEER, "--json").stdout)
    return int(shown["peers"][0]["classes"][CLASS]["plan"]["first_bytes"])


def test_once__measures_changes_says_why_and_draws(host: Host, tmp_path: Path) -> None:
    before = fragment_bytes_of_new_peers(host)
    path = once(host)
    one = path["classes"][CLASS]
    assert fragment_bytes(host) == one["plan"]["first_bytes"] < before
    assert 4 <= -(-4096 // one["plan"]["first_bytes"]) <= 6
    assert one["standing"] == "unverified"
    assert one["ab"]["said"] == "not verified: 0 messages of the 30 that are needed"
    assert one["predicted_low_us"] <= one["predicted_us"] <= one["predicted_high_us"]
    assert one["predicted_us"] < 0.95 * one["one_fragment_us"]
    assert path["measurement"]["frames_count"] > 100
    assert decided(path) == ["changed", "unverified"]
    text = host.ctl("tune", "explain", "eth1").stdout
    assert "not being tuned" in text
    assert "not verified: 0 messages of the 30 that are needed" in " ".join(text.split()), text
    # A second run measures and changes nothing.
    again = once(host)
    assert decided(again)[:2] == ["changed", "unverified"]
    assert "changed" not in decided(again)[2:]
    assert again["measurement"]["elapsed_s"] == path["measurement"]["elapsed_s"]
    # pathchar's hops are kept: GAM's bottleneck is its third stage.
    assert again["hops"] is None
    host.ctl("measure", "pathchar", PEER, "--time", "6s", check=False)
    hops = explained(host)["hops"]
    assert "hop 3" in hops["bottleneck"], hops
    assert "the bottleneck is hop 3" in hops["rests_on"]
    pytest.importorskip("matplotlib")
    host.ctl("tune", "explain", "eth1", "--plot", tmp_path / "path.svg")
    drawn = (tmp_path / "path.svg").read_text()
    for curve in ("one fragment", "fixed 4 KiB", "in effect, predicted"):
        assert curve in drawn


def fragment_bytes_of_new_peers(host: Host) -> int:
    shown = json.loads(host.ctl("tune", "show", "eth1", "--json").stdout)
    return int(shown["peers"][0]["classes"][CLASS]["plan"]["first_bytes"])


READ = """
import careful.files

with careful.files.connect("10.77.0.1") as host:
    print("ready", flush=True)
    while True:
        host.read("file", 0, 4096)
"""


def reader(host: Host) -> None:
    """Makes h2 read 4 KiB from the host again and again while the lab exists."""
    (host.export / "file").write_bytes(bytes(8192))
    job = host.lab.start("h2", sys.executable, "-c", READ)
    assert job.stdout
    assert job.stdout.readline() == "ready\n", job.communicate()[1]


def test_once__verified_on_live_messages(host: Host) -> None:
    """Blocks that h2 reads are cut by both plans in turn; the better plan stays."""
    reader(host)
    path = once(host)
    one = path["classes"][CLASS]
    assert one["standing"] == "verified", [
        (each["at_s"], each["what"], each["why"]) for each in path["decisions"]
    ]
    ab = one["ab"]
    assert min(ab["before_count"], ab["after_count"]) >= 30
    assert 0 < ab["gain_low_us"] <= ab["gain_us"] <= ab["gain_high_us"]
    assert one["measured_us"] == ab["after_us"]
    assert fragment_bytes(host) == one["plan"]["first_bytes"] < 3694
    # Classes without messages have no verdict: next to other work they may keep their plan.
    assert path["classes"][CLASS + 1]["standing"] in ("unverified", "as before")


def test_once__without_a_peer(host: Host) -> None:
    done = host.ctl("tune", "auto", "eth1", "--once", check=False)
    assert done.returncode == 1
    assert "no peer has a session" in done.stderr


def test_by_hand__stays_until_it_is_given_back(host: Host) -> None:
    host.ctl("tune", "set", "eth1", "--class", "4KiB", "--fragment-bytes", "999")
    path = once(host)
    assert fragment_bytes(host) == 999
    assert path["classes"][CLASS]["standing"] == "set by hand"
    assert path["classes"][CLASS - 1]["standing"] == "unverified"
    host.ctl("tune", "set", "eth1", "--auto")
    assert explained(host)["classes"][CLASS]["standing"] == "as before"


def test_auto__one_at_a_time_and_down_ends_it(host: Host) -> None:
    job = host.start("tune", "auto", "eth1", "--peer", PEER)
    wait_for(lambda: host.status()["tuner_pid"] == job.pid, "tuner")
    refused = host.ctl("tune", "auto", "eth1", "--once", check=False)
    assert refused.returncode == 1
    assert f"is tuned already, by process {job.pid}" in refused.stderr
    assert f"tuned by process {job.pid}" in host.ctl("status", "-v", "eth1").stdout
    host.down()
    status, _, errors = finish(job)
    assert status != 0
    assert "Traceback" not in errors
    assert not (RUN / host.lab.instance("h1")).exists()


def test_auto__ctrl_c(host: Host) -> None:
    job = host.start("tune", "auto", "eth1", "--peer", PEER)
    wait_for(lambda: host.status()["tuner_pid"] == job.pid, "tuner")
    job.send_signal(signal.SIGINT)
    status, _, errors = finish(job)
    assert status == 130
    assert errors.splitlines()[-1] == "carefulctl: interrupted"
    assert host.status()["tuner_pid"] is None


@pytest.mark.parametrize("what", ["changed", "unverified"])
def test_auto__killed_and_started_again(host: Host, what: str) -> None:
    """Killed during or after an A/B, the tuner keeps its record; carefuld does not notice."""
    job = host.start("tune", "auto", "eth1", "--peer", PEER)
    kept = RUN / host.lab.instance("h1") / "tuning.json"
    wait_for(lambda: kept.exists() and f'"what": "{what}"' in kept.read_text(), what)
    daemon = host.pid
    job.kill()
    job.wait(60)
    before = json.loads(kept.read_text())["paths"][PEER]
    path = once(host)
    after = json.loads(kept.read_text())["paths"][PEER]
    assert after["measured_at"] == before["measured_at"]
    assert after["changed_at"] == before["changed_at"]
    (changed,) = [one for one in before["decisions"] if one["what"] == "changed"]
    for one in changed["classes"]:
        assert path["classes"][one["class"]]["standing"] == "unverified"
    assert fragment_bytes(host) < 3694
    assert host.pid == daemon
    assert alive(daemon)


def test_up__tune_auto(slow_lab: Lab, tmp_path: Path) -> None:
    """Exactly one tuner runs next to carefuld; `down` ends it and leaves nothing."""
    host = Host(slow_lab, "h1", tmp_path)
    host.up("--tune", "auto")
    try:
        pid = host.status()["tuner_pid"]
        assert pid
        assert alive(pid)
        host.up("--tune", "auto")
        assert host.status()["tuner_pid"] == pid
        # If it is killed, it is started again; carefuld stays.
        daemon = host.pid
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid), "end")
        assert host.status()["tuner_pid"] is None
        host.up("--tune", "auto")
        again = host.status()["tuner_pid"]
        assert again not in (None, pid)
        assert host.pid == daemon
    finally:
        host.down()
    assert not alive(again)
    assert not (RUN / slow_lab.instance("h1")).exists()


def test_up__tune_in_the_configuration(slow_lab: Lab, tmp_path: Path) -> None:
    """The file's `tune` acts like --tune; the tuner also reads that file."""
    host = Host(slow_lab, "h1", tmp_path)
    file = tmp_path / "careful.toml"
    file.write_text(f'[up]\ntune = "auto"\n[state]\ndirectory = "{tmp_path / "kept"}"\n')
    host.up("--config", file)
    try:
        pid = host.status()["tuner_pid"]
        assert pid
        assert f"--config\0{file}\0" in Path(f"/proc/{pid}/cmdline").read_text()
        host.up("--config", file, "--tune", "off", "--reload")
        assert host.status()["tuner_pid"] is None
        host.up("--config", file, "--reload")
        pid = host.status()["tuner_pid"]
        assert f"--config\0{file}\0" in Path(f"/proc/{pid}/cmdline").read_text()
    finally:
        host.down()
    host.up("--config", file, "--tune", "off")
    try:
        assert host.status()["tuner_pid"] is None
    finally:
        host.down()


def test_auto__state_outlives_down(host: Host) -> None:
    """On the same path, its plans are in effect at once, without a change."""
    path = once(host)
    planned = fragment_bytes(host)
    assert planned < 3694
    host.down()
    assert not (RUN / host.lab.instance("h1")).exists()
    host.up()
    assert fragment_bytes_of_new_peers(host) == 3694
    again = once(host)
    assert fragment_bytes(host) == planned
    assert again["measurement"]["elapsed_s"] == path["measurement"]["elapsed_s"]
    assert set(decided(again)[len(decided(path)) :]) <= {"path as before", "nothing to change"}


#: GAM's third stage, with eight times the overhead from some seconds after a reset on.
CHANGE = """
[[stage.link.changes]]
at_s = 15
g_us = 60
G_us_per_KiB = 24.9
"""


#: A busy path hides its times at first; a failed measurement is repeated after 30 s.
BUSY_S = 180


@pytest.mark.timeout(5 * BUSY_S)
def test_auto__follows_a_path_that_changes(make_lab: MakeLab, tmp_path: Path) -> None:
    """4 KiB pass fastest in five fragments; when each costs eight times as much, in two."""
    stages = GAM.read_text().split("[[stage]]")
    stages[3] += CHANGE
    hops = tmp_path / "changing.toml"
    hops.write_text("[[stage]]".join(stages))
    options = ["--scale", "50", "--charge", "payload"]
    lab = make_lab(hops=hops, mtu=4000, options=options)
    first, second = (Host(lab, name, tmp_path) for name in ("h1", "h2"))
    for one in (first, second):
        one.up()
    reader(first)
    kept = RUN / lab.instance("h1") / "tuning.json"
    first.start("tune", "auto", "eth1", "--peer", PEER)

    def decided(what: str) -> bool:
        tool("links", "--name", lab.name, "--reset")  # so that the link does not change yet
        return kept.exists() and f'"what": "{what}"' in kept.read_text()

    try:
        wait_for(lambda: decided("kept"), "change that holds", BUSY_S)
        assert 4 <= -(-4096 // fragment_bytes(first)) <= 6
        wait_for(lambda: '"what": "path changed"' in kept.read_text(), "answer", BUSY_S)
        wait_for(lambda: -(-4096 // fragment_bytes(first)) <= 3, "plan of the other path", BUSY_S)
        wait_for(
            lambda: explained(first)["classes"][CLASS]["standing"] == "verified", "proof", BUSY_S
        )
        assert -(-4096 // fragment_bytes(first)) <= 3
        first.assert_nothing_lost()
    finally:
        for one in (first, second):
            one.ctl("down", "eth1", check=False)


#: The class of 64 KiB messages.
BIG = 10
WRITE = """
import sys
import careful.files

with careful.files.connect("10.77.0.1") as host:
    print("ready", flush=True)
    while True:
        with open(sys.argv[1]) as name:
            host.write(name.read(), bytes(65536), 0, sync=False)
"""


@pytest.mark.timeout(5 * BUSY_S)
def test_auto__a_slow_disk_that_appears(make_lab: MakeLab, tmp_path: Path) -> None:
    """h2 writes to memory first, then to a disk, where large blocks are better."""
    lab = make_lab(hops=GAM, mtu=4000, options=["--scale", "20", "--charge", "payload"])
    first, second = (Host(lab, name, tmp_path) for name in ("h1", "h2"))
    slow, which = first.export / "slow", tmp_path / "which"
    (tmp_path / "backing").mkdir()
    for folder in (first.export, tmp_path / "backing"):
        (folder / "file").write_bytes(bytes(65536))
    slow.mkdir()
    which.write_text("file")
    with slow_disk(3000, 400, slow, tmp_path):
        for one in (first, second):
            one.up()
        try:
            writer = lab.start("h2", sys.executable, "-c", WRITE, str(which))
            assert writer.stdout
            assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
            first.start("tune", "auto", "eth1", "--peer", PEER)
            kept = RUN / lab.instance("h1") / "tuning.json"

            def told(what: str) -> bool:
                return kept.exists() and what in kept.read_text()

            wait_for(lambda: told('"what": "nothing to change"'), "round", BUSY_S)
            assert not explained(first)["stores"]
            which.write_text("slow/file")
            wait_for(lambda: told('"what": "kept"'), "threshold that holds", BUSY_S)
            decided = [each["what"] for each in explained(first)["decisions"]]
            assert "store changed" in decided, decided
            (store,) = explained(first)["stores"]
            assert (store["class"], store["standing"]) == (BIG, "verified")
            assert 0 < store["store_bytes"] < 65536  # more than one write
            assert store["ab"]["gain_low_us"] > 0
            assert "to files" in store["ab"]["measures"]
            # The sender's settings may differ.
            theirs = json.loads(second.ctl("tune", "show", "eth1", "--json").stdout)
            assert theirs["peers"][0]["classes"][BIG]["minpulse_bytes"]["store"] == 65536
            first.assert_nothing_lost()
        finally:
            for one in (first, second):
                one.ctl("down", "eth1", check=False)


OWN = """
import careful

with careful.open("eth1") as node:
    print("ready", flush=True)
    while True:
        node.wait()
"""


def test_auto__of_a_program_is_refused_with_advice(make_lab: MakeLab, tmp_path: Path) -> None:
    """A program's own queue cannot be measured, but plans can be applied to it."""
    lab = make_lab()
    job = lab.start("h1", sys.executable, "-c", OWN)
    assert job.stdout
    assert job.stdout.readline() == "ready\n", job.communicate()[1]
    refused = lab.run("h1", "carefulctl", "tune", "auto", "eth1", check=False)
    assert refused.returncode == 1
    assert f"belongs to process {job.pid}" in refused.stderr
    assert "measure blackbox" in refused.stderr
    plan = tmp_path / "plan.json"
    plan.write_text(
        lab.run("h1", "carefulctl", "plan", "--pipeline", "gam", "--classes", "--json").stdout
    )
    lab.run("h1", "carefulctl", "tune", "apply", "eth1", str(plan))
    shown = json.loads(lab.run("h1", "carefulctl", "tune", "show", "eth1", "--json").stdout)
    planned = json.loads(plan.read_text())["classes"]
    assert [one["plan"] for one in shown["peers"][0]["classes"]] == [one["plan"] for one in planned]
