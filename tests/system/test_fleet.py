"""`carefulctl fleet put` in a lab: digests are right, a host that dies is named, and the same
command goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from lab import TOOL, Lab, MakeLab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

#: A link on which a block of 64 KiB takes 26 ms.
LINK = '[[stage]]\nname = "link"\ng_us = 20\nG_us_per_KiB = 400\n'
NBYTES = 5_000_000


def put(lab: Lab, folder: Path, file: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    words = ("fleet", "put", "--hosts", folder / "fleet.toml", "--limit", "20s", "--json", *options)
    done = lab.run("h1", "carefulctl", *words, file, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_put__a_host_dies_and_the_same_command_resumes(make_lab: MakeLab, tmp_path: Path) -> None:
    link = tmp_path / "hops.toml"
    link.write_text(LINK)
    lab = make_lab(hosts=4, hops=link)
    hosts = lab.hosts[1:]
    file = tmp_path / "image"
    file.write_bytes(os.urandom(NBYTES))
    file.chmod(0o640)
    text = f'on = "{TOOL} exec --name {lab.name} {{}} --"\n'
    for host in hosts:
        (tmp_path / host).mkdir()
        text += f'[host.{host}]\nup = "--export {tmp_path / host}:rw --insecure"\n'
    (tmp_path / "fleet.toml").write_text(text)
    lab.run("h1", "carefulctl", "up", "eth1")
    lab.run("h1", "carefulctl", "fleet", "up", "--hosts", tmp_path / "fleet.toml")

    part = tmp_path / "h3" / ".image.fleet-part"
    words = ("fleet", "put", "--hosts", tmp_path / "fleet.toml", "--limit", "20s")
    running = lab.start("h1", "carefulctl", *words, file)
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_blocks * 512 > NBYTES / 5):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    kill_relay(tmp_path, "h3", lab)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 3, err
    assert "h3: its carefulctl ended" in err
    assert "h4: nothing came: h3 before it failed" in err
    assert (tmp_path / "h2" / "image").read_bytes() == file.read_bytes()
    assert not (tmp_path / "h3" / "image").exists()
    assert not (tmp_path / "h4" / "image").exists()

    status, found, err = put(lab, tmp_path, file)
    assert (status, err) == (0, "")
    assert [one["state"] for one in found["hosts"]] == ["was there", "put", "put"]
    assert found["hosts"][1]["resumed_blocks"] > 0
    for host in hosts:
        assert (tmp_path / host / "image").read_bytes() == file.read_bytes()
        assert (tmp_path / host / "image").stat().st_mode & 0o777 == 0o640
        assert [one.name for one in (tmp_path / host).iterdir()] == ["image"]

    file.write_bytes(b"another")
    status, found, err = put(lab, tmp_path, file, "--to", "h2")
    assert status == 1
    assert "image exists there and differs (--replace)" in err
    lab.run("h4", "carefulctl", "down", "eth1")
    status, found, err = put(lab, tmp_path, file, "--replace")
    assert status == 3
    assert [one["state"] for one in found["hosts"]] == ["put", "put", None]
    assert (tmp_path / "h3" / "image").read_bytes() == b"another"


def kill_relay(folder: Path, host: str, lab: Lab) -> None:
    """Kill the relay of one host, found by what it has open."""
    wanted = f"{folder / host}/.image.fleet-part"
    for pid in Path("/proc").glob("[0-9]*"):
        try:
            if "relay" not in (pid / "cmdline").read_text():
                continue
            if any(str(fd.readlink()) == wanted for fd in (pid / "fd").iterdir()):
                os.kill(int(pid.name), signal.SIGKILL)
                return
        except OSError:
            continue
    raise AssertionError(f"no relay on {host}")
