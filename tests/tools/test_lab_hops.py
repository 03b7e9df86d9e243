"""tools/lab up --hops: emulated links serve as requested, report their work, and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, MakeLab, tool

pytestmark = pytest.mark.lab

#: Two links with so little rate that lateness is small next to their service.
TWO = """
[[stage]]
name = "fast"
g_us = 200
G_us_per_KiB = 1000

[[stage]]
name = "slow"
g_us = 100
G_us_per_KiB = 2000
delay_us = 3000
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "hops.toml"
    path.write_text(text)
    return path


def one_link(**link: Any) -> str:
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in link.items())
    return f"[[stage]]\nname = 'only'\ng_us = 100\nG_us_per_KiB = 100\n[stage.link]\n{keys}"


def ping(lab: Lab, count: int, nbytes: int = 56, interval_s: float = 0.005) -> list[float]:
    """Returns the answered round trips, ms."""
    argv = ["ping", "-c", str(count), "-i", str(interval_s), "-W", "1", "-s", str(nbytes)]
    # A damaged answer can show ping a round trip of years, and ping waits two of them.
    argv = ["timeout", "-s", "INT", "5", *argv]
    out = lab.run("h1", *argv, lab.address("h2"), check=False).stdout
    return [
        float(line.split("time=")[1].split()[0]) for line in out.splitlines() if "time=" in line
    ]


def emulators(lab_name: str) -> list[int]:
    """Returns the pids of a lab's links."""
    found = []
    for line in tool("status").stdout.split(f"{lab_name}: ")[1].splitlines()[1:]:
        if not line.startswith("  "):
            break
        if "careful-hop" in line:
            found.append(int(line.split()[1]))
    return found


@pytest.fixture(scope="module")
def chain(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    one = Lab(hops=write(tmp_path_factory.mktemp("chain"), TWO))
    yield one
    one.down()


def test_hops__round_trips_take_both_links_both_ways(chain: Lab) -> None:
    least = {nbytes: min(ping(chain, 10, nbytes)) * 1e3 for nbytes in (100, 2000)}
    for nbytes, found_us in least.items():
        frame_bytes = nbytes + 8 + 20 + 14
        ideal_us = 2 * (300 + 3000 + frame_bytes * 3000 / 1024)
        assert ideal_us < found_us < ideal_us + 2000


def test_hops__links_report_their_applied_figures(chain: Lab) -> None:
    chain.links("--reset")
    for nbytes in (100, 1000, 3000):
        ping(chain, 8, nbytes)
    for link in chain.links():
        asked = link["asked"]
        for way in link["ways"]:
            assert way["frames"] == 24
            applied = way["applied"]
            assert applied["frames_count"] == 24
            assert (applied["size_min_bytes"], applied["size_max_bytes"]) == (142, 3042)
            punctual = way["punctual"]
            assert punctual["G_us_per_KiB"] == pytest.approx(asked["G_us_per_KiB"], rel=0.05)
            assert punctual["frames_count"] <= 24
            mean_KiB = (142 + 1042 + 3042) / 3 / 1024  # the fit is the mean itself
            mean_us = applied["g_us"] + mean_KiB * applied["G_us_per_KiB"]
            # The mean includes lateness; nothing is ever early.
            assert mean_us > asked["g_us"] + mean_KiB * asked["G_us_per_KiB"] - 1


def test_hops__reset_forgets(chain: Lab) -> None:
    ping(chain, 2)
    assert all(way["frames"] for link in chain.links() for way in link["ways"])
    assert not any(way["frames"] for link in chain.links("--reset") for way in link["ways"])


def test_hops__table_names_the_charged_bytes(chain: Lab) -> None:
    ping(chain, 3)
    shown = tool("links", "--name", chain.name).stdout
    assert "every byte of the Ethernet frame" in shown
    assert shown.count("slow") == 2


def test_hops__routers_answer_every_probe(chain: Lab) -> None:
    """Without an ICMP rate limit all 30 probes that end at r1 are answered."""
    argv = ["ping", "-t", "1", "-c", "30", "-i", "0.005", "-W", "1", "10.77.0.2"]
    out = chain.run("h1", *argv, check=False).stdout
    assert out.count("10.77.101.2") == 30


def test_hops__again_changes_nothing(chain: Lab, tmp_path: Path) -> None:
    before = emulators(chain.name)
    assert len(before) == 2
    same = write(tmp_path, TWO)
    assert "already" in tool("up", "--name", chain.name, "--hops", str(same)).stdout
    assert emulators(chain.name) == before
    other = write(tmp_path, TWO.replace("2000", "2001"))
    done = tool("up", "--name", chain.name, "--hops", str(other), check=False)
    assert done.returncode == 1
    assert "2 emulated links" in done.stderr


def test_hops__payload_alone_is_charged(make_lab: MakeLab, tmp_path: Path) -> None:
    text = "[[stage]]\nname = 'one'\ng_us = 10\nG_us_per_KiB = 102.4\n"
    lab = make_lab(hops=write(tmp_path, text), options=["--scale", "10", "--charge", "payload"])
    least_us = min(ping(lab, 10, 1000)) * 1e3
    ideal_us = 2 * (100 + 1000)  # not 1042 bytes
    assert ideal_us < least_us < ideal_us + 1500
    assert lab.links()[0]["ways"][0]["applied"] is None  # of one size: no slope


@pytest.mark.parametrize(
    ("link", "count", "fate"),
    [
        ({"loss": 0.5, "seed": 3}, 60, "lost"),
        ({"duplicate": 0.5}, 30, "duplicated"),
        ({"corrupt": 0.5}, 60, "corrupted"),
    ],
)
def test_hops__mishaps(make_lab: MakeLab, tmp_path: Path, link, count: int, fate: str) -> None:
    lab = make_lab(hops=write(tmp_path, one_link(**link)))
    back = len(ping(lab, count))
    done = sum(way[fate] for way in lab.links()[0]["ways"])
    assert done > 0.2 * count
    if fate == "duplicated":
        assert back > count
    else:  # a damaged echo fails its checksum, or is not ours
        assert back < 0.8 * count


def test_hops__reorders(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(hops=write(tmp_path, one_link(reorder=0.3, reorder_us=30000)))
    argv = ["ping", "-c", "60", "-i", "0.002", "-W", "1", "10.77.0.2"]
    lines = lab.run("h1", *argv).stdout.splitlines()
    order = [int(line.split("icmp_seq=")[1].split()[0]) for line in lines if "icmp_seq=" in line]
    assert sorted(order) == list(range(1, 61))
    assert order != sorted(order)


def test_hops__queue_overflows(make_lab: MakeLab, tmp_path: Path) -> None:
    text = one_link(queue_frames=4).replace("g_us = 100", "g_us = 20000")
    lab = make_lab(hops=write(tmp_path, text))
    lab.run("h1", "ping", "-c", "20", "-l", "20", "-W", "1", "10.77.0.2", check=False)
    ways = lab.links()[0]["ways"]
    assert ways[0]["frames"] + ways[0]["queue_dropped"] == 20
    assert ways[0]["queue_dropped"] > 10
    assert f"{lab.name}: 2 hosts, 1 emulated link, MTU" in tool("status").stdout


def test_hops__rate_changes_at_its_time(make_lab: MakeLab, tmp_path: Path) -> None:
    change = "[[stage.link.changes]]\nat_s = 2\ng_us = 20000\nG_us_per_KiB = 100\n"
    lab = make_lab(hops=write(tmp_path, one_link() + change))
    tool("links", "--name", lab.name, "--reset")
    began = time.monotonic()
    early = ping(lab, 3)
    if time.monotonic() - began < 1.8:
        assert min(early) < 20
    time.sleep(max(0, began + 2.1 - time.monotonic()))
    assert min(ping(lab, 3)) > 40


def test_hops__killed_emulator_is_told_and_mended(make_lab: MakeLab, tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    lab = make_lab(hops=path)
    os.kill(emulators(lab.name)[0], signal.SIGKILL)
    while len(done := tool("status").stdout.split(f"{lab.name}: ")[1][:6]) and done != "broken":
        time.sleep(0.01)
    assert "is not up" in tool("links", "--name", lab.name, check=False).stderr
    tool("up", "--name", lab.name, "--hops", str(path))
    assert len(ping(lab, 2)) == 2


def test_hops__down_leaves_nothing_after_a_kill(lab_possible: None, tmp_path: Path) -> None:
    name = f"t{os.getpid()}-hops"
    tool("up", "--name", name, "--hops", str(write(tmp_path, TWO)))
    try:
        pids = emulators(name)
        os.kill(pids[0], signal.SIGKILL)
    finally:
        tool("down", "--name", name)  # without --kill: the links are the lab's own
    assert not list(Path("/run/netns").glob(f"careful-{name}-*"))
    assert not (Path("/run/careful-lab") / name).exists()
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_hops__file_is_read_by_plan(tmp_path: Path) -> None:
    argv = ["carefulctl", "plan", "--json", "--bytes", "4KiB", "--pipeline"]
    with_link = write(tmp_path, TWO + "[stage.link]\nloss = 0.1\n")
    done = subprocess.run([*argv, with_link], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bottleneck"] == "slow"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stage = 3", "needs 1 to 16 [[stage]] tables"),
        ("[[stage]", "not valid TOML"),
        ("[[stage]]\ng_us = 1", "stage 1: 'G_us_per_KiB' is missing"),
        ("[[stage]]\ng_us = -1\nG_us_per_KiB = 1", "'g_us' is -1, must be from 0"),
        ("[[stage]]\ng_us = true\nG_us_per_KiB = 1", "must be a number"),
        ("[[stage]]\ng_us = 1\nG_us_per_KiB = 1\nspeed = 1", "unknown key 'speed'"),
        ("[[stage]]\ng_us = 1\nG_us_per_KiB = 1\nresource = 'bus'", "cannot be emulated"),
        (one_link(loss=1.5), "'loss' is 1.5, must be from 0 to 1"),
        (one_link(lost=0.5), "unknown key 'lost'"),
        (one_link(queue_frames=1.5), "'queue_frames' is 1.5, must be a whole number"),
        (one_link(reorder=0.1), "'reorder' needs 'reorder_us'"),
        (one_link(changes=[3]), "'changes' is [3], must be [[stage.link.changes]] tables"),
        ("[[stage]]\ng_us = 1\nG_us_per_KiB = 1\nlink = 3", "must be a [stage.link] table"),
        ("stage = [3]", "stage 1: 3: must be a [[stage]] table"),
    ],
)
def test_hops__bad_files(lab_possible: None, tmp_path: Path, text: str, says: str) -> None:
    done = tool("up", "--name", "bad", "--hops", str(write(tmp_path, text)), check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_hops__missing_file(lab_possible: None, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a direct")):
        done = tool("up", "--name", "bad", "--hops", str(path), check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"lab: {path}: {why}")


def test_hops__scaled_too_far(lab_possible: None, tmp_path: Path) -> None:
    """The reader of the file reports it, not the emulator in its own unit."""
    path = write(tmp_path, "[[stage]]\ng_us = 1e5\nG_us_per_KiB = 1\n")
    done = tool("up", "--name", "bad", "--hops", str(path), "--scale", "1e5", check=False)
    assert done.returncode == 1
    assert "'g_us' is 100000, times the scale 1e+10: must be at most 1e+09" in done.stderr
