"""What a node's time means, the mean of 5P values, and the tables, of figures that are known."""

from __future__ import annotations

import pytest
from careful.bench.experiments import TABLES, Cell, cells
from careful.bench.paper import paper
from careful.bench.rounds import Found, Plan
from careful.report import bench as report

LATENCY = Cell("latency", 4, 1000, False, 50)
FLOOD = Cell("flood", 4, 1, True, 10, 8)


@pytest.mark.parametrize(
    ("cell", "took_ns", "value"),
    [
        (LATENCY, 50 * 4 * 86_200, 86.2),  # us a hop
        (Cell("throughput", 8, 2000, False, 100), 100 * 64_000 * 7 / 98.3 * 1000, 98.3),
        (FLOOD, 2_500_000, 2.5),
    ],
)
def test_value__is_in_the_table_s_unit(cell: Cell, took_ns: float, value: float) -> None:
    assert cell.value(took_ns) == pytest.approx(value)


def test_cells__are_p2_s() -> None:
    found = [(one.table, one.nodes, one.words) for one in Plan(tuple(TABLES), (2, 4, 8)).cells()]
    assert len(found) == 2 * (9 + 12 + 9)  # without and with processing
    for cell in Plan(tuple(TABLES), (2, 4, 8)).cells():
        if (cell.nodes, cell.words, cell.processing) != (8, 2000, True):
            assert paper(cell).careful is not None, cell
    floods = [one for nodes in (2, 4, 8) for one in cells(["flood"], nodes, 0.01)]
    assert {(one.nodes, one.count, one.fragments) for one in floods} == {
        (2, 10, 16),
        (4, 10, 8),
        (8, 10, 4),
    }


@pytest.mark.parametrize("cell", Plan(tuple(TABLES), (2, 4, 8)).cells(), ids=lambda one: one.name)
def test_paper__its_differences_are_those_of_its_values(cell: Cell) -> None:
    """Within what it rounded; a slip of ours would be more."""
    said = paper(cell)
    if said.traditional is None or said.careful is None:
        assert said.delta is None
        return
    assert said.delta is not None
    rounded = 0.05 if said.traditional >= 1 and cell.table != "throughput" else 0.005
    rounded = 0.05 if said.traditional >= 10 else rounded
    low = report.delta(said.traditional + rounded, said.careful - rounded)
    high = report.delta(said.traditional - rounded, said.careful + rounded)
    assert low is not None
    assert high is not None
    assert low - 0.3 <= said.delta <= high + 0.3


def test_mean__is_that_of_all_nodes_and_rounds() -> None:
    found = Found([LATENCY])
    result = found.results[LATENCY, "careful"]
    assert result.mean is None
    for number in range(5):
        result.values += [number * 4.0 + one for one in range(4)]
    assert len(result.values) == 5 * LATENCY.nodes
    assert result.mean == pytest.approx(9.5)


def test_text__has_both_and_p2_s() -> None:
    found = Found([LATENCY, FLOOD])
    found.results[LATENCY, "traditional"].values = [40.0, 60.0]
    found.results[LATENCY, "careful"].values = [30.0, 34.0]
    found.results[FLOOD, "careful"].values = [2.0]
    found.results[FLOOD, "traditional"].late = 1
    found.frames = {1000: 2, 1: 1}
    one, other = report.text(found, ["a note"]).split("\n\n")[:2]
    assert one.splitlines()[0] == TABLES["latency"].title
    row = " ".join(one.splitlines()[-1].split())
    assert row == "4 1000 2 no 50.0 32.0 -36.0 549.7 406.2 -26.3"
    assert " ".join(other.splitlines()[-1].split()) == "4 1 1 with - 2.00 - - 2.50 -"
    assert "flood, P = 4, 1 words, processing, traditional: did not end in time" in report.text(
        found, []
    )
    figures = report.figures(found)["cells"]
    assert figures[0]["careful"]["values_us"] == [30.0, 34.0]
    assert figures[0]["delta_percent"] == pytest.approx(-36)
    assert figures[0]["paper"]["delta"] == -26.3
    assert figures[1]["delta_percent"] is None
