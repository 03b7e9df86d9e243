"""How tools/bench/instructions reads callgrind's file, and whom it charges."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

TOOL = Path(__file__).resolve().parents[2] / "tools/bench/instructions"

#: One function of link, with one inlined from its header, calls another, twice. Names are given
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


def load() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("instructions", str(TOOL))
    spec = importlib.util.spec_from_loader("instructions", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_read_profile__charges_each_function_without_its_callees() -> None:
    assert load().read_profile(PROFILE) == {
        ("/src/datapath/link/tx.c", "link_send"): 13,
        ("/src/datapath/link/flow.h", "link_send"): 3,
        ("/src/datapath/device/sim.c", "sim_kick"): 1000,
    }


def test_layer_of__is_the_folder() -> None:
    layer_of = load().layer_of
    assert layer_of("/src/datapath/link/flow.h") == "link"
    assert layer_of("/src/datapath/include/careful/wire.h") == "include"
    assert layer_of("/src/tools/bench/memory.c") == "device"
    assert layer_of("/src/tools/bench/null.c") == "bench"
    assert layer_of("../sysdeps/x86_64/memcpy.S") == "libc and others"
