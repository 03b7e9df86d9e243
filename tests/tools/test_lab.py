"""tools/lab: hosts come up as requested, reach each other, and leave no trace."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from hosts import wait_for
from lab import TOOL, Lab, MakeLab, tool

pytestmark = pytest.mark.lab


def traces(name: str) -> list[str]:
    """Returns everything of a lab that is visible from outside."""
    state, netns = Path("/run/careful-lab") / name, Path("/run/netns")
    found = [str(path) for path in netns.glob(f"careful-{name}-*")] if netns.is_dir() else []
    found += [str(state)] if state.exists() else []
    for parent in ("/sys/fs/bpf/careful", "/run/careful"):
        with contextlib.suppress(FileNotFoundError):  # the last lab of others may end meanwhile
            found += [str(path) for path in Path(parent).glob(f"{name}-h*")]
    return found


def links_outside() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True)
    return {link["ifname"] for link in json.loads(shown.stdout)}


def link(lab: Lab, host: str) -> dict[str, object]:
    shown = lab.run(host, "ip", "-json", "-details", "link", "show", "dev", "eth1").stdout
    one: dict[str, object] = json.loads(shown)[0]
    return one


def ping(lab: Lab, source: str, target: str, *options: str) -> None:
    lab.run(source, "ping", "-c", "2", "-i", "0.05", "-W", "2", *options, target)


@pytest.fixture
def name(lab_possible: None):
    """A name for a lab that the test makes by hand; its remains are removed."""
    one = f"t{os.getpid()}-hand"
    yield one
    tool("down", "--name", one, "--kill")


# --- up


@pytest.mark.parametrize("family", [4, 6])
def test_up__two_hosts_reach_each_other(lab: Lab, family: int) -> None:
    ping(lab, "h1", lab.address("h2", family))
    ping(lab, "h2", lab.address("h1", family))


def test_up__default_mtu_fills_one_buffer(lab: Lab) -> None:
    assert link(lab, "h1")["mtu"] == 3840 - 14
    assert link(lab, "h2")["mtu"] == 3840 - 14
    whole = str(3840 - 14 - 20 - 8)  # IPv4 and ICMP headers
    ping(lab, "h1", lab.address("h2"), "-M", "do", "-s", whole)


def test_up__link_has_one_queue(lab: Lab) -> None:
    shown = link(lab, "h1")
    assert (shown["num_tx_queues"], shown["num_rx_queues"]) == (1, 1)


def test_up__ends_of_a_pair_differ_in_index(lab: Lab, make_lab: MakeLab) -> None:
    """Otherwise the kernel handles the carrier once a second, and `up` waits for it."""
    assert link(lab, "h1")["ifindex"] != link(lab, "h2")["ifindex"]
    many = make_lab(hosts=3)
    for host in many.hosts:
        assert link(many, host)["ifindex"] != link(many, host)["link_index"]


def test_up__loopback_works(lab: Lab) -> None:
    ping(lab, "h1", "127.0.0.1")
    ping(lab, "h1", "::1")


def test_up__twice_changes_nothing(lab: Lab) -> None:
    before = link(lab, "h1")["ifindex"], lab.netns("h1").stat().st_ino
    done = tool("up", "--name", lab.name)
    assert "already" in done.stdout
    assert (link(lab, "h1")["ifindex"], lab.netns("h1").stat().st_ino) == before


def test_up__other_size_is_refused(lab: Lab) -> None:
    done = tool("up", "--name", lab.name, "--hosts", "3", check=False)
    assert done.returncode == 1
    assert "is up with 2 hosts" in done.stderr
    ping(lab, "h1", lab.address("h2"))


def test_up__damaged_lab_is_made_again(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.run("h1", "ip", "link", "delete", "eth1")
    tool("up", "--name", lab.name)
    ping(lab, "h1", lab.address("h2"))
    assert f"{lab.name}: 2 hosts, MTU 3826, owner {os.getpid()}\n" in tool("status").stdout


@pytest.mark.parametrize("hosts", [3, 5])
def test_up__hosts_on_a_switch_reach_each_other(make_lab: MakeLab, hosts: int) -> None:
    lab = make_lab(hosts=hosts)
    for source in lab.hosts:
        for target in lab.hosts:
            if source != target:
                ping(lab, source, lab.address(target))
                ping(lab, source, lab.address(target, 6))


def test_up__switch_ports_queue_4096_frames(make_lab: MakeLab) -> None:
    lab = make_lab(hosts=3)
    show = ["tc", "-netns", f"careful-{lab.name}-sw", "-json", "qdisc", "show"]
    shown = json.loads(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
    limits = {one["dev"]: one["options"]["limit"] for one in shown if one["kind"] == "pfifo"}
    assert set(limits) == {"p1", "p2", "p3"}
    assert min(limits.values()) >= 4096


def test_up__mtu_as_asked_for_on_every_hop(make_lab: MakeLab) -> None:
    lab = make_lab(hosts=3, mtu=9000)
    ping(lab, "h1", lab.address("h3"), "-M", "do", "-s", str(9000 - 28))
    too_large = lab.run(
        "h1", "ping", "-c1", "-W1", "-M", "do", "-s", "8973", "10.77.0.3", check=False
    )
    assert too_large.returncode != 0


@pytest.mark.parametrize("name", ["SYS_ADMIN", "NET_ADMIN"])
def test_up__names_the_capability_that_it_lacks(lab_possible: None, name: str) -> None:
    """Its error once said that ip(8) failed at mount --make-shared."""
    without = ["setpriv", f"--bounding-set=-{name.lower()}", TOOL, "up", "--name", "lacking"]
    done = subprocess.run(without, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"CAP_{name} missing" in done.stderr
    assert done.stderr.endswith(f"docker run --cap-add {name}\n")


def test_up__nothing_outside_its_namespaces(make_lab: MakeLab) -> None:
    before = links_outside()
    make_lab(hosts=3)
    assert links_outside() == before


def test_up__labs_side_by_side_do_not_meet(make_lab: MakeLab) -> None:
    first, second = make_lab(), make_lab()
    netns_ids = link(first, "h1")["link_netnsid"], link(second, "h1")["link_netnsid"]
    assert None not in netns_ids
    first.run("h2", "ip", "link", "set", "eth1", "down")
    assert first.run("h1", "ping", "-c1", "-W1", "10.77.0.2", check=False).returncode != 0
    ping(second, "h1", second.address("h2"))


# --- exec


def execute(lab: Lab, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command by the tool; Lab does the same itself, faster."""
    return tool("exec", "--name", lab.name, host, "--", *command, check=False)


def test_exec__passes_status_output_and_environment(lab: Lab) -> None:
    script = 'echo "$CAREFUL_INSTANCE"; cat "$CAREFUL_CONFIG"; exit 7'
    done = execute(lab, "h2", "sh", "-c", script)
    instance, _, config = done.stdout.partition("\n")
    assert done.returncode == 7
    assert instance == f"{lab.name}-h2"
    assert tomllib.loads(config) == {"nodes": {"h1": "10.77.0.1", "h2": "10.77.0.2"}}


def test_exec__each_host_has_state_that_ends_with_the_lab(make_lab: MakeLab) -> None:
    lab = make_lab()
    folders = []
    for host in lab.hosts:
        script = 'mkdir -p "$CAREFUL_STATE_DIR"; echo "$CAREFUL_STATE_DIR"'
        folders.append(Path(execute(lab, host, "sh", "-c", script).stdout.strip()))
    assert len(set(folders)) == 2
    assert all(one.is_dir() for one in folders)
    lab.down()
    assert not any(one.exists() for one in folders)


def test_exec__changes_the_network_namespace_alone(lab: Lab) -> None:
    for kind in ("mnt", "pid", "net"):
        inside = execute(lab, "h1", "readlink", f"/proc/self/ns/{kind}").stdout.strip()
        same = inside == str(Path(f"/proc/self/ns/{kind}").readlink())
        assert same == (kind != "net"), kind


def test_exec__pid_is_the_commands_own(lab: Lab) -> None:
    argv = [TOOL, "exec", "--name", lab.name, "h1", "--", "sh", "-c", "echo $$; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.kill()


def test_exec__equals_the_tests_own_way(lab: Lab) -> None:
    """tools/lab exec and Lab.run() set the same environment."""
    for name, value in lab.environment("h1").items():
        assert execute(lab, "h1", "printenv", name).stdout.strip() == value
        assert lab.run("h1", "printenv", name).stdout.strip() == value


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["h3", "--", "true"], "no host 'h3'"),
        (["h1", "--"], "no command"),
    ],
)
def test_exec__names_the_fault(lab: Lab, args: list[str], says: str) -> None:
    done = tool("exec", "--name", lab.name, *args, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_exec__without_a_lab_says_so(name: str) -> None:
    done = tool("exec", "--name", name, "h1", "--", "true", check=False)
    assert done.returncode == 1
    assert "is not up" in done.stderr


# --- carefulctl that is loaded already


def test_run__says_and_ends_as_the_program_does(lab: Lab) -> None:
    for words in (["status", "eth1"], ["--version"], ["up", "none"], ["get", "--nonsense"]):
        loaded = lab.run("h1", "carefulctl", *words, check=False)
        program = lab.run("h1", "env", "carefulctl", *words, check=False)
        found = (loaded.returncode, loaded.stdout, loaded.stderr)
        assert found == (program.returncode, program.stdout, program.stderr)


def test_run__is_killed_when_its_time_is_up(lab: Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run("h1", "carefulctl", "measure", "echo", "7777", timeout=1)
    wait_for(lambda: "7777" not in lab.run("h1", "ss", "-tlnH").stdout, "end of the program")


# --- down


@pytest.mark.parametrize("hosts", [2, 4])
def test_down__leaves_nothing(name: str, hosts: int) -> None:
    tool("up", "--name", name, "--hosts", str(hosts))
    assert len(traces(name)) == 1 + hosts + (hosts > 2)
    tool("down", "--name", name)
    assert traces(name) == []


def test_down__twice_is_fine(name: str) -> None:
    tool("up", "--name", name)
    tool("down", "--name", name)
    assert "was not up" in tool("down", "--name", name).stdout


def test_down__names_processes_and_spares_them(make_lab: MakeLab) -> None:
    lab = make_lab()
    process = lab.start("h2", "sleep", "60")
    while lab.netns("h2").stat().st_ino != Path(f"/proc/{process.pid}/ns/net").stat().st_ino:
        time.sleep(0.01)
    done = tool("down", "--name", lab.name, check=False)
    assert done.returncode == 1
    assert f"{process.pid} (sleep, h2)" in done.stderr
    assert process.poll() is None
    ping(lab, "h1", lab.address("h2"))  # `down` removed nothing
    tool("down", "--name", lab.name, "--kill")
    assert process.wait(timeout=60) < 0
    assert traces(lab.name) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_down__ends_carefuld(name: str, tmp_path: Path, stopped: bool) -> None:
    # Stands in for the daemon: `down` goes by the program's name and namespace.
    daemon = tmp_path / "carefuld"
    daemon.write_bytes(Path("/usr/bin/sleep").read_bytes())
    daemon.chmod(0o755)
    outside = subprocess.Popen([daemon, "60"])
    tool("up", "--name", name)
    inside = subprocess.Popen([TOOL, "exec", "--name", name, "h1", "--", daemon, "60"])
    while Path(f"/proc/{inside.pid}/comm").read_text() != "carefuld\n":
        time.sleep(0.01)
    if stopped:
        inside.send_signal(signal.SIGSTOP)
    try:
        tool("down", "--name", name)
        assert inside.wait(timeout=60) == -signal.SIGTERM
        assert outside.poll() is None
        assert traces(name) == []
    finally:
        outside.kill()
        outside.wait()
        inside.kill()
        inside.wait()


def test_down__removes_leftovers_of_a_killed_daemon(name: str) -> None:
    tool("up", "--name", name)
    left = Path("/run/careful") / f"{name}-h1"
    queue = Path("/run/careful") / f"{name}-h1+3"
    foreign = Path("/run/careful") / f"{name}-h1-other"
    for folder in (left, queue, foreign):
        folder.mkdir(parents=True)
        (folder / "log").touch()
    files = [left.parent / f"{name}-h1.lock", left.parent / f".{name}-h1.changing"]
    for file in files:
        file.touch()
    try:
        tool("down", "--name", name)
        assert not left.exists()
        assert not queue.exists()
        assert not any(file.exists() for file in files)
        assert foreign.exists()
    finally:
        for file in files:
            file.unlink(missing_ok=True)
        (foreign / "log").unlink()
        foreign.rmdir()


# --- after a crash


def kill_up(name: str, progress: int) -> None:
    """Kills an `up` of six hosts as soon as this much of it is visible."""
    up = subprocess.Popen([TOOL, "up", "--name", name, "--hosts", "6"], stdout=subprocess.DEVNULL)
    while len(traces(name)) < progress:
        assert up.poll() is None
    up.kill()
    assert up.wait() == -signal.SIGKILL


@pytest.mark.parametrize("progress", [1, 2, 4, 8])  # state, hosts, switch
def test_down__after_up_was_killed(name: str, progress: int) -> None:
    kill_up(name, progress)
    tool("down", "--name", name)
    assert traces(name) == []


@pytest.mark.parametrize("progress", [1, 4, 8])
def test_up__after_up_was_killed(name: str, progress: int) -> None:
    kill_up(name, progress)
    tool("up", "--name", name)  # with two hosts, since the half-made lab does not count
    tool("exec", "--name", name, "h1", "--", "ping", "-c1", "-W2", "10.77.0.2")
    assert len(traces(name)) == 3


def test_sweep__takes_down_half_made_labs(name: str) -> None:
    kill_up(name, 4)
    tool("sweep")
    assert traces(name) == []


def test_sweep__removes_labs_of_dead_owners(name: str) -> None:
    owner = subprocess.Popen(["sleep", "60"])
    tool("up", "--name", name, "--owner", str(owner.pid))
    tool("sweep")
    assert traces(name) != []
    owner.kill()
    owner.wait()
    assert name in tool("sweep").stdout
    assert traces(name) == []


def test_lock__its_directory_goes_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another `down` that ends just then removes the directory.
    monkeypatch.syspath_prepend(str(TOOL.parent))
    state = importlib.import_module("laboratory.state")
    directory, open_it, gone = tmp_path / "careful-lab", os.open, []

    def open_late(path: Path, flags: int) -> int:
        if not gone:
            gone.append(path)
            path.rmdir()
        return open_it(path, flags)

    monkeypatch.setattr(state, "STATE", directory)
    monkeypatch.setattr(state.os, "open", open_late)
    with state.locked():
        assert directory.is_dir()
    assert gone == [directory]
    assert not directory.exists()


def test_sweep__leaves_labs_without_owner(name: str) -> None:
    tool("up", "--name", name)
    tool("sweep")
    assert len(traces(name)) == 3


# --- usage


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["up", "--hosts", "1"], "hosts must be 2 to 64, not 1"),
        (["up", "--hosts", "many"], "invalid hosts value"),
        (["up", "--mtu", "100"], "MTU must be 1280 to 65535, not 100"),
        (["up", "--name", "a/b"], "A-Z a-z 0-9"),
        (["up", "--name", "careful-lab-name-that-is-too-long-for-us"], "1 to 32"),
    ],
)
def test_usage__is_refused_with_status_2(args: list[str], says: str) -> None:
    done = tool(*args, check=False)
    assert done.returncode == 2
    assert says in done.stderr


def test_status__into_an_unread_pipe(lab_possible: None) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([TOOL, "status"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
