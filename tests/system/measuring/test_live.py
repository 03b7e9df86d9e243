"""Tests the live latencies of two plan versions in turn, over the pipeline of GAM × 100."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from careful._abi import ffi
from careful.control.instance import live_latency, maps
from careful.control.instance.live_latency import Cell
from careful.control.plans import tune_entry
from careful.model import fixed_latency_us, load_shipped
from careful.plan import Plan
from hosts import wait_for
from lab import Lab, MakeLab

pytestmark = pytest.mark.lab

GAM = Path(__file__).parents[3] / "ctrl/careful/model/pipelines/gam.toml"
BYTES = 4096
CLASS = 6
SMALL, LARGE = 100, 2048  # fragments of the two versions
FLIP_S = 0.05
ENOUGH = 30  # messages of each version
ERROR_SHARE_MAX = 0.05  # most standard error of the difference, relative to the model

SERVE = f"""
import careful

with careful.open("eth1") as node:
    table = node.register(bytearray({BYTES}))
    node.handle(1, lambda message: table)
    print("ready", flush=True)
    while True:
        node.wait()
"""
MOVE = f"""
import sys
import careful

with careful.open("eth1") as node:
    table = node.connect("h2")
    table = table.region(table.request(1).result().payload)
    here = bytearray({BYTES})
    print("ready", flush=True)
    while True:
        (table.store(here) if sys.argv[1] == "store" else table.get(here)).result()
"""


def begin(lab: Lab, host: str, program: str, *args: str) -> subprocess.Popen[str]:
    process = lab.start(host, sys.executable, "-c", program, *args)
    assert process.stdout
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def fill_with(fragment_bytes: int) -> Any:
    plan = vars(Plan.fixed(fragment_bytes))

    def fill(version: Any) -> None:
        for one in version.classes:
            one.plan = plan

    return fill


def entry_of(tune: maps.PinnedMap, slot: int) -> Any:
    entry: Any = ffi.new("struct careful_tune_entry *")
    ffi.memmove(entry, tune.lookup(slot), ffi.sizeof(entry[0]))
    return entry


def activate(tune: maps.PinnedMap, slot: int, version: int) -> None:
    entry = entry_of(tune, slot)
    entry.active = version
    tune.update(slot, bytes(ffi.buffer(entry)))


def measured(instance: str, slot: int) -> list[Cell]:
    """Returns the cells of all versions of the messages' class."""
    with maps.live_map(instance) as live:
        found = live_latency.cells_in(live_latency.whole(live, slot))
    return [found.get((CLASS, version), Cell(0, 0, 0, 0)) for version in range(3)]


def since(before: Cell, after: Cell) -> Cell:
    return Cell(*(b - a for a, b in zip(vars(before).values(), vars(after).values(), strict=True)))


def flip(instance: str, error_us_max: float) -> list[Cell]:
    """Returns the cells of the small and large versions, which take turns until the standard error
    of their difference is small.
    """
    (slot,) = maps.sessions(instance)
    with maps.tune_map(instance) as tune:
        ours = []
        for fragment_bytes in (SMALL, LARGE):  # each version becomes active in turn
            tune_entry.write(tune, slot, fill_with(fragment_bytes))
            ours.append(int(entry_of(tune, slot).active))
        before = measured(instance, slot)
        turns = 0

        def enough() -> bool:
            nonlocal turns
            turns += 1
            activate(tune, slot, ours[turns % 2])
            time.sleep(FLIP_S)
            now = measured(instance, slot)
            two = [since(before[one], now[one]) for one in ours]
            return min(one.count for one in two) >= ENOUGH and error_us(*two) <= error_us_max

        wait_for(enough, "messages of both versions")
        after = measured(instance, slot)
    (other,) = {0, 1, 2} - set(ours)
    return [since(before[one], after[one]) for one in (other, *ours)]


def standard_error_us(cell: Cell) -> float:
    mean_ns = cell.sum_ns / cell.count
    return math.sqrt(max(0.0, cell.sum_sq_ns2 / cell.count - mean_ns**2) / cell.count) / 1e3


def error_us(one: Cell, other: Cell) -> float:
    """Returns the standard error of the difference of two means."""
    return math.hypot(standard_error_us(one), standard_error_us(other))


@pytest.mark.parametrize(("move", "sender"), [("store", "h1"), ("get", "h2")])
def test_live__versions_differ_as_the_model_says(make_lab: MakeLab, move: str, sender: str) -> None:
    """The data's sender measures: a store by its reply, the data of a get by a question."""
    lab = make_lab(hops=GAM, options=["--scale", "100", "--charge", "payload"])
    begin(lab, "h2", SERVE)
    mover = begin(lab, "h1", MOVE, move)
    counts = [-(-BYTES // size) for size in (SMALL, LARGE)]
    model_us = [100 * float(fixed_latency_us(load_shipped("gam"), BYTES, k)) for k in counts]
    wanted_us = model_us[0] - model_us[1]  # 21 ms, of 43
    untouched, small, large = flip(lab.instance(sender), ERROR_SHARE_MAX * wanted_us)
    assert mover.poll() is None
    assert untouched.count <= 1  # messages under way
    for one in (small, large):
        assert one.asked == (one.count if move == "get" else 0)
        assert one.sum_sq_ns2 * one.count >= one.sum_ns**2
    difference_us = (small.sum_ns / small.count - large.sum_ns / large.count) / 1e3
    # A busy machine slows both versions, but not equally, and times vary.
    assert abs(difference_us - wanted_us) < 0.15 * wanted_us + 4 * error_us(small, large)
