"""The files that `tune apply` reads, and its errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from careful.cli.main import cli
from careful.control.plans import tune_entry, tune_file
from careful.control.plans.tune_entry import Setting
from careful.control.plans.tune_peers import Row
from careful.errors import CarefulError
from careful.jsonout import document
from careful.plan import CLASS_COUNT, Q16_ONE, Plan
from careful.render.tuning.tune import tune_row
from click.testing import CliRunner

PLAN = {
    "first_bytes": 500,
    "ratio_q16": 65536,
    "step_bytes": 0,
    "peak_bytes": 500,
    "down_ratio_q16": 65536,
    "down_step_bytes": 0,
}


def row(**changes: Any) -> dict[str, Any]:
    """Returns class 7, 8 KiB, with changes."""
    return {"class": 7, "message_bytes_max": 8192, "plan": PLAN, **changes}


def parse(*rows: Any, peer: str | None = None) -> dict[int, Setting]:
    return tune_file.parse(json.dumps({"classes": rows}), "here.json", peer)


def shown(**pulses: dict[str, int]) -> str:
    """Returns the output of `tune show --json` for peers with these pulses."""
    rows = [
        Row(peer, 0, (Setting(Plan.fixed(100 + i), one),) * CLASS_COUNT)
        for i, (peer, one) in enumerate(pulses.items())
    ]
    return document("tune show", {}, {"peers": [tune_row(one) for one in rows]})


@pytest.mark.parametrize("pipeline", ["gam", "trapeze", "network-disk"])
def test_parse__output_of_plan(pipeline: str) -> None:
    done = CliRunner().invoke(cli, ["plan", "--pipeline", pipeline, "--classes", "--json"])
    printed = json.loads(done.output)["classes"]
    settings = tune_file.parse(done.output, "plan.json")
    assert list(settings) == list(range(CLASS_COUNT))
    for one, setting in zip(printed, settings.values(), strict=True):
        assert setting.plan is not None
        assert vars(setting.plan) == one["plan"]
        blocks = one["block_bytes"]
        assert setting.minpulse_bytes == ({"store": blocks} if blocks else {})
    if pipeline == "network-disk":
        assert any(setting.minpulse_bytes for setting in settings.values())


@pytest.mark.parametrize(
    "pulses", [{"net_tx": 3, "store": 4}, {"host_tx": 1, "net_tx": 2, "host_rx": 3, "store": 4}]
)
def test_parse__output_of_show(pulses: dict[str, int]) -> None:
    assert pulses.keys() <= tune_entry.SINKS.keys()
    assert tune_file.parse(shown(h2=pulses), "kept.json") == dict.fromkeys(
        range(CLASS_COUNT), Setting(Plan.fixed(100), pulses)
    )


def test_parse__a_peer_among_several() -> None:
    text = shown(h2={"net_tx": 3}, h3={"net_tx": 5})
    assert tune_file.parse(text, "kept.json", "h3")[0] == Setting(Plan.fixed(101), {"net_tx": 5})
    with pytest.raises(CarefulError, match="h2, h3: choose a peer with --of"):
        tune_file.parse(text, "kept.json")
    with pytest.raises(CarefulError, match="no settings of h4"):
        tune_file.parse(text, "kept.json", "h4")
    with pytest.raises(CarefulError, match="omit --of"):
        parse(row(), peer="h2")


def test_parse__leaves_unnamed_fields() -> None:
    assert parse(row()) == {7: Setting(Plan(500, Q16_ONE, 0, 500, Q16_ONE, 0), {})}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no classes"),
        ("{}", "no classes"),
        ('{"classes": []}', "no classes"),
        ('{"classes": {"class": 7}}', "no classes"),
        ('{"peers": []}', "no peer"),
        ('{"peers": [1, {"peer": "h2"}]}', "no classes"),
        ('{"peers": [{"peer": "h2", "classes": 3}]}', "no classes"),
    ],
)
def test_parse__a_file_of_another_kind(text: str, said: str) -> None:
    with pytest.raises(CarefulError, match=said) as error:
        tune_file.parse(text, "here.json")
    assert "here.json" in str(error.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([5], "class is None"),
        ([row(**{"class": 16})], "class is 16"),
        ([row(**{"class": -1})], "class is -1"),
        ([row(**{"class": True})], "class is True"),
        ([row(), row()], "class 7 appears twice"),
        ([row(message_bytes_max=4096)], "8192 bytes, not 4096"),
        ([row(plan=None)], "first_bytes is None"),
        ([row(plan={**PLAN, "first_bytes": 0})], "first_bytes is 0"),
        ([row(plan={**PLAN, "ratio_q16": 1.5})], "ratio_q16 is 1.5"),
        ([row(plan={**PLAN, "peak_bytes": 1 << 32})], "peak_bytes is 4294967296"),
        ([row(minpulse_bytes={"disk": 1})], "disk"),
        ([row(minpulse_bytes=[1])], "minpulse_bytes is for"),
        ([row(minpulse_bytes={"store": -1})], "store is -1"),
        ([row(block_bytes=1 << 32)], "block_bytes is 4294967296"),
    ],
)
def test_parse__value_is_wrong(rows: list[Any], said: str) -> None:
    with pytest.raises(CarefulError, match=said):
        parse(*rows)
