"""`carefulctl fleet put` in a lab: digests are right, a host that dies is named, and the same
command continues where it stopped.
"""

from __future__ import annotations

import json
import os
import shlex
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
    words = (
        "fleet",
        "put",
        "--hosts",
        folder / "fleet.toml",
        "--timeout",
        "20s",
        "--json",
        *options,
    )
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
    text = f'on = "{shlex.quote(str(TOOL))} exec --name {lab.name} {{}} --"\n'
    for host in hosts:
        (tmp_path / host).mkdir()
        text += f'[host.{host}]\nup = "--export {tmp_path / host}:rw --insecure"\n'
    (tmp_path / "fleet.toml").write_text(text)
    lab.run("h1", "carefulctl", "up", "eth1")
    lab.run("h1", "carefulctl", "fleet", "up", "--hosts", tmp_path / "fleet.toml")

    part = tmp_path / "h3" / ".image.fleet-part"
    words = ("fleet", "put", "--hosts", tmp_path / "fleet.toml", "--timeout", "20s")
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
    assert "h4: nothing arrived: the host before it, h3, failed" in err
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
    assert "image exists there and differs (--force)" in err
    lab.run("h4", "carefulctl", "down", "eth1")
    status, found, err = put(lab, tmp_path, file, "--force")
    assert status == 3
    assert [one["state"] for one in found["hosts"]] == ["put", "put", None]
    assert (tmp_path / "h3" / "image").read_bytes() == b"another"


def test_fleet__each_command_for_real(make_lab: MakeLab, tmp_path: Path) -> None:
    """Runs each on three hosts; commands for pairs on two."""
    lab = make_lab(hosts=3)
    text = f'on = "{shlex.quote(str(TOOL))} exec --name {lab.name} {{}} --"\n'
    for host in lab.hosts:
        (tmp_path / host).mkdir()
        text += f'[host.{host}]\nup = "--export {tmp_path / host}:rw --insecure"\n'
    (tmp_path / "fleet.toml").write_text(text)

    def fleet(name: str, *words: object) -> dict[str, Any]:
        argv = ("fleet", name, "--json", "--hosts", tmp_path / "fleet.toml", *words)
        found: dict[str, Any] = json.loads(lab.run("h1", "carefulctl", *argv).stdout)
        assert found["failed_count"] == 0
        return found

    assert [one["host"] for one in fleet("up")["hosts"]] == list(lab.hosts)
    plot = tmp_path / "pairs.png"
    matrix = fleet("measure", "h1", "h3", "--time", "1s", "--plot", plot)
    assert [(one["from"], one["to"]) for one in matrix["pairs"]] == [("h1", "h3"), ("h3", "h1")]
    for one in matrix["pairs"]:
        assert one["error"] is None
        assert one["latency_us"] > 0
        assert (one["lost_frames"], one["sent_frames"] > 0) == (0, True)
    assert plot.read_bytes().startswith(b"\x89PNG")
    tuned = fleet("tune", "h1", "h2")
    assert {(one["host"], one["peer"]) for one in tuned["hosts"]} == {("h1", "h2"), ("h2", "h1")}
    status = fleet("status")["hosts"]
    peers = [len(one["figures"]["instances"][0]["peers"]) for one in status]
    assert peers == [2, 1, 1]
    fleet("down", "h2")
    done = lab.run(
        "h1", "carefulctl", "fleet", "status", "--hosts", tmp_path / "fleet.toml", check=False
    )
    assert done.returncode == 3
    assert "h2: " in done.stderr
    fleet("down", "h1", "h3")


def kill_relay(folder: Path, host: str, lab: Lab) -> None:
    """Kills the relay of one host, found by its open file."""
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
