"""carefulctl measure pathchar over emulated links, compared with the links' reports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, MakeLab, nobody

pytestmark = pytest.mark.lab

#: 10, 5, 2 and 8 Mbit/s.
FOUR = (819.2, 1638.4, 4096.0, 1024.0)
#: A share by which a busy machine does not slow a link.
NEAR = 0.25


def hops_file(folder: Path, G_us_per_KiB: tuple[float, ...]) -> Path:
    stages = [
        f'[[stage]]\nname = "link {k}"\ng_us = 50\nG_us_per_KiB = {G}\ndelay_us = 300\n'
        for k, G in enumerate(G_us_per_KiB, 1)
    ]
    path = folder / "hops.toml"
    path.write_text("\n".join(stages))
    return path


@pytest.fixture(scope="module")
def chain(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    one = Lab(hops=hops_file(tmp_path_factory.mktemp("chain"), FOUR))
    yield one
    one.down()


def measure(lab: Lab, *options: str, host: str = "h2") -> dict[str, Any]:
    shown = lab.run(
        "h1", "carefulctl", "measure", "pathchar", host, "--json", *options, check=False
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def test_pathchar__every_hop_has_its_rate(chain: Lab) -> None:
    """On a busy machine an emulated link is slower. test_reports.py judges precision over 40 runs,
    tests/ctrl/measure/path/test_pathchar.py in virtual time.
    """
    found = measure(chain)
    assert [hop["hops"] for hop in found["hops"]] == [[1], [2], [3], [4]]
    assert [hop["address"] for hop in found["hops"]] == [
        "10.77.101.2",
        "10.77.102.2",
        "10.77.103.2",
        "10.77.0.2",
    ]
    for hop, G in zip(found["hops"], FOUR, strict=True):
        assert hop["G_us_per_KiB"] == pytest.approx(G, rel=NEAR)
        # Other work on this machine only increases latency.
        assert hop["latency_us"] - 14 * G / 1024 > 200
        assert (hop["size_min_bytes"], hop["size_max_bytes"]) == (600, 3826)
    assert found["probes_count"] < found["probes_fixed_plan_count"]
    assert (found["kind"], found["schema"], found["inputs"]["host"]) == ("pathchar", 1, "h2")


def test_pathchar__needs_no_privilege(chain: Lab) -> None:
    chain.run("h1", *nobody(), "carefulctl", "measure", "pathchar", "10.77.0.2", "--max-hops", "2")


def test_pathchar__table_is_for_people(chain: Lab) -> None:
    shown = chain.run(
        "h1", "carefulctl", "measure", "pathchar", "h2", "--sizes", "6", check=False
    ).stdout
    assert all(word in shown for word in ("latency", "(µs/KiB)", "Mbit/s"))
    text = " ".join(shown.split())  # long lines are folded
    assert "a fixed plan needs 768" in text or "stopped before" in text
    assert shown.count("10.77.10") == 3


def test_pathchar__smaller_mtu_on_the_way(chain: Lab) -> None:
    device = ["ip", "link", "set", "right", "mtu"]
    chain.run("r2", *device, "1500")
    try:
        found = measure(chain, "--sizes", "6")
    finally:
        chain.run("r2", *device, "3826")
    assert found["mtu_bytes"] == 1500
    assert len(found["hops"]) == 4


def test_pathchar__rate_limited_router_is_named(chain: Lab) -> None:
    limit = ["sh", "-c", "echo $0 >/proc/sys/net/ipv4/icmp_ratelimit; "]
    mask = "echo {} >/proc/sys/net/ipv4/icmp_ratemask"
    chain.run("r2", "sh", "-c", mask.format(6168))
    chain.run("r2", *limit, "1000")
    try:
        found = measure(chain, "--sizes", "10")
    finally:
        chain.run("r2", *limit, "0")
        chain.run("r2", "sh", "-c", mask.format(0))
    assert [hop["hops"] for hop in found["hops"]] == [[1], [2, 3], [4]]
    (noted,) = found["not_measured"]
    assert noted["hop"] == 2
    assert "sysctl net.ipv4.icmp_ratelimit" in noted["reason"]
    assert found["hops"][1]["G_us_per_KiB"] == pytest.approx(FOUR[1] + FOUR[2], rel=NEAR)


def test_pathchar__silent_router_is_merged(chain: Lab) -> None:
    rule = ["ip", "rule", "{}", "iif", "lo", "to", "10.77.0.1", "prio", "10", "blackhole"]
    chain.run("r1", *[word.format("add") for word in rule])  # messages that r1 would send
    try:
        found = measure(chain, "--sizes", "6", "--timeout", "0.3")
    finally:
        chain.run("r1", *[word.format("del") for word in rule])
    assert [hop["hops"] for hop in found["hops"]] == [[1, 2], [3], [4]]
    assert found["not_measured"] == [{"hop": 1, "address": "", "reason": "no answer"}]


def test_pathchar__loss_and_duplicates_on_the_way(make_lab: MakeLab, tmp_path: Path) -> None:
    path = hops_file(tmp_path, (819.2, 1024.0))
    path.write_text(path.read_text() + "[stage.link]\nloss = 0.05\nduplicate = 0.1\n")
    found = measure(make_lab(hops=path))
    assert [hop["hops"] for hop in found["hops"]] == [[1], [2]]
    assert found["hops"][1]["G_us_per_KiB"] == pytest.approx(1024.0, rel=NEAR)
    assert found["hops"][1]["answered_share"] < 1


def failed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("route", "says"),
    [("unreachable", "cannot be reached"), ("prohibit", "not permitted"), ("blackhole", "")],
)
def test_pathchar__probes_that_cannot_be_sent(chain: Lab, route: str, says: str) -> None:
    chain.run("h1", "ip", "route", "add", route, "10.99.0.0/24")
    try:
        argv = ["carefulctl", "measure", "pathchar", "10.99.0.1"]
        assert says in failed(chain.run("h1", *argv, check=False))
    finally:
        chain.run("h1", "ip", "route", "del", route, "10.99.0.0/24")


def test_pathchar__a_host_behind_silence(chain: Lab) -> None:
    """h1's neighbour does not exist, so no host answers: the error comes within the tries."""
    neighbour = ["dev", "eth1", "lladdr", "02:77:00:01:99:99", "nud", "permanent"]
    chain.run("h1", "ip", "neigh", "add", "10.77.200.1", *neighbour)
    chain.run(
        "h1", "ip", "route", "add", "10.99.1.1/32", "via", "10.77.200.1", "dev", "eth1", "onlink"
    )
    argv = ["carefulctl", "measure", "pathchar", "10.99.1.1", "--timeout", "0.05"]
    assert "answers probes" in failed(chain.run("h1", *argv, check=False))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["nobody.invalid"], "unknown host"),
        (["h2", "--sizes", "2"], "4 to 100"),
        (["h2", "--min-bytes", "3820"], "is too narrow for"),
    ],
)
def test_pathchar__bad_usage(chain: Lab, options: list[str], says: str) -> None:
    done = chain.run("h1", "carefulctl", "measure", "pathchar", *options, check=False)
    assert says in failed(done)
