"""Pipeline files, measurements, and errors that name their line."""

from __future__ import annotations

import json

import pytest
from careful.model import BlackBox, load_pipeline, load_shipped, parse_source, shipped_names

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
        (GOOD.replace('name = "b"', 'name = "a"'), "stage name 'a' is used twice"),
        (GOOD.replace('group = "x"', "group = 3"), r"line 7\): group is 3, must be a string"),
        (GOOD.replace('"x"', '"x//y"'), "'b': group is 'x//y', must be up to 16 names"),
        (GOOD.replace('"x"', '"' + "x/" * 16 + 'x"'), "'b': group is .*must be up to 16 names"),
        (GOOD.replace('name = "b"', 'name = ""'), r"line 7\): a stage without a name"),
        (GOOD.replace('name = "b"', r'name = "b\n"'), "name is 'b.n', must be text without"),
        (GOOD.replace("= 3.5", "= 1e300"), r"line 7\): stage 'b': g_us is 1e\+300, .*to 1e\+15"),
        (GOOD.replace("= 3.5", f"= {9**4000}"), r"g_us is an integer of 12680 bits"),
        ("speed = 3\n" + GOOD, "line 1: unknown key 'speed'"),
        ("{", "not valid JSON"),
        ('{"kind": "other"}', 'needs "kind": "blackbox" or a list of "stages"'),
        (json.dumps(MEASURED | {"g_b_us": None}), "'g_b_us' is missing or not a number"),
        (json.dumps(MEASURED | {"g_b_us": -1}), "g_b_us is -1"),
        (json.dumps(MEASURED | {"g_b_us": 9**400}), "g_b_us is an integer of 1268 bits"),
        ('{"stages": []}', "at least one stage"),
        ('{"stages": [3]}', "stage 1 is not an object"),
        ('{"stages": [{"name": "a", "g_us": NaN, "G_us_per_KiB": 1}]}', "stage 1: .*g_us is nan"),
        (json.dumps(MEASURED | {"sum_g_us": 1}), "sum_g_us is less than g_b_us"),
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


def test_blackbox__knows_what_theorem_1_needs():
    found = parse_source(json.dumps(MEASURED | {"intervals": []}))
    assert isinstance(found, BlackBox)
    made = found.plan(4096)
    # Table 2, indirect: the same answer as the direct parameters give.
    assert made.fragments_count == 4
    assert made.latency_us == pytest.approx(27.3 + 3 * 7.6 + 4 * 24.9 + 37.8)
    assert found.plan(4096, fragments_count=5).latency_us == pytest.approx(
        made.latency_us, rel=0.01
    )
    assert "fixed" in made.note


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
