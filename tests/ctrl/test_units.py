"""Sizes and durations: valid and invalid texts."""

from __future__ import annotations

import re
from pathlib import Path

import careful
import pytest
from careful.units import parse_bytes, parse_seconds, shown_bytes, shown_rate, shown_time


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("1K", 1024),
        ("1k", 1024),
        ("1KB", 1000),
        ("1MiB", 1 << 20),
        ("1M", 1 << 20),
        ("50MB", 50_000_000),
        ("1G", 1 << 30),
        ("2TiB", 2 << 40),
        ("1.5GiB", 3 << 29),
        (" .5 K ", 512),
        ("-3", -3),
        ("+3B", 3),
    ],
)
def test_parse_bytes__sizes(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", ".", "K", "4 pies", "0.3K", "1Ki", "1e9", "nan", "٣", "1 2", "9" * 5000]
)
def test_parse_bytes__no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("50us", 5e-5),
        ("50\u00b5s", 5e-5),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1.5h", 5400.0),
        (".05", 0.05),
        ("-1", -1.0),
    ],
)
def test_parse_seconds__durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [
        (0, "0 bit/s"),
        (124.9, "999 bit/s"),
        (125, "1.00 kbit/s"),
        (1.25e6, "10.0 Mbit/s"),
        (1.5e9, "12.0 Gbit/s"),
        (1e13, "80000 Gbit/s"),
    ],
)
def test_shown_rate__three_figures(bytes_per_s: float, text: str) -> None:
    assert shown_rate(bytes_per_s) == text


def test_shown_rate__is_the_one_unit_of_rates() -> None:
    """A bar once used MiB/s, and its summary Gbit/s."""
    folder = Path(careful.__file__).parent
    found = [path for path in folder.rglob("*.py") if re.search(r"\)\}/s", path.read_text())]
    assert found == []


@pytest.mark.parametrize("text", ["", "s", "soon", "nan", "inf", "5d", "1e3", "30KiB"])
def test_parse_seconds__no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5 TiB")]
)
def test_shown_bytes__binary_prefix(nbytes: int, text: str) -> None:
    assert shown_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.0, "0 µs"),
        (9.25, "9.25 µs"),
        (999.6, "1 ms"),
        (25_300.4, "25.3 ms"),
        (208_159_568.4, "208 s"),
        (2.52e9, "42 min"),
        (1.1e10, "3 h"),
    ],
)
def test_shown_time__in_the_unit_that_fits(us: float, text: str) -> None:
    """`plan` printed 208159568.4 µs."""
    assert shown_time(us) == text
