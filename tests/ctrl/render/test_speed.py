"""The table of `carefulctl speed`: units that suit the figures, and no exponents."""

from __future__ import annotations

import pytest
from careful.measure.estimators.speed import Kind, Quartiles, Row
from careful.render import speed as report


@pytest.mark.parametrize(
    ("is_rate", "median", "shown"),
    [
        (False, 11.44, "11.4 µs (5.72 to 22.9)"),
        (False, 12345.0, "12.3 ms (6.17 to 24.7)"),
        (False, 900e3, "900 ms (450 to 1800)"),
        (True, 7.154, "7.15 Gbit/s (3.58 to 14.3)"),
        (True, 0.00182, "1.82 Mbit/s (0.91 to 3.64)"),
    ],
)
def test_table__units_suit_the_figures(is_rate: bool, median: float, shown: str) -> None:
    """A request over 2 Mbit/s took 1.17e+04 µs."""
    kind = Kind("one", "get", 8192, is_rate)
    row = Row(kind, {"careful": Quartiles(median / 2, median, 2 * median)}, None)
    assert shown in report.table([row], "h2", 30, [])
