"""Pipelines from files of pathchar, blackbox and logp that are combined."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from careful._abi import ffi
from careful.errors import InputError, WithheldError
from careful.model import Pipeline, class_table, load_shipped, plan
from careful.model.files import parse_measurement, parse_source
from careful.model.measurements import HEADERS_BYTES, combined

GAM = [(one.g_us, one.G_us_per_KiB) for one in load_shipped("gam").stages]
GMS = [(one.g_us, one.G_us_per_KiB) for one in load_shipped("gms").stages]
KIB = 1024


def pathchar(stages: list[tuple[float, float]], away_us: float = 0.0, more: Any = None) -> str:
    """Returns pathchar's file for hops with these g and G, and this propagation each."""
    hops = [
        {
            "hops": [ttl],
            "address": f"10.0.{ttl}.2",
            "G_us_per_KiB": G,
            "latency_us": g + away_us - G * HEADERS_BYTES / KIB,
            "reason": "",
        }
        for ttl, (g, G) in enumerate(stages, 1)
    ]
    return json.dumps({"kind": "pathchar", "reached": True, "hops": hops} | (more or {}))


def blackbox(stages: list[tuple[float, float]], *bottlenecks: tuple[int, int, int]) -> str:
    """Returns a black box's file; bottlenecks: (stage, from bytes, to bytes)."""
    sum_G = sum(G for _, G in stages)
    regimes = [
        {
            "low_bytes": low,
            "high_bytes": high,
            "g_b_us": stages[j][0],
            "G_b_us_per_KiB": stages[j][1],
            "sum_G_others_us_per_KiB": sum_G - stages[j][1],
        }
        for j, low, high in bottlenecks
    ]
    sums = {"sum_g_us": sum(g for g, _ in stages), "sum_G_us_per_KiB": sum_G}
    return json.dumps({"kind": "blackbox", "regimes": regimes} | sums)


LOGP = json.dumps({"kind": "logp", "os_us": 1.5, "or_us": 1.0, "g_us": 7.7})


def made_of(*texts: str) -> Pipeline:
    found = combined([parse_measurement(one) for one in texts])
    assert isinstance(found, Pipeline)
    return found


def costs(found: Pipeline) -> list[tuple[float, float]]:
    return [(one.g_us, one.G_us_per_KiB) for one in found.stages]


def test_pathchar__alone_gives_the_stages_if_nothing_propagates() -> None:
    found = parse_source(pathchar(GAM))
    assert [one.name for one in found.stages][2] == "hop 3 (10.0.3.2)"
    for mine, theirs in zip(costs(found), GAM, strict=True):
        assert mine == pytest.approx(theirs)
    made = plan(found, 4096, "fixed")
    assert (made.fragments_count, made.bottleneck) == (5, "hop 3 (10.0.3.2)")
    assert "each hop's g is its latency" in made.note


def test_pathchar__with_a_black_box_finds_g_under_propagation() -> None:
    """The latency of each hop is 500 us; pathchar alone would send one fragment."""
    away = pathchar(GAM, away_us=500.0)
    assert plan(parse_source(away), 4096, "fixed").fragments_count == 1
    found = made_of(away, blackbox(GAM, (2, 64, 3700)))
    made = plan(found, 4096, "fixed")
    assert made.fragments_count == 5
    assert costs(found)[2] == pytest.approx(GAM[2])
    assert sum(one.g_us + one.delay_us for one in found.stages) == pytest.approx(
        sum(g for g, _ in GAM) + 2000.0
    )
    assert "hop 3 (10.0.3.2) or hop 2 (10.0.2.2)" in made.note


def test_pathchar__with_logp_no_hop_is_slower_than_the_gap() -> None:
    found = made_of(pathchar(GAM, away_us=500.0), LOGP)
    assert [one.name for one in found.stages][:: len(GAM) + 1] == ["sender", "receiver"]
    assert [found.stages[k].g_us for k in (0, -1)] == [1.5, 1.0]
    assert max(one.g_us for one in found.stages) == 7.7
    made = plan(found, 4096, "fixed")
    assert made.fragments_count == 5
    assert "logp's gap of 7.7 µs" in made.note


def test_black_box__two_bottlenecks_are_two_hops() -> None:
    """GMS's CPU is the bottleneck of small fragments, its wire of large ones."""

    found = made_of(pathchar(GMS), blackbox(GMS, (3, 64, 2683), (1, 2683, 3702)))

    for mine, theirs in zip(costs(found), GMS, strict=True):
        assert mine == pytest.approx(theirs)
    ramps = [one.index for one in class_table(found) if not one.plan.is_fixed]
    assert ramps == [one.index for one in class_table(load_shipped("gms")) if not one.plan.is_fixed]


def test_order__decides_on_a_ramp_which_a_black_box_cannot() -> None:
    there, back = (
        plan(made_of(pathchar(stages), blackbox(stages, (j, 64, 1 << 20))), 4096, "ramp")
        for stages, j in ((GMS, 3), (GMS[::-1], 0))
    )
    assert all(a <= b for a, b in pairwise(there.fragments_bytes[:-1]))
    assert all(a >= b for a, b in pairwise(back.fragments_bytes))
    assert there.latency_us == pytest.approx(back.latency_us, rel=0.01)


def test_withheld__a_hop_gets_its_share_and_the_plan_reports_it() -> None:
    hops = json.loads(pathchar(GAM))
    hops["hops"][1] |= {"G_us_per_KiB": None, "reason": "the interval is wide"}
    text = json.dumps(hops)
    found = made_of(text, blackbox(GAM, (2, 64, 3700)))
    assert costs(found)[1][1] == pytest.approx(24.9)
    assert "hop 2 (10.0.2.2) has no G (the interval is wide): it counts as its share" in (
        found.rests_on
    )
    assert "it counts as 0" in parse_source(text).rests_on


def test_withheld__every_g_is_no_pipeline() -> None:
    """64 KiB once took 13.6 µs on a veth, since each stage's G counted as 0."""
    hops = json.loads(pathchar(GAM))
    for one in hops["hops"]:
        one |= {"G_us_per_KiB": None, "reason": "the interval is wide"}
    with pytest.raises(WithheldError, match=r"the G of every stage .hop 1.*interval is wide"):
        parse_source(json.dumps(hops), "path.json")
    with pytest.raises(WithheldError):
        made_of(json.dumps(hops), LOGP)
    assert made_of(json.dumps(hops), blackbox(GAM, (2, 64, 3700))).stages


def test_hosts__have_stages_that_hops_lack() -> None:
    found = made_of(pathchar(GAM[1:3]), blackbox(GAM, (2, 64, 3700)))
    assert [one.name for one in found.stages][::3] == ["sender", "receiver"]
    assert sum(G for _, G in costs(found)) == pytest.approx(sum(G for _, G in GAM))
    assert "split between the hosts" in found.rests_on
    slow_host = made_of(pathchar(GAM[1:3]), blackbox([*GAM, (90.0, 90.0)], (4, 64, 3700)))
    assert costs(slow_host)[0] == (90.0, 90.0)
    assert costs(slow_host)[-1] == pytest.approx((0.0, 7.2 + 7.9))
    assert "no hop matches the bottleneck of 64 to 3700 bytes: it is sender" in slow_host.rests_on


def test_stages__inside_the_hosts_are_pathchar_s() -> None:
    hosts = [
        {"stages": ["hostTx"], "g_us": 1.0, "G_us_per_KiB": 0.5, "resource": "cpu"},
        {"stages": ["hop 1", "netRx"], "latency_us": 9.0, "G_us_per_KiB": 8.0, "resource": ""},
        {"stages": ["store"], "g_us": None, "G_us_per_KiB": None, "middle_us": 3.0, "reason": "x"},
    ]
    found = parse_source(pathchar(GAM, more={"stages": hosts, "reached": False}))
    assert [one.name for one in found.stages] == ["hostTx", "hop 1, netRx", "store"]
    assert costs(found)[0] == (1.0, 0.5)
    assert costs(found)[2] == (3.0, 0.0)
    assert "its time at one size counts as g: x" in found.rests_on
    assert "did not get beyond store" in found.rests_on
    box = blackbox([(1.0, 0.5), (9.0, 20.0), (3.0, 3.0)], (1, 64, 3700))
    hosts[2] |= {"g_us": 3.0, "G_us_per_KiB": 3.0}
    whole = made_of(pathchar(GAM, more={"stages": hosts}), box)
    assert costs(whole)[1] == (9.0, 20.0), "the slowest part, for none has the bottleneck's G"
    assert "no hop matches the bottleneck" in whole.rests_on
    assert len(whole.stages) == 3


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((LOGP, blackbox(GAM, (2, 64, 3700))), "add the file of .*pathchar"),
        ((LOGP, LOGP), "two files of one kind"),
        ((pathchar(GAM), json.dumps({"stages": [{"name": "a", "g_us": 1, "G_us_per_KiB": 1}]})),
         "cannot be combined"),
    ],
)  # fmt: skip
def test_combined__refuses(texts: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        made_of(*texts)


def test_headers__are_those_of_a_frame() -> None:
    assert ffi.sizeof("struct careful_hdr") + 28 == HEADERS_BYTES
