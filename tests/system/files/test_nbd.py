"""A file of another host for NBD clients: nbdkit's plugin, nbdcopy and nbdinfo."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import MIB, Host, finish, make_file, moving
from lab import MakeLab

PLUGIN = Path(sys.prefix) / "lib" / "nbdkit" / "plugins" / "nbdkit-careful-plugin.so"

needs_nbd = [
    pytest.mark.skipif(
        not PLUGIN.exists(), reason="the plugin was built without nbdkit-plugin-dev"
    ),
    pytest.mark.skipif(not shutil.which("nbdkit"), reason="nbdkit is not installed"),
    pytest.mark.skipif(not shutil.which("nbdcopy"), reason="libnbd-bin is not installed"),
]
pytestmark = needs_nbd


#: An NBD client that trims by OFFSET,NBYTES,FLAGS and prints each answer. FROM:TO renames a file
#: between two trims. With SECOND, the client first tries another connection.
TRIMS = """
import os, socket, struct, subprocess, sys
def read(n):
    found = b""
    while len(found) < n:
        more = sock.recv(n - len(found))
        assert more
        found += more
    return found
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
assert read(18)[:16] == b"NBDMAGICIHAVEOPT"
sock.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))  # the default export
read(10)
if "SECOND" in os.environ:
    second = subprocess.run(["nbdinfo", "--size", "nbd+unix:///?socket=" + sys.argv[1]])
    print("refused" if second.returncode else "served", flush=True)
for number, words in enumerate(sys.argv[2:]):
    if ":" in words:
        os.rename(*words.split(":"))
        continue
    offset, nbytes, flags = map(int, words.split(","))
    sock.sendall(struct.pack(">IHHQQI", 0x25609513, flags, 4, number, offset, nbytes))
    magic, error, cookie = struct.unpack(">IIQ", read(16))
    assert (magic, cookie) == (0x67446698, number)
    print(error)
"""
FUA = 1


def served(host: Host, client: str, *parameters: str) -> list[str | Path]:
    """Returns the command that serves a file of h2 while a client runs."""
    return ["nbdkit", "-U", "-", PLUGIN, "host=10.77.0.2", *parameters, "--run", client]


def ran(host: Host, client: str, *parameters: str) -> str:
    """Returns the output of a client."""
    return host.lab.run(host.name, *served(host, client, *parameters)).stdout


def failed(host: Host, *parameters: str) -> str:
    """Returns the reason why a file is not served."""
    argv = served(host, 'nbdinfo "$uri"', *parameters)
    done: subprocess.CompletedProcess[str] = host.lab.run(host.name, *argv, check=False)
    assert done.returncode
    return done.stderr


def received(host: Host) -> int:
    """Returns the bytes received from all peers."""
    return sum(int(one["rx_bytes"]) for one in host.status()["peers"])


def test_nbd__a_file_is_copied_both_ways(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    image = remote.export / "image"
    data = make_file(image, 3 * MIB)
    with image.open("r+b") as file:
        file.truncate(16 * MIB)
    extents = json.loads(ran(local, 'nbdinfo --map --json "$uri"', "path=image"))
    assert extents[0] == {"offset": 0, "length": 3 * MIB, "type": 0, "description": "data"}
    assert extents[-1]["type"] == 3  # a hole
    ran(local, f'nbdcopy "$uri" {local.own}/copy', "path=image")
    assert (local.own / "copy").read_bytes() == data + bytes(13 * MIB)
    fresh = make_file(local.own / "fresh", 16 * MIB - 512, 2)
    ran(local, f'nbdcopy --flush --request-size=65536 {local.own}/fresh "$uri"', "path=image")
    assert image.read_bytes() == fresh + bytes(512)
    local.assert_nothing_lost()


def test_nbd__a_device_has_one_connection_that_writes(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    fresh = make_file(local.own / "fresh", 4 * MIB)
    (remote.own / "disk").write_bytes(bytes(4 * MIB))
    made = subprocess.run(
        ["losetup", "--show", "-f", remote.own / "disk"], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    loop = made.stdout.strip()
    device = remote.export / "device"
    try:
        os.mknod(device, 0o600 | stat.S_IFBLK, Path(loop).stat().st_rdev)
        both = f'nbdcopy --flush {local.own}/fresh "$uri" && nbdcopy "$uri" {local.own}/copy'
        ran(local, both, "path=device")
        assert (local.own / "copy").read_bytes() == fresh
        # A second connection is refused; the first continues.
        client = [shlex.quote(sys.executable), "-c", shlex.quote(TRIMS), "$unixsocket"]
        argv = served(local, " ".join(["SECOND=yes", *client, f"{MIB},{MIB},{FUA}"]), "path=device")
        done = local.lab.run("h1", *argv)
        assert done.stdout.split() == ["refused", "0"]
        assert "in use: mounted, or written by another connection" in done.stderr
        now = fresh[:MIB] + bytes(MIB) + fresh[2 * MIB :]
        ran(local, f'nbdcopy "$uri" {local.own}/copy', "path=device")
        assert (local.own / "copy").read_bytes() == now
    finally:
        device.unlink(missing_ok=True)
        subprocess.run(["losetup", "-d", loop], check=True)


def test_nbd__zeros_are_not_moved(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    image, sparse = remote.export / "image", local.own / "sparse"
    make_file(image, 16 * MIB)
    data = make_file(sparse, MIB, 2)
    with sparse.open("r+b") as file:
        file.truncate(16 * MIB)
    assert "can_trim: true" in (said := ran(local, 'nbdinfo "$uri"', "path=image"))
    assert "can_zero: true" in said
    before = received(remote)
    ran(local, f'nbdcopy --flush {sparse} "$uri"', "path=image")
    assert image.read_bytes() == data + bytes(15 * MIB)
    assert image.stat().st_blocks * 512 < 4 * MIB
    assert received(remote) - before < 4 * MIB


def test_nbd__trim_makes_holes(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    image = remote.export / "image"
    data = make_file(image, 4 * MIB)
    before = image.stat().st_blocks
    client = [shlex.quote(sys.executable), "-c", shlex.quote(TRIMS), "$unixsocket"]
    trims = (f"{MIB},{MIB},0", f"{3 * MIB},{MIB},{FUA}", f"{4 * MIB},4096,0", "0,0,0")
    text = ran(local, " ".join([*client, *trims]), "path=image").split()
    assert text[:2] == ["0", "0"]
    assert text[2] != "0"  # beyond the end
    assert image.read_bytes() == data[:MIB] + bytes(MIB) + data[2 * MIB : 3 * MIB] + bytes(MIB)
    assert before - image.stat().st_blocks >= 2 * MIB // 512
    local.assert_nothing_lost()


def test_nbd__another_file_of_the_name_is_not_touched(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    make_file(remote.export / "image", MIB)
    other = make_file(remote.export / "other", MIB, 2)
    client = [shlex.quote(sys.executable), "-c", shlex.quote(TRIMS), "$unixsocket"]
    trims = (f"0,4096,{FUA}", f"{remote.export}/other:{remote.export}/image")
    trims += (f"4096,4096,{FUA}", "8192,4096,0", f"12288,4096,{FUA}")
    argv = served(local, " ".join([*client, *trims]), "path=image")
    done = local.lab.run("h1", *argv)
    first, *later = done.stdout.split()
    assert first == "0"
    assert later == [str(errno.EIO)] * 3  # not EINVAL: the requests were valid
    assert "10.77.0.2:image: another file has this name now" in done.stderr
    assert (remote.export / "image").read_bytes() == other


needs_qemu = pytest.mark.skipif(
    not (shutil.which("qemu-img") and shutil.which("qemu-io")), reason="qemu-utils is not installed"
)


@needs_qemu
def test_nbd__qemu_reads_and_writes_images(pair: tuple[Host, Host]) -> None:
    """Raw and qcow2, converted both ways; qemu-io writes, zeroes, discards and verifies."""
    local, remote = pair
    data = make_file(remote.export / "image", 8 * MIB)
    raw = "driver=nbd,server.type=unix,server.path=$unixsocket"
    ran(local, f"qemu-img convert --image-opts {raw} -O qcow2 {local.own}/copy", "path=image")
    # -n: the target exists; qemu's discard makes holes.
    (remote.export / "back").write_bytes(b"x" * 8 * MIB)
    back = f"qemu-img convert -n -f qcow2 {local.own}/copy --target-image-opts {raw}"
    ran(local, back, "path=back")
    assert (remote.export / "back").read_bytes() == data
    commands = [
        f"write -P 0xa5 {MIB} {MIB}",
        f"write -f -P 0x5a 12345 {64 << 10}",  # FUA
        f"write -z {3 * MIB} {MIB}",
        f"discard {5 * MIB} {MIB}",
        "flush",
        f"read -P 0xa5 {MIB} {MIB}",
        f"read -P 0x5a 12345 {64 << 10}",
        f"read -P 0 {3 * MIB} {MIB}",
    ]
    asked = " ".join(f"-c {shlex.quote(one)}" for one in commands)
    text = ran(local, f"qemu-io -d unmap -f raw {asked} nbd:unix:$unixsocket", "path=image")
    assert "verification failed" not in text
    assert text.count("ops;") == len(commands) - 1
    now = (remote.export / "image").read_bytes()
    assert now[MIB : 2 * MIB] == b"\xa5" * MIB
    assert now[3 * MIB : 4 * MIB] == now[5 * MIB : 6 * MIB] == bytes(MIB)
    assert now[6 * MIB :] == data[6 * MIB :]
    assert now[:12345] == data[:12345]
    local.assert_nothing_lost()


@needs_qemu
def test_nbd__an_image_of_qemu_s_own_lies_on_the_host(pair: tuple[Host, Host]) -> None:
    """qcow2 metadata are written, read and checked through the remote file."""
    local, remote = pair
    (remote.export / "image").write_bytes(bytes(16 * MIB))
    at = "nbd+unix:///?socket=$unixsocket"
    client = " && ".join(
        [
            f'qemu-img create -q -f qcow2 "{at}" 8M',
            f'qemu-io -f qcow2 -c "write -P 7 1M 3M" -c "read -P 7 1M 3M" -c flush "{at}"',
            f'qemu-img check -f qcow2 "{at}"',
        ]
    )
    said = ran(local, client, "path=image")
    assert "No errors were found" in said
    assert (remote.export / "image").read_bytes()[:4] == b"QFI\xfb"


def test_nbd__is_found_by_its_name(pair: tuple[Host, Host], tmp_path: Path) -> None:
    """`nbdkit careful` works, since the package installs the plugin among nbdkit's own."""
    local, remote = pair
    data = make_file(remote.export / "image", MIB)
    config = subprocess.run(["nbdkit", "--dump-config"], capture_output=True, text=True, check=True)
    (folder,) = re.findall(r"^plugindir=(.*)$", config.stdout, re.MULTILINE)
    shutil.copy(PLUGIN, tmp_path)
    client = f'nbdcopy "$uri" {local.own}/copy'
    named = ["nbdkit", "-U", "-", "careful", "host=10.77.0.2", "path=image", "--run", client]
    bound = f"mount --bind {tmp_path} {folder} && exec {shlex.join(named)}"
    local.lab.run(local.name, "unshare", "--mount", "sh", "-c", bound)
    assert (local.own / "copy").read_bytes() == data


def test_nbd__goes_by_the_queue_that_serves_the_host(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(queues=(4, 4))
    data = make_file(tmp_path / "image", 3 * MIB)
    for host in lab.hosts:
        up = ("carefulctl", "up", "eth1", "--insecure", "--queues", "4", "--peers", "8")
        lab.run(host, *up, "--export", f"{tmp_path}:rw")

    def copied(name: str) -> list[int]:
        """Copies by two connections. Returns each session's queue."""
        client = f'nbdcopy --connections=2 "$uri" {tmp_path}/{name}'
        plugin = ["nbdkit", "-U", "-", PLUGIN, f"host={lab.address('h2')}", "path=image"]
        lab.run("h1", *plugin, "--run", client)
        assert (tmp_path / name).read_bytes() == data
        shown = json.loads(lab.run("h1", "carefulctl", "status", "eth1", "--json").stdout)
        return [one["queue"] for one in shown["instances"][0]["peers"] if one["state"] == "up"]

    first = copied("first")
    assert len(first) == 1
    # An existing session is used, also one of another program.
    lab.run("h1", "carefulctl", "ls", f"{lab.address('h2')}:")
    assert copied("second") == first
    lab.run("h1", "carefulctl", "down", "eth1")
    lab.run("h1", "carefulctl", "up", "eth1", "--insecure", "--queues", "4", "--peers", "8")
    lab.run("h1", "carefulctl", "ls", f"{lab.address('h2')}:")
    assert len(copied("third")) == 1


def test_nbd__is_a_plugin_as_others_are() -> None:
    """nbdkit's tests for every plugin: --help, --version and --dump-plugin."""
    asked = {
        option: subprocess.run(
            ["nbdkit", PLUGIN, option], capture_output=True, text=True, check=True
        ).stdout
        for option in ("--help", "--version", "--dump-plugin")
    }
    for name in ("host=", "path=", "instance=", "port="):
        assert name in asked["--help"]
    assert "careful" in asked["--version"]
    lines = dict(line.split("=", 1) for line in asked["--dump-plugin"].splitlines())
    assert lines["name"] == "careful"
    assert lines["path"] == str(PLUGIN)
    assert (lines["magic_config_key"], lines["max_thread_model"]) == ("path", "parallel")
    for one in ("pread", "pwrite", "flush", "trim", "zero", "extents", "block_size"):
        assert lines[f"has_{one}"] == "1"


def test_nbd__goes_on_where_the_hosts_carefuld_is_restarted(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "image").write_bytes(bytes(64 * MIB))
    data = make_file(local.own / "fresh", 64 * MIB)
    slowly = (
        f'nbdcopy --flush --connections=1 --requests=2 --request-size=4096 {local.own}/fresh "$uri"'
    )
    copying = local.lab.start("h1", *served(local, slowly, "path=image"))
    moving(remote)
    remote.down()
    remote.up()
    code, _, err = finish(copying, timeout_s=280)
    assert code == 0, err
    assert (remote.export / "image").read_bytes() == data


def test_nbd__finds_the_only_instance(pair: tuple[Host, Host]) -> None:
    """Its lock, and leftovers of a killed carefuld, are next to its directory."""
    local, remote = pair
    data = make_file(remote.export / "image", 100_000)
    run = local.own / "run"
    (run / "eth1").mkdir(parents=True)
    (run / "dead").mkdir()
    (run / "eth1.lock").touch()
    (run / "of-nobody").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(str(run / "dead/sock"))
    real = Path("/run/careful") / local.lab.instance("h1")
    mounts = f"mount --bind {real} {run}/eth1 && mount --rbind {run} /run/careful && "
    argv = served(local, f'nbdcopy "$uri" {local.own}/copy', "path=image")
    script = mounts + "exec " + shlex.join(map(str, argv))
    local.lab.run("h1", "env", "-u", "CAREFUL_INSTANCE", "unshare", "-m", "sh", "-c", script)
    assert (local.own / "copy").read_bytes() == data


def test_nbd__names_the_fault(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "image").write_bytes(bytes(4096))
    assert "10.77.0.2:none: No such file" in failed(local, "path=none")
    assert "careful is not up on this host, or not on the other" in failed(
        local, "path=image", "instance=none"
    )
    assert "host=HOST and path=PATH are required" in failed(local)
    assert "unknown parameter" in failed(local, "path=image", "colour=red")


def test_nbd__a_read_only_export_is_not_written(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "image").write_bytes(bytes(4096))
    remote.down()
    remote.ctl("up", "eth1", "--export", remote.export)
    assert "is_read_only: true" in ran(local, 'nbdinfo "$uri"', "path=image")
