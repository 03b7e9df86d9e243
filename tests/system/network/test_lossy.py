"""Transfers over a lossy link are slow, but right, and losses are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, RUN, Host, Hosts, make_file
from lossy import hops, with_ipv6

Pair = Callable[..., list[Host]]


@pytest.fixture
def pair(hosts: Hosts, tmp_path: Path) -> Pair:
    """Yields two hosts that are up, on a faulty link."""

    def make(mishap: str, *options: str) -> list[Host]:
        made = hosts(hops=hops(tmp_path, mishap))
        for host in made:
            host.up(*options)
        return made

    return make


def there_and_back(a: Host, b: Host, nbytes: int, server: str = "h2") -> dict[str, int]:
    """Gets a file and puts it back. Returns both ends' counters."""
    kept = make_file(b.export / "big", nbytes)
    a.ctl("get", f"{server}:big", a.own / "big", timeout=280)
    assert (a.own / "big").read_bytes() == kept
    a.ctl("put", a.own / "big", f"{server}:back", timeout=280)
    assert (b.export / "back").read_bytes() == kept
    counted: dict[str, int] = {}
    for host in (a, b):
        status: dict[str, Any] = host.status()
        for name, count in (*status["counters"].items(), *status["xdp_counters"].items()):
            counted[name] = counted.get(name, 0) + count
    return counted


@pytest.mark.parametrize(
    ("loss", "nbytes", "ipv6"),
    [
        ("0.001", 8 * MIB, False),
        ("0.01", 2 * MIB, False),
        ("0.01", 2 * MIB, True),
        ("0.1", MIB, True),
    ],
)
def test_loss__costs_no_session(pair: Pair, loss: str, nbytes: int, ipv6: bool) -> None:
    a, b = pair(f"loss = {loss}")
    counted = there_and_back(a, b, nbytes, with_ipv6(a.lab) if ipv6 else "h2")
    assert counted["sent_again"] > 0
    assert (counted["lost_frames"], counted["epochs_broken"], counted["digest_bad"]) == (0, 0, 0)
    ends = [one for host in (a, b) for one in host.status()["peers"]]
    for name in ("sent_again", "asked_again"):
        assert sum(one[f"{name}_frames"] for one in ends) == counted[name] > 0


@pytest.mark.parametrize(("loss", "nbytes"), [("0.001", 8 * MIB), ("0.1", MIB)])
def test_loss__without_repair_a_new_epoch_begins(pair: Pair, loss: str, nbytes: int) -> None:
    a, b = pair(f"loss = {loss}", "--repair", "off")
    counted = there_and_back(a, b, nbytes)
    assert counted["lost_frames"] > 0
    assert counted["epochs_broken"] > 0
    assert (counted["sent_again"], counted["digest_bad"]) == (0, 0)
    assert ", repair off" in a.ctl("status", "-v", "eth1").stdout


def test_repair__both_hosts_need_the_same_setting(pair: Pair) -> None:
    a, b = pair("loss = 0")
    a.down()
    a.up("--repair", "off")
    make_file(b.export / "one", 100)
    refused = a.ctl("get", "h2:one", a.own / "one", check=False)
    assert refused.returncode == 1
    assert "up --repair" in refused.stderr


def test_on_loss__fail_ends_with_a_status_of_its_own(pair: Pair, tmp_path: Path) -> None:
    a, b = pair("loss = 0.02", "--repair", "off")
    kept = make_file(b.export / "big", 8 * MIB)
    failed = a.ctl("get", "--on-loss", "fail", "h2:big", a.own / "big", check=False)
    assert failed.returncode == 4, failed.stderr
    assert re.fullmatch(r"carefulctl: h2: .* lost \d+ frames? .*on-loss fail.*\n", failed.stderr)
    assert not (a.own / "big").exists()
    failed = a.ctl("put", "--on-loss", "fail", b.export / "big", "h2:back", check=False)
    assert failed.returncode == 4, failed.stderr
    assert re.fullmatch(r"carefulctl: h2: .* lost \d+ frames? .*on-loss fail.*\n", failed.stderr)
    assert not (b.export / "back").exists()
    (tmp_path / "careful.toml").write_text(
        '[nodes]\nh2 = "10.77.0.2"\n[transfer]\non_loss = "fail"'
    )
    config = ("--config", tmp_path / "careful.toml", "--fsync", "none")
    failed = a.ctl("get", *config, "-f", "h2:big", a.own / "other", check=False)
    assert failed.returncode == 4, failed.stderr
    done = a.ctl("get", *config, "--on-loss", "repair", "--json", "h2:big", a.own / "big")
    assert (a.own / "big").read_bytes() == kept
    report = json.loads(done.stdout)
    assert report["lost_frames"] > 0
    assert report["new_epochs_count"] > 0
    (peer,) = a.status()["peers"]
    assert peer["lost_here_frames"] + peer["lost_there_frames"] >= report["lost_frames"]
    log = RUN / a.lab.instance("h1") / "log"
    assert "frames lost on the way" in log.read_text()


def test_duplicates__are_dropped_and_nothing_else(pair: Pair) -> None:
    a, b = pair("duplicate = 0.01")
    counted = there_and_back(a, b, 2 * MIB)
    assert counted["drop_seq"] + counted["drop_twice"] > 0
    assert (counted["lost_frames"], counted["epochs_broken"]) == (0, 0)


def test_corruption__is_never_taken_for_data(pair: Pair) -> None:
    a, b = pair("corrupt = 0.01")
    counted = there_and_back(a, b, MIB)
    noticed = ("drop_crc", "drop_check", "drop_cookie", "digest_bad", "lost_frames")
    assert sum(counted[name] for name in noticed) > 0
    # Damaged blocks are requested again, and the transfer counts them.
    words = ("get", "-f", "--block-bytes", "64KiB", "--json", "h2:big", a.own / "big")
    for _ in range(10):
        before = a.status()["counters"]["digest_bad"]
        found = json.loads(a.ctl(*words, timeout=280).stdout)
        bad = a.status()["counters"]["digest_bad"] - before
        assert found["retries_count"] >= bad
        if bad:
            break
    assert bad
    assert (a.own / "big").read_bytes() == (b.export / "big").read_bytes()


def test_reordering__is_late_at_most(pair: Pair) -> None:
    a, b = pair("reorder = 0.01\nreorder_us = 300")
    there_and_back(a, b, 2 * MIB)
