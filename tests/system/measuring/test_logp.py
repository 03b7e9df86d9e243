"""carefulctl measure logp through carefuld: signatures, bulk transfers, TCP next to them, gaps.

tools/bench/run measure judges the accuracy; here the machine is shared.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, hosts_up
from lab import MakeLab

pytestmark = pytest.mark.lab

#: Each frame takes an emulated link 2 ms.
GAP_US = 2000
#: Most attempts until a signature has figures.
TRIES = 3
#: For many signatures on a busy machine, seconds.
PATIENCE_S = 240
LINK = f'[[stage]]\nname = "access"\ng_us = {GAP_US}\nG_us_per_KiB = 0\n'


@pytest.fixture(scope="module")
def hosts(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    with hosts_up(tmp_path_factory.mktemp("logp")) as made:
        yield made


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_logp__signatures_of_all_layers_in_one_object(hosts: list[Host], tmp_path: Path) -> None:
    plot = tmp_path / "signature.svg"
    echo = hosts[1].start("measure", "echo", "7777")
    assert echo.stdout
    assert echo.stdout.readline() == "ready\n"
    words = ["--time", "0.5", "--max-messages", "256"]
    words += ["--tcp", "7777", "--udp", "7777", "--file", "read", "--plot", str(plot), "--json"]
    (hosts[1].export / "read").write_bytes(bytes(100))
    # On a bare veth and a busy machine a send may outlast its reply, so os is withheld. The round
    # trip always has a figure; test_measured.py tests the others over links.
    for _ in range(TRIES):
        shown = (
            hosts[0].ctl("measure", "logp", "h2", *words, check=False, timeout=PATIENCE_S).stdout
        )
        found: dict[str, Any] = json.loads(shown)
        layers = [found, *(found[kind] for kind in ("tcp", "udp", "file"))]
        if all(one["rtt_us"] is not None for one in layers):
            break
    else:
        pytest.fail(f"withheld each time: {[one['rtt_reason'] for one in layers]}")
    assert (found["schema"], found["kind"], found["inputs"]["hosts"]) == (1, "logp", ["h2"])
    names = ["careful request", "TCP", "UDP", "careful files"]
    assert [one["layer"] for one in layers] == names
    for one in layers:
        assert one["os_samples_count"] >= 6
        for name in ("os", "or", "g", "L", "rtt"):
            value = one[f"{name}_us"]
            assert (value is None) == bool(one[f"{name}_reason"])
            assert value is None or one[f"{name}_low_us"] <= value <= one[f"{name}_high_us"]
        assert [curve["compute_us"] > 0 for curve in one["curves"]] == [False, True, True, True]
        assert one["curves"][0]["points"][-1]["messages"] >= 64
    # A request needs at least the time of two clock readings.
    assert found["curves"][0]["points"][0]["cost_us"] > 0.05
    assert plot.read_text().count("message cost") == 4
    for host in hosts:
        host.assert_nothing_lost()


def test_logp__bulk_transfers_have_signatures(hosts: list[Host]) -> None:
    words = ["--time", "0.5", "--max-messages", "256", "--bulk", "--sizes", "4", "--json"]
    shown = hosts[0].ctl("measure", "logp", "h2", *words, check=False, timeout=PATIENCE_S).stdout
    found = json.loads(shown)
    assert [one["kind"] for one in found["bulk"]] == ["store", "get"]
    for bulk in found["bulk"]:
        assert [one["bytes"] for one in bulk["sizes"]] == [8, 5461, 10923, 16384]
        for one in bulk["sizes"]:
            assert one["T_samples_count"] >= 6
            assert len(one["curves"]) == 4
            assert (one["BW_MB_per_s"] is None) == (one["T_us"] is None)
            assert all(f"{name}_us" in one for name in ("os", "or", "g", "L"))
    for host in hosts:
        host.assert_nothing_lost()


def test_logp__the_gap_alone(hosts: list[Host]) -> None:
    shown = hosts[0].ctl("measure", "logp", "h2", "--gap-for", "0.6", "--json").stdout
    found = json.loads(shown)
    assert found["kind"] == "gap"
    ended = [one["ended_s"] for one in found["slices"]]
    assert ended == sorted(ended)
    assert len(ended) >= 3
    hosts[0].assert_nothing_lost()


def test_logp__bad_luck_is_one_line(hosts: list[Host]) -> None:
    ctl = hosts[0].ctl
    assert "unknown host" in refused(ctl("measure", "logp", "nobody.invalid", check=False))
    output = refused(ctl("measure", "logp", "h2", "--time", "600", "--tcp", "9", check=False))
    assert "measure echo" in output  # at once: `ctl` waits for a minute
    output = refused(ctl("measure", "logp", "h2", "--time", "600", "--udp", "9", check=False))
    assert "measure echo" in output
    output = refused(ctl("measure", "logp", "h2", "--time", "600", "--file", "none", check=False))
    assert "h2:none" in output
    alone = ["--gap-for", "2", "--bulk", "--tcp", "9", "--udp", "9", "--file", "x"]
    alone += ["--background", "--plot", "x.png"]
    done = ctl("measure", "logp", "h2", *alone, check=False)
    assert done.returncode == 2
    assert (
        "cannot be combined with --bulk, --tcp, --udp, --file, --background, --plot" in done.stderr
    )
    done = ctl("measure", "logp", "h2", "--precision", "2", check=False)
    assert done.returncode == 2
    assert "--precision" in done.stderr
    done = ctl("measure", "logp", "h2", "--plot", "x.pdf", check=False)
    assert done.returncode == 2
    assert ".svg" in done.stderr
    silent = hosts[1].pid
    subprocess.run(["kill", "-STOP", str(silent)], check=True)
    try:
        output = refused(ctl("measure", "logp", "h2", check=False))
    finally:
        subprocess.run(["kill", "-CONT", str(silent)], check=True)
    assert "h2" in output


def test_star__every_host_has_a_link_of_its_own(make_lab: MakeLab, tmp_path: Path) -> None:
    """A gap is never below the link's, on any machine."""
    file = tmp_path / "star.toml"
    file.write_text(LINK)
    lab = make_lab(hosts=3, hops=file)
    assert len(lab.links()) == 3
    pinged = lab.run("h1", "ping", "-c", "2", "-w", "30", lab.address("h3")).stdout
    least_ms = float(pinged.rpartition("= ")[2].split("/")[0])
    assert least_ms >= 4 * GAP_US / 1000  # two links, there and back
    made = [Host(lab, name, tmp_path) for name in ("h1", "h2", "h3")]
    for host in made:
        host.up()
    words = ["measure", "logp", "h2", "h3", "--gap-for", "1", "--json"]
    for _ in range(TRIES):
        found = json.loads(made[0].ctl(*words).stdout)  # one to many: its own link is shared
        if found["g_us"] is not None:
            break
    else:
        pytest.fail(f"withheld each time: {found['g_reason']}")
    assert found["g_us"] >= 0.98 * GAP_US
    assert found["inputs"]["hosts"] == ["h2", "h3"]
    for host in made:
        host.assert_nothing_lost()
        host.down()
