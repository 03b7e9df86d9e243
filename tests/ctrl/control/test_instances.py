"""Running instances: the directories under /run/careful, and remains of a killed carefuld."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from careful.cli.main import run
from careful.control.carefuld import daemon, tuner
from careful.control.checks import doctor
from careful.control.instance import choice, exporter, instances
from careful.control.options.config import Config
from careful.daemon.client import Client
from careful.errors import CarefulError


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a /run/careful with a killed carefuld and one that ended cleanly."""
    monkeypatch.setattr(instances, "RUN", tmp_path)
    monkeypatch.delenv("CAREFUL_INSTANCE", raising=False)
    for name in ("eth1", "eth2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").touch()
    (tmp_path / "eth1" / "pid").write_text("4711\n")
    return tmp_path


def test_status__names_the_carefuld_that_died(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command once said only that careful is not up, without the log's place."""
    text = f"carefuld died (process 4711, log {killed}/eth1/log)"
    assert run(["status"]) == 3
    assert capsys.readouterr().out == f"careful is not up\n\ninstance eth1: {text}\n"
    assert run(["status", "--instance", "eth1"]) == 1
    assert capsys.readouterr().err == f"carefulctl: instance eth1: {text}: carefulctl up IFACE\n"
    assert run(["status", "--instance", "eth2"]) == 1
    assert "instance eth2: careful is not up: carefulctl up" in capsys.readouterr().err
    assert run(["status", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["died"] == {"eth1": text}


def test_died__a_running_instance_has_not_died(killed: Path) -> None:
    with (killed / "eth1" / "pid").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert instances.died() == {}
    assert list(instances.died()) == ["eth1"]


@pytest.mark.parametrize(
    ("terminal", "no_color", "red"),
    [(True, "", True), (True, "1", False), (False, "", False)],
)
def test_status__faults_are_red_only_on_a_terminal(
    terminal: bool, no_color: str, red: bool, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pty.openpty() if terminal else os.pipe()
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("NO_COLOR", no_color)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert run(["status"]) == 3
        stream.flush()
        text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert ("\x1b[1;31mdied\x1b[0m" in text) == red
    assert ("\x1b" in text) == red
    assert "died" in text


def test_ifname_now__by_the_number_in_the_lock(killed: Path) -> None:
    """The interface may have been renamed since `up`."""
    assert instances.ifname_now("eth1", "eth1") == "eth1"
    (killed / "eth1.lock").write_text(f"4711 {socket.if_nametoindex('lo')}\n")
    assert instances.ifname_now("eth1", "eth1") == "lo"
    (killed / "eth1.lock").write_text("4711 2147483000\n")  # gone
    assert instances.ifname_now("eth1", "eth1") == "eth1"


@pytest.fixture
def renamed(killed: Path) -> Iterator[Path]:
    """Instance eth1 runs on an interface that was renamed to lo."""
    with (killed / "eth1" / "pid").open("w") as pid:
        pid.write(f"{os.getpid()}\n")
        pid.flush()
        fcntl.flock(pid, fcntl.LOCK_EX)
        (killed / "eth1" / "options").write_text(f"{os.getpid()}\0--ifname\0eth1")
        (killed / "eth1.lock").write_text(f"{os.getpid()} {socket.if_nametoindex('lo')}\n")
        with (killed / "eth1.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield killed


def test_on_interface__renamed_since(renamed: Path) -> None:
    """`down` once said that careful was not up on it, and `up` that it was."""
    assert instances.find("eth1").ifname == "lo"
    assert choice.on_interface("lo", None).name == "eth1"
    assert choice.on_interface("lo", "eth1").pid == os.getpid()
    assert choice.on_interface("eth1", None).name == "eth1"  # an instance has this name
    (renamed / "eth1.lock").unlink()
    (renamed / "eth1.lock").write_text("1 1\n")  # a dead process's
    assert instances.find("eth1").ifname == "eth1"


@pytest.mark.parametrize("words", ["--ifn\0eth1", "--if=eth1", "--ifname=eth1"])
def test_find__an_interface_as_getopt_reads_it(renamed: Path, words: str) -> None:
    (renamed / "eth1.lock").unlink()
    (renamed / "eth1" / "options").write_text(f"{os.getpid()}\0--log\0x\0{words}")
    assert instances.find("eth1").ifname == "eth1"


@pytest.mark.parametrize("words", ["--instance\0x", "--i=x", "--insecure", "--ifname"])
def test_find__the_interface_is_unknown(renamed: Path, words: str) -> None:
    (renamed / "eth1.lock").unlink()
    (renamed / "eth1" / "options").write_text(f"{os.getpid()}\0{words}")
    assert instances.find("eth1").ifname == ""


def test_start__the_tuner_writes_a_log_that_others_cannot_read(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = killed / "eth1" / "tuning.log"
    log.touch(0o666)
    monkeypatch.setattr(tuner.sys, "executable", "/bin/false")
    before = os.umask(0)
    try:
        with pytest.raises(CarefulError, match="tune auto ended"):
            tuner.start("eth1", instances.Instance("eth1"))
    finally:
        os.umask(before)
    assert log.stat().st_mode & 0o777 == 0o640


def test_on_interface__in_another_network_namespace(
    renamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`down eth1` once ended the carefuld of another host's eth1."""
    monkeypatch.setattr(instances, "_is_here", lambda _: False)
    assert instances.find("eth1").ifname == "eth1"
    with pytest.raises(CarefulError, match=r"not up here: .*to choose it: --instance eth1$"):
        choice.on_interface("eth1", None)
    assert choice.on_interface("eth1", "eth1").pid == os.getpid()


def test_find__the_lock_names_the_owner(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pid in the file belongs to another PID namespace, and once named a process of ours."""
    with (killed / "eth1" / "pid").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert instances.find("eth1").pid == os.getpid()  # the file says 4711
        monkeypatch.setattr(instances, "LOCKS", killed / "empty")
        (killed / "empty").touch()
        assert instances.find("eth1").pid == instances.UNSEEN
        with pytest.raises(CarefulError, match="another PID namespace; run this command there"):
            instances.must_be_seen("eth1", instances.find("eth1").pid)


def test_find__a_lock_that_the_first_read_missed(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long list is read in pieces, and a line moves if another process unlocks meanwhile."""
    reads: list[str] = []

    def read_text() -> str:
        reads.append("" if not reads else Path("/proc/locks").read_text())
        return reads[-1]

    monkeypatch.setattr(instances, "LOCKS", SimpleNamespace(read_text=read_text))
    with (killed / "eth1" / "pid").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert instances.find("eth1").pid == os.getpid()
    assert len(reads) >= 2


def test_started__waits_for_a_starting_instance(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting carefuld has its queue some seconds before its pid file; it is not a foreign
    program.
    """
    with (killed / "eth1.lock").open("w") as lock, (killed / "eth1" / "pid").open("w") as pid:
        lock.write(f"{os.getpid()} 1\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(pid, fcntl.LOCK_EX)
        assert daemon._started("eth1").pid == 0  # this process is no carefuld
        monkeypatch.setattr(instances, "need_root", lambda _: None)
        other = rf"by process {os.getpid()} \(not a carefuld\); end it"
        with pytest.raises(CarefulError, match=other):
            daemon.down("eth1", "eth1")
        monkeypatch.setattr(daemon, "_is_carefuld", lambda one: one == os.getpid())
        with monkeypatch.context() as late:
            late.setattr(daemon, "START_S", 0)
            with pytest.raises(CarefulError, match="a carefuld that does not serve"):
                daemon.down("eth1", "eth1")

        def serves(_: float) -> None:
            pid.write(f"{os.getpid()}\n")
            pid.flush()

        monkeypatch.setattr(daemon.time, "sleep", serves)
        assert daemon._started("eth1").pid == os.getpid()


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of an instance that systemd is starting."""
    monkeypatch.setattr(instances, "RUN", tmp_path)
    monkeypatch.delenv("CAREFUL_INSTANCE", raising=False)
    monkeypatch.setattr(instances, "need_root", lambda _: None)
    (tmp_path / "lo").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.bind(str(tmp_path / "lo" / "sock"))
        one.listen(8)
        yield one


STARTING = "systemd is starting it (systemctl status carefuld@lo)"


def test_starting__is_reported_at_once(
    listening: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection succeeds without an answer: only client commands wait."""
    assert run(["status"]) == 3
    assert f"instance lo: {STARTING}\n" in capsys.readouterr().out
    assert run(["status", "lo"]) == 1
    assert capsys.readouterr().err == f"carefulctl: lo: {STARTING}\n"
    (seen,) = exporter.look(None, None, Config())
    assert (seen.name, seen.found) == ("lo", None)
    for command in ("up", "down"):
        assert run([command, "lo"]) == 1
        text = f"carefulctl: instance lo: {STARTING}; first: systemctl stop carefuld@lo\n"
        assert capsys.readouterr().err == text
    listening.close()
    assert run(["status", "lo"]) == 1
    assert "lo: careful is not up: carefulctl up lo" in capsys.readouterr().err


def test_starting__looks_take_no_place_in_line(listening: socket.socket) -> None:
    """Each check once left a connection, until no client found room to wait."""
    instance = instances.find("lo")
    for _ in range(100):
        assert instances.starting(instance) == STARTING
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        listening.accept()
    with Client(instance.socket):
        listening.accept()[0].close()


def test_starting__many_wait_already(
    listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance does not count as a dead carefuld, and a command still waits."""
    monkeypatch.setattr(instances, "START_S", 0.3)
    listening.listen(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(str(tmp_path / "lo" / "sock"))
        assert instances.starting(instances.find("lo")) == STARTING
        with pytest.raises(
            CarefulError, match=r"instance lo: not up after 0 s: systemd is starting it"
        ):
            choice.choose("lo")


def test_starting__a_leftover_socket_is_no_starting_instance(
    listening: socket.socket, tmp_path: Path
) -> None:
    """A killed carefuld leaves such a socket, also while clients have connections."""
    path = tmp_path / "lo" / "sock"
    with Client(path), listening.accept()[0], Client(path):
        listening.close()
        assert path.is_socket()
        assert instances.starting(instances.find("lo")) == ""


def test_doctor__an_instance_that_systemd_is_starting(listening: socket.socket) -> None:
    def found() -> tuple[str, str]:
        (one,) = [one for one in doctor.check("lo", None) if one.check == "instance"]
        return one.state, one.text

    assert found() == ("fail", f"lo: {STARTING}")
    listening.close()
    assert found()[0] == "warn"


def test_clear__leaves_a_socket_that_systemd_keeps(
    listening: socket.socket, tmp_path: Path
) -> None:
    """The socket of a killed carefuld no longer listens, and is removed."""
    for name in ("pid", "options"):
        (tmp_path / "lo" / name).touch()
    assert daemon.down("lo", "lo", dead=True).cleared.files == 2
    assert [path.name for path in (tmp_path / "lo").iterdir()] == ["sock"]
    listening.close()
    assert daemon.down("lo", "lo", dead=True).cleared.files == 1
    assert not (tmp_path / "lo").exists()


@pytest.mark.parametrize("name", [None, "lo"])
def test_choose__waits_for_an_instance_that_systemd_is_starting(
    name: str | None, listening: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each restart the instance was once "not up" for a second."""
    with (tmp_path / "lo" / "pid").open("w") as pid:
        fcntl.flock(pid, fcntl.LOCK_EX)

        def serves() -> None:
            pid.write(f"{os.getpid()}\n")
            pid.flush()

        timer = threading.Timer(0.5, serves)
        timer.start()
        assert choice.choose(name).pid == os.getpid()
        timer.join()
    ends = threading.Timer(0.5, listening.close)  # systemd has given up
    ends.start()
    with pytest.raises(CarefulError, match=r"careful is not up|carefuld died"):
        choice.choose(name)
    ends.join()


def test_choose__does_not_wait_for_ever(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "START_S", 0.3)
    with pytest.raises(
        CarefulError, match=r"instance lo: not up after 0 s: systemd is starting it"
    ):
        choice.choose(None)


def test_choose__counts_an_instance_that_systemd_is_starting(
    listening: socket.socket, renamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another instance would be asked for hosts that it does not reach."""
    (renamed / "lo").mkdir(exist_ok=True)
    with pytest.raises(CarefulError, match=r"several instances run: eth1 \(lo\), lo \(lo\)"):
        choice.choose(None)
