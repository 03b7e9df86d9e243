"""Concurrent commands, wrong interfaces, and wrong values."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hosts import PINS, RUN, Host, Hosts, alive, finish, wait_for
from lab import Lab


@pytest.fixture
def host(lab: Lab, tmp_path: Path) -> Iterator[Host]:
    """Returns the first host of a lab, with nothing up."""
    one = Host(lab, "h1", tmp_path)
    yield one
    one.ctl("down", "eth1", check=False)


@pytest.fixture(scope="module")
def up(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Returns the second host, up, for tests that do not change it."""
    one = Host(lab, "h2", tmp_path_factory.mktemp("up"))
    one.up()
    yield one
    one.down()


def refused(host: Host, *args: str | Path, status: int = 1) -> str:
    """Checks that a command fails with one line and no traceback. Returns the line."""
    done = host.ctl(*args, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# --- one at a time


def waits_for(path: Path, job: subprocess.Popen[str]) -> bool:
    """Reports whether a process waits for the lock on a file."""
    where = path.stat()
    file = f"{os.major(where.st_dev):02x}:{os.minor(where.st_dev):02x}:{where.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "->" in words and str(job.pid) in words and file in words:
            return True
    return False


@pytest.mark.parametrize("command", ["up", "down"])
def test_command__waits_for_the_one_before(host: Host, command: str) -> None:
    """An instance that another command makes or removes is neither removed nor trusted."""
    if command == "down":
        host.up()
    instance = host.lab.instance("h1")
    lock = RUN / f".{instance}.changing"
    RUN.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        job = host.start(command, "eth1")
        wait_for(lambda: job.poll() is not None or waits_for(lock, job), "lock")
        assert job.poll() is None
        assert (PINS / instance).exists() == (command == "down")
        lock.unlink()
    status, _, errors = finish(job)
    assert status == 0, errors
    assert (PINS / instance).exists() == (command == "up")
    assert not lock.exists()


def test_up__several_at_once(host: Host) -> None:
    jobs = [host.start("up", "eth1") for _ in range(4)]
    ended = [finish(job) for job in jobs]
    assert [status for status, _, _ in ended] == [0, 0, 0, 0], ended
    assert sum("is already up" in said for _, said, _ in ended) == 3
    assert host.status()["pid"] == host.pid
    jobs = [host.start("down", "eth1") for _ in range(3)]
    assert [finish(job)[0] for job in jobs] == [0, 0, 0]
    assert not (PINS / host.lab.instance("h1")).exists()
    assert not (RUN / host.lab.instance("h1")).exists()


# --- which interface, which directory


@pytest.mark.parametrize(
    "command", [("down",), ("status",), ("tune", "show"), ("doctor",)], ids=lambda c: c[0]
)
def test_instance__is_on_another_interface(up: Host, command: tuple[str, ...]) -> None:
    """CAREFUL_INSTANCE names the instance on eth1: a command for another interface refuses it."""
    pid = up.pid
    up.lab.run("h2", "ip", "link", "add", "eth7", "type", "veth")
    try:
        for name in ("eth7", "eth8"):
            said = refused(up, *command, name)
            assert name in said
    finally:
        up.lab.run("h2", "ip", "link", "del", "eth7")
    assert alive(pid)
    assert up.status()["pid"] == pid


def test_instance__by_another_name_of_its_interface(up: Host) -> None:
    up.lab.run("h2", "ip", "link", "property", "add", "dev", "eth1", "altname", "lossless0")
    try:
        assert str(up.pid) in up.ctl("status", "-v", "lossless0").stdout
        unnamed = ("env", "-u", "CAREFUL_INSTANCE", "carefulctl")
        assert str(up.pid) in up.lab.run("h2", *unnamed, "status", "-v", "lossless0").stdout
        options = ("--export", f"{up.export}:rw,owners,devices", "--insecure", "--reload")
        up.ctl("up", "lossless0", *options)
    finally:
        up.lab.run("h2", "ip", "link", "property", "del", "dev", "eth1", "altname", "lossless0")


@pytest.mark.parametrize("export", ["", ":rw", "/nowhere", "/etc/hostname:rw"])
def test_up__export_is_no_directory(host: Host, export: str) -> None:
    assert "--export" in refused(host, "up", "eth1", "--export", export)
    assert not (PINS / host.lab.instance("h1")).exists()


# --- values


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        ([], "nothing to set", 2),
        (["--fragment-bytes", "0"], "from 1", 2),
        (["--fragment-bytes", "-1"], "from 1", 2),
        (["--fragment-bytes", "4294967296"], "4294967295", 2),
        (["--minpulse-bytes", "4294967296"], "4294967295", 2),
        (["--fragment-bytes", "64", "--peer", "nowhere.invalid"], "nowhere.invalid", 1),
        (["--fragment-bytes", "64", "--peer", "10.77.0.9"], "no session", 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_tune__value_is_refused(up: Host, words: list[str], said: str, status: int) -> None:
    before = up.ctl("tune", "show", "eth1").stdout
    assert said in refused(up, "tune", "set", "eth1", *words, status=status)
    assert up.ctl("tune", "show", "eth1").stdout == before


@pytest.mark.parametrize("sink", ["store", "host_tx", "host_rx"])
def test_tune__minpulse_of_one_class(up: Host, sink: str) -> None:
    up.ctl("tune", "set", "eth1", "--minpulse-bytes", "77", "--class", "8KiB", "--sink", sink)
    shown = json.loads(up.ctl("tune", "show", "eth1", "--json").stdout)["peers"][0]["classes"]
    assert [one["class"] for one in shown if one["minpulse_bytes"][sink] == 77] == [7]
    assert all(one["minpulse_bytes"]["net_tx"] != 77 for one in shown)


def test_tune__watched(up: Host) -> None:
    up.ctl("tune", "set", "eth1", "--fragment-bytes", "300")
    job = up.start("tune", "show", "eth1", "--watch", "--json")
    out = job.stdout
    assert out is not None

    def first_bytes() -> int:
        text = ""
        while not text.endswith("\n}\n"):
            text += out.readline()
        return int(json.loads(text)["peers"][0]["classes"][0]["plan"]["first_bytes"])

    assert first_bytes() == 300
    up.ctl("tune", "set", "eth1", "--fragment-bytes", "400")
    assert first_bytes() == 400
    job.send_signal(signal.SIGINT)
    assert job.wait(60) == 130


def test_tune__kept_and_applied(up: Host, tmp_path: Path) -> None:
    """The output of `tune show` restores the settings; the output of `plan` sets them."""
    kept = tmp_path / "kept.json"
    before = up.ctl("tune", "show", "eth1", "--json").stdout
    kept.write_text(before)
    plan = tmp_path / "plan.json"
    plan.write_text(up.ctl("plan", "--pipeline", "gam", "--classes", "--json").stdout)
    up.ctl("tune", "apply", "eth1", plan)
    shown = json.loads(up.ctl("tune", "show", "eth1", "--json").stdout)["peers"][0]["classes"]
    planned = json.loads(plan.read_text())["classes"]
    assert [one["plan"] for one in shown] == [one["plan"] for one in planned]
    up.ctl("tune", "apply", "eth1", kept)
    assert up.ctl("tune", "show", "eth1", "--json").stdout == before


def test_tune__file_is_wrong(up: Host, tmp_path: Path) -> None:
    before = up.ctl("tune", "show", "eth1").stdout
    wrong = tmp_path / "wrong.json"
    for content, lines in ((b"[]", "no classes"), (b"\xff", "not JSON")):
        wrong.write_bytes(content)
        errors = refused(up, "tune", "apply", "eth1", wrong)
        assert str(wrong) in errors
        assert lines in errors
    assert up.ctl("tune", "show", "eth1").stdout == before


def test_tune__value_is_none(up: Host) -> None:
    for words in (["--fragment-bytes", "x"], ["--class", "many", "--fragment-bytes", "64"]):
        said = refused(up, "tune", "set", "eth1", *words, status=2)
        assert said.endswith("(see `carefulctl tune set --help`)\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[nodes\n", "line 1"),
        ("bogus = 1\n", "bogus"),
        ("[nodes]\nh2 = 5\n", "[nodes]"),
        ("[up]\npeers = 'many'\n", "peers"),
        ("[up]\npeers = true\n", "peers"),
        ("[up]\nxdp = 'fast'\n", "auto"),
        ("[up]\nexport = '/srv'\n", "export"),
        ("[up]\npears = 4\n", "pears"),
        ("[instance]\nx = 1\n", "[instance] x = 1: which instance?"),
        ("\udcff", "UTF-8"),
    ],
)
def test_config__is_wrong(up: Host, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "careful.toml"
    path.write_text(text, errors="surrogateescape")
    errors = refused(up, "ls", "--config", path, "h2:")
    assert str(path) in errors
    assert said in errors


def test_config__is_missing_or_a_directory(up: Host, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        assert str(path) in refused(up, "ls", "--config", path, "h2:")


def test_config__gives_the_options_of_up(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "careful.toml"
    instance = host.lab.instance("h1")
    path.write_text(
        f'[up]\npeers = 4\nwait = "block"\nexport = ["{tmp_path}"]\n'
        f'[instance."{instance}"]\npeers = 16\nrx_buffers = 256\n'
    )
    host.ctl("up", "eth1", "--config", path, "--rx-buffers", "128")
    found = host.status()
    assert found["peers_max"] == 16  # the instance's value precedes that of all
    assert found["wait"] == "block"
    assert found["receive_buffers"] == 128  # the command line precedes all


def test_up__peers_call_a_host_by_its_hostname(hosts: Hosts) -> None:
    """All hosts of a rack were called eth1 once, as their instances are named by default."""
    made = hosts()
    names = [f"{one.name}if{os.getpid()}" for one in made]
    ip = partial(made[0].lab.run, "h1", "ip")
    ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
    ip("link", "set", names[1], "netns", made[0].lab.netns("h2").name)
    for number, (host, name) in enumerate(zip(made, names, strict=True), 1):
        host.lab.run(host.name, "ip", "addr", "add", f"10.78.0.{number}/24", "dev", name)
        host.lab.run(host.name, "ip", "link", "set", name, "up")
    try:
        made[0].ctl("up", names[0], "--instance", names[0])
        made[1].ctl("up", names[1], "--instance", names[1], "--name", "another")
        made[0].ctl("ping", "10.78.0.2", "-c", "1", "--instance", names[0])
        seen = [
            json.loads(host.ctl("status", "--json", name, "--instance", name).stdout)
            for host, name in zip(made, names, strict=True)
        ]
        called = [one["instances"][0]["peers"][0]["name"] for one in seen]
        assert called == ["another", socket.gethostname()[:31]]
    finally:
        for host, name in zip(made, names, strict=True):
            host.ctl("down", name, "--instance", name, check=False)
