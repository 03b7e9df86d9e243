"""Faults around a transfer: one clear line, bounded time, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from careful._abi import lib, sizeof, unpack
from careful.transfer.file import journal
from ctrl_message import body_of, ctrl_message
from hosts import (
    CRAWLING,
    MIB,
    PINS,
    SLOWLY,
    Host,
    Hosts,
    alive,
    finish,
    make_file,
    moving,
    wait_for,
)
from lab import Lab, nobody

#: The qdisc that `up` puts on an interface, and must remove.
QDISC = "pfifo ca00:"


def refused(
    host: Host,
    *args: str | Path,
    status: int = 1,
    within_s: float = 60,
    lines: int = 1,
    **more: Any,
) -> str:
    """Checks that carefulctl fails in bounded time. Returns its error lines."""
    start = time.monotonic()
    done = host.ctl(*args, check=False, **more)
    assert time.monotonic() - start < within_s
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.count("\n") == lines, done.stderr
    assert done.stderr.startswith("carefulctl: ")
    assert "Traceback" not in done.stderr
    return done.stderr


def left_behind(host: Host) -> list[str]:
    """Returns an instance's leftovers."""
    found = []
    if (PINS / host.lab.instance(host.name)).exists():
        found.append("pins")
    link = host.lab.run(host.name, "ip", "-d", "link", "show", "eth1").stdout
    if "prog/xdp" in link:
        found.append("XDP program")
    if QDISC in host.lab.run(host.name, "tc", "qdisc", "show", "dev", "eth1").stdout:
        found.append("qdisc")
    return found


# --- up


def test_up__no_such_interface(hosts: Hosts) -> None:
    a, _ = hosts()
    assert "nope" in refused(a, "up", "nope")


def test_up__interface_down(hosts: Hosts) -> None:
    a, _ = hosts()
    a.lab.run("h1", "ip", "link", "set", "eth1", "down")
    said = refused(a, "up", "eth1")
    assert "down" in said
    assert "ip link set eth1 up" in said
    assert not left_behind(a)


def test_up__not_root(hosts: Hosts) -> None:
    a, _ = hosts()
    done = a.lab.run("h1", *nobody(), "carefulctl", "up", "eth1", check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "root" in done.stderr
    assert not left_behind(a)


@pytest.mark.parametrize(
    ("mtu", "options", "said"),
    [
        (9000, ["--peers", "128"], "MTU 9000"),
        (3826, ["--peers", "200", "--rx-buffers", "64"], "--rx-buffers"),
        (3826, ["--peers", "256"], "512"),
        (3826, ["--tx-buffers", "1"], "--tx-buffers"),
        (9000, ["--tx-buffers", "2"], "--tx-buffers"),
    ],
    ids=[
        "mtu-beyond-the-window",
        "peers-beyond-buffers",
        "peers-beyond-r",
        "no-buffer-to-send",
        "frame-beyond-the-buffers-to-send",
    ],
)
def test_up__does_not_fit(hosts: Hosts, mtu: int, options: list[str], said: str) -> None:
    a, _ = hosts(mtu=mtu)
    assert said in refused(a, "up", "eth1", *options)
    assert not left_behind(a)


def test_up__mtu_too_small(hosts: Hosts) -> None:
    a, _ = hosts(mtu=1500)
    a.lab.run("h1", "ip", "link", "set", "eth1", "mtu", "150")
    said = refused(a, "up", "eth1")
    assert "MTU of 150" in said
    assert not left_behind(a)


OTHER = """
#include <linux/bpf.h>
#define SEC(name) __attribute__((section(name), used))
SEC("xdp") int somebody_else(struct xdp_md *ctx) { return XDP_PASS; }
char LICENSE[] SEC("license") = "GPL";
"""


@pytest.mark.skipif(shutil.which("bpftool") is None, reason="bpftool is not installed")
def test_up__another_xdp_program_is_named(hosts: Hosts, tmp_path: Path) -> None:
    a, _ = hosts(mtu=1500)
    (tmp_path / "other.c").write_text(OTHER)
    clang = next(filter(None, map(shutil.which, ("clang", "clang-19", "clang-14"))), None)
    if not clang:
        pytest.skip("clang is not installed")
    built = tmp_path / "other.o"
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    argv = [clang, "-target", "bpf", "-O2", "-g", include, "-c", tmp_path / "other.c", "-o", built]
    subprocess.run(argv, check=True)
    a.lab.run("h1", "ip", "link", "set", "dev", "eth1", "xdp", "obj", built, "sec", "xdp")
    said = refused(a, "up", "eth1")
    assert "somebody_else" in said
    link = a.lab.run("h1", "ip", "link", "show", "eth1").stdout
    assert "xdp" in link, "the other program is still there"
    a.lab.run("h1", "ip", "link", "set", "dev", "eth1", "xdp", "off")
    a.up()


def test_up__twice(shared_pair: tuple[Host, Host]) -> None:
    a, _ = shared_pair
    pid = a.pid
    assert str(pid) in refused(a, "up", "eth1")
    assert alive(pid)


def test_down__twice(hosts: Hosts) -> None:
    a, _ = hosts()
    a.up()
    a.down()
    assert not left_behind(a)
    a.down()


def test_mtu__changed_while_a_transfer_runs(hosts: Hosts) -> None:
    a, b = hosts()
    a.up()
    b.up()
    kept = make_file(b.export / "big", 128 * MIB)
    job = a.start("get", *SLOWLY, "h2:big", a.own / "big")
    moving(a)
    for host in (a, b):
        host.lab.run(host.name, "ip", "link", "set", "eth1", "mtu", "1400")
    status, _, errors = finish(job, 20)
    # A new epoch agrees on smaller frames, and the old one's losses are requested again.
    assert status == 0, errors
    assert (a.own / "big").read_bytes() == kept
    for host in (a, b):
        assert host.status()["frame_bytes"] == 1414
        assert host.status()["peers"][0]["frame_bytes"] == 1414
        host.lab.run(host.name, "ip", "link", "set", "eth1", "mtu", "3826")
    a.ctl("get", "-f", "h2:big", a.own / "big")
    assert (a.own / "big").read_bytes() == kept
    assert a.status()["frame_bytes"] == 3840


# --- who is not there


def test_get__host_unknown(shared_pair: tuple[Host, Host]) -> None:
    a, _ = shared_pair
    assert "nowhere.invalid" in refused(a, "get", "nowhere.invalid:f", a.own)


def test_get__no_route(shared_pair: tuple[Host, Host]) -> None:
    text = refused(shared_pair[0], "get", "198.51.100.7:f", shared_pair[0].own)
    assert "198.51.100.7" in text


def test_get__no_neighbour(shared_pair: tuple[Host, Host]) -> None:
    text = refused(shared_pair[0], "get", "10.77.0.200:f", shared_pair[0].own)
    assert "10.77.0.200" in text


def test_get__no_host_answers_there(hosts: Hosts) -> None:
    a, _ = hosts()
    a.up()
    assert "is careful up" in refused(a, "get", "h2:f", a.own)


SILENT = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", {port}))
print("ready", flush=True)
time.sleep(60)
"""


def test_get__silent_host(hosts: Hosts) -> None:
    a, b = hosts()
    a.up()
    text = SILENT.format(port=int(lib.CAREFUL_PORT_DEFAULT))
    silent = b.lab.start("h2", "python3", "-c", text)
    assert silent.stdout
    assert silent.stdout.readline() == "ready\n"
    said = refused(a, "get", "--timeout", "2", "h2:f", a.own)
    assert "h2" in said
    assert "no answer" in said


def test_get__peer_of_another_version(hosts: Hosts) -> None:
    """A host refuses with another version; the format of REFUSE never changes."""
    a, b = hosts()
    a.up()
    stop = threading.Event()

    def other() -> None:
        inside = os.open(b.lab.netns("h2"), os.O_RDONLY)
        setns(inside)
        os.close(inside)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind(("0.0.0.0", int(lib.CAREFUL_PORT_DEFAULT)))
            s.settimeout(0.1)
            while not stop.is_set():
                try:
                    hello, sender = s.recvfrom(2000)
                except TimeoutError:
                    continue
                s.sendto(refusal(hello), sender)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        text = refused(a, "get", "h2:f", a.own)
    finally:
        stop.set()
        thread.join()
    assert "version" in text
    assert a.status()["counters"]["ctrl_version"] + a.status()["counters"]["ctrl_refused"] > 0


ASK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(60)
    s.sendto(bytes.fromhex(sys.argv[1]), ("{to}", {port}))
    print(s.recv(2000).hex())
"""


def test_hello__of_another_version_is_told_at_both_ends(hosts: Hosts) -> None:
    """The size may differ, since the next version's HELLO may be longer."""
    a, b = hosts()
    a.up()
    version = int(lib.CAREFUL_WIRE_VERSION)
    hello = ctrl_message(int(lib.CAREFUL_HELLO), version=version + 1, nonce=77)
    text = ASK.format(to=a.lab.address("h1"), port=int(lib.CAREFUL_PORT_DEFAULT))
    for more in (0, sizeof("careful_keyed") - len(hello), 200):
        done = b.lab.run("h2", "python3", "-c", text, (hello + bytes(more)).hex())
        heard = bytes.fromhex(done.stdout)
        answer = unpack("careful_ctrl", heard) | body_of(heard, "refuse")
        said = [answer[one] for one in ("version", "type", "nonce", "why")]
        wanted = [version, lib.CAREFUL_REFUSE, 77, lib.CAREFUL_REFUSED_VERSION]
        assert said == [int(one) for one in wanted]
    wait_for(lambda: "of another wire version" in a.log, "line about the version")


def setns(fd: int) -> None:
    """Moves this thread alone into a network namespace."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(fd, 0x40000000) == 0


def refusal(hello: bytes) -> bytes:
    """Returns the answer to a HELLO of the next version."""
    asked = unpack("careful_ctrl", hello)
    version, why = int(lib.CAREFUL_WIRE_VERSION) + 1, int(lib.CAREFUL_REFUSED_VERSION)
    kind = int(lib.CAREFUL_REFUSE)
    return ctrl_message(kind, "refuse", version=version, nonce=asked["nonce"], why=why)


# --- files


@pytest.mark.parametrize(
    "path", ["../h1/own/secret", "tree/../../own/secret", "out", "way/secret", "/etc/passwd"]
)
def test_get__nothing_outside_the_export(shared_pair: tuple[Host, Host], path: str) -> None:
    a, b = shared_pair
    make_file(b.own / "secret", 100)
    (b.export / "tree").mkdir(exist_ok=True)
    for name, target in (("out", b.own / "secret"), ("way", b.own)):
        if not (b.export / name).is_symlink():
            (b.export / name).symlink_to(target)
    hint = path.startswith("/")  # the second line says that paths begin at the export
    refused(a, "get", f"h2:{path}", a.own / "stolen", lines=2 if hint else 1)
    assert not (a.own / "stolen").exists()


def test_put__nothing_outside_the_export(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    make_file(a.own / "f", 100)
    if not (b.export / "away").is_symlink():
        (b.export / "away").symlink_to(b.own)
    refused(a, "put", a.own / "f", "h2:../own/planted")
    refused(a, "put", a.own / "f", "h2:away/planted")
    assert not (b.own / "planted").exists()


def test_get__missing_and_special(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    assert "missing" in refused(a, "get", "h2:missing", a.own)
    if not (b.export / "pipe").exists():
        os.mkfifo(b.export / "pipe")
    assert "pipe" in refused(a, "get", "h2:pipe", a.own)


def full(folder: Path, lab: Lab) -> None:
    """Mounts a file system of 2 MiB on a folder."""
    argv = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
    subprocess.run(argv, check=True)


def test_disk__full_on_either_side(hosts: Hosts) -> None:
    a, b = hosts()
    full(a.own, a.lab)
    full(b.export, b.lab)
    try:
        a.up()
        b.up()
        make_file(a.export / "big", 8 * MIB)
        assert "space" in refused(a, "put", a.export / "big", "h2:big")
        assert not list(b.export.iterdir())
        assert "space" in refused(b, "get", "h1:big", a.own / "big")
        assert not list(a.own.iterdir())
        b.down()
    finally:
        for host in (a, b):
            host.ctl("down", "eth1", check=False)
        for folder in (a.own, b.export):
            subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.parametrize("how", ["shrinks", "changes", "goes"])
def test_source__while_it_is_read(shared_pair: tuple[Host, Host], how: str) -> None:
    a, b = shared_pair
    source = b.export / f"big-{how}"
    make_file(source, 48 * MIB)
    pace = (*CRAWLING, "--rate-limit", "4MiB")
    job = a.start("get", *pace, f"h2:{source.name}", a.own / source.name)
    moving(a)
    if how == "shrinks":
        os.truncate(source, MIB)
    elif how == "changes":
        with source.open("r+b") as file:  # a part that was read already
            file.write(b"something else")
    else:
        source.unlink()
    status, _, errors = finish(job)
    if how == "goes":  # an open file stays readable: POSIX
        assert status == 0, errors
    else:
        assert status == 1
        assert errors.count("\n") == 1
        assert source.name in errors
        assert not (a.own / source.name).exists()
    assert not [p for p in a.own.iterdir() if ".careful" in p.name]
    for host in (a, b):
        assert host.status()["counters"]["lost_frames"] == 0


# --- who dies


@pytest.mark.parametrize("victim", ["the other end", "our own"])
@pytest.mark.parametrize("command", ["get", "put"])
def test_killed__in_the_middle(hosts: Hosts, victim: str, command: str) -> None:
    a, b = hosts()
    a.up()
    b.up()
    source = b.export / "big" if command == "get" else a.export / "big"
    kept = make_file(source, 192 * MIB)
    target = a.own / "copy" if command == "get" else b.export / "copy"
    args = ["h2:big", target] if command == "get" else [source, "h2:copy"]
    job = a.start(command, *CRAWLING, *args)
    moving(a)
    dead, other = (b, a) if victim == "the other end" else (a, b)
    pid = dead.pid
    os.kill(pid, signal.SIGKILL)
    status, _, errors = finish(job, 60)  # instead of minutes
    assert status == 1
    assert errors.count("\n") == 1, errors
    assert not target.exists()
    assert alive(other.pid)
    dead.up()  # at once, even if the other end still has a session
    a.ctl(command, *args, "-f")
    assert target.read_bytes() == kept
    for host in (a, b):
        host.down()
        assert not left_behind(host)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_command__killed_in_the_middle(shared_pair: tuple[Host, Host], how: signal.Signals) -> None:
    a, b = shared_pair
    make_file(b.export / "big", 192 * MIB)
    before = a.status()["peers"][0]["operations"] if a.status()["peers"] else 0
    job = a.start("get", *CRAWLING, "h2:big", a.own / f"big-{how.name}")
    moving(a)
    job.send_signal(how)
    status, _, errors = finish(job, 20)
    assert status != 0
    assert "Traceback" not in errors
    assert not (a.own / f"big-{how.name}").exists()
    if how != signal.SIGKILL:
        left = [p.name for p in a.own.iterdir() if how.name in p.name]
        assert all(journal.NAME.match(name) for name in left), left
    wait_for(lambda: a.status()["peers"][0]["operations"] <= before, "end of its operations")
    a.ctl("get", "h2:big", a.own / f"again-{how.name}")
    assert (a.own / f"again-{how.name}").stat().st_size == 192 * MIB
    for path in a.own.iterdir():
        path.unlink()
