"""Tests how tools/bench/run instructions reads callgrind's file, and which layer it charges."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from tool_module import ROOT, load_tool

#: A function of link, with an inlined function of its header, calls another twice. Names are given
#: once, positions relative to the line before.
PROFILE = """\
version: 1
events: Ir
fl=(1) /src/datapath/link/tx.c
fn=(1) link_send
10 7
+2 5
fi=(2) /src/datapath/link/flow.h
40 3
fe=(1)
-1 1
cfi=(3) /src/datapath/device/sim.c
cfn=(2) sim_kick
calls=2 90
* 1000

fl=(3)
fn=(2)
90 600
+1 400
totals: 1016
"""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench instructions", monkeypatch)


def test_read_profile__charges_each_function_without_its_callees(tool: ModuleType) -> None:
    assert tool.read_profile(PROFILE) == {
        ("/src/datapath/link/tx.c", "link_send"): 13,
        ("/src/datapath/link/flow.h", "link_send"): 3,
        ("/src/datapath/device/sim.c", "sim_kick"): 1000,
    }


def test_layer_of__is_the_folder(tool: ModuleType) -> None:
    layer_of = tool.layer_of
    assert layer_of("/src/datapath/link/flow.h") == "link"
    assert layer_of("/src/datapath/include/careful/wire.h") == "include"
    assert layer_of("/src/tests/support/memory_device.c") == "device"
    assert layer_of("/src/tests/cost/null.c") == "bench"
    assert layer_of("../sysdeps/x86_64/memcpy.S") == "libc and others"


def test_grown__kinds_that_grew_or_are_new(tool: ModuleType) -> None:
    kept = {"kinds": {"request": [{"total": 4000.0}], "idle": [{"total": 100.0}]}}
    now = {"request": [{"total": 4100.0}], "idle": [{"total": 104.0}], "store": [{"total": 9.0}]}
    assert tool.grown(now, kept) == [
        "poll that finds nothing: 104 instructions, 100 in the kept run",
        "frame of a store: the kept run has no such kind",
    ]


def test_main__builds_its_program_anew(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program of an earlier commit in build/gcc may not know today's words."""
    asked: list[str] = []
    program = tmp_path / "null"

    def built(*names: str) -> Path:
        asked.extend(names)
        program.write_text("#!/bin/sh\necho 'only this one' >&2\nexit 1\n")
        program.chmod(0o755)
        return tmp_path

    monkeypatch.setattr(tool, "built", built)
    monkeypatch.setattr(sys, "argv", ["instructions", "--only", "idle"])
    with pytest.raises(tool.BenchError, match=r"only this one|needs valgrind"):
        tool.main()
    assert asked == ["null"]


def test_kinds__of_sealed_frames_are_null_s(tool: ModuleType) -> None:
    """The usage text of null lists every word that the kinds use."""
    text = (ROOT / "tests/cost/null.c").read_text()
    for words, _ in tool.KINDS.values():
        assert f"null {words[0]} COUNT" in text
        assert all(f'"{word}"' in text for word in words[3:])
