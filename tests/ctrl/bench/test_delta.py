"""Intervals of differences: a round whose values move together counts as one value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from careful.bench.experiments import Cell
from careful.bench.rounds import Results
from careful.render.measuring import bench as report
from careful.render.measuring.bench_delta import AHEAD, BEHIND, OPEN, compare, totals

CELL = Cell("latency", 8, 1, False, 50)
STREAM = replace(CELL, table="throughput")


def ran(cell: Cell, traditional: list[float], careful: list[float]) -> Results:
    """Returns results of a cell whose nodes differ little, with these means of rounds."""
    found = Results([cell])
    for protocol, means in (("traditional", traditional), ("careful", careful)):
        found.results[cell, protocol].values = [
            mean * (1 + 0.001 * (node - (cell.nodes - 1) / 2))
            for mean in means
            for node in range(cell.nodes)
        ]
    return found


def test_compare__an_interval_holds_the_truth_in_nineteen_of_twenty() -> None:
    """The 8 values of a round move together. Taken as independent, they would hold the truth in
    half of the cases.
    """
    random = np.random.default_rng(7)
    for rounds in (5, 15):
        held = 0
        for _ in range(400):
            means = random.lognormal(2, 0.3, size=(2, rounds)) * [[1.0], [0.8]]
            delta = compare(ran(CELL, *means.tolist()), CELL)
            assert delta.low is not None
            assert delta.high is not None
            assert delta.low < delta.high
            held += delta.low <= -20 <= delta.high
        assert 0.90 < held / 400 < 0.99


def test_compare__both_protocols_share_a_rounds_disturbance() -> None:
    """A machine that is three times as slow in some rounds hides no difference of 5 %."""
    noise = [1.0, 3.0, 1.2, 0.8, 2.0, 1.0, 2.8]
    delta = compare(ran(CELL, noise, [0.95 * one for one in noise]), CELL)
    assert delta[:3] == pytest.approx((-5, -5, -5))
    assert delta.verdict == AHEAD


@pytest.mark.parametrize(
    ("cell", "ratio", "verdict"),
    [
        (CELL, 0.8, AHEAD),
        (CELL, 1.25, BEHIND),
        (CELL, 1.0, OPEN),
        (STREAM, 0.8, BEHIND),
        (STREAM, 1.25, AHEAD),
        (STREAM, 1.0, OPEN),
    ],
)
def test_compare__names_the_faster_protocol(cell: Cell, ratio: float, verdict: str) -> None:
    found = ran(cell, [10, 11, 9, 10, 10.5], [ratio * one for one in (10.2, 10.1, 9.6, 10.4, 10.3)])
    assert compare(found, cell).verdict == verdict
    assert totals(found) == {verdict: 1}
    again = report.bench_figures(found)
    assert again[f"{verdict}_count"] == 1
    assert again["cells"][0]["verdict"] == verdict
    low, high = again["cells"][0]["delta_95_percent"]
    assert low < again["cells"][0]["delta_percent"] < high
    assert compare(report.read(json.loads(json.dumps(again))), cell).verdict == verdict


def test_compare__too_few_values_give_no_interval() -> None:
    few = ran(CELL, [10] * 4, [5] * 4)
    assert compare(few, CELL) == (pytest.approx(-50), None, None, None)
    late = ran(CELL, [10] * 6, [5] * 6)
    late.results[CELL, "traditional"].late = 1
    assert compare(late, CELL) == (pytest.approx(-50), None, None, None)
    fewer = ran(CELL, [10] * 5, [5] * 6)
    assert compare(fewer, CELL).verdict is None
    alone = replace(CELL, table="jacobi", nodes=1)
    assert compare(ran(alone, [10] * 6, [5] * 6), alone) == (None, None, None, None)
    assert not totals(ran(alone, [10] * 6, [5] * 6))
    last = report.bench_text(few, {}).splitlines()[-1]
    assert last == "1 cell without an interval: under 5 rounds, or a late run"


def test_bench_text__has_the_interval_and_counts_cells() -> None:
    found = ran(CELL, [10, 10, 11, 10, 10.5], [5, 5.1, 5.2, 4.8, 5])
    found.results |= ran(STREAM, [10.0] * 5, [9, 11, 9, 11, 10.01]).results
    table, other, notes = report.bench_text(found, {"rounds": 5}).split("\n\n")
    assert " -51.3 (-53 … -49) " in table
    assert " +0.0 (-10 … +10) " in other
    assert notes.splitlines()[-1] == (
        "careful is ahead in 1 of 2 cells, behind in 0; 1 cannot be told apart"
    )
    assert max(map(len, f"{table}\n{other}".splitlines())) < 125


def test_kept_run__careful_is_behind_at_most_by_chance() -> None:
    kept = Path(__file__).resolve().parents[3] / "tests/reports/bench.json"
    count = totals(report.read(json.loads(kept.read_text())))
    assert count[BEHIND] <= 1  # of 91 cells: as many as by chance (benchmarks.md)
    assert count[AHEAD] >= 30
    assert not count[None]
