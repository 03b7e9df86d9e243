"""The findings of `carefulctl doctor`, and its fixes."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from careful.cli.main import run as carefulctl
from careful.control.checks import doctor as doctoring
from careful.control.checks import machine
from careful.control.checks.check_result import ok, warn
from careful.control.host import ethtool, links
from careful.control.instance import instances, status
from careful.control.options.command_line import differences
from careful.control.options.up_options import UpOptions
from denied import IO_URING_SETUP, denied
from hosts import PINS, RUN, Host, alive, wait_for
from lab import Lab, MakeLab, keep_xdp, nobody

Found = dict[str, tuple[str, str, str]]


@pytest.fixture
def host(make_lab: MakeLab, tmp_path: Path) -> Iterator[Host]:
    """A host of a lab without an instance."""
    one = Host(make_lab(hosts=2), "h1", tmp_path)
    yield one
    one.ctl("down", "eth1", check=False)


def doctor(host: Host, *args: str, status: int = 0) -> Found:
    """Returns each check's state, text and advice."""
    done = host.ctl("doctor", *args, "--json", check=False)
    assert done.returncode == status, done.stdout + done.stderr
    found = json.loads(done.stdout)["fixed" if "--fix" in args else "findings"]
    return {one["check"]: (one["state"], one["text"], one["advice"]) for one in found}


def test_doctor__before_up_and_while_careful_is_up(host: Host) -> None:
    found = doctor(host, "eth1")
    assert found["XDP"][:2] == ("ok", "no program on eth1")
    assert found["instance"][0] == "ok"
    del found["hugepages"]  # belong to the machine
    assert {state for state, _, _ in found.values()} <= {"ok", "unknown"}
    host.up()
    found = doctor(host, "eth1")
    assert found["XDP"][:2] == ("ok", "ours, native")
    assert found["qdisc"][:2] == ("ok", "pfifo")
    assert str(host.pid) in found["instance"][1]


#: Runs a command without transparent hugepages: prctl(PR_SET_THP_DISABLE).
_WITHOUT = """
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("prefix", [[], [sys.executable, "-c", _WITHOUT]], ids=["as-is", "none"])
def test_doctor__hugepages_are_those_of_up(host: Host, prefix: list[str]) -> None:
    """doctor once reported none though UMEM was in transparent ones."""
    reserved = int(re.findall(r"HugePages_Free: +(\d+)", Path("/proc/meminfo").read_text())[0])

    def ctl(*args: str) -> dict[str, Any]:
        done = host.lab.run("h1", *prefix, "carefulctl", *args, "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    findings = {one["check"]: one for one in ctl("doctor", "eth1")["findings"]}
    said = findings["hugepages"]
    ctl("up", "eth1")
    assert host.status()["hugepages"] == (said["state"] == "ok")
    if prefix and reserved < 2:
        assert (said["state"], said["advice"]) == ("warn", "sysctl vm.nr_hugepages=2")
    elif said["state"] == "ok":
        assert said["text"].startswith("reserved" if reserved >= 2 else "transparent")


def test_doctor__interface_down(host: Host) -> None:
    host.lab.run("h1", "ip", "link", "set", "eth1", "down")
    assert doctor(host, "eth1", status=1)["interface"][0] == "fail"
    asked = host.ctl("doctor", "--fix", "eth1", check=False, stdin=subprocess.DEVNULL)
    assert asked.returncode == 2
    assert "interface  ip link set eth1 up" in asked.stderr
    assert doctor(host, "eth1", status=1)["interface"][0] == "fail"
    assert doctor(host, "--fix", "--yes", "eth1")["interface"][1] == "set eth1 up"
    assert doctor(host, "--fix", "--yes", "eth1")["interface"][1] == "nothing to do"
    host.up()


#: Faults: the command that makes each, and the part of the message with the remedy.
WRONG = {
    "down": ("ip link set q1 down", "ip link set q1 up"),
    "queues": ("ethtool -L q1 rx 4", "ethtool -L q1 rx 1"),
    "port": ("ip link add br9 type bridge && ip link set q1 master br9", "ip link set q1 nomaster"),
    "MTU": ("ip link set q1 mtu 150", "ip link set q1 mtu 1500"),
}


@pytest.fixture(scope="module")
def wired(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with a veth of four queues, q1; one queue is used."""
    one = Host(lab, "h1", tmp_path_factory.mktemp("wired"))
    queues = ["numtxqueues", "4", "numrxqueues", "4"]
    lab.run("h1", "ip", "link", "add", "q1", *queues, "type", "veth", "peer", "name", "q2")
    lab.run("h1", "sh", "-c", "ethtool -L q1 rx 1 && ip link set q1 up && ip link set q2 up")
    lab.run("h1", "ip", "addr", "add", "10.78.0.1/24", "dev", "q1")
    yield one
    lab.run("h1", "ip", "link", "del", "q1")


def failure(host: Host, *limits: str) -> str:
    """Returns the error of `up q1`. doctor reports the same and nothing else; neither leaves
    anything behind.
    """
    done = host.lab.run("h1", *limits, "carefulctl", "doctor", "--json", "q1", check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [one["text"] for one in json.loads(done.stdout)["findings"] if one["state"] == "fail"]
    refused = host.lab.run("h1", *limits, "carefulctl", "up", "q1", check=False)
    assert refused.returncode == 1
    assert not (RUN / host.lab.instance("h1")).exists()
    assert set(failed) == {refused.stderr.removeprefix("carefulctl: ").strip()}
    return failed[0]


def run(host: Host, command: str, check: bool = True) -> None:
    host.lab.run("h1", "sh", "-c", command, check=check)


@pytest.mark.parametrize("what", ["down", "queues", "port", "MTU"])
def test_doctor__agrees_with_up(wired: Host, what: str) -> None:
    wrong, right = WRONG[what]
    run(wired, wrong)
    try:
        line = failure(wired)
        assert right in line
        run(wired, right)
        wired.ctl("up", "q1")
        wired.ctl("down", "q1")
    finally:
        run(wired, "ip link del br9", check=False)
        run(wired, "ethtool -L q1 rx 1; ip link set q1 nomaster mtu 1500 up", check=False)


def test_doctor__fix_leaves_one_queue_if_none_can_be_steered_to(wired: Host) -> None:
    run(wired, "ethtool -L q1 rx 4")
    try:
        fixed = doctor(wired, "--fix", "--yes", "q1")
        assert ("ok", "ethtool -L q1 rx 1", "") in fixed.values()
        assert "fail" not in {state for state, _, _ in doctor(wired, "q1").values()}
    finally:
        run(wired, "ethtool -L q1 rx 1", check=False)


@pytest.mark.parametrize(
    ("mtu", "peers", "said"),
    [
        (
            1500,
            129,
            "--rx-buffers: 129 peers need 516 receive buffers (4 each), but only 512 are available",
        ),
        (9000, 128, "--peers: MTU 9000: a frame fills 3 receive buffers, but a window of 4"),
    ],
)
def test_doctor__window_is_too_small(
    wired: Host, tmp_path: Path, mtu: int, peers: int, said: str
) -> None:
    """`up` knows it after opening the device; doctor computes it."""
    config = tmp_path / "careful.toml"
    config.write_text(f"[up]\npeers = {peers}\n")
    run(wired, f"ip link set q1 mtu {mtu}")
    try:
        assert said in failure(wired, "env", f"CAREFUL_CONFIG={config}")
        config.write_text(f"[up]\npeers = {peers // 2}\n")
        wired.lab.run("h1", "env", f"CAREFUL_CONFIG={config}", "carefulctl", "up", "q1")
        config.write_text("")  # the running instance counts, not the options
        shown = wired.lab.run(
            "h1", "env", f"CAREFUL_CONFIG={config}", "carefulctl", "doctor", "q1"
        ).stdout
        assert f"window     8 buffers for each of {peers // 2} peers" in shown
    finally:
        wired.ctl("down", "q1", check=False)
        run(wired, "ip link set q1 mtu 1500")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('[socket]\ngroup = "no-such-group"', "there is no such group"),
        ('[up]\nseal = "encrypt@no.host.invalid"', "unknown host"),
        ("[up]\nqueue = 1\nqueues = 2", "selects one queue"),
    ],
)
def test_doctor__options_that_name_nothing(
    wired: Host, tmp_path: Path, line: str, said: str
) -> None:
    """doctor once accepted them, and `up` refused."""
    config = tmp_path / "careful.toml"
    config.write_text(line + "\n")
    done = wired.lab.run("h1", "carefulctl", "up", "q1", "--config", config, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    shown = wired.lab.run("h1", "carefulctl", "doctor", "q1", "--config", config, check=False)
    assert shown.returncode == 1
    assert re.search(rf"FAIL options .*{said}", " ".join(shown.stdout.split()))


def test_doctor__zero_copy_is_required(wired: Host, tmp_path: Path) -> None:
    """doctor once did not report it, though `up` refuses. It does not guess results of a bind."""
    config = tmp_path / "careful.toml"
    config.write_text('[up]\nrequire_zerocopy = true\nxdp = "generic"\n')
    environment = ["env", f"CAREFUL_CONFIG={config}"]
    assert (
        "--require-zerocopy: q1: zero-copy needs native XDP, but the XDP mode is generic"
        in failure(wired, *environment)
    )
    config.write_text("[up]\nrequire_zerocopy = true\n")
    shown = wired.lab.run("h1", *environment, "carefulctl", "doctor", "q1").stdout
    assert "?     zero-copy  only an attempt shows whether driver veth has it" in shown
    assert doctor(wired, "q1")["zero-copy"][0] == "ok"
    wired.ctl("up", "q1")
    try:
        assert "zero-copy" not in doctor(wired, "q1")
    finally:
        wired.ctl("down", "q1")


def test_doctor__another_program(wired: Host) -> None:
    """The message names the sibling instance, but no way to remove its program. The instance keeps
    its pfifo.
    """
    wired.ctl("up", "q1", "--instance", "sibling")
    try:
        line = failure(wired)
        shown = wired.ctl("doctor", "q1", check=False).stdout
        assert "pfifo ca00:" in wired.lab.run("h1", "tc", "qdisc", "show", "dev", "q1").stdout
    finally:
        wired.ctl("down", "q1", "--instance", "sibling")
    assert "q1 is in use by instance sibling, process" in line
    assert "ip link" not in line
    assert "ok    qdisc      pfifo\n" in shown


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (["prlimit", "--nofile=20"], "at most 20 open files"),
        (["prlimit", "--nofile=32"], "at most 32 open files"),
        (
            ["setpriv", "--bounding-set=-sys_resource,-ipc_lock", "prlimit", "--memlock=65536"],
            "exceed the limit of 64 KiB (ulimit -l)",
        ),
        (["setpriv", "--bounding-set=-all,+net_admin,+net_raw,+bpf"], "CAP_PERFMON is missing"),
    ],
    ids=["files-20", "files-32", "memlock", "capabilities"],
)
def test_doctor__limits_of_the_process(wired: Host, limits: list[str], said: str) -> None:
    if "--nofile" in limits[1]:
        limits = ["setpriv", "--bounding-set=-sys_resource", *limits]
    assert said in failure(wired, *limits)


def mounted(*commands: str) -> list[str]:
    """Runs a command with private mounts."""
    return ["unshare", "-m", "sh", "-c", " && ".join((*commands, 'exec "$@"')), "-"]


_BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, -1)
_OPENAT2 = 437


@pytest.mark.parametrize(
    ("without", "check", "said"),
    [
        (["setarch", "--uname-2.6"], "kernel", "is too old: careful needs Linux 6.1 or later"),
        (denied(_BPF), "bpf", "bpf(), which loads the XDP program, is denied"),
        (denied(_OPENAT2), "openat2", "openat2(), which opens files, is denied"),
        (
            mounted("mount -o remount,bind,ro /sys/fs/bpf"),
            "bpffs",
            "bpffs is read-only: `mount -o remount,rw /sys/fs/bpf`",
        ),
        (mounted("mount -t tmpfs none /sys"), "bpffs", "there is no /sys/fs/bpf"),
        (
            mounted("mount --bind /run /run", "mount -o remount,bind,ro /run"),
            "run",
            "/run/careful cannot be written (Read-only file system)",
        ),
    ],
    ids=["kernel", "bpf", "openat2", "bpffs-read-only", "no-sys", "run-read-only"],
)
def test_doctor__denied_by_a_container(
    wired: Host, without: list[str], check: str, said: str
) -> None:
    """doctor once found nothing, and `up` refused."""
    doctor(wired, "--fix", "--yes", "q1")  # mounts bpffs if needed
    assert said in failure(wired, *without)
    shown = wired.lab.run("h1", *without, "carefulctl", "doctor", "--json", "q1", check=False)
    (one,) = (one for one in json.loads(shown.stdout)["findings"] if one["state"] == "fail")
    assert one["check"] == check
    assert one["advice"]


def test_up__mounts_bpffs_below_a_read_only_sys(wired: Host) -> None:
    """As in a container without -v /sys/fs/bpf. `up` once failed when it looked for leftovers."""
    without = mounted("umount -l /sys/fs/bpf", "mount -o remount,bind,ro /sys")
    command = "carefulctl doctor --json q1 && carefulctl up q1 && carefulctl down q1"
    done = wired.lab.run("h1", *without, "sh", "-c", command)
    assert "is not mounted yet; careful mounts it" in done.stdout


def test_doctor__io_uring_is_denied(wired: Host) -> None:
    """`up` once refused; files work without it."""
    without = denied(IO_URING_SETUP)
    shown = wired.lab.run("h1", *without, "carefulctl", "doctor", "--json", "q1")
    (one,) = (one for one in json.loads(shown.stdout)["findings"] if one["check"] == "io_uring")
    assert one["state"] == "warn"
    assert "denied (Operation not permitted): threads read and write files" in one["text"]
    assert doctor(wired, "q1")["io_uring"][0] == "ok"


def test_doctor__in_a_user_namespace(wired: Host) -> None:
    """Capabilities count only in the namespace, which is not enough for bpf()."""
    link = "ip link add q1 type veth peer name q2 && ip link set q2 up && ip link set q1 up"
    inside = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", f'{link} && exec "$@"']
    line = failure(wired, *inside, "-")
    assert "is denied (Operation not permitted): run careful as root of the machine" in line


def test_up__with_the_named_capabilities(wired: Host) -> None:
    """The capabilities in the message are enough if bpffs is mounted."""
    doctor(wired, "--fix", "--yes", "q1")
    named = "+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock"
    wired.lab.run("h1", "setpriv", f"--bounding-set=-all,{named}", "carefulctl", "up", "q1")
    wired.ctl("down", "q1")


def test_doctor__an_interface_without_an_address(wired: Host) -> None:
    run(wired, "ip addr flush dev q1 scope global")
    found = doctor(wired, "q1")["address"]
    run(wired, "ip addr add 10.78.0.1/24 dev q1")
    assert found[0] == "warn"
    assert doctor(wired, "q1")["address"][0] == "ok"


@pytest.mark.parametrize("name", ["libbpf.so.1", "libbcc.so.0"])
def test_doctor__unusable_library(wired: Host, tmp_path: Path, name: str) -> None:
    """An error line; only commands that need the library fail."""
    (tmp_path / name).write_text("this is no library")
    damaged = ["env", f"LD_LIBRARY_PATH={tmp_path}"]
    done = wired.lab.run("h1", *damaged, "carefulctl", "doctor", "--json", "q1", check=False)
    assert done.stderr == ""
    found = json.loads(done.stdout)["findings"]
    (one,) = (one for one in found if name in one["text"] + one["advice"])
    optional = name.startswith("libbcc")
    assert (one["check"], one["state"]) == (("bcc", "warn") if optional else ("library", "fail"))
    assert done.returncode == (0 if optional else 1)


def test_doctor__without_privilege(wired: Host) -> None:
    done = wired.lab.run("h1", *nobody(), "carefulctl", "doctor", "q1")
    assert "?     privilege  no permission, CAP_NET_ADMIN is missing: run as root" in done.stdout


def test_up__an_instance_that_runs_elsewhere(wired: Host) -> None:
    """The named command works."""
    wired.ctl("up", "eth1")
    for other in ("q1", "lo"):
        refused = wired.ctl("up", other, check=False)
        assert refused.returncode == 1
        assert "first: carefulctl down eth1, or choose another --instance" in refused.stderr
    wired.ctl("down", "eth1")


def test_doctor__no_such_interface(host: Host) -> None:
    found = doctor(host, "eth9", status=1)
    assert found["interface"][0] == "fail"
    assert "eth9" in found["interface"][1]


def test_qdisc__is_restored_after_its_removal(host: Host) -> None:
    host.up()
    host.lab.run(host.name, "tc", "qdisc", "del", "dev", "eth1", "root")
    wait_for(lambda: doctor(host, "eth1")["qdisc"][:2] == ("ok", "pfifo"), "the pfifo", 30)
    said = "eth1: another program removed the pfifo"
    wait_for(lambda: said in host.log, "word in the log", 30)
    host.lab.run(host.name, "tc", "qdisc", "add", "dev", "eth1", "clsact")
    host.lab.run(host.name, "tc", "qdisc", "del", "dev", "eth1", "clsact")
    time.sleep(2)  # the log is written once a second
    assert host.log.count(said) == 1


def test_address__one_of_lo_serves(host: Host) -> None:
    host.lab.run(host.name, "ip", "addr", "flush", "dev", "eth1", "scope", "global")
    assert doctor(host, "eth1")["address"][0] == "warn"
    host.lab.run(host.name, "ip", "addr", "add", "10.5.0.1/32", "dev", "lo")
    assert doctor(host, "eth1")["address"][0] == "ok"


def test_up__by_a_long_alternative_name(host: Host) -> None:
    long = "enp129s0f0np0nic7"
    host.lab.run(host.name, "ip", "link", "property", "add", "dev", "eth1", "altname", long)
    host.ctl("up", long)
    assert host.status()["ifname"] == "eth1"
    host.ctl("down", long)


def test_differences__the_number_1_is_not_shown_as_on() -> None:
    found = differences(UpOptions(peers=8), UpOptions(peers=1))
    assert found == {"peers": "--peers is 1, not 8"}
    found = differences(UpOptions(), UpOptions(insecure=True))
    assert found == {"insecure": "--insecure is on, not off"}


def test_doctor__after_a_kill(host: Host) -> None:
    host.up()
    pid = host.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "end of carefuld")
    found = doctor(host, "eth1")
    assert found["instance"][0] == "warn"
    assert found["qdisc"][0] == "warn"
    taken = doctor(host, "--fix", "--yes", "eth1")["instance"][1]
    assert taken == "removed what a killed carefuld had left"
    assert not (PINS / host.lab.instance("h1")).exists()
    found = doctor(host, "eth1")
    assert found["instance"][0] == "ok"
    assert found["qdisc"][0] == "ok"


def test_doctor__fix_while_careful_is_up(host: Host) -> None:
    host.up()
    assert doctor(host, "--fix", "--yes", "eth1")["instance"][1] == "nothing to do"
    assert host.status()["pid"] == host.pid


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ((1, 1, 1), "ok", "are obeyed and sent"),
        ((0, 1, 0), "warn", "are obeyed, but not sent"),
        ((0, 0, 1), "warn", "are sent, but not obeyed"),
        ((1, 0, 0), "warn", "are neither obeyed nor sent"),
    ],
)
def test_pause__follows_the_drivers_report(
    answer: tuple[int, int, int], state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """veth has none, so a fake driver answers."""
    kept = ethtool._ask

    def asked(sock: Any, ifname: str, command: int, size: int) -> bytes | None:
        if command == 0x12:
            return struct.pack("=4I", command, *answer)
        return kept(sock, ifname, command, size)

    assert ethtool.driver_info("lo").pause is None
    monkeypatch.setattr(ethtool, "_ask", asked)
    pause = ethtool.driver_info("lo").pause
    assert pause is not None
    found = machine.pause("eth1", pause)
    assert (found.state, said in found.text) == (state, True)
    assert ("ethtool -A eth1 rx on tx on" in found.advice) is (state == "warn")


@pytest.mark.parametrize(
    ("size", "most", "wanted", "fix"),
    [
        (256, 4096, 4096, "ethtool -G eth1 rx 4096"),
        (256, 1024, 4096, "ethtool -G eth1 rx 1024"),
        (1024, 1024, 4096, ""),
        (512, 4096, 512, ""),
    ],
)
def test_ring__smaller_than_its_maximum(size: int, most: int, wanted: int, fix: str) -> None:
    found = machine.ring("eth1", size, most, wanted)
    assert (found.state, " ".join(found.fix)) == ("warn" if fix else "ok", fix)
    assert found.advice == fix


@pytest.mark.parametrize(("now", "said"), [(192, False), (128, True)])
def test_ring__made_smaller_under_a_carefuld(
    now: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R stays, so peers may send more at once than the ring holds."""
    info = SimpleNamespace(device=SimpleNamespace(receive_buffers=192))
    monkeypatch.setattr(status, "info_of", lambda _: info)
    driver = ethtool.DriverInfo(1, False, now, None, rx_ring_most=256)
    instance: Any = SimpleNamespace(pid=12)
    found = next(iter(machine._driver(links.find("lo"), driver, machine.Case("lo", instance))))
    assert found.check == "ring"
    assert ("R = 192" in found.text, "carefulctl down lo, then up" in found.advice) == (said, said)


@pytest.mark.parametrize(
    ("said", "on", "state"),
    [
        ('{"pfc-cap":8,"prio-pfc":[true,false,false,true,false,false,false,false]}', {0, 3}, "ok"),
        ('{"pfc-cap":8,"prio-pfc":["off","off","off","on"]}', {3}, "warn"),
        ('{"pfc-cap":8}', None, ""),
        ("", None, ""),
    ],
)
def test_pfc__for_the_priority_of_frames(said: str, on: Any, state: str) -> None:
    found = ethtool.priorities(said)
    assert found == on
    if found:
        finding = machine.pfc("eth1", found)
        assert finding.state == state
        assert ("dcb pfc set dev eth1 prio-pfc 0:on" in finding.advice) is (state == "warn")


def test_bpffs_mounted__next_to_odd_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk whose name is not UTF-8 once ended doctor."""
    monkeypatch.setattr(doctoring, "MOUNTS", tmp_path / "mounts")
    disk = b"/dev/sdb1 /media/\xff\xa0 vfat rw 0 0\n"
    doctoring.MOUNTS.write_bytes(disk)
    assert not doctoring.bpffs_mounted()
    doctoring.MOUNTS.write_bytes(disk + b"bpf /sys/fs/bpf bpf rw 0 0\n")
    assert doctoring.bpffs_mounted()


def test_fix__a_failed_step_prevents_no_other() -> None:
    ran = []
    steps = [
        doctoring.Step("a", "try it", lambda: doctoring._run(("false",))),
        doctoring.Step("b", "", lambda: doctoring._run(("careful-no-such-program",))),
        doctoring.Step("c", "", lambda: ran.append(1) or "done"),
    ]
    found = {one.check: one for one in doctoring.fix(steps)}
    assert ran == [1]
    assert (found["c"].state, found["c"].text) == ("ok", "done")
    assert (found["a"].state, found["a"].text) == ("warn", "false: status 1")
    assert found["a"].advice == "by hand: try it"
    assert "careful-no-such-program: No such file" in found["b"].text
    assert found["bpffs"].text == "nothing to do"


@pytest.mark.parametrize("used", [False, True])
def test_fix__leaves_settings_of_an_interface_in_use(
    used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ethtool -G and -A take many links down, which ends sessions."""
    ran = []
    found = [warn("ring", "few", "more", ("ethtool", "-G", "lo", "rx", "9"))]
    monkeypatch.setattr(instances, "need_root", lambda _: None)
    monkeypatch.setattr(instances, "uses", lambda link: used and link == links.find("lo"))
    monkeypatch.setattr(doctoring, "check", lambda *_: found)
    monkeypatch.setattr(doctoring, "_run", lambda command: ran.append(command) or "done")
    steps = [one for one in doctoring.plan("lo", None) if one.check == "ring"]
    ring = doctoring.fix(steps)[0]
    assert ran == ([] if used else [("ethtool", "-G", "lo", "rx", "9")])
    if used:
        assert (ring.state, ring.advice) == ("warn", "ethtool -G lo rx 9")
        assert "careful is up on lo" in ring.text


@pytest.mark.parametrize("answer", [True, False])
def test_fix__is_silent_about_declined_fixes(
    answer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """doctor once said "nothing to do" about fixes that it had just listed."""
    steps = [doctoring.Step("bpffs", "mount it", lambda: "mounted")]
    monkeypatch.setattr(doctoring, "plan", lambda *_: steps)
    monkeypatch.setattr(doctoring, "check", lambda *_: [ok("XDP", "none")])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("click.confirm", lambda *_, **__: answer)
    assert carefulctl(["doctor", "--fix", "lo"]) == 0
    out, err = capsys.readouterr()
    assert "bpffs      mount it" in err
    assert ("mounted" in out, "nothing to do" in out) == (answer, answer)
    assert "XDP" in out


def test_rps__is_named_with_generic_xdp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On several CPUs the window is inexact, and frames overtake each other."""
    masks = {"rx-0": "00000000,00000003", "rx-1": "1", "rx-2": "0"}
    for queue, mask in masks.items():
        (tmp_path / "eth1/queues" / queue).mkdir(parents=True)
        (tmp_path / "eth1/queues" / queue / "rps_cpus").write_text(f"{mask}\n")
    monkeypatch.setattr(links, "_SYSFS", tmp_path)
    assert links.spread_by_rps("eth1") == {"rx-0": 2}
    for xdp, mode, state in (
        ("auto", "", "warn"),
        ("generic", "", "fail"),
        ("auto", "generic", "fail"),
        ("auto", "native", "ok"),
    ):
        link: Any = SimpleNamespace(name="eth1", xdp_mode=mode)
        found = machine._rps(link, xdp)
        assert found.state == state
        assert ("rx-0 over 2 CPUs" in found.text) is (state != "ok")
        advice = f"echo 1 > {tmp_path}/eth1/queues/rx-0/rps_cpus"
        assert found.advice == ("" if state == "ok" else advice)
    (tmp_path / "eth1/queues/rx-0/rps_cpus").write_text("0\n")
    link = SimpleNamespace(name="eth1", xdp_mode="generic")
    assert machine._rps(link, "generic").state == "ok"
    assert links.rps_text("eth1") == ""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="RPS needs two CPUs")
def test_rps__generic_xdp_is_refused(host: Host, tmp_path: Path) -> None:
    """XDP on two CPUs once admitted 67 frames of a window of 64, and `up` only warned."""
    doctor(host, "--fix", "--yes", "eth1")  # mounts bpffs if needed
    pins = tmp_path / "pins"
    pins.mkdir()
    seen = mounted(
        f"mount --rbind /sys/fs/bpf {pins}",
        "mount -t sysfs none /sys",
        f"mount --move {pins} /sys/fs/bpf",
    )
    setting = "/sys/class/net/eth1/queues/rx-0/rps_cpus"
    keep_xdp("generic", host.lab.kept("h1"))
    for cpus, native in (("3", True), ("1", False)):
        host.lab.run("h1", *seen, "sh", "-c", f"echo {cpus} > {setting}")
        asked = host.lab.run("h1", *seen, "carefulctl", "up", "eth1", "--xdp=generic", check=False)
        assert asked.returncode == native
        assert (f"`echo 1 > {setting}`" in asked.stderr) is native
        host.ctl("down", "eth1", check=False)
        output = host.lab.run("h1", *seen, "carefulctl", "up", "eth1").stdout
        assert ("XDP native" in output) is native
        assert (f"`echo 1 > {setting}`" in host.log) is native
        host.ctl("down", "eth1")


def test_arp__two_interfaces_in_a_subnet(host: Host) -> None:
    def ip(*words: str) -> None:
        host.lab.run(host.name, "ip", *words)

    assert "ARP" not in doctor(host, "eth1")
    ip("link", "add", "eth2", "type", "veth", "peer", "name", "eth3")
    ip("link", "set", "eth2", "up")
    ip("addr", "add", "10.77.0.111/24", "dev", "eth2")
    state, text, advice = doctor(host, "eth1")["ARP"]
    assert state == "warn"
    assert "eth2: in one subnet with eth1, answers ARP for addresses of eth1" in text
    host.lab.run(host.name, *advice.split())
    assert "ARP" not in doctor(host, "eth1")


def test_own_address__is_recognized(host: Host) -> None:
    host.up()
    for address in ("10.77.0.1", "127.0.0.1"):
        done = host.ctl("ls", f"{address}:", check=False)
        assert done.returncode == 1
        assert f"{address}: that address is this host's own" in done.stderr
