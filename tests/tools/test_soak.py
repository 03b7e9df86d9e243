"""Half a million frames, each byte compared; interruptions of a soak, and faults that it must
notice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import wait_for
from lossy import hops

ROOT = Path(__file__).resolve().parents[2]
#: Frames that are sent after an interruption.
FRAMES = 500_000

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts tests/soak/run with its own state; it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def one(*args: str | Path) -> subprocess.Popen[str]:
        argv = [ROOT / "tests/soak/run", "--state", tmp_path / "state.json", *args]
        soak = subprocess.Popen(
            [str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        begun.append(soak)
        return soak

    yield one
    for soak in begun:
        if soak.poll() is None:
            soak.terminate()
            soak.communicate(timeout=280)


def namespaces(soak: subprocess.Popen[str]) -> list[str]:
    """Returns the hosts of a soak's lab."""
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in found.stdout.splitlines()]
    return [name for name in names if f"-soak{soak.pid}-" in name]


def moving(soak: subprocess.Popen[str]) -> None:
    """Waits until the soak's second host has received many frames."""

    def frames() -> int:
        assert soak.poll() is None, soak.communicate()
        argv = ["ip", "-n", host, "-j", "-s", "link", "show", "eth1"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        stats = json.loads(done.stdout)[0]["stats64"] if not done.returncode else None
        return int(stats["rx"]["packets"]) if stats else 0

    wait_for(lambda: len(namespaces(soak)) == 2, "lab", 200)
    host = next(name for name in namespaces(soak) if name.endswith("-h2"))
    wait_for(lambda: frames() > 20_000, "traffic", 80)


def test_soak__interrupted_and_resumed(tmp_path: Path, start: Start) -> None:
    report = tmp_path / "report.json"
    soak = start("--frames", "1e12", "--report", report)
    moving(soak)
    soak.send_signal(signal.SIGINT)
    out, err = soak.communicate(timeout=280)
    assert soak.returncode == 130, err
    assert not report.exists()
    first = json.loads((tmp_path / "state.json").read_text())["pieces"][0]
    assert first["frames"] > 20_000
    wanted = first["frames"] + FRAMES
    soak = start("--frames", str(wanted), "--report", report)
    out, err = soak.communicate(timeout=280)
    assert soak.returncode == 0, err
    found = json.loads(report.read_text())
    assert found["pieces"] == 2
    assert found["frames"] >= wanted
    assert (found["frames_missing"], found["lost"]) == (0, {})
    assert min(found["requests"], found["stores"], found["gets"]) > 0
    assert f"{found['frames']:,}" in out
    assert not namespaces(soak)


def failure(tmp_path: Path, soak: subprocess.Popen[str], err: str) -> dict[str, Any]:
    """Returns the report of a failed soak on its only piece."""
    assert soak.returncode == 1, err
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("soak: ")
    assert not namespaces(soak)
    found: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert (found["frames"], found["pieces"]) == (0, 0), "what failed counts for nothing"
    (one,) = found["failures"]
    assert one["frames"] > 0
    return dict(one)


def test_soak__its_interface_is_deleted(tmp_path: Path, start: Start) -> None:
    soak = start("--frames", "1e12", "--report", tmp_path / "report.json")
    moving(soak)
    host = namespaces(soak)[0]
    subprocess.run(["ip", "-n", host, "link", "del", "eth1"], check=True)
    _, err = soak.communicate(timeout=280)
    assert "interface" in failure(tmp_path, soak, err)["failed"]


def test_soak__a_lost_frame_is_seen_and_counted(tmp_path: Path, start: Start) -> None:
    """The link loses one frame in a thousand: the frame is sent again, and the run fails and stays
    on record.
    """
    report = ("--report", tmp_path / "report.json")
    lossy = ("--frames", "20000", "--hops", hops(tmp_path, "loss = 0.001"), *report)
    soak = start(*lossy)
    _, err = soak.communicate(timeout=280)
    assert soak.returncode == 1, err
    lost = json.loads(report[1].read_text())["lost"]
    assert lost["asked_again"] >= 1, lost
    assert "lost_frames" not in lost
    soak = start("--frames", "40000", *report)
    soak.communicate(timeout=280)
    assert soak.returncode == 1, "goes on, but forgives nothing"
    found = json.loads(report[1].read_text())
    assert (found["failures"], found["lost"]) == ([], lost)
    assert found["frames"] >= 20_000


@pytest.mark.parametrize("bad", [{"frames_missing": 1}, {"lost": {"lost_frames": 1}}])
def test_soak__a_loss_is_a_failure(tmp_path: Path, start: Start, bad: dict[str, object]) -> None:
    """Also if no operation failed, and in a state of an earlier version."""
    report = tmp_path / "report.json"
    piece = {"seconds": 1.0, "frames": 2000, "frames_missing": 0, "bytes": 1, "requests": 1}
    piece |= {"stores": 0, "gets": 0, "lost": {}, "xdp_mode": "native"} | bad
    (tmp_path / "state.json").write_text(json.dumps({"pieces": [piece]}))
    soak = start("--frames", "1000", "--report", report)
    soak.communicate(timeout=280)
    assert soak.returncode == 1
    found = json.loads(report.read_text())
    assert {name: found[name] for name in bad} == bad


def test_soak__state_that_is_none(tmp_path: Path, start: Start) -> None:
    (tmp_path / "state.json").write_text("{}")
    soak = start("--frames", "1e6")
    _, err = soak.communicate(timeout=280)
    assert soak.returncode == 1
    assert "state.json" in err.strip().splitlines()[-1]
    assert not namespaces(soak)
