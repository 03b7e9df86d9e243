"""IFACE may be left out if there is one; tune set has an undo; careful.open names the carefuld."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, hosts_up

pytestmark = pytest.mark.lab

OPEN = "import careful; careful.open('eth1')"


@pytest.fixture(scope="module")
def hosts(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    with hosts_up(tmp_path_factory.mktemp("hints")) as made:
        yield made


def peers(host: Host, *words: str) -> Any:
    return json.loads(host.ctl("tune", *words, "--json").stdout)["peers"]


def test_tune__default_undoes_every_set(hosts: list[Host]) -> None:
    before = peers(hosts[0], "show")
    changed = peers(hosts[0], "set", "--fragment-bytes", "1KiB", "--minpulse-bytes", "4KiB")
    assert changed != before
    assert peers(hosts[0], "set", "--default") == before == peers(hosts[0], "show")
    done = hosts[0].ctl("tune", "set", "--default", "--class", "3", check=False)
    assert done.returncode == 2


def test_interface__is_not_needed_if_there_is_one(hosts: list[Host]) -> None:
    assert "eth1" in hosts[0].ctl("doctor", check=False).stdout
    assert hosts[0].ctl("top", "-n", "2").stdout.count(" on eth1: ") == 2
    piped = hosts[0].lab.run("h1", "sh", "-c", "carefulctl top eth1 | head -n 1", timeout=60)
    assert " on eth1: " in piped.stdout  # top ended with its reader
    assert hosts[1].ctl("down").stdout == "eth1: carefuld ended\n"
    hosts[1].up()


def test_open__names_the_carefuld_that_runs(hosts: list[Host]) -> None:
    done = hosts[0].lab.run("h1", sys.executable, "-c", OPEN, check=False)
    assert done.returncode == 1
    said = "carefuld runs on eth1: use careful.attach(), for files careful.files.connect(), "
    said += "or carefulctl down eth1"
    assert done.stderr.strip().endswith(said)


def test_jumbo_frames__nothing_exported(lab_possible: None, tmp_path: Path) -> None:
    """With generic XDP a receive buffer is smaller than the MTU; `up` cuts to the buffer."""
    with hosts_up(tmp_path, mtu=9000) as made:
        for host in made:
            host.down()
            host.ctl("up", "eth1", "--xdp", "generic", "--insecure")
        before = peers(made[0], "show")
        assert peers(made[0], "set", "--default") == before
        done = made[0].ctl("get", "h2:big", "null:", check=False)
        assert done.returncode != 0
        assert "exports nothing (`carefulctl up IFACE --export DIR` there)" in done.stderr


def test_sync__a_tree_of_which_nothing_can_be_copied(hosts: list[Host]) -> None:
    """A file cannot replace a directory without --delete; a directory replaces a file."""
    a, b = hosts
    (b.export / "tree").mkdir()
    (b.export / "tree/name").write_text("a file")
    (a.own / "tree/name/below").mkdir(parents=True)
    for status in (3, 3):
        done = a.ctl("sync", "h2:tree", a.own, check=False)
        assert (done.returncode, done.stdout) == (status, "")
        assert "tree/name: Is a directory" in done.stderr
    assert (a.own / "tree/name/below").is_dir()
    (a.own / "tree/other").write_text("a file")
    (b.export / "tree/other").mkdir()
    assert "1 deleted" in a.ctl("sync", "h2:tree", a.own, check=False).stdout
    assert (a.own / "tree/other").is_dir()
    missing = a.ctl("sync", "h2:missing", a.own, check=False)
    assert missing.returncode == 3
