"""`carefulctl up` of a running instance, its remains, and its messages about exports."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from careful.control.carefuld import daemon
from careful.control.instance import instances
from careful.control.options import command_line
from careful.control.options.up_options import UpOptions
from careful.control.tracing.tracer import Tracer
from careful.errors import CarefulError
from hosts import PINS, RUN, Host, wait_for


@pytest.fixture
def host(lab: object, tmp_path: Path) -> object:
    """A host without an instance."""
    one = Host(lab, "h1", tmp_path)  # type: ignore[arg-type]
    yield one
    one.ctl("down", "eth1", check=False)


def test_up__twice_is_once(host: Host) -> None:
    host.up("--peers", "4")
    pid = host.pid
    again = host.ctl(
        "up", "eth1", "--export", f"{host.export}:rw,owners,devices", "--insecure", "--peers", "4"
    )
    assert again.stdout == f"eth1: is already up with these options (carefuld {pid})\n"
    assert host.pid == pid
    # An option with its default value makes no difference.
    done = host.ctl(
        *(
            "up",
            "eth1",
            "--export",
            f"{host.export}:rw,owners,devices",
            "--insecure",
            "--peers",
            "4",
        ),
        *("--wait", "adaptive", "--rx-buffers", "512", "--json"),
    )
    assert json.loads(done.stdout)["already"] is True


def test_up__names_differing_options(host: Host) -> None:
    host.up("--peers", "4")
    pid = host.pid
    done = host.ctl("up", "eth1", "--peers", "2", "--xdp", "generic", check=False)
    assert done.returncode == 1
    for said in ("--peers is 4, not 2", "--xdp is auto, not generic"):
        assert said in done.stderr
    assert f"--export is {host.export}:rw,owners,devices, not none" in done.stderr
    assert done.stderr.endswith("first: carefulctl down eth1\n")
    assert host.pid == pid


def test_up__interface_renamed(host: Host) -> None:
    """A renamed interface is found by its present name, with or without the instance's."""
    host.up()
    host.lab.run("h1", "ip", "link", "set", "eth1", "name", "lan0")
    try:
        assert host.ctl("status", "lan0").stdout.startswith("lan0 ")
        unnamed = ("env", "-u", "CAREFUL_INSTANCE", "carefulctl")
        done = host.lab.run("h1", *unnamed, "down", "lan0")
        assert done.stdout == "lan0: carefuld ended\n"
    finally:
        host.lab.run("h1", "ip", "link", "set", "lan0", "name", "eth1")


def test_up__refused_leaves_nothing(host: Host) -> None:
    done = host.ctl("up", "eth1", "--require-zerocopy", check=False)
    assert "zero-copy" in done.stderr
    assert not (RUN / host.lab.instance("h1")).exists()
    host.up()


def test_up__name_with_a_dot(host: Host) -> None:
    """`up eth1.100` once failed with EPERM, because bpffs accepts no dot in a name."""
    name = f"{host.lab.instance('h1')}.100%"
    host.ctl("up", "eth1", "--instance", name)
    found = json.loads(host.ctl("status", "--json", "eth1", "--instance", name).stdout)
    assert not found["instances"][0]["xdp_counters_error"]
    host.ctl("tune", "set", "eth1", "--instance", name, "--fragment-bytes", "2KiB")
    host.ctl("down", "eth1", "--instance", name)
    assert not list(PINS.glob(f"{host.lab.instance('h1')}*"))


def test_status__pins_of_another_mount_namespace(host: Host) -> None:
    """`ip netns exec` makes such a namespace; the message once asked whether careful was up."""
    argv = ("unshare", "-m", "sh", "-c", "mount -t bpf bpf /sys/fs/bpf; carefulctl up eth1")
    host.lab.run("h1", *argv)
    output = host.ctl("status", "-v", "eth1").stdout
    assert "careful pinned this map in another mount namespace" in output


def test_launch__interrupted_ends_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """careful once came up despite Ctrl-C."""
    program, said = tmp_path / "carefuld", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ >{said}\nexec sleep 1000 2>&-\n")
    program.chmod(0o755)

    def interrupted(*_: object) -> str:
        wait_for(lambda: said.exists() and said.read_text(), "its pid")
        raise KeyboardInterrupt

    monkeypatch.setattr(daemon, "executable", lambda: program)
    monkeypatch.setattr(daemon, "_read_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        daemon.launch("eth1", instances.Instance("eth1"), UpOptions(), tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), signal.SIGKILL)


def test_command_line__without_options() -> None:
    options = UpOptions(peers=4, export=("/a", "/b:rw"), insecure=True)
    argv = ["carefuld", "--ifname", "eth1", *command_line.words(options), "--foreground"]
    assert command_line.without_options(argv) == ["carefuld", "--ifname", "eth1", "--foreground"]
    assert command_line.read(argv) == options


def test_command_line__values_behind_an_equals_sign() -> None:
    """A user or a unit may start carefuld like this."""
    argv = ["carefuld", "--ifname=eth1", "--peers=4", "--export=/a=b", "--export", "/c:rw"]
    argv += ["--insec", "--run-dir=/run/careful/eth1"]
    options = UpOptions(peers=4, export=("/a=b", "/c:rw"), insecure=True)
    assert command_line.read(argv) == options
    left = ["carefuld", "--ifname=eth1", "--run-dir=/run/careful/eth1"]
    assert command_line.without_options(argv) == left
    assert instances.Instance("eth1", argv=tuple(argv)).directory == RUN / "eth1"


def test_up__appends_to_the_log(host: Host) -> None:
    """The log is continued, so that the last message of the previous carefuld stays."""
    host.up()
    before = host.whole_log
    host.down()
    host.up()
    said = host.whole_log
    assert said.startswith(before)
    assert said.count(" begins, process ") == before.count(" begins, process ") + 1
    assert "ending" in said.rpartition(" begins, process ")[0]
    assert "ending" not in host.log
    place = Path(host.status()["log"])
    assert place.read_text() == said
    host.down()
    assert not (RUN / host.lab.instance("h1")).exists()
    assert place.read_text().endswith("ended\n")


def test_up__without_a_place_for_the_log(host: Host, tmp_path: Path) -> None:
    """Without the state directory the log is next to the socket."""
    host.up()  # mounts the BPF file system if needed
    host.down()
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    mount = 'mount -t tmpfs -o ro,mode=0755 none "$0"; export CAREFUL_STATE_DIR="$0"; exec "$@"'
    host.lab.run("h1", "unshare", "-m", "sh", "-c", mount, state, "carefulctl", "up", "eth1")
    assert " begins, process " in host.whole_log
    assert Path(host.status()["log"]) == RUN / host.lab.instance("h1") / "log"


def test_status__exports(host: Host, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    host.up("--export", more)
    found = host.status()["exports"]
    assert found == [
        {"path": str(host.export), "writable": True, "owners": True, "devices": True, "hosts": []},
        {"path": str(more), "writable": False, "owners": False, "devices": False, "hosts": []},
    ]
    output = " ".join(host.ctl("status", "eth1").stdout.split())
    assert f"exports {host.export} (writable, owners, devices), {more}" in output


def test_up__reports_why_xdp_is_generic(host: Host) -> None:
    host.lab.run("h1", "sh", "-c", "ip link add d0 type bridge && ip link set d0 up")
    try:
        output = " ".join(host.ctl("up", "d0").stdout.split())
        host.ctl("down", "d0")
    finally:
        host.lab.run("h1", "ip", "link", "del", "d0")
    assert "XDP generic: native was refused: Underlying driver does not support" in output


def test_status__reports_a_detached_program(host: Host) -> None:
    """The log, status, doctor and the next `up` report it."""
    host.up()
    shown = host.lab.run("h1", "bpftool", "-j", "net", "show", "dev", "eth1").stdout
    program = json.loads(shown)[0]["xdp"][0]["id"]
    links = json.loads(host.lab.run("h1", "bpftool", "-j", "link", "show").stdout)
    link = next(one["id"] for one in links if one["prog_id"] == program)
    host.lab.run("h1", "bpftool", "link", "detach", "id", str(link))
    what = "removed from the interface, so no frame arrives: carefulctl down eth1, then up"
    wait_for(lambda: what in host.log, "line in the log")
    assert what in " ".join(host.ctl("status", "eth1").stdout.split())
    output = host.ctl("doctor", "eth1", check=False)
    assert output.returncode == 1
    line = (
        "the XDP program was removed from eth1, so no frame arrives (carefulctl down eth1, then up)"
    )
    assert line in " ".join(output.stdout.split())
    again = host.ctl(
        "up", "eth1", "--export", f"{host.export}:rw,owners,devices", "--insecure", check=False
    )
    assert "but its XDP program was removed; first: carefulctl down eth1" in again.stderr
    host.down()
    host.up()


#: Runs carefulctl twice in a process with more open files than select() can count.
_FULL = """
import os, resource, sys
from careful.cli.main import run
hard = max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
while os.open("/dev/null", os.O_RDONLY) < 1100:
    pass
sys.exit(run(["up", "eth1"]) or run(["down", "eth1"]))
"""


def test_up__beyond_1024_descriptors(host: Host) -> None:
    done = host.lab.run("h1", sys.executable, "-c", _FULL)
    assert "eth1: carefuld ended" in done.stdout
    assert not (RUN / host.lab.instance("h1")).exists()


def test_tracer__beyond_1024_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a process is noticed whatever the number of its descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    traced = Tracer.__new__(Tracer)
    monkeypatch.setattr(traced, "_program", SimpleNamespace(poll=lambda _: None), raising=False)
    with subprocess.Popen(["sleep", "100"]) as process:
        pidfd = os.pidfd_open(process.pid)
        high = fcntl.fcntl(pidfd, fcntl.F_DUPFD_CLOEXEC, 1100)
        target = SimpleNamespace(pid=process.pid, name="eth1")
        monkeypatch.setattr(traced, "_pidfds", {high: target}, raising=False)
        try:
            traced.collect(0)
            process.kill()
            process.wait()
            with pytest.raises(CarefulError, match=f"its process {process.pid} ended"):
                traced.collect(0)
        finally:
            os.close(high)
            os.close(pidfd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_command_line__survives_encoding_and_decoding() -> None:
    options = UpOptions(
        name="a", peers=3, xdp="native", require_zerocopy=True, export=("/a", "/b:rw")
    )
    argv = ["carefuld", "--ifname", "eth1", *command_line.words(options), "--ready-fd", "5"]
    assert command_line.read(argv) == options


def test_up__foreground_becomes_carefuld(host: Host) -> None:
    """A service manager knows this process, and so can end it."""
    process = host.start("up", "eth1", "--foreground")
    wait_for(lambda: host.ctl("status", "eth1", check=False).returncode == 0, "carefuld")
    found = host.status()
    assert found["pid"] == process.pid
    assert found["log"] == "its standard error (journalctl -u carefuld@eth1)"
    again = host.ctl("up", "eth1", "--foreground", check=False)
    assert again.returncode == 1
    assert f"is already up (carefuld {process.pid})" in again.stderr
    # The unit runs this after a failed start, so the running instance is not its own.
    assert "careful is up, and stays up" in host.ctl("down", "--dead", "eth1").stdout
    assert process.poll() is None
    assert host.status()["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1].split(" ", 1)[1]) == (0, "ended")
    host.ctl("down", "--dead", "eth1")
    assert not (RUN / host.lab.instance("h1")).exists()
