"""The table of `carefulctl speed`: units that suit the figures, and no exponents."""

from __future__ import annotations

import pytest
from careful.measure.path.speed import Kind, Quartiles, Row
from careful.render.measuring import speed as report


@pytest.mark.parametrize(
    ("is_rate", "median", "shown"),
    [
        (False, 11.44, "µs  11.4 (5.72-22.9)"),
        (False, 12345.0, "ms  12.3 (6.17-24.7)"),
        (False, 900e3, "ms  900 (450-1800)"),
        (True, 7.154, "Gbit/s  7.15 (3.58-14.3)"),
        (True, 0.00182, "Mbit/s  1.82 (0.91-3.64)"),
        (True, 0.00002, "kbit/s  20 (10-40)"),
    ],
)
def test_table__units_suit_the_figures(is_rate: bool, median: float, shown: str) -> None:
    """A request over 2 Mbit/s took 1.17e+04 µs."""
    kind = Kind("one", "get", 8192, is_rate)
    row = Row(kind, {"careful": Quartiles(median / 2, median, 2 * median)}, None)
    assert shown in report.table([row], "h2", 30, [])


def test_table__fits_80_columns() -> None:
    wide = Quartiles(100.6, 101.4, 102.3)
    ratio = Quartiles(0.9871, 0.9912, 0.9954)
    kinds = [Kind("request, 64 B", "request", 64), Kind("stream, 512 KiB", "get", 1 << 19, True)]
    rows = [Row(kind, {"careful": wide, "TCP": wide}, ratio) for kind in kinds]
    lines = report.table(rows, "h2.rack-7.example.org", 30, ["veth"]).splitlines()
    assert max(map(len, lines)) <= 80
    assert "careful / TCP" in lines[1]
