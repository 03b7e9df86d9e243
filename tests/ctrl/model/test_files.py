"""Pipeline files, measurements, and errors that name their line."""

from __future__ import annotations

import json

import pytest
from careful.model import (
    STRATEGIES,
    BlackBox,
    Limits,
    Pipeline,
    Stage,
    load_pipeline,
    load_shipped,
    parse_source,
    plan,
    shipped_names,
)
from careful.render.tuning import plan as plan_report
from careful.render.tuning import simulate as simulate_report
from careful.render.tuning.simulate import simulation_figures, simulation_text

GOOD = """
name = "two"
[[stage]]
name = "a"
g_us = 1
G_us_per_KiB = 2.5
[[stage]]
name = "b"
g_us = 3.5
G_us_per_KiB = 4
group = "x"
resource = "cpu"
delay_us = 7
"""

MEASURED = {
    "kind": "blackbox",
    "g_b_us": 7.6,
    "G_b_us_per_KiB": 24.9,
    "sum_g_us": 27.3,
    "sum_G_us_per_KiB": 62.7,
    "sum_G_others_us_per_KiB": 37.8,
}
MADE = '{"stages": [{"name": "a", %s}]}'
#: GMS x 100 as measured: the bottleneck changes at 2683 bytes.
CROSSING = {
    "kind": "blackbox",
    "g_b_us": 200.0,
    "G_b_us_per_KiB": 1000.0,
    "sum_g_us": 3234.4,
    "sum_G_us_per_KiB": 1600.0,
    "sum_G_others_us_per_KiB": 600.0,
    "low_bytes": 2683.0,
    "high_bytes": 3702.0,
    "regimes": [
        {
            "low_bytes": 64.0,
            "high_bytes": 2683.0,
            "g_b_us": 2034.4,
            "G_b_us_per_KiB": 300.0,
            "sum_G_others_us_per_KiB": 1300.0,
        },
        {
            "low_bytes": 2683.0,
            "high_bytes": 3702.0,
            "g_b_us": 200.0,
            "G_b_us_per_KiB": 1000.0,
            "sum_G_others_us_per_KiB": 600.0,
        },
    ],
}


def with_regime(number, **figures):
    """CROSSING with one regime's figures changed."""
    regimes = [dict(one) for one in CROSSING["regimes"]]
    regimes[number] |= figures
    return json.dumps(CROSSING | {"regimes": regimes})


def test_parse__all_keys():
    line = parse_source(GOOD)
    assert line.name == "two"
    first, second = line.stages
    assert (first.g_us, first.G_us_per_KiB, first.delay_us) == (1, 2.5, 0)
    assert (second.group, second.resource, second.delay_us) == ("x", "cpu", 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no stages"),
        ("name = 'x'", "no stages"),
        ("stage = 3", "no stages"),
        ("[[stage]\n", "not valid TOML: .*line 1"),
        (GOOD.rstrip() + "\nname = 'x", "not valid TOML: .*at the end, line 14"),
        ("a = {", "not valid TOML: .*at the end, line 1"),
        ("a = " + "[" * 100000, "nested too deeply"),
        ('{"stages":' + "[" * 100000, "nested too deeply"),
        (GOOD.replace("g_us = 1", "g_us = = 1"), "not valid TOML: .*line 5"),
        (GOOD.replace("g_us = 1", "g_us = -1"), r"stage 1 \(line 3\): stage 'a': g_us is -1"),
        (GOOD.replace("= 3.5", "= inf"), r"stage 2 \(line 7\): stage 'b': g_us is inf"),
        (GOOD.replace("= 4\n", "= nan\n"), r"stage 2 \(line 7\): .*G_us_per_KiB is nan"),
        (GOOD.replace("g_us = 1", "g_ms = 1"), r"stage 1 \(line 3\): unknown key 'g_ms'"),
        (GOOD.replace("g_us = 1\n", ""), r"stage 1 \(line 3\): 'g_us' is missing"),
        (GOOD.replace('name = "b"', 'name = "a"'), "two stages have the name 'a'"),
        (GOOD.replace('group = "x"', "group = 3"), r"line 7\): group is 3, must be a string"),
        (GOOD.replace('"x"', '"x//y"'), "'b': group is 'x//y', must be up to 16 names"),
        (GOOD.replace('"x"', '"' + "x/" * 16 + 'x"'), "'b': group is .*must be up to 16 names"),
        (GOOD.replace('name = "b"', 'name = ""'), r"line 7\): a stage has no name"),
        (GOOD.replace('name = "b"', r'name = "b\n"'), "name is 'b.n', must be text without"),
        (GOOD.replace("= 3.5", "= 1e300"), r"line 7\): stage 'b': g_us is 1e\+300, .*to 1e\+15"),
        (GOOD.replace("= 3.5", f"= {9**4000}"), r"g_us is an integer of 12680 bits"),
        ("speed = 3\n" + GOOD, "line 1: unknown key 'speed'"),
        ("{", "not valid JSON"),
        ('{"kind": "other"}', 'needs "kind": "blackbox" or a list of "stages"'),
        (json.dumps(MEASURED | {"g_b_us": None}), "'g_b_us' is missing or not a number"),
        (json.dumps(MEASURED | {"g_b_us": -1}), "the bottleneck's g is -1"),
        (
            json.dumps(MEASURED | {"g_b_us": 9**400}),
            "the bottleneck's g is an integer of 1268 bits",
        ),
        (
            json.dumps(MEASURED | {"sum_G_others_us_per_KiB": None, "reason": "it is\nwide: 2"}),
            "withholds ΣG of the other stages .it is wide: 2",
        ),
        (json.dumps(MEASURED | {"regimes": 3}), "'regimes' is not a list"),
        (json.dumps(MEASURED | {"regimes": []}), "no range of fragment sizes has a bottleneck"),
        (json.dumps(MEASURED | {"low_bytes": 9, "high_bytes": 9}), "9 to 9 bytes is not a range"),
        (json.dumps(MEASURED | {"high_bytes": 9**400}), "an integer of 1268 bits bytes is no"),
        ('{"kind": "burst"}', "not their cost: .*measure blackbox"),
        ('{"kind": "gap"}', "not the g and G of stages: .*measure blackbox"),
        ('{"kind": "pathchar", "hops": []}', "measured no hop"),
        ('{"kind": "pathchar", "hops": 7}', "'stages' or 'hops' must be a list"),
        ('{"kind": "pathchar", "hops": [{"hops": []}]}', "a hop has no number"),
        ('{"kind": "pathchar", "hops": [{"hops": [1], "G_us_per_KiB": "x"}]}', "must be a number"),
        ('{"kind": "logp", "bulk": []}', "withholds os, or, g .it was withheld"),
        ('{"kind": "logp", "os_us": 1, "or_us": 1, "g_us": 2}', "add the file of .*pathchar"),
        ('{"kind": "frames", "stages": []}', "not stages with g and G: .*measure blackbox"),
        ('{"kind": [], "stages": 1}', 'needs "kind"'),
        (
            MADE % '"g_us": null, "G_us_per_KiB": null, "reason": "it is wide"',
            "withholds g and G of stage 1.* .it is w",
        ),
        (MADE % '"g_us": 1, "G_us_per_KiB": 1, "size_max_bytes": 1.5', "of bytes, not 1.5"),
        (
            MADE % '"g_us": 1, "G_us_per_KiB": 1, "size_max_bytes": 0',
            "the stages have no measured size",
        ),
        ('{"stages": []}', "at least one stage"),
        ('{"stages": [3]}', "stage 1 is not an object"),
        ('{"stages": [{"name": "a", "g_us": NaN, "G_us_per_KiB": 1}]}', "stage 1: .*g_us is nan"),
        (json.dumps(MEASURED | {"sum_g_us": 1}), "the sum over all stages. is less than the g"),
    ],
)
def test_parse__errors_are_one_line_and_say_where(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_source(text, "f.toml")
    assert str(error.value).startswith("f.toml: ")
    assert "\n" not in str(error.value)


def test_parse__byte_order_mark_and_windows_lines():
    assert len(parse_source("\ufeff" + GOOD.replace("\n", "\r\n")).stages) == 2


def test_parse__names_in_any_script():
    assert parse_source(GOOD.replace('"a"', '"網路 ж"')).stages[0].name == "網路 ж"


def test_parse__json_stages():
    stages = [{"name": "a", "g_us": 1, "G_us_per_KiB": 2, "g_us_low": 0.9}]
    line = parse_source(json.dumps({"stages": stages}))
    assert line.stages[0].G_us_per_KiB == 2


def test_blackbox__has_the_inputs_of_theorem_1():
    found = parse_source(json.dumps(MEASURED | {"intervals": []}))
    assert isinstance(found, BlackBox)
    made = found.plan(4096)
    # Table 2, indirect: the same answer as the direct parameters give.
    assert made.fragments_count == 4
    assert made.latency_us == pytest.approx(27.3 + 3 * 7.6 + 4 * 24.9 + 37.8)
    assert found.plan(4096, fragments_count=5).latency_us == pytest.approx(
        made.latency_us, rel=0.01
    )
    assert "only equal fragments" in made.note


#: GMS x 100, and stages whose first one has its minimum within its own range.
SEEN = {
    "gms": ((1000, 300), (200, 1000), (2034.4, 300)),
    "inside": ((500, 900), (200, 1000), (50, 900), (50, 900), (50, 900), (50, 900)),
}


def seen(stages):
    """Returns the black box of stages: the bottleneck of small fragments and of large ones."""
    low, high = max(stages), max(stages, key=lambda one: one[1])
    edge = 1024 * (low[0] - high[0]) / (high[1] - low[1])
    whole = sum(G for _, G in stages)
    regimes = [
        {
            "low_bytes": first,
            "high_bytes": last,
            "g_b_us": g,
            "G_b_us_per_KiB": G,
            "sum_G_others_us_per_KiB": whole - G,
        }
        for first, last, (g, G) in ((64, edge, low), (edge, 3702, high))
    ]
    sum_g_us = sum(g for g, _ in stages)
    sums = {"sum_g_us": sum_g_us, "sum_G_us_per_KiB": whole}
    return parse_source(json.dumps({"kind": "blackbox", "regimes": regimes} | sums))


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("message_bytes", [64, 1000, 2683, 4096, 8192, 16384, 65536, 1 << 20])
def test_blackbox__a_candidate_of_each_regime_then_the_least(message_bytes, name):
    """The same plan as from the stages themselves."""
    stages = tuple(Stage(str(number), g, G) for number, (g, G) in enumerate(SEEN[name]))
    truth = plan(Pipeline(stages), message_bytes, "fixed", limits=Limits(64, 3702))
    source = seen(SEEN[name])
    made = source.plan(message_bytes)
    assert made.fragments_bytes == truth.fragments_bytes
    assert made.latency_us == pytest.approx(truth.latency_us, rel=1e-3)
    assert not made.extrapolated
    edge = source.regimes[0].high_bytes
    low = message_bytes / made.fragments_count <= edge
    text = f"64 to {edge:.0f}" if low else f"{edge:.0f} to 3702"
    assert made.bottleneck == f"the one measured for fragments of {text} bytes"
    assert ("the time in one fragment is extrapolated" in made.note) == (message_bytes > 3702)


@pytest.mark.parametrize(
    ("message_bytes", "limits", "count"),
    [(32, Limits(), None), (4096, Limits(1, 40), None), (8192, Limits(), 1), (4096, Limits(), 100)],
)
def test_blackbox__reports_sizes_outside_the_measurement(message_bytes, limits, count):
    made = parse_source(json.dumps(CROSSING)).plan(message_bytes, limits, count)
    assert made.extrapolated
    assert made.as_dict()["extrapolated"]
    assert "extrapolated: measured were fragments of 64 to 3702 bytes" in made.note
    assert count is None or made.fragments_count == count


def test_blackbox__a_range_without_figures_is_not_planned_with():
    text = with_regime(0, g_b_us=None, G_b_us_per_KiB=None, reason="the interval is wide")
    made = parse_source(text).plan(4096)
    assert made.extrapolated
    assert made.fragments_bytes == (4096,)  # 2 of 2048 would be in the range without figures
    assert "64.0 to 2683.0 bytes are not used in plans" in made.note
    assert "the interval is wide" in made.note
    made = parse_source(text).plan(6000)
    assert made.fragments_bytes == (3000, 3000)
    assert not made.extrapolated


def test_blackbox__a_wide_g_b_is_reported_with_its_effect():
    wide = {"g_b_us": 386.0, "g_b_low_us": 138.0, "g_b_high_us": 634.0}
    made = parse_source(json.dumps(MEASURED | wide | {"sum_g_us": 900})).plan(65536)
    assert "g_b is uncertain, 138 to 634 µs: the best may be 1 to 5 fragments" in made.note
    narrow = {"g_b_us": 386.0, "g_b_low_us": 380.0, "g_b_high_us": 392.0}
    made = parse_source(json.dumps(MEASURED | narrow | {"sum_g_us": 900})).plan(9)
    assert "uncertain" not in made.note
    below = {"g_b_us": -3.0, "g_b_low_us": -9.0, "g_b_high_us": 3.0, "high_bytes": 3702}
    made = parse_source(json.dumps(MEASURED | below)).plan(4096)
    assert "g_b is uncertain, 0 to 3 µs" in made.note


def clear_box(*sizes):
    """Returns a clear box whose stages were measured with these sizes."""
    stages = [
        {"name": name, "g_us": 1, "G_us_per_KiB": 2, "size_min_bytes": low, "size_max_bytes": high}
        for name, (low, high) in zip("abc", sizes, strict=False)
    ]
    return parse_source(json.dumps({"kind": "clearbox", "stages": stages}))


@pytest.mark.parametrize("strategy", ["best", *STRATEGIES])
def test_clear_box__fragments_are_of_sizes_that_were_measured(strategy):
    source = clear_box((64, 3800), (70, 3702))
    assert (source.size_min_bytes, source.size_max_bytes) == (70, 3702)
    made = plan(source, 65536, strategy)
    assert min(made.fragments_bytes) >= 70
    assert max(made.fragments_bytes) <= 3702
    assert not made.extrapolated
    assert "the time in one fragment is extrapolated" in made.note
    assert "extrapolated" not in plan(source, 3000, strategy).note


def test_clear_box__extrapolated_transfers_are_reported():
    source = clear_box((64, 3702))
    for size, beyond in ((3000, False), (4096, True)):
        request = simulate_report.Request(
            "-",
            source,
            4096,
            1,
            0.0,
            "plan",
            "fixed",
            (size, 4096 - size)[: 1 + (size < 4096)],
            (),
            False,
        )
        shown = simulation_text(request, simulation_figures(request, request.run()))
        assert ("extrapolated: the measurement had transfers of 64 to 3702" in shown) == beyond


def test_clear_box__classes_are_of_sizes_that_were_measured():
    source = clear_box((64, 2000), (80, 1999))
    inputs, figures, _ = plan_report.classes(source, "-", 64, 3750, 0)
    for each in json.loads(json.dumps(figures))["classes"]:
        assert each["plan"]["first_bytes"] <= 1999
    assert inputs["max_bytes"] == 1999


def test_clear_box__reports_sizes_outside_the_measurement():
    source = clear_box((64, 3702))
    for made in (
        plan(source, 32),
        plan(source, 65536, limits=Limits(4000, 5000)),
        plan(source, 65536, "fixed", fragments_count=2),
    ):
        assert made.extrapolated
        assert "extrapolated: measured were fragments of 64 to 3702 bytes" in made.note
    assert plan(source, 65536, limits=Limits(1, 1000)).fragments_bytes[0] <= 1000


def test_shipped__each_has_a_source():
    assert shipped_names() == ["gam", "gms", "network-disk", "network-disk-network", "trapeze"]
    for name in shipped_names():
        assert load_shipped(name).source.startswith("P")
    with pytest.raises(ValueError, match="no pipeline 'x': shipped are gam"):
        load_shipped("x")


def test_load__file_before_shipped_name_and_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_pipeline("gam").name == "Myrinet GAM"
    (tmp_path / "gam").write_text(GOOD)
    assert load_pipeline("gam").name == "two"
    with pytest.raises(FileNotFoundError, match="no such file; shipped pipelines are gam"):
        load_pipeline("other.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file"):
        load_pipeline("binary")
