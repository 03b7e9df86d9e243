"""The output of `tune explain` for a path that was tuned in virtual time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from careful.control.instance import instances, live_latency, maps
from careful.control.instance.instances import Instance
from careful.control.instance.live_latency import Cell
from careful.control.options.config import Config
from careful.control.plans import tune_entry, tune_peers
from careful.control.plans.tune_peers import Row, Session, TunedPeer
from careful.control.state import kept_path
from careful.control.state.state_dir import VARIABLE, StateDir
from careful.model import load_shipped
from careful.plan import CLASS_COUNT, Plan
from careful.render.tables import cells, folded
from careful.render.tuning import explain as report
from careful.tuning import explain
from careful.tuning.controller.policy import Controller
from careful.tuning.settings import Kick
from careful.tuning.state import PathState, Store
from in_effect import EFFECT
from live_path import LivePath, Stream, ToFile, run

GAM = load_shipped("gam")
CLASS = 6


def row(on: LivePath) -> Row:
    """Returns the map's settings in effect."""
    settings = tuple(
        tune_entry.Setting(
            on.plan(index),
            {"store": on.pulse(index).store_bytes, "net_tx": on.kick(index).net_tx_bytes},
        )
        for index in range(CLASS_COUNT)
    )
    return Row("h2", 0, settings)


def tuned(store: Store, seconds: float = 30) -> tuple[Row, PathState]:
    """Returns a tuned path with 4 KiB messages, and some to a slow disk."""
    disk = ToFile(65536, 0.03, 26, 8000.0, lambda _: (4000.0, 200.0))
    on, state = LivePath(lambda _: GAM, [Stream(4096, 0.005)], files=[disk]), PathState({})
    one = Controller(on, state, on.clock, seed=1)
    until = on.now + seconds
    while on.now < until:
        on.advance(one.step())
    if state.figures:
        state.figures |= {"frames_count": 700, "elapsed_s": 0.3, "notes": ["a note"]}
    return row(on), state


def found(store: Store, **path: Any) -> dict[str, Any]:
    shown, state = tuned(store)
    one = explain.path(shown, "10.0.0.2", path.get("state", state), store)
    return {"instance": "eth1", "tuner_pid": None, "paths": [one]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_explanation_text__fits_80_columns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table had headings of 84 columns, and a size was parted from its unit."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = folded(report.explanation_text(found(store))).splitlines()
    assert [line for line in lines if cells(line) > 80] == []
    assert any(line.startswith("to 16 KiB ") for line in lines)


USED = {"driver": "veth", "queue": 0, "mtu_bytes": 1500, "wait": "adaptive"}


@pytest.fixture
def gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    """Returns the paths of two queues, each with a peer in slot 0, from stored state."""
    shown, state = tuned(Store(tmp_path))
    monkeypatch.setattr(instances, "RUN", tmp_path)
    monkeypatch.setattr(instances, "tuner", lambda _: 0)
    monkeypatch.setattr(maps, "live_map", lambda _: nullcontext())
    monkeypatch.setattr(live_latency, "whole", lambda *_: None)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    names = ("eth1", "eth1+1")
    rows = [replace(shown, peer=f"h{k}", queue=name) for k, name in enumerate(names, 2)]
    monkeypatch.setattr(tune_peers, "show", lambda *_: rows)

    def look(**used: Any) -> list[dict[str, Any]]:
        queues = []
        for k, name in enumerate(names, 2):
            peer = TunedPeer(0, f"10.0.0.{k}", f"10.0.0.{k}", 1514)
            now = replace(EFFECT, **USED | used)
            queues.append(Session(Instance(name), None, [peer], 1514, used=now))
            (tmp_path / name).mkdir(exist_ok=True)
        identity = {**USED, "peer_frame_bytes": 1514}
        Store(tmp_path / names[1]).save("10.0.0.3", replace(state, identity=identity))
        paths: list[dict[str, Any]] = explain.gather(
            replace(queues[0], others=(queues[1],)), [], Config()
        )["paths"]
        return paths

    return look


def test_gather__each_queues_peers_are_its_own(
    gathered: Callable[..., list[dict[str, Any]]],
) -> None:
    first, second = gathered()
    assert [one["peer"] for one in (first, second)] == ["h2", "h3"]
    assert [one["address"] for one in (first, second)] == ["10.0.0.2", "10.0.0.3"]
    assert not first["measurement"]
    assert second["measurement"]


@pytest.mark.parametrize("name", ["mtu_bytes", "driver"])
def test_gather__the_record_of_another_path_explains_nothing(
    gathered: Callable[..., list[dict[str, Any]]], name: str
) -> None:
    _, second = gathered(**{name: 9000})
    assert not second["measurement"]
    assert not second["decisions"]
    assert name in second["why_not_measured"]


def hop(ttl: int, g_us: float, G_us_per_KiB: float) -> dict[str, Any]:
    return {"hops": [ttl], "latency_us": g_us, "G_us_per_KiB": G_us_per_KiB}


def test_gather__a_kept_pathchar_names_the_bottleneck_s_hop(
    gathered: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The fourth hop's latency is the largest, but only the third has the bottleneck's G."""
    kept = StateDir(tmp_path / "state")
    hops = [hop(1, 7.2, 7.2), hop(2, 5.2, 24.9), hop(3, 7.5, 24.9), hop(4, 999.0, 7.9)]
    figures = {"kind": "pathchar", "reached": True, "hops": hops, "bottleneck": "hop 2"}
    for peer in ("10.0.0.2", "10.0.0.3"):
        kept_path.keep(kept, peer, figures)
    first, second = gathered()
    assert second["hops"]["bottleneck"] == "hop 3"
    assert "the bottleneck is hop 3" in second["hops"]["rests_on"]
    assert first["hops"]["bottleneck"] == "hop 2", "no black box is kept of it"
    text = report.explanation_text({"instance": "eth1", "tuner_pid": None, "paths": [second]})
    assert "bottleneck: hop 3; pathchar, 0 s ago: the order" in text


def test_gather__without_pathchar_names_no_hop(
    gathered: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    kept_path.keep(StateDir(tmp_path / "state"), "10.0.0.9", {"hops": []})
    assert [one["hops"] for one in gathered()] == [None, None]
    assert "pathchar" not in report.explanation_text(
        {"instance": "eth1", "tuner_pid": None, "paths": gathered()}
    )


def test_gather__another_xdp_mode_is_the_same_path(
    gathered: Callable[..., list[dict[str, Any]]],
) -> None:
    assert gathered(xdp_mode="generic")[1]["measurement"]


def test_path__prediction_and_live_messages(store: Store) -> None:
    classes = found(store)["paths"][0]["classes"]
    one = classes[CLASS]
    assert one["standing"] == "verified"
    # The synthetic live messages have no extra time, so both must agree.
    assert one["measured_us"] == pytest.approx(one["predicted_us"], rel=0.12)
    assert one["predicted_us"] < one["fixed_4KiB_us"] == one["one_fragment_us"]
    assert classes[CLASS + 1]["standing"] == "unverified"
    assert classes[CLASS + 1]["measured_us"] is None
    assert classes[0]["standing"] == "as before"


def test_path__a_stores_threshold(store: Store) -> None:
    whole = found(store)
    (one,) = whole["paths"][0]["stores"]
    assert (one["class"], one["standing"]) == (10, "verified")
    assert one["store_bytes"] < 65536
    assert one["measured_us"] == one["ab"]["after_us"]
    # The synthetic live messages have only the message's and its writes' time, so both must agree.
    assert one["measured_us"] == pytest.approx(one["predicted_us"], rel=0.12)
    assert one["predicted_low_us"] <= one["predicted_us"] <= one["predicted_high_us"]
    assert one["write"]["told_apart"]
    text = report.explanation_text(whole)
    assert re.search("[µm]s; predicted ", text)
    assert f"64 KiB, received into files: writes of {one['store_bytes']} bytes or more" in text
    assert f"to files: writes of 65536 → {one['store_bytes']} bytes or more (held" in text


def test_path__a_threshold_of_which_nothing_is_predicted(store: Store) -> None:
    _, state = tuned(store)
    for known, why in (
        (None, "too few writes were seen"),
        ({**(state.store or {}), "told_apart": False}, "all writes have one size"),
        ({**(state.store or {}), "came": {"3": {"count": 9, "frames": 9}}}, "too few messages"),
    ):
        whole = found(store, state=replace(state, store=known))
        (one,) = whole["paths"][0]["stores"]
        assert "predicted_us" not in one
        assert why in one["why_not_predicted"]
        assert f"not predicted: {one['why_not_predicted']}" in report.explanation_text(whole)


def test_path__set_by_hand(store: Store) -> None:
    plan = Plan(**found(store)["paths"][0]["classes"][CLASS]["plan"])
    store.pin([], {CLASS: plan})
    assert found(store)["paths"][0]["classes"][CLASS]["standing"] == "set by hand"
    store.pin([], {CLASS: replace(plan, step_bytes=1)})  # not the plan in effect
    assert found(store)["paths"][0]["classes"][CLASS]["standing"] == "verified"


def test_path__not_measured(store: Store) -> None:
    whole = found(store, state=None)
    text = report.explanation_text(whole)
    assert "not measured: nothing is predicted (tune auto has not looked at this path)" in text
    with pytest.raises(ValueError, match="no path and no live message was measured"):
        report.draw(whole, store.path.parent / "x.svg")


def test_path__a_class_as_before_has_a_reason(store: Store) -> None:
    whole = found(store)
    classes = whole["paths"][0]["classes"]
    for each in classes:
        assert bool(each["why"]) == (each["standing"] == "as before")
    assert classes[0]["why"] == classes[0]["why_not_best"]
    assert f"as before: {classes[0]['why']}" in report.explanation_text(whole)


def test_draw__live_messages_of_a_path_that_was_not_measured(store: Store) -> None:
    pytest.importorskip("matplotlib")
    shown, state = tuned(store)
    state.figures = None
    state.note(0.0, "not measured", {}, "at the start: the interval is wide")
    one = explain.path(shown, "10.0.0.2", state, store)
    cells = {(CLASS, version): Cell(10, 10, 10 * 250_000, 0) for version in (0, 1)}
    explain.with_live(one, cells)
    assert (one["classes"][CLASS]["live_us"], one["classes"][CLASS]["live_count"]) == (250, 20)
    assert one["classes"][0]["live_us"] is None
    whole = {"instance": "eth1", "tuner_pid": None, "paths": [one]}
    assert "(at the start: the interval is wide)" in report.explanation_text(whole)
    path = store.path.parent / "live_latency.svg"
    report.draw(whole, path)
    assert "live messages, mean since up" in path.read_text()


def test_explanation_text__names_the_measurement_and_its_reason(store: Store) -> None:
    text = report.explanation_text(found(store))
    assert "not being tuned" in text
    assert "measured: mean latency of live messages" in text
    assert "at the start, by measure blackbox" in text
    assert "a note" in text
    assert "4 KiB: 3750 → 961 bytes (held:" in text


def test_explanation_text__is_a_table_with_figures_and_no_exponents(store: Store) -> None:
    """Also for a slow path, GAM times 50."""
    whole = found(store)
    for each in whole["paths"][0]["classes"]:
        for name in ("g_us", "G_us_per_KiB"):
            each["bottleneck"][name] *= 50
    text = report.explanation_text(whole)
    head, rule, *rows = text.splitlines()[3:21]
    assert "e+" not in text
    assert set(rule) == {"─"}
    assert [row.split("  ")[0].strip() for row in rows[:2]] == ["to 64 B", "to 128 B"]
    assert rows[15].startswith("above 1 MiB")
    for name in ("fragments (bytes)", "measured (µs)", "g (µs)", "G (µs/KiB)"):
        at = head.index(name) + len(name)
        # Numbers are aligned right, with a dash for a missing one.
        assert all(row[at - 1] in "0123456789-" and row[at] == " " for row in rows[:16]), name
    one = rows[CLASS]
    assert one.split()[:4] == ["to", "4", "KiB", "961"]
    assert float(one.split()[7]) == pytest.approx(50 * 7.5, rel=0.05)


def test_explanation_text__names_the_time_of_the_last_confirmation(store: Store) -> None:
    _, state = tuned(store)
    assert "found no change" not in report.explanation_text(found(store, state=state))
    state.confirmed_at = time.monotonic() - 5
    text = report.explanation_text(found(store, state=state))
    assert re.search(r"; a check \d+ s ago found no change", text)


def test_json__has_the_tables_figures(store: Store) -> None:
    one = found(store)["paths"][0]["classes"][CLASS]
    assert one["bottleneck"] == pytest.approx({"g_us": 7.5, "G_us_per_KiB": 24.9}, rel=0.1)
    assert one["best_us"] <= 1.02 * one["predicted_us"]
    json.dumps(one)


def test_decision__names_common_parts_once() -> None:
    classes = [
        {
            "class": index,
            "message_bytes_max": 64 << index,
            "before": Plan.fixed(3750).__dict__,
            "after": Plan.fixed(500).__dict__,
            "ab": {"said": "not verified"},
        }
        for index in (5, 6)
    ]
    said = report.decision({"what": "unverified", "classes": classes, "why": "quiet"})
    expected = "unverified; 2 KiB: 3750 → 500 bytes; 4 KiB: 3750 → 500 bytes; not verified; quiet"
    assert said == expected


def test_draw__four_curves_and_the_measured_points(store: Store) -> None:
    pytest.importorskip("matplotlib")
    path = store.path.parent / "path.svg"
    report.draw(found(store), path)
    drawn = path.read_text()
    curves = ("one fragment", "fixed 4 KiB", "in effect, predicted", "in effect, live A/B")
    for curve in (*curves, "oracle, predicted", "4 KiB", "than the oracle"):
        assert curve in drawn


@pytest.mark.parametrize(
    ("seconds", "said"), [(1.4, "1 s ago"), (119, "119 s ago"), (600, "10 min ago")]
)
def test_ago(seconds: float, said: str) -> None:
    assert report.ago(seconds) == said


def tried_path(took: Callable[[int, Plan, Kick], float]) -> tuple[Row, PathState]:
    """Returns a path without figures after a search with 1 KiB messages."""
    on = LivePath(lambda _: GAM, [Stream(1024, 0.005)], took=took, figureless=True)
    state = PathState({})
    one = Controller(on, state, on.clock, seed=1)
    run(one, on, 60)
    return row(on), state


@pytest.mark.parametrize(("halves_us", "by_trying"), [(80.0, True), (140.0, False)])
def test_tried__is_named_and_has_no_prediction(
    store: Store, halves_us: float, by_trying: bool
) -> None:
    """Halves with a kick each take this long, all other ways 100 us."""
    shown, state = tried_path(
        lambda nbytes, plan, kick: (
            halves_us if kick.net_tx_bytes == 1 and plan.first_bytes < nbytes else 100.0
        )
    )
    one = explain.path(shown, "10.0.0.2", state, store)
    each = one["classes"][4]
    text = report.explanation_text({"instance": "eth1", "tuner_pid": None, "paths": [one]})
    assert "not measured: nothing is predicted" in text
    assert "predicted_us" not in each
    if by_trying:
        assert each["standing"] == "found by trying"
        assert each["net_tx_bytes"] == 1
        assert each["measured_us"] == pytest.approx(80, rel=0.05)
        said = (
            "1 KiB: the best of 2 settings tried on live messages: fragments of 512 bytes, "
            f"kicks of 1 or more; {each['measured_us']:.1f} µs measured; nothing is predicted"
        )
        assert said in text
        assert "1 KiB, kicks of 65536 → 1 bytes or more" in text
    else:
        assert each["standing"].startswith("as before")
        assert "1 KiB: 2 other settings were tried; none is certainly faster" in text
    json.dumps(one)
