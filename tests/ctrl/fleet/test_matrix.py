"""The matrix of all pairs: its figures, odd pairs, and output."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from careful.fleet.hosts import Host
from careful.fleet.matrix import Cell, Matrix, doubtful, joined, matrix_of, odd, shared_host
from careful.fleet.running import Job, Outcome
from careful.render.instance.fleet_matrix import draw_matrix, matrix_figures, matrix_text

NAMES = ("h1", "h2", "h3", "h4")


def alike() -> Matrix:
    return {
        pair: Cell(10 + 0.1 * number, 0.7 + 0.001 * number, 0, 100)
        for number, pair in enumerate(permutations(NAMES, 2))
    }


def test_odd__none_if_all_pairs_are_alike() -> None:
    assert odd(alike()) == []
    same = {pair: Cell(10.0, 0.0, 0, 1) for pair in permutations(NAMES, 2)}
    assert odd(same) == []
    assert odd(same | {("h1", "h2"): Cell(10.4, 0.0, 0, 1)}) == []  # 4 % is alike
    assert [one.pair for one in odd(same | {("h1", "h2"): Cell(10.6, 0.0, 0, 1)})] == [("h1", "h2")]


def test_odd__one_host_s_pairs_and_the_oddest_first() -> None:
    found = alike() | {
        ("h3", "h1"): Cell(30.0, 0.7, 0, 1),
        ("h3", "h2"): Cell(20.0, 1.4, 0, 1),
        ("h4", "h3"): Cell(10.0, 0.7, 2, 1),
    }
    strange = odd(found)
    assert strange[0].figure == "lost_frames"
    assert [one.pair for one in strange if one.figure == "latency_us"] == [
        ("h3", "h1"),
        ("h3", "h2"),
    ]
    assert [one.pair for one in strange if one.figure == "G_us_per_KiB"] == [("h3", "h2")]
    assert shared_host(strange) == "h3"
    assert shared_host(strange[:1]) == ""
    assert shared_host(odd(found | {("h1", "h2"): Cell(99.0, 0.7, 0, 1)})) == ""


def test_odd__three_pairs_are_too_few() -> None:
    few = [("h1", "h2"), ("h2", "h1"), ("h1", "h3")]
    assert odd({pair: Cell(10.0 * k, 1, 0, 1) for k, pair in enumerate(few)}) == []


def outcome(host: str, name: str, error: str = "", **figures: object) -> Outcome:
    return Outcome(Job(Host(host, (), f"{host}.net", "eth1"), (), 1, name), error, dict(figures))


def state(host: str, peer: str, tx: int, lost: int) -> Outcome:
    one = {"address": peer, "node": None, "tx_frames": tx, "lost_there_frames": lost}
    return outcome(host, "", instances=[{"peers": [one]}])


def test_made__losses_are_those_since_before() -> None:
    hosts = [Host(name, (), f"{name}.net", "eth1") for name in ("h1", "h2")]
    measured = [
        outcome(
            "h1",
            "h2",
            round_trip_minima=[
                {"size_bytes": 1024 * k, "least_us": 20 + 5.0 * k + (40 if k == 3 else 0)}
                for k in range(1, 9)
            ],
            inputs={"address": "10.0.0.2"},
        ),
        outcome("h2", "h1", "is not up"),
    ]
    before, after = state("h1", "10.0.0.2", 10, 4), state("h1", "10.0.0.2", 110, 5)
    nothing = outcome("h2", "", "gone")
    found = matrix_of(hosts, measured, [before, nothing], [after, nothing])
    assert found["h1", "h2"] == Cell(12.5, 5.0, 1, 100)
    assert found["h2", "h1"] == Cell(error="is not up")
    trips = measured[0].figures["round_trip_minima"]
    for one in trips:
        one["least_us"] = 100 - one["least_us"]  # a path that holds back now and then
    held = matrix_of(hosts, measured, [before, nothing], [after, nothing])["h1", "h2"]
    assert (held.latency_us, held.G_us_per_KiB) == (37.5, None)
    for one in trips:
        one["least_us"] = 100 - one["least_us"]
    anew = matrix_of(hosts, measured, [after, nothing], [before, nothing])
    assert anew["h1", "h2"] == Cell(12.5, 5.0, 4, 10)
    # Losses count only since the first look; without one they are unknown.
    unknown = matrix_of(hosts, measured, [outcome("h1", "", "ssh"), nothing], [after, nothing])
    assert unknown["h1", "h2"] == Cell(12.5, 5.0, None, None)
    fresh = matrix_of(hosts, measured, [outcome("h1", "", instances=[]), nothing], [after, nothing])
    assert fresh["h1", "h2"] == Cell(12.5, 5.0, 5, 110)


def trips(here: str, there: str, latency_us: float, slope_us: float = 5.0) -> Outcome:
    """A measurement of a pair."""
    sizes = range(64, 4096, 512)
    minima = [
        {"size_bytes": size, "least_us": 2 * latency_us + slope_us * (size - 64) / 1024}
        for size in sizes
    ]
    return outcome(here, there, round_trip_minima=minima)


def test_doubtful__a_second_measurement_clears_a_disturbed_pair() -> None:
    """Figures of a lab: h2 to h4 is slow at the switch, h2 to h3 was measured during other work."""
    hosts = [Host(name, (), name, "eth1") for name in NAMES]
    seen = dict.fromkeys(permutations(NAMES, 2), 79.3)
    seen |= {("h1", "h4"): 78.7, ("h4", "h2"): 81.0, ("h3", "h4"): 81.2, ("h3", "h1"): 78.9}
    seen |= {("h2", "h4"): 802.3, ("h2", "h3"): 86.1}
    first = [trips(*pair, latency) for pair, latency in seen.items()]
    idle = [outcome(name, "") for name in NAMES]
    again = doubtful(matrix_of(hosts, first, idle, idle))
    assert again == {("h2", "h4"), ("h2", "h3")}
    second = {("h2", "h4"): trips("h2", "h4", 799.0), ("h2", "h3"): trips("h2", "h3", 79.9)}
    both = [joined(one, second.get(one.job.pair, one)) for one in first]
    found = odd(matrix_of(hosts, both, idle, idle))
    assert [(one.pair, one.value) for one in found] == [(("h2", "h4"), 799.0)]


def test_joined__the_least_of_each_size_without_failures() -> None:
    first, again = trips("h1", "h2", 10.0, slope_us=8.0), trips("h1", "h2", 11.0, slope_us=4.0)
    least = [one["least_us"] for one in joined(first, again).figures["round_trip_minima"]]
    assert least == [20.0, 24.0, 26.0, 28.0, 30.0, 32.0, 34.0, 36.0]
    failed = outcome("h1", "h2", "is not up")
    assert joined(first, failed) is first
    assert joined(failed, again) is failed


def test_matrix_text__every_pair_and_odd_hosts(tmp_path: Path) -> None:
    found = alike() | {("h2", "h1"): Cell(error="x"), ("h3", "h1"): Cell(50.0, None, 1, 2)}
    text = matrix_text(found)
    lines = text.splitlines()
    assert lines[1].split() == ["from", "\\", "to", *NAMES]
    assert lines[4].split()[:2] == ["h2", "failed"]
    assert "h3 to h1 lost 1 frames" in text
    assert "h3 to h1: latency (µs) 50, the median is" in text
    figures = matrix_figures(found)
    assert len(figures["pairs"]) == 12
    assert figures["odd"][0]["from"] == "h3"
    draw_matrix(found, tmp_path / "pairs.svg")
    assert "lost frames" in (tmp_path / "pairs.svg").read_text()
