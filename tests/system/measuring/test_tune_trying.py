"""`tune auto` on a bare veth, where a measurement finds no figures, tries settings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import RUN, Host, finish, wait_for
from lab import MakeLab

pytestmark = pytest.mark.lab

PEER = "10.77.0.2"
#: Settings for 1 KiB messages: whole or in halves, with separate or common kicks.
CLASS, WAYS = 4, 2
#: A search and its A/B need at most a few thousand messages.
SEARCH_S = 300
READ = """
import careful.files

with careful.files.connect("10.77.0.1") as host, host.open("file") as file:
    print("ready", flush=True)
    while True:
        file.read_at(0, 1024)
"""


def kept(host: Host) -> dict[str, Any]:
    """Returns the controller's record of the path, or an empty one."""
    file = RUN / host.lab.instance("h1") / "tuning.json"
    return dict(json.loads(file.read_text())["paths"].get(PEER, {})) if file.exists() else {}


def whats(host: Host) -> list[str]:
    """Returns what the controller decided, without the reasons."""
    return [one["what"] for one in kept(host).get("decisions", [])]


def in_effect(host: Host) -> dict[str, Any]:
    """Returns the class's settings in effect."""
    shown = json.loads(host.ctl("tune", "show", "eth1", "--peer", PEER, "--json").stdout)
    return dict(shown["peers"][0]["classes"][CLASS])


def planned(host: Host, tuner: subprocess.Popen[str], before: dict[str, Any]) -> None:
    """With figures the controller plans, and does not try settings."""
    wait_for(lambda: {"changed", "nothing to change"} & set(whats(host)), "a decision")
    tuner.send_signal(signal.SIGINT)
    finish(tuner)
    assert "trying" not in whats(host)
    (explained,) = json.loads(host.ctl("tune", "explain", "eth1", "--json").stdout)["paths"]
    assert explained["classes"][CLASS]["predicted_us"] > 0
    if "changed" not in whats(host):
        assert in_effect(host) == before
    host.assert_nothing_lost()


@pytest.mark.timeout(3 * SEARCH_S)
def test_bare_veth__ways_are_tried_and_it_is_said(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab()
    first, second = (Host(lab, name, tmp_path) for name in ("h1", "h2"))
    first.up()
    second.up()
    try:
        (first.export / "file").write_bytes(bytes(1024))
        job = lab.start("h2", sys.executable, "-c", READ)
        assert job.stdout
        assert job.stdout.readline() == "ready\n", job.communicate()[1]
        before = in_effect(first)
        tuner = first.start("tune", "auto", "eth1", "--peer", PEER)
        ends = {"nothing better", "kept", "undone"}
        wait_for(
            lambda: bool(ends & set(whats(first))) or kept(first).get("figures"), "end", SEARCH_S
        )
        if kept(first)["figures"]:  # the veth was measured after all
            planned(first, tuner, before)
            pytest.skip("the veth was measured: there was nothing to try")
        assert "not measured" in whats(first)
        assert whats(first).count("trying") == 1
        tuner.send_signal(signal.SIGINT)
        finish(tuner)
        path = kept(first)
        assert not path["put_back"]
        assert not path["on_trial"]
        found = path["tried"][str(CLASS)]
        assert found["ways_count"] == WAYS
        (explained,) = json.loads(first.ctl("tune", "explain", "eth1", "--json").stdout)["paths"]
        one = explained["classes"][CLASS]
        text = " ".join(first.ctl("tune", "explain", "eth1").stdout.split())
        assert "not measured: nothing is predicted" in text
        assert one.get("predicted_us") is None
        now = in_effect(first)
        if found["found"]:
            assert one["standing"] == "found by trying"
            assert f"1 KiB: the best of {WAYS} settings tried on live messages" in text
            assert min(one["ab"]["before_count"], one["ab"]["after_count"]) >= 30
            assert one["ab"]["gain_low_us"] > 0
            assert now != before
        else:
            assert one["standing"].startswith("as before")
            assert f"1 KiB: {WAYS} other settings were tried; none is certainly faster" in text
            assert now == before
        # The next controller knows the result and does not try again.
        tuner = first.start("tune", "auto", "eth1", "--peer", PEER)
        wait_for(lambda: len(whats(first)) > len(path["decisions"]) or _again(first, path), "look")
        assert whats(first).count("trying") == 1
        assert in_effect(first) == now
        first.assert_nothing_lost()
    finally:
        for each in (first, second):
            each.ctl("down", "eth1", check=False)


def _again(host: Host, path: dict[str, Any]) -> bool:
    """Reports whether the path was measured again, successfully or not."""
    return bool(kept(host)["decisions"][-1]["at_s"] > path["decisions"][-1]["at_s"])
