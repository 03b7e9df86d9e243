"""carefulctl ping and speed: round trips, and careful next to kernel TCP in turn."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from hosts import Host, hosts_up

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def hosts(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    with hosts_up(tmp_path_factory.mktemp("speed")) as made:
        yield made


def test_ping__shows_round_trips_and_statistics(hosts: list[Host]) -> None:
    output = hosts[0].ctl("ping", "h2", "-c", "3", "-i", "10ms", "-s", "1000").stdout
    assert output.startswith("PING h2 (10.77.0.2) 1000 bytes")
    assert re.findall(r"^1000 bytes from h2: seq=(\d) time=[\d.]+ [µm]s$", output, re.M) == list(
        "123"
    )
    assert "3 sent, 3 received, 0% lost" in output
    values = re.search(
        r"^rtt min/avg/max/mdev = ([\d.]+)/([\d.]+)/([\d.]+)/[\d.]+ [µm]s$", output, re.M
    )
    assert values
    least, mean, most = map(float, values.groups())
    assert 0 < least <= mean <= most


def test_ping__names_the_largest_size(hosts: list[Host]) -> None:
    """It was "Message too long", after a ping that was lost."""
    done = hosts[0].ctl("ping", "h2", "-s", "8000", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (most,) = re.findall(r"8000 bytes: a frame to h2 carries (\d+) at most", done.stderr)
    assert "0% lost" in hosts[0].ctl("ping", "h2", "-c", "1", "-s", most).stdout


def test_tune_show__a_mistyped_peer_goes_away(hosts: list[Host]) -> None:
    hosts[0].ctl("ls", "h2:")
    assert hosts[0].ctl("ls", "10.77.0.9:", check=False).returncode == 1
    shown = hosts[0].ctl("tune", "show").stdout
    assert "10.77.0.9" not in shown
    assert "h2" in shown


def test_ping__control_c_ends_with_statistics(hosts: list[Host]) -> None:
    running = hosts[0].start("ping", "h2", "-i", "50ms")
    assert running.stdout
    assert "PING" in running.stdout.readline()
    assert "seq=1" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "0% lost" in said


def test_ping__a_host_without_careful_is_an_error(hosts: list[Host]) -> None:
    done = hosts[0].ctl("ping", "10.77.0.9", "-c", "1", check=False)
    assert done.returncode == 1
    assert "10.77.0.9: no answer in time" in done.stderr
    assert "ufw allow 51966/udp" in done.stderr


def test_speed__compares_both_in_turn(hosts: list[Host], tmp_path: Path) -> None:
    plot = tmp_path / "speed.svg"
    alone = hosts[0].ctl("speed", "h2", "--time", "0.5", check=False)
    assert alone.returncode == 5
    assert "run `carefulctl speed --serve` on h2" in alone.stdout
    assert "run `carefulctl speed --serve` on h2" in alone.stderr
    echo = hosts[1].start("speed", "-s")
    assert echo.stdout
    assert echo.stdout.readline() == "ready\n"
    second = hosts[1].ctl("speed", "-s", check=False)
    assert "port 51967: Address already in use; choose another" in second.stderr
    words = ["-t", "1", "--plot", str(plot), "--json"]
    found = json.loads(hosts[0].ctl("speed", "h2", *words).stdout)
    echo.terminate()
    echo.wait(timeout=60)
    assert found["rounds_count"] >= 4
    rows = found["rows"]
    assert [one["message_bytes"] for one in rows] == [64, 8192, 1 << 20]
    for row in rows:
        unit = "gbit_per_s" if row["message_bytes"] == 1 << 20 else "us"
        for layer in ("careful", "TCP"):
            low, middle, high = (row[layer][f"{name}_{unit}"] for name in ("low", "median", "high"))
            assert 0 < low <= middle <= high
        assert row["ratio"]["median"] > 0
    # The request's reply is shorter than the block.
    assert rows[0]["TCP"]["low_us"] < rows[1]["TCP"]["high_us"]
    assert "careful" in plot.read_text()
    for host in hosts:
        host.assert_nothing_lost()
