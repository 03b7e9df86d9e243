"""get and put as commands in the lab: pipes, null:, verify, partials, completion, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, Host, finish, make_file, moving, received, wait_for


def test_pipes__both_ways(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    data = make_file(b.export / "piped", 9 * MIB + 7)
    got = subprocess.run(
        a.lab.argv("h1", "carefulctl", "get", "h2:piped", "-"), capture_output=True, timeout=60
    )
    assert got.returncode == 0, got.stderr
    assert got.stdout == data
    assert b"XXH3" in got.stderr
    put = subprocess.run(
        a.lab.argv("h1", "carefulctl", "put", "-", "h2:from-pipe", "--json"),
        input=data,
        capture_output=True,
        timeout=60,
    )
    assert json.loads(put.stdout)["total_bytes"] == len(data)
    assert (b.export / "from-pipe").read_bytes() == data


def test_pipe__interrupted_leaves_nothing(shared_pair: tuple[Host, Host]) -> None:
    """Endless standard input, or unread standard output, blocks no interrupt."""
    a, b = shared_pair
    make_file(b.export / "unread", 64 * MIB)
    before = sorted(b.export.iterdir())
    silent, hold = os.pipe()
    for words in (("put", "-", "h2:endless"), ("get", "h2:unread", "-")):
        taken = received(a)
        job = subprocess.Popen(
            a.lab.argv("h1", "carefulctl", *words),
            stdin=silent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        # get receives as much as the pipe and the blocks in flight take.
        least = taken + 100 * (words[0] == "get")
        wait_for(lambda least=least: received(a) > least, "traffic")
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(1.0)
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 130
        job.communicate()
    os.close(silent)
    os.close(hold)
    assert sorted(b.export.iterdir()) == before


def test_null__network_alone(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    found = json.loads(a.ctl("get", "h2:null:", "null:", "--bytes", "64MiB", "--json").stdout)
    assert found["moved_bytes"] == 64 * MIB
    make_file(b.export / "disk", 8 * MIB)
    assert json.loads(a.ctl("get", "h2:disk", "null:", "--json").stdout)["total_bytes"] == 8 * MIB
    a.ctl("put", "null:", "h2:null:", "--bytes", "64MiB")
    for host in shared_pair:
        host.assert_nothing_lost()


def test_device__source_and_destination(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    data = make_file(b.export / "image", 4 * MIB)
    devices = []
    try:
        for name in ("here", "there"):
            (a.own / name).write_bytes(bytes(4 * MIB))
            done = subprocess.run(
                ["losetup", "--show", "-f", a.own / name], capture_output=True, text=True
            )
            if done.returncode:
                pytest.skip(f"no loop device: {done.stderr.strip()}")
            devices.append(done.stdout.strip())
        assert "-f overwrites it" in a.ctl("get", "h2:image", devices[0], check=False).stderr
        a.ctl("get", "-f", "h2:image", devices[0])
        subprocess.run(["cmp", devices[0], b.export / "image"], check=True)
        a.ctl("put", devices[0], "h2:from-device")
        assert (b.export / "from-device").read_bytes() == data
        number = Path(devices[1]).stat().st_rdev
        os.mknod(b.export / "device", 0o600 | 0o060000, number)
        a.ctl("put", "-f", "--at", "1MiB", "--bytes", "1MiB", devices[0], "h2:device")
        a.ctl("get", "h2:device", a.own / "read-back", "--offset", "1MiB", "--bytes", "2MiB")
        assert (a.own / "read-back").read_bytes() == data[:MIB] + bytes(MIB)
        # After an interrupted transfer only differing blocks move.
        some = ("--block-bytes", "64KiB")
        job = a.start("get", "-f", *some, "--rate-limit", "1MiB", "h2:device", devices[0])
        moving(a)
        job.kill()
        finish(job)
        found = json.loads(a.ctl("get", "-c", *some, "--json", "h2:image", devices[0]).stdout)
        assert 0 < found["matched_bytes"] < 4 * MIB
        a.ctl("put", "-c", *some, devices[0], "h2:device")
        found = json.loads(a.ctl("put", "-c", *some, "--json", devices[0], "h2:device").stdout)
        assert (found["moved_bytes"], len(found["equal"])) == (0, 1)
        blake3 = ("-f", "--digest", "blake3", "--json")
        ends = (
            ("put", devices[0], "h2:device"),
            ("get", "h2:device", a.own / "from-there"),
            ("get", "h2:image", a.own / "image"),
        )
        digests = {json.loads(a.ctl(*one, *blake3).stdout)["files"][0]["digest"] for one in ends}
        assert len(digests) == 1
        assert (b.export / "device").is_block_device()
        for device in devices:
            subprocess.run(["cmp", device, b.export / "image"], check=True)
        too_much = a.ctl("put", "-f", "--at", "3MiB", devices[0], "h2:device", check=False)
        assert too_much.returncode == 1
        assert "full after" in too_much.stderr
    finally:
        (b.export / "device").unlink(missing_ok=True)
        for device in devices:
            subprocess.run(["losetup", "-d", device], check=True)


def test_verify__without_moving(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    make_file(b.export / "v", 16 * MIB)
    a.ctl("get", "h2:v", a.own / "v")
    before = a.status()["counters"]["rx_bytes"]
    assert "equal" in a.ctl("verify", "h2:v", a.own / "v").stdout
    assert "equal" in a.ctl("verify", a.own / "v", "h2:v").stdout
    with (a.own / "v").open("r+b") as file:
        file.seek(10 * MIB)
        file.write(b"!")
    done = a.ctl("verify", "h2:v", a.own / "v", check=False)
    assert done.returncode == 3
    assert "1 of 16 blocks differ, the first at byte 10485760" in done.stdout
    assert a.ctl("verify", "h2:none", a.own / "v", check=False).returncode == 1
    assert a.status()["counters"]["rx_bytes"] - before < MIB


@pytest.mark.parametrize("way", ["get", "put"])
def test_partials__listed_and_cleaned(shared_pair: tuple[Host, Host], way: str) -> None:
    a, b = shared_pair
    folder = a.own / way if way == "get" else b.export / way
    folder.mkdir()
    make_file(b.export / "p", 24 * MIB)
    make_file(a.own / "p", 24 * MIB)
    words = ("h2:p", folder / "p") if way == "get" else (a.own / "p", f"h2:{way}/p")
    job = a.start(way, *words, "--rate-limit", "2MiB", "--block-bytes", "128KiB")
    moving(a)
    where = folder if way == "get" else f"h2:{way}"
    assert "in use" in a.ctl("partials", "prune", where).stdout
    job.kill()
    finish(job)

    def left() -> list[dict[str, Any]]:
        return list(json.loads(a.ctl("partials", where, "--json").stdout)["partials"])

    # carefuld notices the end of its client a moment later.
    wait_for(lambda: [one["state"] for one in left()] == ["resumable"], "part that nobody uses")
    assert left()[0]["bytes"] == 24 * MIB
    assert "removed" in a.ctl("partials", "prune", where).stdout
    assert list(folder.iterdir()) == []


def test_sparse__hardly_anything_moves(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    with (b.export / "holes").open("wb") as file:
        file.write(b"begin")
        file.seek(512 * MIB)
        file.write(b"end")
    before = a.status()["counters"]["rx_bytes"]
    a.ctl("get", "h2:holes", a.own / "holes")
    assert a.status()["counters"]["rx_bytes"] - before < MIB
    assert (a.own / "holes").stat().st_blocks == (b.export / "holes").stat().st_blocks
    subprocess.run(["cmp", a.own / "holes", b.export / "holes"], check=True)
    a.ctl("put", a.own / "holes", "h2:back-again")
    assert (b.export / "back-again").stat().st_blocks == (b.export / "holes").stat().st_blocks


def completed(host: Host, shell: str, *words: str) -> list[str]:
    """Returns the shell's words for the completion of the last word."""
    env = {
        "_CAREFULCTL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        host.lab.argv(host.name, "env", *(f"{k}={v}" for k, v in env.items()), "carefulctl"),
        capture_output=True,
        text=True,
        timeout=30,
    )
    lines = done.stdout.splitlines()
    return [line.partition(",")[2] for line in lines] if shell == "bash" else lines[1::3]


def test_completion__of_remote_paths(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    (b.export / "complete/inner").mkdir(parents=True)
    (b.export / "complete/file").write_bytes(b"")
    assert completed(a, "zsh", "carefulctl", "get", "h2:comp") == ["h2:complete/"]
    both = ["h2:complete/file", "h2:complete/inner/"]
    assert completed(a, "zsh", "carefulctl", "get", "h2:complete/") == both
    # bash splits the word at the colon.
    assert completed(a, "bash", "carefulctl", "get", "h2", ":", "complete/i") == ["complete/inner/"]
    assert completed(a, "zsh", "carefulctl", "get", "nowhere.invalid:x") == []
