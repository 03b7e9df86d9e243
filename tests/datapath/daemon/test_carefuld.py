"""carefuld as a process: its start, its refusals, and what it leaves behind."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi, lib
from careful.daemon.client import Client
from careful.errors import CarefulError
from hosts import alive, wait_for
from lab import Lab, nobody

PINS = Path("/sys/fs/bpf/careful")


class Daemon:
    """A carefuld on a host of a lab."""

    def __init__(self, lab: Lab, host: str, run: Path) -> None:
        self.lab, self.host, self.run = lab, host, run
        self.pins = PINS / lab.instance(host)

    def argv(self, *options: str | Path) -> list[str | Path]:
        where = ["--instance", self.lab.instance(self.host), "--run-dir", self.run]
        return ["carefuld", "--ifname", "eth1", *where, *options]

    def start(self, *options: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.lab.run(self.host, *self.argv(*options), check=check)

    @property
    def pid(self) -> int:
        return int((self.run / "pid").read_text())

    @property
    def log(self) -> str:
        return (self.run / "log").read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        pid = self.pid
        os.kill(pid, how)
        wait_for(lambda: not alive(pid), "the end of carefuld")

    def qdisc(self) -> str:
        return self.lab.run(self.host, "tc", "qdisc", "show", "dev", "eth1").stdout


@pytest.fixture
def daemon(lab: Lab, tmp_path: Path) -> Iterator[Daemon]:
    one = Daemon(lab, "h1", tmp_path / "run")
    yield one
    if (one.run / "pid").exists() and alive(one.pid):
        one.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--ifname is missing"),
        (["--ifname"], "--ifname needs a value"),
        (["--ifname", "eth1", "--peers", "0"], "--peers 0: must be a number from 1 to 256"),
        (["--ifname", "eth1", "--peers", "8x"], "--peers 8x"),
        (["--ifname", "eth1", "--xdp", "fast"], "auto, native, generic"),
        (["--ifname", "eth1", "--wait", "no"], "adaptive, spin, block"),
        (["--ifname", "eth1", "--instance", "a/b"], "--instance a/b"),
        (["--ifname", "eth1", "--export", ":rw"], "no directory is given"),
        (["--ifname", "eth1", "--export", "/a:rw,owner"], "'owner' is not an option of"),
        (["--ifname", "eth1", "--export", "/tmp:rw"], "make keys (carefulctl key new), or add"),
        (["--ifname", "eth1", "--export", "/a:ro,owners"], "'owners' is not an option of"),
        (["--ifname", "eth1", "--export", "/a:rw,host=h1"], "h1 is not the address of a host"),
        (["--ifname", "eth1", "--bad"], "unknown option --bad (see carefuld --help)"),
        (["--ifname", "eth1", "--bad=1"], "unknown option --bad=1"),
        (["--ifname", "eth1", "-x"], "unknown option -x"),
        (["--foreground=yes", "--ifname", "eth1"], "--foreground takes no value"),
        (["--ifname", "eth1", "more"], "unexpected argument more"),
    ],
)
def test_options__one_line_and_status_2(options: list[str], said: str) -> None:
    done = subprocess.run(["carefuld", *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_options__help_and_version() -> None:
    done = subprocess.run(["carefuld", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage:")
    done = subprocess.run(["carefuld", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("carefuld ")


def test_start__ready_and_clean_end(daemon: Daemon) -> None:
    daemon.start("--export", "/usr/share")
    assert (daemon.run / "sock").stat().st_mode & 0o777 == 0o600
    assert daemon.pins.is_dir()
    assert "pfifo" in daemon.qdisc()
    assert "export /usr/share" in daemon.log
    daemon.stop()
    assert not daemon.pins.exists()
    assert "pfifo" not in daemon.qdisc()
    assert sorted(p.name for p in daemon.run.iterdir()) == ["log"]
    assert daemon.log.endswith("ended\n")


_CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4,
    "NET_ADMIN": 12, "SYS_ADMIN": 21, "SETFCAP": 31,
}  # fmt: skip
_READ = {"NET_ADMIN", "DAC_READ_SEARCH"}
_WRITE = _READ | {"DAC_OVERRIDE", "FOWNER"}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (None, {"NET_ADMIN"}),
        ("", _READ),
        (":rw", _WRITE),
        (":rw,owners", _WRITE | {"CHOWN", "FSETID", "SETFCAP", "SYS_ADMIN"}),
    ],
)
def test_start__keeps_the_capabilities_that_it_uses(
    daemon: Daemon, tmp_path: Path, words: str | None, kept: set[str]
) -> None:
    """Every thread keeps only these. CAP_FSETID is not in effect until a mode is set."""
    exports = [] if words is None else ["--export", f"{tmp_path}{words}"]
    daemon.start("--insecure", *exports)
    tasks = list(Path(f"/proc/{daemon.pid}/task").iterdir())
    assert words is None or len(tasks) > 2  # the block server's workers among them
    most = sum(1 << _CAPABILITIES[one] for one in kept)
    both = (most & ~(1 << _CAPABILITIES["FSETID"]), most)

    def effective_and_permitted() -> set[tuple[int, int]]:
        sets = set()
        for task in tasks:
            lines = (task / "status").read_text().splitlines()
            found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            mine = [int(found[f"Cap{which}"], 16) for which in ("Eff", "Prm", "Inh", "Amb")]
            assert mine[2] == mine[3] == 0
            assert found["NoNewPrivs"] == "1"
            assert found["Seccomp"] == "2"  # by a filter, which test_syscalls.c tests
            sets.add((mine[0], mine[1]))
        return sets

    # xsk_grace.c's thread is older than the drop, and drops its own when it first runs.
    wait_for(lambda: effective_and_permitted() <= {both, (0, 0)}, "threads that dropped the rest")
    assert both in effective_and_permitted()
    daemon.stop()
    assert "pfifo" not in daemon.qdisc()


def test_start__foreground_ready_fd_and_interrupt(daemon: Daemon) -> None:
    read, write = os.pipe()
    argv = daemon.lab.argv("h1", *daemon.argv("--foreground", "--ready-fd", str(write)))
    process = subprocess.Popen(argv, pass_fds=[write], stderr=subprocess.PIPE, text=True)
    os.close(write)
    with os.fdopen(read) as ready:
        assert ready.read() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.endswith("ended\n")
    assert not daemon.run.exists()


class Manager:
    """Collects what a service manager receives."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.settimeout(60)
        self.env = {**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}

    def hears(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def close(self) -> None:
        self._socket.close()


def test_start__reports_readiness_to_a_service_manager(daemon: Daemon, tmp_path: Path) -> None:
    """carefuld reports that it serves, its settings, its watchdog's signs, and its end."""
    manager = Manager(str(tmp_path / "notify"))
    process = daemon.lab.start("h1", *daemon.argv("--foreground"), env=manager.env)
    first = manager.hears()
    assert first["READY"] == "1"
    assert re.fullmatch(r"eth1: XDP \w+, copy, window \d+, 0 of 8 peers up", first["STATUS"])
    assert manager.hears() == {"WATCHDOG": "1"}  # nothing has changed
    assert (daemon.run / "sock").exists()
    process.send_signal(signal.SIGTERM)
    while (said := manager.hears()) == {"WATCHDOG": "1"}:
        pass
    assert said == {"STOPPING": "1"}
    assert process.wait(60) == 0
    manager.close()


def test_start__reports_a_failure_to_a_service_manager(daemon: Daemon, tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    argv = daemon.argv("--foreground", "--require-zerocopy")
    done = daemon.lab.run("h1", *argv, check=False, env=manager.env)
    assert done.returncode == 1
    said = manager.hears()
    assert f"carefuld: {said['STATUS']}\n" == done.stderr
    assert int(said["ERRNO"]) > 0
    manager.close()


class Passed:
    """carefuld as systemd starts it: descriptor 3 is a socket that systemd keeps."""

    def __init__(self, daemon: Daemon, manager: Manager) -> None:
        self._daemon, self._manager = daemon, manager
        self._env = {**manager.env, "LISTEN_FDS": "1"}

    def argv(self, fd: int, *options: str, pid: str = "$$") -> list[str | Path]:
        script = f'LISTEN_PID={pid} exec "$@" 3<&{fd} {fd}<&-'
        return ["bash", "-c", script, "bash", *self._daemon.argv("--foreground", *options)]

    def start(self, one: socket.socket, *options: str) -> subprocess.Popen[Any]:
        """Starts carefuld; returns once it serves."""
        argv = self.argv(one.fileno(), *options)
        fds = [one.fileno()]
        process = self._daemon.lab.start("h1", *argv, env=self._env, pass_fds=fds)
        said = {"WATCHDOG": "1"}  # from an earlier process
        while said == {"WATCHDOG": "1"} or "STOPPING" in said:
            said = self._manager.hears()
        assert said["READY"] == "1", said
        return process

    def refused(self, one: socket.socket, **env: str) -> str:
        argv, fds = self.argv(one.fileno()), [one.fileno()]
        more = {"env": {**self._env, **env}, "pass_fds": fds}
        done = self._daemon.lab.run("h1", *argv, check=False, **more)
        assert done.returncode == 1
        assert f"carefuld: {self._manager.hears()['STATUS']}\n" == done.stderr
        return done.stderr


@pytest.fixture
def passed(daemon: Daemon, tmp_path: Path) -> Iterator[Passed]:
    daemon.run.mkdir()
    manager = Manager(str(tmp_path / "notify"))
    yield Passed(daemon, manager)
    manager.close()


def listening(path: Path, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, kind)
    one.bind(str(path))
    path.chmod(0o666)
    one.listen(8)
    return one


def test_passed__clients_wait_during_a_restart(daemon: Daemon, passed: Passed) -> None:
    """Clients were once refused, since the socket was carefuld's own. The socket's group is that of
    the last start.
    """
    with listening(daemon.run / "sock") as one:
        first = passed.start(one, "--group", "bin")
        path = daemon.run / "sock"
        assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o660, 2)
        assert Client(path).info().device.ifname
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
        assert [path.name for path in daemon.run.iterdir()] == ["sock"]
        waiting = Client(path)
        asked: list[Any] = []
        waiting.submit(lib.CAREFUL_IPC_INFO, asked.append)
        second = passed.start(one)
        assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o600, 0)
        assert daemon.run.stat().st_gid == 0
        while not asked:
            waiting.receive()
        assert asked[0].status == 0
        second.send_signal(signal.SIGKILL)  # nor does a death close it
        second.wait(60)
        assert Client(path).in_flight == 0
        third = passed.start(one)
        third.send_signal(signal.SIGTERM)
        third.wait(60)


def test_passed__only_a_socket_that_clients_reach(
    daemon: Daemon, passed: Passed, tmp_path: Path
) -> None:
    path = daemon.run / "sock"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        assert "descriptor 3 is not a Unix socket" in passed.refused(one)
    with listening(tmp_path / "stream", socket.SOCK_STREAM) as one:
        assert "descriptor 3 is not a socket of type SOCK_SEQPACKET" in passed.refused(one)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        assert "descriptor 3 is not a listening socket" in passed.refused(one)
    with (tmp_path / "file").open("w") as file:
        assert "descriptor 3: Socket operation on non-socket" in passed.refused(file)
    with listening(tmp_path / "elsewhere") as one:
        wrong = f"descriptor 3 is not the socket {path}\n"
        assert wrong in passed.refused(one)
        path.symlink_to(tmp_path / "elsewhere")
        assert wrong in passed.refused(one)
        path.unlink()
    with listening(path) as one:
        path.rename(tmp_path / "moved")
        with listening(path):
            assert wrong in passed.refused(one)
            assert "LISTEN_FDS=2: carefuld accepts only one socket" in passed.refused(
                one, LISTEN_FDS="2"
            )
            assert "LISTEN_FDS=1x: carefuld" in passed.refused(one, LISTEN_FDS="1x")
        assert [path.name for path in daemon.run.iterdir()] == ["sock"]
    assert not daemon.pins.exists()


def test_passed__belongs_to_the_first_of_several_queues(make_lab: Any, tmp_path: Path) -> None:
    """The other queues make their own sockets, and do not keep the passed one open."""
    daemon = Daemon(make_lab(queues=(2, 2)), "h1", tmp_path / "run")
    daemon.run.mkdir()
    manager = Manager(str(tmp_path / "notify"))
    other = tmp_path / "run+1"
    with listening(daemon.run / "sock") as one:
        process = Passed(daemon, manager).start(one, "--queues", "2")
        inode = os.fstat(one.fileno()).st_ino
        for path, has in ((daemon.run, True), (other, False)):
            fds = Path(f"/proc/{int((path / 'pid').read_text())}/fd")
            assert (f"socket:[{inode}]" in map(os.readlink, fds.iterdir())) == has
        assert [Client(path / "sock").info().device.queue for path in (daemon.run, other)] == [0, 1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        wait_for(lambda: not (other / "sock").exists(), "the end of the other queue")
        assert (daemon.run / "sock").exists()
    manager.close()


def test_passed__to_another_process(daemon: Daemon, passed: Passed) -> None:
    """The variables were for the parent process, so carefuld makes its own socket."""
    with listening(daemon.run / "sock") as one:
        argv = passed.argv(one.fileno(), pid="1")
        process = daemon.lab.start("h1", *argv, env=passed._env, pass_fds=[one.fileno()])
        while passed._manager.hears().get("READY") != "1":
            pass
        assert (daemon.run / "sock").stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert list(daemon.run.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ifname", "nope"], "nope"),
        (["--export", "/proc/nonexistent"], "export /proc/nonexistent: No such file"),
        (["--export", "/etc/passwd"], "export /etc/passwd: Not a directory"),
        (["--export", "/usr/share", "--export", "/var/lib/../../usr/share"], 'called "share"'),
        (["--peers", "256"], "peers"),
        (["--cpu", "4000"], "--cpu 4000"),
        (["--queue", "63"], "queue"),
        (["--require-zerocopy"], "zero"),
        (["--tx-buffers", "100"], "--tx-buffers: 100 must be a power of two"),
        (
            ["--seal", ",".join(f"auth@10.0.0.{i}" for i in range(100))],
            "--seal: needs keys: carefulctl key new",
        ),
        (["--log", "/proc/nonexistent/log"], "/proc/nonexistent/log: No such file"),
    ],
)
def test_start__failure_is_one_line(daemon: Daemon, options: list[str], said: str) -> None:
    done = daemon.start(*options, check=False)
    assert done.returncode == 1
    assert said in done.stderr.lower() if said == said.lower() else said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("carefuld: ")
    assert not daemon.pins.exists()
    assert not daemon.run.exists()
    # --ready-fd gets the same line.
    read, write = os.pipe()
    argv = daemon.lab.argv("h1", *daemon.argv(*options, "--ready-fd", str(write)))
    subprocess.run(argv, pass_fds=[write], capture_output=True)
    os.close(write)
    with os.fdopen(read) as ready:
        assert "carefuld: " + ready.read().removeprefix("error: ") == done.stderr


def test_start__refused_removes_only_its_own(daemon: Daemon) -> None:
    """An existing run directory stays, with its log; a new one is removed completely."""
    daemon.run.mkdir()
    assert daemon.start("--cpu", "4000", check=False).returncode == 1
    assert [path.name for path in daemon.run.iterdir()] == ["log"]
    assert "--cpu 4000" in daemon.log
    deep = daemon.run / "some" / "where"
    argv = ["carefuld", "--ifname", "eth1", "--instance", daemon.lab.instance("h1")]
    for more in (["--cpu", "4000"], ["--cpu", "4000", "--foreground"]):
        done = daemon.lab.run("h1", *argv, "--run-dir", deep, *more, check=False)
        assert done.returncode == 1
        assert [path.name for path in daemon.run.iterdir()] == ["log"]


def test_start__refused_late_leaves_nothing(daemon: Daemon) -> None:
    """The queue is open and files are served when making the socket fails."""
    (daemon.run / "sock").mkdir(parents=True)
    done = daemon.start(check=False)
    assert done.returncode == 1
    assert "sock: Address already in use" in done.stderr
    assert not daemon.pins.exists()
    assert "pfifo" not in daemon.qdisc()


def test_start__interface_down(daemon: Daemon) -> None:
    daemon.lab.run("h1", "ip", "link", "set", "eth1", "down")
    try:
        done = daemon.start(check=False)
    finally:
        daemon.lab.run("h1", "ip", "link", "set", "eth1", "up")
    assert done.returncode == 1
    assert "down" in done.stderr


def test_start__not_root(daemon: Daemon) -> None:
    done = daemon.lab.run("h1", *nobody(), *daemon.argv(), check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "root" in done.stderr


def test_start__second_instance(daemon: Daemon) -> None:
    daemon.start()
    done = daemon.start(check=False)
    assert done.returncode == 1
    assert f"process {daemon.pid}" in done.stderr
    assert alive(daemon.pid)
    daemon.stop()


def test_killed__starts_again_at_once(daemon: Daemon) -> None:
    daemon.start()
    daemon.stop(signal.SIGKILL)
    assert (daemon.run / "sock").exists()
    daemon.start()
    daemon.stop()
    assert not daemon.pins.exists()
    assert "pfifo" not in daemon.qdisc()


def test_interface__changes_and_is_deleted(make_lab: Any, tmp_path: Path) -> None:
    daemon = Daemon(make_lab(), "h1", tmp_path / "run")
    daemon.start()
    pid = daemon.pid
    daemon.lab.run("h1", "ip", "link", "set", "eth1", "down")
    wait_for(lambda: "the interface is down" in daemon.log, "line about the interface")
    mac = "02:00:00:00:00:09"
    daemon.lab.run("h1", "ip", "link", "set", "eth1", "up", "mtu", "2000", "address", mac)
    daemon.lab.run("h1", "ip", "addr", "flush", "dev", "eth1")
    wait_for(lambda: "to 2000" in daemon.log, "line about the MTU")
    wait_for(lambda: "changed from 10.77.0.1 to none" in daemon.log, "line about the address")
    assert daemon.log.count(f"to {mac}") == 1
    assert daemon.log.count("the interface is up again") == 1
    daemon.lab.run("h1", "ip", "link", "del", "eth1")
    wait_for(lambda: not alive(pid), "end of carefuld")
    assert "the interface was deleted" in daemon.log
    assert "program was removed" not in daemon.log
    assert not daemon.pins.exists()


def test_socket__garbage(daemon: Daemon) -> None:
    daemon.start()
    path = str(daemon.run / "sock")
    rng = random.Random(20)
    stop = threading.Event()

    def garbage() -> None:
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(path)
                try:
                    for _ in range(rng.randrange(20)):
                        client.send(rng.randbytes(rng.choice([0, 1, 95, 96, 97, 4000, 65632])))
                except OSError:
                    pass  # it may hang up

    thread = threading.Thread(target=garbage)
    thread.start()
    time.sleep(2)
    stop.set()
    thread.join()
    fds = Path(f"/proc/{daemon.pid}/fd")
    before = len(list(fds.iterdir()))
    # More clients than there is room for: the last ones are refused.
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(70)]
    for client in clients:
        client.connect(path)
    clients[-1].settimeout(60)
    assert clients[-1].recv(1000)
    assert clients[-1].recv(1000) == b""
    # A command gets the same error, whether it asks before or after the refusal.
    text = "carefuld serves 32 clients already; try again when one has ended"
    for pause_s in (0, 0.5) * 5:
        with Client(daemon.run / "sock", "eth1") as client:
            time.sleep(pause_s)
            with pytest.raises(CarefulError) as raised:
                client.info()
        assert raised.value.errno == errno.EUSERS
        assert str(raised.value) == f"eth1: {text}"
    for client in clients:
        client.close()
    wait_for(lambda: len(list(fds.iterdir())) <= before, "return to so many descriptors")
    daemon.stop()


def test_socket__ten_thousand_connections(daemon: Daemon) -> None:
    """Other clients are served while one reads none of its answers."""
    daemon.start()
    path, fds = daemon.run / "sock", Path(f"/proc/{daemon.pid}/fd")
    before = len(list(fds.iterdir()))
    asked = {"version": int(lib.CAREFUL_IPC_VERSION), "op": int(lib.CAREFUL_IPC_INFO)}
    question = bytes(ffi.buffer(ffi.new("struct careful_ipc *", asked)))
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept: list[socket.socket] = []
    with Client(path, "eth1") as served, deaf:
        deaf.connect(str(path))
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(question)
        for number in range(10_000):
            kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            kept[-1].connect(str(path))
            if len(kept) > 100:
                kept.pop(0).close()
            if number % 500 == 0:
                assert served.info().peers_max
        for one in kept:
            one.close()
    wait_for(lambda: len(list(fds.iterdir())) <= before, "return to so many descriptors")
    with Client(path, "eth1") as later:
        assert later.info().peers_max
    daemon.stop()
