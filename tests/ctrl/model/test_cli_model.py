"""`carefulctl plan` and `simulate` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from careful.model import STRATEGIES
from careful.model.files import load_shipped

CTRL = Path(__file__).parents[3] / "ctrl"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    code = "from careful.cli.start import main; main()"
    path = os.pathsep.join([str(CTRL), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
        check=False,
    )


def as_json(*arguments: str, stdin: str = "") -> dict:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("strategy", ["best", *STRATEGIES])
def test_plan_json__has_the_agreed_keys(strategy):
    found = as_json("plan", "--pipeline", "gam", "--bytes", "4096", "--strategy", strategy)
    assert found["schema"] == 1
    assert found["inputs"]["message_bytes"] == 4096
    assert found["inputs"]["strategy"] == strategy
    assert found["strategy"] in STRATEGIES
    assert len(found["fragments_bytes"]) == found["fragments_count"]
    assert sum(found["fragments_bytes"]) == 4096
    assert found["bottleneck"] == "network and receiver DMA"
    assert found["lower_bound_us"] < found["latency_us"] < found["one_fragment_us"]


def test_plan__combines_files_of_one_path(tmp_path):
    """Alone, pathchar's 900 us could be a cost of each fragment. logp's gap of 5 us shows that
    they are propagation, so more fragments pay.
    """
    hop = {"hops": [1], "address": "", "G_us_per_KiB": 20.0, "latency_us": 900.0}
    hops = [hop, hop | {"hops": [2]}]
    files = {
        "path.json": {"kind": "pathchar", "reached": True, "hops": hops},
        "ends.json": {"kind": "logp", "os_us": 1.0, "or_us": 1.0, "g_us": 5.0},
    }
    words = []
    for name, figures in files.items():
        (tmp_path / name).write_text(json.dumps(figures))
        words += ["--pipeline", str(tmp_path / name)]
    assert as_json("plan", *words[:2], "--bytes", "4KiB")["fragments_count"] == 1
    found = as_json("plan", *words, "--bytes", "4KiB", "--strategy", "fixed")
    assert found["fragments_count"] == 4
    assert "logp's gap of 5 µs" in found["note"]
    assert found["inputs"]["rests_on"] in found["note"]
    assert [one["name"] for one in found["inputs"]["stages"]][1:3] == ["hop 1", "hop 2"]
    assert "rests on this" in run("plan", *words, "--classes").stdout


WITHHELD = {
    "kind": "blackbox",
    "reason": "the interval is wide: -1.88 to 2.23 µs/KiB",
    "g_b_us": 2.5,
    "G_b_us_per_KiB": 0.15,
    "sum_g_us": None,
    "sum_G_us_per_KiB": None,
    "sum_G_others_us_per_KiB": None,
    "size_max_bytes": 3702,
}


def test_plan__of_withheld_figures_is_whole_frames(tmp_path):
    """The lab's default path once gave an error with status 1."""
    box = tmp_path / "box.json"
    box.write_text(json.dumps(WITHHELD))
    words = ["plan", "--pipeline", str(box)]
    said = run(*words, "--bytes", "64KiB")
    assert (said.returncode, said.stderr) == (5, "")
    assert said.stdout.startswith("whole frames (3702 bytes) are as good as any")
    assert "not told: Σg of all stages, ΣG" in said.stdout
    assert "-1.88 to 2.23 µs/KiB" in said.stdout
    found = json.loads(run(*words, "--classes", "--json").stdout)
    assert (found["fragment_bytes"], found["reason"]) == (3702, WITHHELD["reason"])
    simulated = run("simulate", "--pipeline", str(box), "--bytes", "64KiB")
    assert simulated.returncode == 5
    assert "withholds Σg" in simulated.stderr


def test_plan__leaves_out_a_file_without_figures(tmp_path):
    hop = {"hops": [1], "address": "", "G_us_per_KiB": 20.0, "latency_us": 900.0}
    path, box, ends = (tmp_path / f"{name}.json" for name in ("path", "box", "ends"))
    path.write_text(json.dumps({"kind": "pathchar", "reached": True, "hops": [hop]}))
    box.write_text(json.dumps(WITHHELD))
    ends.write_text(json.dumps({"kind": "logp", "os_us": 1.0, "or_us": 1.0, "g_us": 5.0}))
    words = [word for name in (path, box, ends) for word in ("--pipeline", str(name))]
    found = as_json("plan", *words, "--bytes", "4KiB")
    assert f"left out: {box}: the measurement withholds Σg" in found["note"]
    assert "logp's gap of 5 µs" in found["note"]
    ends.write_text(json.dumps({"kind": "logp", "os_us": None, "os_reason": "busy", "or_us": 1}))
    alone = run("plan", "--pipeline", str(ends), "--bytes", "4KiB")
    assert alone.returncode == 5
    assert "not told: os, g: busy" in alone.stdout


def test_plan_json__hierarchical_has_levels():
    found = as_json(
        "plan", "--pipeline", "network-disk", "--bytes", "64KiB", "--strategy", "hierarchical"
    )
    top, network = found["levels"]
    assert top["fragments_bytes"] == [32768, 32768]
    assert sum(network["fragments_bytes"]) == 65536
    assert network["bottleneck"] == "network and receiver DMA"
    for level in found["levels"]:
        for key in ("strategy", "latency_us", "fragments_count", "bottleneck", "lower_bound_us"):
            assert key in level
    assert top["latency_us"] == found["latency_us"]


BOX = json.dumps(
    {
        "kind": "blackbox",
        "g_b_us": 7.5,
        "G_b_us_per_KiB": 24.9,
        "sum_g_us": 27.3,
        "sum_G_us_per_KiB": 64.9,
        "sum_G_others_us_per_KiB": 40.0,
    }
)


def test_plan__reads_toml_and_measurements_from_stdin():
    toml = '[[stage]]\nname = "a"\ng_us = 1\nG_us_per_KiB = 10\n'
    found = as_json("plan", "--pipeline", "-", "--bytes", "100", stdin=toml)
    assert found["fragments_bytes"] == [100]
    words = ("plan", "--pipeline", "-", "--bytes", "4KiB")
    found = as_json(*words, stdin=BOX)
    assert found["fragments_count"] == 5
    assert found["bottleneck"] == "the one measured for fragments of any size"
    assert "only equal fragments" in found["note"]
    refused = run(*words, "--strategy", "ramp", stdin=BOX)
    assert refused.returncode == 1
    assert "black-box" in refused.stderr


def test_plan__classes():
    found = as_json("plan", "--pipeline", "gms", "--classes")
    assert found["ramps_pay"] is True
    assert [each["message_bytes_max"] for each in found["classes"]] == [64 << i for i in range(16)]
    for each in found["classes"]:
        assert list(each["plan"]) == [
            "first_bytes",
            "ratio_q16",
            "step_bytes",
            "peak_bytes",
            "down_ratio_q16",
            "down_step_bytes",
        ]
    assert "for no class" in run("plan", "--pipeline", "gam", "--classes").stdout


def test_plan__classes_of_a_black_box():
    """GAM seen from outside (P1 Table 1): k is that from its stages, within one or a tenth."""
    gam = load_shipped("gam")
    bottleneck = max(gam.stages, key=lambda stage: stage.g_us)
    G_all = sum(stage.G_us_per_KiB for stage in gam.stages)
    box = json.dumps(
        {
            "kind": "blackbox",
            "low_bytes": 64,
            "high_bytes": 4096,
            "g_b_us": bottleneck.g_us,
            "G_b_us_per_KiB": bottleneck.G_us_per_KiB,
            "sum_g_us": sum(stage.g_us for stage in gam.stages),
            "sum_G_us_per_KiB": G_all,
            "sum_G_others_us_per_KiB": G_all - bottleneck.G_us_per_KiB,
        }
    )
    found = as_json("plan", "--pipeline", "-", "--classes", stdin=box)["classes"]
    known = as_json("plan", "--pipeline", "gam", "--classes")["classes"]
    assert [each["message_bytes_max"] for each in found] == [64 << i for i in range(16)]
    for each, other in zip(found, known, strict=True):
        counts = [
            -(-each["message_bytes_max"] // one["plan"]["first_bytes"]) for one in (each, other)
        ]
        assert abs(counts[0] - counts[1]) <= max(1, counts[1] // 10), each
    text = run("plan", "--pipeline", "-", "--classes", stdin=box).stdout
    assert "only equal fragments" in text
    refused = run("plan", "--pipeline", "-", "--classes", "--header-bytes", "9", stdin=box)
    assert refused.returncode == 1
    assert "--header-bytes" in refused.stderr


def test_plan__text_compares_the_strategies():
    text = run("plan", "--pipeline", "gam", "--bytes", "4KiB").stdout
    for strategy in STRATEGIES:
        assert strategy in text
    assert "lower bound 126.9 µs" in text


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["plan", "--pipeline", "gam", "--bytes", "0"], 1, "a message of 0 bytes"),
        (["plan", "--pipeline", "gam", "--bytes", "-4"], 1, "a message of -4 bytes"),
        (["plan", "--pipeline", "gam", "--bytes", "4 pies"], 2, "is not a size"),
        (["plan", "--pipeline", "gam"], 2, "--bytes is needed"),
        (["plan", "--bytes", "4"], 2, "--pipeline"),
        (["plan", "--pipeline", "nope", "--bytes", "4"], 1, "no such file; shipped pipelines are"),
        (["plan", "--pipeline", "gam", "--bytes", "9", "--strategy", "x"], 1, "unknown strategy"),
        (["plan", "--pipeline", "gam", "--bytes", "9", "--plot", "x.pdf"], 2, ".png or .svg"),
        (["plan", "--pipeline", "gam", "--classes", "--bytes", "9"], 2, "cannot be combined"),
        (["plan", "--pipeline", "gam", "--bytes", "2XiB"], 2, "is not a size"),
        (["plan", "--pipeline", "gam", "--bytes", "9", "--min-bytes", "0"], 1, "smallest fragment"),
        (["simulate", "--pipeline", "gam", "--bytes", "9", "--count", "0"], 1, "at least one"),
        (
            ["simulate", "--pipeline", "gam", "--bytes", "9", "--every", "nan"],
            2,
            "is not a duration",
        ),
        (["simulate", "--pipeline", "gam", "--bytes", "9", "--count", "9" * 9], 1, "transfers"),
        (
            [
                "simulate",
                "--pipeline",
                "gam",
                "--bytes",
                "1GiB",
                "--rule",
                "static",
                "--fragment-bytes",
                "1",
            ],
            1,
            "more than 2000000 transfers",
        ),
        (["simulate", "--pipeline", "gam", "--bytes", "9", "--rule", "static"], 1, "static needs"),
        (
            [
                "simulate",
                "--pipeline",
                "trapeze",
                "--bytes",
                "9",
                "--rule",
                "eager",
                "--pulse-bytes",
                "1,2,3",
            ],
            1,
            "3 pulse sizes for 2 sinks",
        ),
    ],
)
def test_errors__are_one_line_with_the_documented_status(arguments, status, message):
    result = run(*arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    if status == 1:
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_help__examples_have_lines_of_their_own(command):
    lines = run(command, "--help").stdout.splitlines()
    assert sum(line.startswith(f"  carefulctl {command} --pipeline") for line in lines) >= 3
    assert not any("\\b" in line for line in lines)


def test_errors__malformed_toml_names_its_line():
    result = run("plan", "--pipeline", "-", "--bytes", "9", stdin="[[stage]]\nname = \n")
    assert result.returncode == 1
    assert "line 2" in result.stderr


def test_simulate_json__burst():
    found = as_json(
        "simulate", "--pipeline", "trapeze", "--bytes", "8KiB", "--rule", "eager", "--count", "4"
    )
    assert found["inputs"]["progressive"] is True
    assert found["latency_us"] == pytest.approx(179.8, abs=0.1)
    assert len(found["latencies_us"]) == 4
    assert [stage["name"] for stage in found["stages"]] == ["hostTx", "netTx", "hostRx"]
    assert all(sum(stage["transfers_bytes"]) == 4 * 8192 for stage in found["stages"])
    assert found["bandwidth_bytes_per_us"] == pytest.approx(4 * 8192 / found["total_us"])


def test_simulate__plan_and_explicit_fragments():
    planned = as_json("simulate", "--pipeline", "gam", "--bytes", "4KiB", "--strategy", "fixed")
    assert planned["latency_us"] == pytest.approx(188.9, abs=0.1)
    whole = as_json("simulate", "--pipeline", "gam", "--bytes", "4KiB", "--fragment-bytes", "4096")
    assert whole["latency_us"] == pytest.approx(286.9)
    static = as_json(
        "simulate",
        "--pipeline",
        "gam",
        "--bytes",
        "4KiB",
        "--rule",
        "static",
        "--fragment-bytes",
        "128",
    )
    assert static["stages"][0]["transfers_count"] == 32


def test_plot__a_black_box_has_a_latency_and_no_stages(tmp_path):
    path = tmp_path / "plot.svg"
    words = ("plan", "--pipeline", "-", "--bytes", "4KiB", "--plot", str(path))
    refused = run(*words, "--figure", "space-time", stdin=BOX)
    assert (refused.returncode, refused.stdout, path.exists()) == (1, "", False)
    assert "--figure latency" in refused.stderr
    result = run(*words, stdin=BOX)
    assert result.returncode == 0, result.stderr
    assert "in 5 fragments" in result.stdout
    assert "fixed: k = 5" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--pipeline", "gms", "--bytes", "8KiB"],
        ["plan", "--pipeline", "network-disk", "--bytes", "64KiB", "--figure", "space-time"],
        ["plan", "--pipeline", "network-disk", "--bytes", "64KiB", "--figure", "improvement"],
        ["simulate", "--pipeline", "trapeze", "--bytes", "8KiB", "--rule", "eager"],
        ["simulate", "--pipeline", "trapeze", "--bytes", "8KiB", "--figure", "pulses"],
    ],
)
def test_plot__svg_has_labelled_axes_with_units(arguments, tmp_path):
    path = tmp_path / "plot.svg"
    result = run(*arguments, "--plot", str(path))
    assert result.returncode == 0, result.stderr
    text = path.read_text(encoding="utf-8")
    assert "(µs)" in text or "(ms)" in text
    assert (
        len(
            [
                word
                for word in ("(µs)", "(ms)", "(MB/s)", "(count)", "(bytes)", "stage")
                if word in text
            ]
        )
        >= 2
    )
