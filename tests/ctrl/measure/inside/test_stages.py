"""From records of stages to (g, G): owners, times of frames, and withheld figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from careful import jsonout
from careful._abi import lib
from careful.control.tracing.tracer import RECORD
from careful.measure.inside import clearbox, listening, packet_flow, stages
from careful.measure.inside.stages import HOST_RX, HOST_TX, NET_RX, NET_TX, STORE
from careful.measure.statistics.estimate import Estimate
from careful.model import Pipeline
from careful.model.files import parse_source
from careful.render.digits import with_half
from careful.render.tracing import trace as report
from careful.render.tracing import trace_plots

CLOCK_NS = 25
SENDER, RECEIVER = 0, 1
SENDS, RECEIVES = 100, 200  # threads
#: Each stage's ns and ns per KiB; the kick includes netRx.
TRUE = {HOST_TX: (300, 270), NET_TX: (2900, 700), NET_RX: (1200, 310), HOST_RX: (150, 120)}


def record(stage: int, begin_ns: float, took_ns: float, **more: int) -> np.void:
    """Returns a record; its time includes the clock's own, like the engine's."""
    one = np.zeros((), RECORD)
    clock = 0 if stage == NET_RX else CLOCK_NS
    one["stage"], one["clock_ns"], one["frames"] = stage, clock, 1
    one["begin_ns"], one["end_ns"] = round(begin_ns), round(begin_ns + took_ns) + clock
    for name, value in more.items():
        one[name] = value
    return one[()]


def traffic(sizes: list[int], rounds: int = 30, late: float = 0.3, seed: int = 1) -> np.ndarray:
    """Sends frames one by one through the stages of TRUE; some are delayed."""
    rng = np.random.default_rng(seed)
    made, now = [], 1e9

    def took(stage: int, size: int) -> float:
        g, G = TRUE[stage]
        hindered = rng.exponential(5000) if rng.random() < late else 0.0
        return g + G * size / 1024 + abs(rng.normal(0, 15)) + hindered

    for seq, size in enumerate(sizes * rounds, 1):
        mine = {"bytes": size, "seq": seq, "thread": SENDS, "owner": SENDER}
        theirs = {"bytes": size, "seq": seq, "thread": RECEIVES, "owner": RECEIVER}
        span = took(HOST_TX, size)
        made.append(record(HOST_TX, now, span, **mine))
        now += span + 500
        inside, kick = took(NET_RX, size), took(NET_TX, size)
        made.append(record(NET_RX, now + 900, inside, thread=SENDS, owner=RECEIVER))
        made.append(record(NET_TX, now, max(kick, inside + 901), **mine))
        now += kick + inside + 2000
        span = took(HOST_RX, size)
        half = round(span / 2)
        made.append(record(HOST_RX, now + half, span - half, before_ns=half + CLOCK_NS, **theirs))
        now += span + 5000
    return np.array(made)


SIZES = [64 + 330 * k for k in range(12)]


def fitted(records: np.ndarray) -> dict[str, stages.Fit]:
    wanted = ((HOST_TX, SENDER), (NET_TX, SENDER), (NET_RX, RECEIVER), (HOST_RX, RECEIVER))
    owners = ("a", "b")
    found = [stages.fit(s, owners[who], stages.samples(records, s, who)) for s, who in wanted]
    return {one.name: one for one in stages.shared(found)}


def test_fit__each_stage_is_found_although_many_frames_are_hindered() -> None:
    found = fitted(traffic(SIZES))
    for stage in (HOST_TX, NET_RX, HOST_RX):
        one = found[stages.NAMES[stage]]
        g, G = TRUE[stage]
        assert one.g_us is not None
        assert one.g_us.value == pytest.approx(g / 1e3, abs=0.02), one.name
        assert one.G_us_per_KiB is not None
        assert one.G_us_per_KiB.value == pytest.approx(G / 1e3, rel=0.05), one.name
        assert one.line is not None
        assert (one.line.size_min_bytes, one.line.size_max_bytes) == (SIZES[0], SIZES[-1])
        assert one.line.samples_count == 12 * 30


def test_shared__netRx_inside_the_kick_is_counted_once() -> None:
    found = fitted(traffic(SIZES))
    kick = found["netTx"]
    assert kick.line is not None
    assert kick.line.G_us_per_KiB.value == pytest.approx(0.7, rel=0.05)
    assert kick.G_us_per_KiB is not None
    assert kick.G_us_per_KiB.value == pytest.approx(0.7 - 0.31, rel=0.1)
    assert found["netRx"].inside == "netTx of a"
    assert {found[name].resource for name in ("hostTx", "netTx", "netRx")} == {"a's thread"}
    limits = stages.bottleneck(list(found.values()))
    assert limits is not None
    assert limits.resource == "a's thread"
    assert limits.g_b_us.value == pytest.approx(0.3 + 2.9, rel=0.02)
    assert limits.G_b_us_per_KiB.value == pytest.approx(0.27 + 0.7, rel=0.05)
    assert limits.sum_G_others_us_per_KiB.value == pytest.approx(0.12, rel=0.05)


@pytest.mark.parametrize(
    ("inner", "why"),
    [((1200, 699), "µs/KiB"), ((1200, 780), "µs/KiB"), ((3600, 310), "the difference is -")],
)
def test_shared__a_difference_that_data_do_not_support_is_no_figure(
    inner: tuple[int, int], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then netTx and netRx are one stage in the table, the plan and the plot."""
    monkeypatch.setitem(TRUE, NET_RX, inner)
    found = fitted(traffic(SIZES, late=0.0))
    assert list(found) == ["hostTx", "netTx, netRx", "hostRx"]
    both = found["netTx, netRx"]
    assert both.line is not None
    assert both.G_us_per_KiB == both.line.G_us_per_KiB
    assert why in both.notes[-1]
    assert "cannot be separated" in both.notes[-1]
    limits = stages.bottleneck(list(found.values()))
    assert limits is not None
    assert limits.resource == "a's thread"
    assert limits.G_b_us_per_KiB.value == pytest.approx(both.G_us_per_KiB.value + 0.27, rel=0.03)
    trace_plots.stages(list(found.values()), tmp_path / "stages.svg")
    text = (tmp_path / "stages.svg").read_text(encoding="utf-8")
    shown = f"{with_half(both.g_us)} µs + {with_half(both.G_us_per_KiB)} µs/KiB"
    assert f"netTx, netRx, a: {shown}" in text
    assert with_half(both.G_us_per_KiB) in report.stages_table("", list(found.values()))


def test_shared__plot_and_table_show_the_same_figure(tmp_path: Path) -> None:
    """The plot shows kicks that include netRx; the text names netTx."""
    found = fitted(traffic(SIZES))
    kick = found["netTx"]
    assert kick.G_us_per_KiB is not None
    trace_plots.stages(list(found.values()), tmp_path / "stages.svg")
    text = (tmp_path / "stages.svg").read_text(encoding="utf-8")
    assert f"{with_half(kick.G_us_per_KiB)} µs/KiB; drawn with netRx" in text


def test_shared__a_figure_below_0_by_chance_has_no_interval_below_0() -> None:
    low = Estimate(-0.02, slack=0.1)
    one = replace(fitted(traffic(SIZES))["hostTx"], g_us=low)
    assert "0 to 0.08" in report.stages_table("", [one])
    shown = report.stages_figures(listening.Heard({}), [one])["stages"][0]
    assert (shown["g_us"], shown["g_low_us"], shown["g_high_us"]) == (0.0, 0.0, 0.08)


def test_fit__reports_too_few_data() -> None:
    found = fitted(traffic(SIZES[:3]))["hostTx"]
    assert found.line is None
    assert "3 sizes" in found.reason
    assert stages.bottleneck([found]) is None


def test_fit__hindered_frames_widen_the_interval_or_leave_no_slope() -> None:
    honest = refused = 0
    for seed in range(20):
        taken = stages.samples(traffic(SIZES, 5, 1.0, seed), HOST_RX, RECEIVER)
        one = stages.fit(HOST_RX, "b", taken)
        refused += one.G_us_per_KiB is None
        honest += one.G_us_per_KiB is None or one.G_us_per_KiB.contains(0.12)
    assert honest >= 17
    assert refused >= 10


def test_fit__transfers_of_as_many_frames_are_compared() -> None:
    """A frame's share of a kick differs between kicks of one and of eight frames."""
    made = []
    for k, size in enumerate(SIZES * 20):
        made.append(record(NET_TX, 1e9 + 2e4 * k, 2000 + size, bytes=size))
        made.append(record(NET_TX, 1e9 + 2e4 * k + 1e4, 8000 + size, bytes=8 * 1000, frames=8))
    one = stages.fit(NET_TX, "a", stages.samples(np.array(made), NET_TX, 0))
    assert one.frames_per_transfer == 1
    assert one.g_us is not None
    assert one.g_us.value == pytest.approx(2.0, abs=0.01)


def test_arrivals__frames_that_were_in_the_ring_before_are_left_out() -> None:
    records = traffic(SIZES, rounds=3)
    kernel = np.flatnonzero(records["stage"] == NET_RX)
    came, taken = stages.arrivals(np.delete(records, kernel[:2]), RECEIVER)
    assert len(came) == 36 - 2
    assert list(taken["seq"]) == list(range(3, 37))
    assert (came["end_ns"] < taken["begin_ns"]).all()


def test_arrivals__a_window_update_is_no_sample_but_keeps_the_order() -> None:
    records = traffic(SIZES, rounds=3)
    updates = np.flatnonzero(records["stage"] == HOST_RX)[::4]
    records["flags"][updates] = lib.CAREFUL_TRACE_CONTROL
    taken = stages.samples(records, NET_RX, RECEIVER)
    assert len(taken) == 36 - len(updates)


# --- listening in turns


class FakeTracer:
    """Records the stages listened to; raises Ctrl-C after this many slices.

    loses_in: a stage whose records get lost, after `loses_after` slices of it.
    """

    def __init__(
        self,
        slices: int | None = None,
        loses_in: int | None = None,
        trip_s: float = 1e-4,
        loses_after: int = 0,
    ) -> None:
        self.trip_s = trip_s
        self.listened: list[tuple[int, ...]] = []
        self.trains: list[tuple[int, int]] = []
        self.now, self.lost_count = 0.0, 0
        self._slices, self._loses_in, self._loses_after = slices, loses_in, loses_after
        self._is_new = True

    def listen(self, wanted) -> None:
        self.listened.append(tuple(wanted))

    def collect(self, seconds: float) -> None:
        self.now += seconds
        if self._slices is not None:
            self._slices -= 1
            if self._slices < 0:
                raise KeyboardInterrupt
        self._is_new = True
        if self._loses_in in self.listened[-1]:
            self._loses_after -= 1
            self.lost_count += 3 * (self._loses_after < 0)

    def take(self) -> np.ndarray:
        found = traffic(SIZES, rounds=5)
        found = found[np.isin(found["stage"], self.listened[-1]) & self._is_new]
        self._is_new = False
        return found

    def clock(self) -> float:
        return self.now

    # what clearbox.Exchange wants
    payload_max_bytes, train_max = 3702, 32

    def round_trips(self, size_bytes: int, count: int) -> None:
        self.now += self.trip_s * count

    def train_us(self, size_bytes: int, count: int) -> tuple[None, float]:
        self.trains.append((size_bytes, count))
        self.now += self.trip_s * count
        late_us = 50.0 if len(self.trains) % 3 == 0 else 0.0
        return None, 3.4 + 0.97 * size_bytes / 1024 + late_us


def test_listen__stages_take_turns_and_nothing_stays_attached() -> None:
    tracer = FakeTracer()
    heard = listening.listen(tracer, 2.0, clock=tracer.clock)
    assert tracer.listened[-1] == ()
    assert set(tracer.listened[:-1]) == set(listening.TURNS)
    found = {(one.name, one.owner) for one in listening.fits(heard, ("a", "b"))}
    assert found == {("hostTx", "a"), ("netTx", "a"), ("netRx", "b"), ("hostRx", "b")}
    assert not heard.interrupted


def test_listen__ctrl_c_keeps_the_records() -> None:
    tracer = FakeTracer(slices=2)
    heard = listening.listen(tracer, 9.0, (listening.ALL,), clock=tracer.clock)
    assert heard.interrupted
    assert heard.seconds < 9
    assert heard.records_count == 2 * len(traffic(SIZES, rounds=5))


def test_listen__with_lost_records_netRx_is_not_assigned() -> None:
    tracer = FakeTracer(loses_in=NET_RX)
    heard = listening.listen(tracer, 2.0, clock=tracer.clock)
    assert heard.lost_count > 0
    assert not heard.records[(NET_RX, HOST_RX)]
    assert heard.records[(HOST_RX,)]


def test_listen__keeps_records_before_a_loss() -> None:
    """A transfer at full speed lost a record in 5 s, and `trace frames` ended with a traceback."""
    tracer = FakeTracer(loses_in=NET_RX, loses_after=3)
    heard = listening.listen(tracer, 0.6, (listening.ALL,), clock=tracer.clock)
    assert heard.lost_count > 0
    assert heard.seconds == pytest.approx(0.6, abs=0.11)
    kept = listening.together(heard)
    assert len(kept) == 3 * len(traffic(SIZES, rounds=5))
    assert list(kept["end_ns"]) == sorted(kept["end_ns"])
    always = FakeTracer(loses_in=NET_RX)
    nothing = listening.listen(always, 0.2, (listening.ALL,), clock=always.clock)
    with pytest.raises(ValueError, match="records found the buffer full"):
        listening.together(nothing)


def test_clearbox__measures_until_precise_enough() -> None:
    tracer = FakeTracer()
    found = clearbox.ClearBox(tracer, tracer, ("a", "b"), clock=tracer.clock).run()
    assert found.settled
    assert [one.name for one in found.stages] == ["hostTx", "netTx", "netRx", "hostRx"]
    assert found.bottleneck is not None
    assert found.bottleneck.g_b_us.value == pytest.approx(3.2, rel=0.02)
    shown = report.clearbox_figures(found)
    fitted_counts = [one["fitted_count"] for one in shown["stages"]]
    assert shown["bottleneck_samples_count"] == sum(fitted_counts[:3])
    assert shown["others_samples_count"] == fitted_counts[3]
    assert shown["bottleneck_residual_us"] > shown["stages"][0]["residual_us"] > 0
    assert shown["others_residual_us"] == shown["stages"][3]["residual_us"]
    assert (shown["size_min_bytes"], shown["size_max_bytes"]) == (SIZES[0], SIZES[-1])


def test_clearbox__trains_fit_in_the_window() -> None:
    """There are as many frames of each size as without trains, and one answer per train."""
    tracer = FakeTracer()
    options = clearbox.Options(trains=True, rounds_max=2)
    found = clearbox.ClearBox(tracer, tracer, ("a", "b"), options, clock=tracer.clock).run()
    sizes = {size for size, _ in tracer.trains}
    assert len(sizes) == options.sizes_count
    rounds = found.rounds_count * len(clearbox.PASSES)
    each = options.sizes_count * found.rounds_count * clearbox.PACE_TRAINS
    counts = [count for _, count in tracer.trains]
    assert len(counts) == 2 * options.sizes_count * rounds + each
    assert counts.count(8) == options.sizes_count * rounds
    assert found.frames_count == (40 + 2) * options.sizes_count * rounds + 33 * each


def test_clearbox__time_between_stages_is_the_threads() -> None:
    """The stages of the sender take 3.2 µs and 0.97 µs/KiB of its 3.4."""
    tracer = FakeTracer()
    options = clearbox.Options(trains=True, rounds_max=4)
    found = clearbox.ClearBox(tracer, tracer, ("a", "b"), options, clock=tracer.clock).run()
    assert found.bottleneck is not None
    assert found.bottleneck.resource == "a's thread"
    assert found.bottleneck.g_b_us.value == pytest.approx(3.4, rel=1e-6)
    assert found.bottleneck.sum_G_others_us_per_KiB.value == pytest.approx(0.12, rel=0.05)
    shown = report.clearbox_figures(found)
    assert shown["sender"]["samples_count"] == 36 * found.rounds_count
    assert shown["bottleneck_samples_count"] == shown["sender"]["fitted_count"]
    assert "all of it" in report.clearbox_table(found, "h2")


@pytest.mark.parametrize(
    ("seconds", "trains", "most_s"), [(4.0, False, 4.3), (4.0, True, 4.3), (0.5, False, 1.3)]
)
def test_clearbox__ends_within_a_round(seconds: float, trains: bool, most_s: float) -> None:
    """At 5 ms a message a round would take 10 s, so it gets fewer samples of each size."""
    tracer = FakeTracer(trip_s=5e-3)
    options = clearbox.Options(seconds=seconds, trains=trains, precision=1e-6)
    found = clearbox.ClearBox(tracer, tracer, ("a", "b"), options, clock=tracer.clock).run()
    assert 0.9 * seconds < found.elapsed_s < most_s
    assert [one.supported for one in found.stages] == [True] * 4


def test_clearbox__no_train_of_one_frame() -> None:
    """The last train had what was left of the samples; one frame has no pace, and it failed."""
    tracer = FakeTracer()
    options = clearbox.Options(trains=True, rounds_max=1, trips=33)  # 32 and 1
    clearbox.ClearBox(tracer, tracer, ("a", "b"), options, clock=tracer.clock).run()
    assert min(count for _, count in tracer.trains) == clearbox.TRAIN_MIN


def test_clearbox__is_a_pipeline_that_can_be_planned() -> None:
    tracer = FakeTracer()
    found = clearbox.ClearBox(tracer, tracer, ("a", "b"), clock=tracer.clock).run()
    kick = found.stages[1]
    assert kick.g_us is not None
    found.stages[1] = replace(kick, g_us=kick.g_us - kick.g_us * 1.5)  # below 0 by chance
    text = jsonout.document("measure clearbox", {}, report.clearbox_figures(found))
    pipeline = parse_source(text)
    assert isinstance(pipeline, Pipeline)
    assert [one.name for one in pipeline.stages] == ["hostTx", "netTx", "netRx", "hostRx"]
    assert pipeline.stages[1].g_us == 0
    assert len({one.resource for one in pipeline.stages}) == 2
    assert (pipeline.size_min_bytes, pipeline.size_max_bytes) == (SIZES[0], SIZES[-1])


def test_clearbox__to_another_machine_only_sending_stages() -> None:
    tracer = FakeTracer()
    options = clearbox.Options(rounds_max=2)
    found = clearbox.ClearBox(tracer, tracer, ("a",), options, clock=tracer.clock).run()
    assert [one.name for one in found.stages] == ["hostTx", "netTx"]
    assert found.bottleneck is None
    assert "trace stages" in found.notes[0]


# --- one burst


def test_burst__is_the_one_with_most_payload() -> None:
    big, small = traffic([3000] * 4, rounds=1), traffic([1000], rounds=1)
    for one in (small,):
        one["begin_ns"] += 10**9
        one["end_ns"] += 10**9
    found = packet_flow.burst(np.concatenate([big, small]), ("a", "b"))
    assert found.rows == [("hostTx", "a"), ("netTx", "a"), ("netRx", "b"), ("hostRx", "b")]
    assert found.messages_count == 4
    assert [one.messages for one in found.of(("netRx", "b"))] == [(1,), (2,), (3,), (4,)]
    assert all(one.bytes == 3000 for one in found.transfers)
    assert min(one.begin_us for one in found.transfers) == 0


def test_burst__a_kick_is_of_the_messages_that_its_frames_are_of() -> None:
    made = [
        record(HOST_TX, 1e9, 100, bytes=6000, frames=2, seq=2, msg_id=7),
        record(HOST_TX, 1e9 + 200, 100, bytes=3000, seq=3, msg_id=8),
        record(NET_TX, 1e9 + 400, 900, bytes=9000, frames=3, seq=3),
        record(STORE, 1e9 + 2000, 900, bytes=9000, frames=3, owner=1, msg_id=7),
    ]
    found = packet_flow.burst(np.array(made), ("a", "b"))
    assert [one.messages for one in found.transfers] == [(1,), (2,), (1, 2), (1,)]
    cut = packet_flow.burst(np.array(made), ("a", "b"), transfers_most=2)
    assert (len(cut.transfers), cut.cut_count) == (2, 2)


def kicked(sizes: list[int], messages: int = 1) -> np.ndarray:
    """Returns a kick of several frames that runs the other host's netRx for each."""
    made, count = [], len(sizes)
    for k, size in enumerate(sizes):
        mine = {"bytes": size, "seq": k + 1, "msg_id": 5 + k % messages}
        made.append(record(HOST_TX, 1e9 + 300 * k, 200, thread=SENDS, **mine))
        made.append(record(NET_RX, 1e9 + 5000 + 2000 * k, 1500, thread=SENDS, owner=RECEIVER))
        taken = {"thread": RECEIVES, "owner": RECEIVER, **mine}
        made.append(record(HOST_RX, 1e9 + 40000 + 300 * k, 200, **taken))
    kick = {"bytes": sum(sizes), "frames": count, "seq": count, "thread": SENDS}
    made.append(record(NET_TX, 1e9 + 3000, 3000 + 2000 * count, **kick))
    return np.array(made)


def boxes(transfer: packet_flow.Transfer) -> list[tuple[float, float, str]]:
    """Returns begin, end and colour of each box that is drawn for a transfer."""
    alike: dict[trace_plots._Style, list[tuple[float, float]]] = {}
    trace_plots._boxes(transfer, 0.0, alike)
    return [
        (begin, begin + took, style.facecolor)
        for style, spans in alike.items()
        for begin, took in spans
    ]


@pytest.mark.parametrize("messages", [1, 2])
def test_burst__a_kick_that_runs_netRx_is_one_box(messages: int, tmp_path: Path) -> None:
    """Equal parts would show frames that leave after the other host had them."""
    found = packet_flow.burst(kicked([3000] * 6, messages), ("a", "b"))
    assert found.notes == ["netTx of a: its kick also runs netRx of b"]
    (kick,) = found.of(("netTx", "a"))
    assert kick.runs == ("b",)
    ((begin, end, colour),) = boxes(kick)
    assert (begin, end) == pytest.approx((kick.begin_us, kick.end_us))
    assert (colour == "#BBBBBB") is (messages > 1)
    arrived = found.of(("netRx", "b"))
    assert begin < arrived[0].begin_us < arrived[-1].end_us < end
    trace_plots.frames(found, tmp_path / "burst.svg")
    assert "its kick also runs netRx of b" in (tmp_path / "burst.svg").read_text()
    heard = listening.Heard()
    assert report.frames_figures(found, heard)["notes"] == found.notes
    assert report.frames_table(found, heard).endswith(found.notes[0])


def test_burst__a_kick_over_a_wire_has_a_box_for_each_frame() -> None:
    made = kicked([3000] * 6)
    made["thread"][made["stage"] == NET_RX] = RECEIVES
    found = packet_flow.burst(made, ("a", "b"))
    assert found.notes == []
    assert len(boxes(*found.of(("netTx", "a")))) == 6


def test_burst__without_messages_is_refused() -> None:
    with pytest.raises(ValueError, match="no burst"):
        packet_flow.burst(traffic([0], rounds=2), ("a", "b"))


def test_histogram__counts_all() -> None:
    times = np.array([0.5, 1.0, 1.0, 30.0])
    bins = stages.histogram(times)
    assert sum(one["count"] for one in bins) == 4
    assert bins[0]["low_us"] == 0.5
    assert stages.histogram(times[:0]) == []


def test_whole__is_the_middle_of_undelayed_trains() -> None:
    """Like a black box's gap, not the quickest trains; trains that other work delayed are out."""
    shares = [1.0] * 3 + [1.05] * 5 + [1.4] * 4
    paces = [(size, (2.0 + size / 8192) * share) for size in SIZES for share in shares]
    found = stages.whole(fitted(traffic(SIZES))["hostTx"], paces)
    assert found.g_us is not None
    assert found.g_us.value == pytest.approx(2.0 * 1.05, rel=1e-6)
