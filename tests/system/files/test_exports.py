"""Exported directories that come and go, and files without a size, between real carefulds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from careful._abi import lib, pack
from careful.address import resolve
from careful.daemon.client import Client
from hosts import RUN, Host, Hosts, wait_for


def test_export__gone_and_made_again(pair: tuple[Host, Host]) -> None:
    a, b = pair
    (b.export / "f").write_text("1")
    a.ctl("get", "h2:f", a.own)
    shutil.rmtree(b.export)
    for words in (["ls", "h2:"], ["get", "h2:f", "x"], ["put", a.own / "f", "h2:g"]):
        done = a.ctl(*words, check=False)
        assert done.returncode == 1
        assert "the exported directory is not there" in done.stderr
    assert not b.export.exists()
    b.export.mkdir()
    a.ctl("put", a.own / "f", "h2:g")
    assert (b.export / "g").read_text() == "1"
    assert a.ctl("ls", "h2:").stdout == "g\n"


def test_exports__one_of_two_is_gone(hosts: Hosts, tmp_path: Path) -> None:
    a, b = hosts()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    a.up()
    b.ctl(
        "up",
        "eth1",
        "--export",
        tmp_path / "one",
        "--export",
        "/proc/sys",
        "--export",
        tmp_path / "two",
    )
    shutil.rmtree(tmp_path / "one")
    output = a.ctl("ls", "h2:").stdout.splitlines()
    assert output[0].startswith("one (the exported directory is not there")
    assert output[1:] == ["sys/", "two/"]
    entries = json.loads(a.ctl("ls", "--json", "h2:").stdout)["entries"]
    assert {one["name"]: bool(one["error"]) for one in entries} == {
        "one": True,
        "sys": False,
        "two": False,
    }
    a.ctl("get", "h2:two/f", "h2:sys/kernel/ostype", f"{a.own}/")
    assert (a.own / "f").read_text() == "two"
    assert (a.own / "ostype").read_text() == Path("/proc/sys/kernel/ostype").read_text() != ""


def test_export__of_one_host_and_without_owners(hosts: Hosts, tmp_path: Path) -> None:
    """Without `owners` a put sets nothing that needs root; `host=` excludes other hosts."""
    a, b = hosts()
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    (a.own / "f").write_bytes(b"x")
    (a.own / "f").chmod(0o4755)
    os.chown(a.own / "f", 1234, 5678)
    (a.own / "f").chmod(0o4755)
    a.up()
    exports = (f"{tmp_path}/mine:rw,host={a.lab.address('h1')}", f"{tmp_path}/other:rw,host=::1")
    b.ctl("up", "eth1", "--insecure", *(word for one in exports for word in ("--export", one)))
    assert a.ctl("ls", "h2:").stdout == "mine/\n"
    a.ctl("put", "-a", a.own / "f", "h2:mine/")
    found = (tmp_path / "mine/f").stat()
    assert (found.st_uid, found.st_mode & 0o7777) == (os.geteuid(), 0o755)
    assert a.ctl("put", a.own / "f", "h2:other/f", check=False).returncode == 1
    assert list((tmp_path / "other").iterdir()) == []
    (tmp_path / "mine/way").symlink_to("../other")
    assert a.ctl("get", "h2:mine/way/f", a.own / "g", check=False).returncode == 1
    wait_for(lambda: "paths denied to peers" in b.log, "a line in the log")
    assert b.status()["counters"]["paths_denied"] > 0
    output = " ".join(b.ctl("status", "-v").stdout.split())  # folded at the terminal's width
    assert f"{tmp_path}/mine (writable, for {a.lab.address('h1')})" in output


def move_byte(host: Host, other: Host, op: int, name: str, file: Path, flags: int = 0) -> None:
    """Moves one byte between a file of the program and one that another host exports."""
    head = pack("careful_block_open", flags=flags, path_bytes=len(name)) + name.encode()
    address = resolve(host.lab.address(other.name)).sockaddr()
    sock = RUN / host.lab.instance(host.name) / "sock"
    with Client(sock) as client, file.open("r+b") as f:
        peer = client.call(lib.CAREFUL_IPC_CONNECT, "peer", payload=address, bytes=5000).peer
        more = {"peer": peer, "handler": int(lib.CAREFUL_BLOCK_OPEN), "payload": head}
        key = client.call(lib.CAREFUL_IPC_REQUEST, name, **more).args[0]
        number = client.call(lib.CAREFUL_IPC_FILE_ADD, "file", fd=f.fileno()).file
        client.call(op, name, peer=peer, region=key, file=number, bytes=1, handler=256)


def test_owners__set_id_bits_are_kept_by_put_and_cleared_by_writes(hosts: Hosts) -> None:
    """Otherwise a member of --group could change a program that runs as another user."""
    a, b = hosts()
    for host in (a, b):
        host.ctl("up", "eth1", "--insecure", "--export", f"{host.export}:rw,owners")
    source, local, remote = a.own / "d", a.own / "d/run", b.export / "d/run"
    source.mkdir()
    local.write_bytes(b"1")
    for path, mode in ((source, 0o2755), (local, 0o6755)):
        os.chown(path, 1234, 5678)
        path.chmod(mode)
    a.ctl("put", "-a", source, "h2:")
    assert remote.parent.stat().st_mode & 0o7777 == 0o2755
    assert remote.stat().st_mode & 0o7777 == 0o6755
    (b.export / "new").write_bytes(b"2")
    move_byte(a, b, lib.CAREFUL_IPC_GET, "new", local)
    assert local.read_bytes() == b"2"
    assert local.stat().st_mode & 0o7777 == 0o755
    move_byte(a, b, lib.CAREFUL_IPC_STORE, "d/run", local, lib.CAREFUL_BLOCK_INPLACE)
    assert remote.read_bytes() == b"2"
    assert remote.stat().st_mode & 0o7777 == 0o755


def test_export__of_a_mount_can_be_unmounted(hosts: Hosts, tmp_path: Path) -> None:
    """The file for pings kept each writable export's file system busy."""
    a, b = hosts()
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "none", disk]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs: {done.stderr.strip()}")

    def is_unmounted() -> bool:
        return subprocess.run(["umount", disk], check=False, capture_output=True).returncode == 0

    try:
        a.up()
        b.ctl("up", "eth1", "--insecure", "--export", f"{disk}:rw")
        (a.own / "f").write_text("1")
        a.ctl("put", a.own / "f", "h2:")
        words = ["measure", "pathchar", "--json", "--time", "2s", "h2"]
        found = json.loads(a.ctl(*words, check=False).stdout)
        assert "an unnamed file in its export" in json.dumps(found)
        wait_for(is_unmounted, "unmounting")
        subprocess.run(mount, check=True)
        a.ctl("put", a.own / "f", "h2:")
        assert (disk / "f").read_text() == "1"
        wait_for(is_unmounted, "unmounting")
    finally:
        subprocess.run(["umount", "-l", disk], check=False, capture_output=True)
