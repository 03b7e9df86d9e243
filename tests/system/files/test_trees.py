"""Trees between two hosts of the lab: all attributes, many small files, failures."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from compare import assert_equal, set_xattr
from hosts import MIB, Host, alive, finish, make_file, moving, wait_for


def make_tree(top: Path) -> None:
    """Makes a tree with one file of each kind, and many small files."""
    rng = random.Random(7)
    for folder in range(20):
        where = top / f"folder {folder}"
        where.mkdir(parents=True)
        for index in range(50):
            path = where / f"file{index}"
            path.write_bytes(rng.randbytes(rng.randrange(9000)))
            path.chmod(rng.choice([0o600, 0o644, 0o755, 0o4711]))
            os.utime(path, ns=(0, rng.randrange(1 << 60)))
    make_file(top / "large", 3 * MIB + 17)
    make_file(top / "middle", 65 * 1024)
    (top / "empty").mkdir()
    (top / os.fsdecode(b"not utf-8 \xff\n")).write_bytes(b"x")
    (top / ("n" * 255)).symlink_to("folder 1/file1")
    os.link(top / "large", top / "folder 3/again")
    set_xattr(top / "large", "user.note", b"kept")
    os.chown(top / "middle", 1000, 2000)
    acl = ["setfacl", "-m", "u:1234:r", top / "middle"]
    if shutil.which("setfacl") and subprocess.run(acl, check=False).returncode == 0:
        assert "system.posix_acl_access" in os.listxattr(top / "middle")
    for index in range(20):
        os.utime(top / f"folder {index}", ns=(0, index))
    os.utime(top, ns=(0, 1))


def test_archive__both_ways(pair: tuple[Host, Host]) -> None:
    a, b = pair
    make_tree(b.export / "tree")
    found = json.loads(a.ctl("get", "-a", "h2:tree", a.own, "--json").stdout)
    assert (found["files_count"], found["links_count"]) == (1003, 2)
    assert_equal(b.export / "tree", a.own / "tree")
    a.ctl("put", "-a", f"{a.own}/tree/", "h2:back")
    assert_equal(b.export / "tree", b.export / "back")
    for name, target in (("link", "tree/large"), ("nowhere", "no/such"), ("to tree", "tree")):
        (b.export / name).symlink_to(target)
        a.ctl("get", "-a", f"h2:{name}", a.own)
        assert (a.own / name).readlink() == Path(target)
    # A second run has nothing to do.
    again = json.loads(a.ctl("get", "-a", "-u", "--delete", "h2:tree", a.own, "--json").stdout)
    assert (again["files_count"], len(again["equal"]), again["moved_bytes"]) == (0, 1003, 0)
    for host in pair:
        host.assert_nothing_lost()


def test_archive__names_from_standard_input(pair: tuple[Host, Host]) -> None:
    a, b = pair
    make_tree(b.export / "tree")
    listed = "folder 1\nlarge\nnone\n"
    command = a.lab.argv("h1", "carefulctl", "get", "-a", "--files-from", "-", "h2:tree", a.own)
    done = subprocess.run(command, input=listed, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "h2:tree/none: No such file" in done.stderr
    left = sorted(path.name for path in (a.own / "tree").iterdir())
    assert left == ["folder 1", "large"]
    assert len(list((a.own / "tree/folder 1").iterdir())) == 50


def test_checksum__one_block_moves(pair: tuple[Host, Host]) -> None:
    a, b = pair
    make_file(b.export / "f", 16 * MIB)
    a.ctl("get", "-p", "h2:f", a.own)
    before = (b.export / "f").stat()
    with (b.export / "f").open("r+b") as file:
        file.seek(5 * MIB)
        file.write(b"changed")
    os.utime(b.export / "f", ns=(before.st_atime_ns, before.st_mtime_ns))
    counted = a.status()["counters"]["rx_bytes"]
    options = ("--checksum", "--block-bytes", "256KiB", "--json")
    found = json.loads(a.ctl("get", *options, "h2:f", a.own).stdout)
    assert found["moved_bytes"] == 256 * 1024
    assert a.status()["counters"]["rx_bytes"] - counted < MIB
    assert (a.own / "f").read_bytes() == (b.export / "f").read_bytes()
    (a.own / "f").write_bytes((a.own / "f").read_bytes()[: 9 * MIB])
    found = json.loads(a.ctl("put", *options, a.own / "f", "h2:f").stdout)
    assert found["moved_bytes"] == 0
    assert (b.export / "f").stat().st_size == 9 * MIB


@pytest.mark.parametrize("command", ["get", "put"])
def test_small_files__killed_and_repeated(pair: tuple[Host, Host], command: str) -> None:
    """Small files are complete or absent, also if a peer dies during a batch."""
    a, b = pair
    make_tree(b.export / "tree")
    make_tree(a.own / "tree")
    words = ("h2:tree", a.own / "to") if command == "get" else (a.own / "tree", "h2:to")
    (a.own if command == "get" else b.export).joinpath("to").mkdir()
    job = a.start(command, "-a", "--rate-limit", "1MiB", *words)
    moving(a if command == "get" else b)
    pid = b.pid
    os.kill(pid, signal.SIGKILL)
    status, _, errors = finish(job)
    assert status == 1, errors
    assert "Traceback" not in errors
    wait_for(lambda: not alive(pid), "the end of carefuld")
    b.up()
    a.ctl(command, "-a", "-u", *words)
    target = (a.own if command == "get" else b.export) / "to/tree"
    source = b.export / "tree" if command == "get" else a.own / "tree"
    for path in list(target.rglob(".careful-*.part")):
        path.unlink()
    os.utime(target, ns=(0, 1))
    for folder in target.iterdir():
        if folder.is_dir() and folder.name.startswith("folder"):
            os.utime(folder, ns=(0, int(folder.name.split()[1])))
    assert_equal(source, target)


def test_progress__lines_for_a_program(pair: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = pair
    make_file(b.export / "f", 8 * MIB)
    with (tmp_path / "lines").open("wb") as lines:
        os.set_inheritable(lines.fileno(), True)
        a.ctl("get", "-q", "--progress-fd", str(lines.fileno()), "h2:f", a.own, close_fds=False)
    reported = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert reported[-1]["event"] == "end"
    assert reported[-1]["moved_bytes"] == reported[-1]["total_bytes"] == 8 * MIB
    assert [one["name"] for one in reported if one["event"] == "file"] == ["h2:f"]
