"""pathchar on a path in virtual time: figures, stopping, and disturbances."""

from __future__ import annotations

import random

import pytest
from careful.errors import CarefulError
from careful.render.measuring import measure as report
from fake_path import RATES, FakePath


def test_pathchar__finds_every_hop() -> None:
    path = FakePath().measure()
    assert path.reached
    assert path.settled
    assert [segment.ttls for segment in path.segments] == [(1,), (2,), (3,), (4,)]
    assert [segment.address for segment in path.segments][-1] == "10.0.4.1"
    for segment, G in zip(path.segments, RATES, strict=True):
        assert segment.G_us_per_KiB is not None
        assert segment.latency_us is not None
        assert segment.G_us_per_KiB.value == pytest.approx(G, rel=0.03)
        assert segment.latency_us.value == pytest.approx(350, abs=40)
    assert path.notes == []


def test_pathchar__own_time_is_not_the_first_hops() -> None:
    path = FakePath(own_us_per_KiB=200).measure()
    first = path.segments[0].G_us_per_KiB
    assert first is not None
    assert first.value == pytest.approx(RATES[0], rel=0.02)


def test_pathchar__intervals_hold_the_truth() -> None:
    """At each hop, G and latency are in their intervals on at least 36 of 40 paths."""
    hits: dict[tuple[str, int], int] = {}
    for seed in range(40):
        path = FakePath(random=random.Random(seed)).measure(seed=seed)
        for k, (segment, G) in enumerate(zip(path.segments, RATES, strict=True)):
            assert segment.G_us_per_KiB is not None
            assert segment.latency_us is not None
            hits["G", k] = hits.get(("G", k), 0) + segment.G_us_per_KiB.contains(G)
            hits["latency", k] = hits.get(("latency", k), 0) + segment.latency_us.contains(350)
    assert min(hits.values()) >= 36, hits


def test_pathchar__stops_early_on_a_quiet_path() -> None:
    quiet = FakePath(jitter_us=1).measure()
    noisy = FakePath(jitter_us=150).measure(seconds=1000)
    assert quiet.rounds_count == 3
    assert quiet.saving_share is not None
    assert quiet.saving_share > 0.85
    assert quiet.fixed_plan_count == 32 * 12 * 4
    assert noisy.rounds_count > quiet.rounds_count
    assert noisy.probes_count < noisy.fixed_plan_count


def test_pathchar__a_saving_counts_settled_hops() -> None:
    """Probes that find the hops belong to no round, and stopping early in vain saves nothing."""
    path = FakePath(jitter_us=1).measure()
    rounds = path.rounds_count * len(path.sizes_bytes) * 4
    assert path.probes_count == path.discovery_count + rounds
    assert path.saving_share == 1 - rounds / path.fixed_plan_count
    assert "saved" in report.pathchar_summary(path)
    short = FakePath(jitter_us=800).measure(seconds=0.5)
    assert not short.settled
    assert short.saving_share is None
    assert report.pathchar_figures(short)["saving_share"] is None
    assert "saved" not in report.pathchar_summary(short)


def test_pathchar__precise_hops_get_no_more_probes() -> None:
    """A fast hop behind a slow one needs more rounds, without the first two hops."""
    fake = FakePath(G_us_per_KiB=(4096.0, 4096.0, 2048.0, 50.0), jitter_us=8)
    path = fake.measure(seconds=1000)
    counts = [sum(ttl == hop for ttl, _ in fake.sent) for hop in (1, 2, 3, 4)]
    assert path.rounds_count > 4
    assert max(counts[0], counts[1]) + 12 <= counts[3]
    last = path.segments[-1].G_us_per_KiB
    assert last is not None
    assert last.contains(50.0)


def test_pathchar__reaches_the_requested_precision() -> None:
    path = FakePath(jitter_us=60).measure(precision=0.005, seconds=1000, rounds_max=200)
    assert path.settled
    for segment in path.segments:
        assert segment.G_us_per_KiB is not None
        assert segment.G_us_per_KiB.relative <= 0.005


def test_pathchar__a_loaded_machine_gets_no_number() -> None:
    """If the data do not support a slope, the note says that the interval is wide."""
    path = FakePath(G_us_per_KiB=(2.0,), jitter_us=5000).measure(rounds_max=3, timeout_s=60)
    assert not path.settled
    assert path.segments[0].G_us_per_KiB is None
    assert "wide" in path.segments[0].reason
    assert any("stopped before" in note for note in path.notes)


def test_pathchar__time_is_bounded() -> None:
    fake = FakePath(jitter_us=3000)
    path = fake.measure(seconds=10)
    assert not path.settled
    assert fake.now_s < 10 + 3


# --- hops that do not answer


def test_pathchar__a_silent_hop_is_merged_and_reported() -> None:
    path = FakePath(silent={2}).measure()
    assert [segment.ttls for segment in path.segments] == [(1,), (2, 3), (4,)]
    merged = path.segments[1].G_us_per_KiB
    assert merged is not None
    assert merged.value == pytest.approx(RATES[1] + RATES[2], rel=0.03)
    assert [(hop.ttl, hop.note) for hop in path.hops if not hop.usable] == [(2, "no answer")]


def test_pathchar__a_silent_host_is_reported() -> None:
    path = FakePath(silent={4}).measure()
    assert not path.reached
    assert [segment.ttls for segment in path.segments] == [(1,), (2,), (3,)]
    assert "no hop answers beyond hop 3" in path.notes[0]


def test_pathchar__no_answers() -> None:
    path = FakePath(silent={1, 2, 3, 4}).measure()
    assert path.segments == []
    assert path.hops == []
    assert "nor a router on the way answers" in path.why_nothing


def test_pathchar__hops_that_answer_too_seldom_are_no_result() -> None:
    path = FakePath(deaf={1, 2, 3, 4}, G_us_per_KiB=RATES[:2]).measure()
    assert path.segments == []
    assert path.why_nothing.startswith("no hop could be measured: hop 1, 10.0.1.1: ")
    assert path.why_nothing.count("of the probes answered") == 2
    assert FakePath(deaf={2}).measure().why_nothing == ""


@pytest.mark.parametrize("hop", [2, 4])
def test_pathchar__rate_limit_is_named(hop: int) -> None:
    path = FakePath(limited={hop}).measure()
    noted = next(one for one in path.hops if one.ttl == hop)
    assert "icmp_ratelimit" in noted.note
    assert not noted.usable
    merged = [segment.ttls for segment in path.segments]
    assert merged == ([(1,), (2, 3), (4,)] if hop == 2 else [(1,), (2,), (3,)])


def test_pathchar__losses_are_no_rate_limit() -> None:
    path = FakePath(loss=0.1).measure(seconds=100)
    assert all(hop.usable for hop in path.hops)
    assert len(path.segments) == 4
    assert 0.8 < path.hops[1].answered_share < 0.98


def test_pathchar__hop_that_hardly_answers_is_not_called_limited() -> None:
    path = FakePath(deaf={2}).measure()
    (noted,) = (hop for hop in path.hops if not hop.usable)
    assert noted.ttl == 2
    assert noted.note.endswith("of the probes answered")


def test_pathchar__a_difference_of_noise_is_no_figure() -> None:
    """Both lines are good, but cannot measure a hop that is a thousand times as fast."""
    path = FakePath(G_us_per_KiB=(4096.0, 4.0), jitter_us=40).measure(rounds_max=4)
    slow, fast = path.segments
    assert slow.G_us_per_KiB is not None
    assert fast.line.supported
    assert fast.G_us_per_KiB is None
    assert "wide" in fast.reason


def test_pathchar__a_hop_of_two_addresses_is_not_measured() -> None:
    path = FakePath(two_faced={2}).measure()
    assert any("several paths" in note for note in path.notes)
    assert (2, 3) in [segment.ttls for segment in path.segments]


def test_pathchar__refusal_ends_the_path() -> None:
    path = FakePath(refuses=3).measure()
    assert len(path.hops) == 3
    assert not path.reached
    assert "reports unreachable (ICMP code 13)" in path.notes[0]


# --- what goes down in the middle


@pytest.mark.parametrize("says_so", [True, False])
def test_pathchar__a_link_that_goes_down_is_reported(says_so: bool) -> None:
    """The note is neither about a rate limit nor several paths; earlier figures stay."""
    fake = FakePath(down=3, down_at_s=3.0, says_so=says_so, jitter_us=60)
    path = fake.measure(precision=0.001, seconds=30)
    assert [segment.ttls for segment in path.segments] == [(1,), (2,), (3,), (4,)]
    for segment, G in zip(path.segments, RATES, strict=True):
        assert segment.G_us_per_KiB is not None
        assert segment.G_us_per_KiB.value == pytest.approx(G, rel=0.05)
    assert [segment.lost_s is None for segment in path.segments] == [True, True, False, False]
    assert not path.settled
    assert not path.to_host
    (said,) = (note for note in path.notes if "no answer" in note)
    assert said.endswith("hops 3, 4; the figures are from earlier") is says_so
    assert said.startswith("hop 2, 10.0.2.1, reports unreachable (ICMP code 0) since 2.") is says_so
    assert said.startswith("hops 3, 4: no answer since 2.") is not says_so
    assert not any("limited" in note or "several" in note for note in path.notes)
    table = report.pathchar_table(path, "h2")
    assert "until 2." in table
    figures = report.pathchar_figures(path)
    assert [hop["lost_since_s"] is None for hop in figures["hops"]] == [True, True, False, False]
    assert fake.now_s < 30 + 5


def test_pathchar__hops_lost_before_they_were_measured() -> None:
    fake = FakePath(down=3, down_at_s=0.15)
    path = fake.measure()
    assert [segment.ttls for segment in path.segments] == [(1,), (2,)]
    assert all(segment.G_us_per_KiB for segment in path.segments)
    (said,) = (note for note in path.notes if "unreachable" in note)
    assert "from before" not in said


def test_pathchar__figures_stay_after_a_lost_route() -> None:
    path = FakePath(no_way_at_s=3.0, jitter_us=60).measure(precision=0.001)
    assert [segment.ttls for segment in path.segments] == [(1,), (2,), (3,), (4,)]
    assert path.segments[2].G_us_per_KiB is not None
    assert any("cannot be sent since 3.0 s (h2: no route" in n for n in path.notes)
    with pytest.raises(CarefulError, match="no route"):
        FakePath(no_way_at_s=0.2).measure()


def test_pathchar__a_router_that_refuses_for_the_next_hop_ends_the_path() -> None:
    path = FakePath(down=3, down_at_s=0.0).measure()
    assert [hop.ttl for hop in path.hops] == [1, 2]
    assert path.notes[0].startswith(
        "hop 2, 10.0.2.1, reports unreachable (ICMP code 0): the path ends"
    )
    assert len(path.segments) == 2


def test_pathchar__a_path_that_changes_at_the_end_keeps_the_last_round() -> None:
    fake = FakePath()
    found = fake.measure(rounds_max=1, precision=1e-4)
    changed = FakePath(change_at_s=fake.now_s).measure(rounds_max=2, precision=1e-4)
    assert len(found.segments) == 4
    assert any("halfway: the path changed" in note for note in changed.notes)
    for segment, G in zip(changed.segments, RATES, strict=True):
        assert segment.line.samples_count == 12
        assert segment.G_us_per_KiB is not None
        assert segment.G_us_per_KiB.value == pytest.approx(2 * G, rel=0.1)


# --- what changes, and what does not fit


def test_pathchar__a_changed_path_is_measured_again() -> None:
    path = FakePath(change_at_s=1.5).measure(seconds=100)
    assert any("halfway: the path changed" in note for note in path.notes)
    for segment, G in zip(path.segments, RATES, strict=True):
        assert segment.G_us_per_KiB is not None
        assert segment.G_us_per_KiB.value == pytest.approx(2 * G, rel=0.03)


@pytest.mark.parametrize("speaks", [True, False])
def test_pathchar__probes_fit_the_path(speaks: bool) -> None:
    fake = FakePath(mtu={3: 1500}, speaks_of_mtu=speaks)
    path = fake.measure(mtu=9000)
    assert path.mtu_bytes == 1500
    assert max(size for _, size in fake.sent[-40:]) == 1500
    assert len(path.segments) == 4
    assert any("vanish" in note for note in path.notes) is not speaks


def test_pathchar__background_uses_a_hundredth_of_the_time() -> None:
    fake = FakePath(jitter_us=1)
    fake.measure(background=True, seconds=1000)
    assert fake.busy_s < 0.0101 * fake.now_s


def test_pathchar__background_that_does_not_suffice_is_refused_at_once() -> None:
    """The error has the needed time, and does not come after ten times the given time."""
    fake = FakePath(jitter_us=1)
    with pytest.raises(ValueError, match="in the background 3 rounds of 12 sizes take") as said:
        fake.measure(background=True)
    assert fake.now_s < 30
    seconds = float(str(said.value).split("--time ")[1].split(",")[0])
    enough = FakePath(jitter_us=1)
    assert enough.measure(background=True, seconds=seconds).rounds_count >= 3
    assert enough.now_s < 1.2 * seconds


def test_pathchar__background_waits_no_hundred_seconds_for_a_silent_hop() -> None:
    fake = FakePath(silent={2}, jitter_us=1)
    fake.measure(background=True, seconds=1000, rounds_max=1)
    assert fake.now_s < 200


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sizes_count": 2}, "sizes"),
        ({"min_bytes": 10}, "at least 32"),
        ({"min_bytes": 1500, "max_bytes": 600}, "must ascend"),
        ({"max_hops": 0}, "hops"),
        ({"precision": 0.0}, "precision"),
        ({"min_bytes": 1480, "max_bytes": 1500}, "is too narrow for"),
    ],
)
def test_pathchar__bad_options(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FakePath().measure(**options)
