"""carefulctl trace and measure clearbox, live: probes of real carefulds, read with bcc."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from careful.control.tracing import bpf, sdt, trace_targets, tracer
from careful.errors import CarefulError
from careful.measure.inside import stages
from hosts import Host, finish, hosts_up, make_file, wait_for

#: All four are the engine's; netRx is the kernel's.
NAMES = {"hostTx", "netTx", "hostRx", "store"}


def built() -> list[Path]:
    """Returns the files that contain the engine."""
    library = resources.files("careful") / "libcareful.so"
    return [Path(sys.executable).with_name("carefuld"), Path(str(library))]


# --- notes


@pytest.mark.parametrize("path", built(), ids=lambda path: path.name)
def test_parse__finds_each_stage_once(path: Path) -> None:
    data = path.read_bytes()
    probes = sdt.parse(data)
    assert sorted(one.name for one in probes) == sorted([*NAMES, "frameTx"])
    assert len({one.offset for one in probes}) == len({one.semaphore_offset for one in probes}) == 5
    for one in probes:
        assert data[one.semaphore_offset : one.semaphore_offset + 2] == b"\0\0"
        assert one.arguments in ("8@%rdi", "8@x0")
        if one.arguments == "8@%rdi":
            assert data[one.offset : one.offset + 5] == b"\x0f\x1f\x44\0\0"
    assert sdt.parse(data, "another") == []


def test_parse__agrees_with_readelf() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is missing")
    path = built()[0]
    shown = subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in shown.splitlines() if line.strip().startswith("Name:")]
    assert sorted(names) == sorted(one.name for one in sdt.parse(path.read_bytes()))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_parse__damaged_files_are_refused(share: float) -> None:
    data = built()[0].read_bytes()
    with pytest.raises(ValueError, match=r"ELF|tables|damaged|subsection|not found"):
        sdt.parse(data[: int(len(data) * share)])


def test_of_process__without_probes_says_so() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        # Right after Popen() a process has little more than a stack.
        wait_for(lambda: "sleep" in Path(f"/proc/{other.pid}/maps").read_text(), "program")
        with pytest.raises(CarefulError, match="sleep has no probes"):
            sdt.of_process(other.pid)
        other.kill()
    with pytest.raises(CarefulError, match="ended"):
        sdt.of_process(2**22 - 1)


# --- what is missing


def test_library__bcc_missing_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    bpf.library.cache_clear()
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(CarefulError, match="apt-get install python3-bpfcc"):
        bpf.Program("")
    monkeypatch.undo()
    bpf.library.cache_clear()


def test_target__needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        trace_targets.instances, "find", lambda name: trace_targets.instances.Instance(name, 1)
    )
    with pytest.raises(CarefulError, match="root"):
        trace_targets.target(None, "any")


# --- live


@pytest.fixture(scope="module")
def bcc_works() -> None:
    """Skips if tracing programs cannot be built."""
    try:
        bpf.Program(tracer.program(1)).close()
    except CarefulError as error:
        pytest.skip(f"bcc cannot trace here: {error}")


@pytest.fixture(scope="module")
def two(
    lab_possible: None, bcc_works: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Host]]:
    with hosts_up(tmp_path_factory.mktemp("trace")) as made:
        yield made


def listeners(host: Host) -> int:
    """Returns the kernel's count of listeners at a carefuld's probes."""
    _, probes = sdt.of_process(host.pid)
    found = 0
    for line in Path(f"/proc/{host.pid}/maps").read_text().splitlines():
        span, mode, offset, *_ = line.split()
        if "carefuld" not in line or "w" not in mode:
            continue
        low, high = (int(word, 16) for word in span.split("-"))
        for one in probes.values():
            at = one.semaphore_offset - int(offset, 16) + low
            if low <= at < high:
                with Path(f"/proc/{host.pid}/mem").open("rb", 0) as memory:
                    memory.seek(at)
                    found += int.from_bytes(memory.read(2), "little")
    return found


def start(host: Host, *words: str) -> subprocess.Popen[str]:
    """Starts `carefulctl trace` and waits until it listens."""
    process = host.start("trace", *words)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "listening" in line, line + process.stderr.read()
    return process


@pytest.mark.lab
def test_frames__a_file_goes_through_all_stages(two: list[Host], tmp_path: Path) -> None:
    h1, h2 = two
    data = make_file(h1.own / "file", 100_000)
    plot = tmp_path / "burst.svg"
    also = ("--also", h1.lab.instance("h2"), "--gap", "10")
    process = start(h1, "frames", "--time", "60", *also, "--json", "--plot", str(plot))
    wait_for(lambda: listeners(h1) == listeners(h2) == 4, "probe")
    h1.ctl("put", h1.own / "file", "h2:")
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == 0, err
    assert (h2.export / "file").read_bytes() == data
    found: dict[str, Any] = json.loads(out)
    assert found["interrupted"]
    assert found["lost_records_count"] == 0
    assert {row["stage"] for row in found["rows"]} == {"netRx", *NAMES}
    for stage in ("hostTx", "netTx", "netRx", "hostRx", "store"):
        mine = [one for one in found["transfers"] if one["stage"] == stage]
        assert sum(one["bytes"] for one in mine) >= len(data), stage
        assert all(one["begin_us"] < one["end_us"] for one in mine)
    assert "hostRx" in plot.read_text()
    assert listeners(h1) == listeners(h2) == 0


@pytest.mark.lab
def test_stages__killed_leaves_nothing_attached(two: list[Host]) -> None:
    h1 = two[0]
    process = start(h1, "stages", "--time", "60")
    wait_for(lambda: listeners(h1) > 0, "probe")
    process.kill()
    finish(process)
    wait_for(lambda: listeners(h1) == 0, "end of the probes")


@pytest.mark.lab
@pytest.mark.parametrize("how", [(), ("--trains",)], ids=["alone", "trains"])
def test_clearbox__every_stage_of_both_ends(
    two: list[Host], how: tuple[str, ...], tmp_path: Path
) -> None:
    h1, plot = two[0], tmp_path / "stages.png"
    words = ("clearbox", "h2", "--time", "0.1", "--sizes", "6", "--json", "--plot", str(plot))
    done = h1.ctl("measure", *words, *how, check=False)
    found = json.loads(done.stdout)
    withheld = any(one["G_us_per_KiB"] is None for one in found["stages"])
    assert done.returncode == (5 if withheld else 0), done.stderr
    ways = [(one["name"], one["host"]) for one in found["stages"]]
    ours, theirs = h1.lab.instance("h1"), h1.lab.instance("h2")
    reported = ("netTx", ours) in ways  # from netRx, which runs in its kick
    net = [("netTx", ours), ("netRx", theirs)] if reported else [("netTx, netRx", ours)]
    assert ways == [("hostTx", ours), *net, ("hostRx", theirs)]
    for one in found["stages"]:
        assert one["samples_count"] >= 6 * stages.SAMPLES_MIN, one
        assert 0 < one["time_p50_us"] <= one["time_p95_us"]
        assert sum(bar["count"] for bar in one["histogram"]) == one["samples_count"]
        assert one["G_us_per_KiB"] is not None or one["reason"]
    kick, inner = found["stages"][1:3]
    if reported:
        assert inner["inside"] == f"netTx of {ours}"
        assert inner["resource"] == kick["resource"]
    else:
        assert any("cannot be separated" in note for note in kick["notes"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    for host in two:
        host.assert_nothing_lost()


def refused(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    assert done.returncode == status
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.lab
def test_trace__names_the_fault_in_a_line(two: list[Host]) -> None:
    ctl = two[0].ctl
    assert ".png or .svg" in refused(ctl("trace", "stages", "--plot", "x.gif", check=False), 2)
    output = refused(ctl("trace", "frames", "--instance", "nobody", check=False))
    assert "not up" in output
    quiet = ctl("trace", "frames", "--time", "0.1", check=False)
    assert quiet.returncode == 1
    assert "no burst to draw" in quiet.stderr


@pytest.mark.lab
def test_trace__of_a_daemon_that_ends(two: list[Host]) -> None:
    process = start(two[0], "stages", "--time", "60")
    two[0].down()
    status, _, err = finish(process)
    two[0].up()
    assert status == 1
    assert "ended" in err  # "while it was traced", if that had begun
    assert err.count("\n") == 1
