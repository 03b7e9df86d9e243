"""The one parser and printer of sizes and durations, for options, files and messages.

On the command line the value carries the unit (`--bytes 64KiB`, `--timeout 500ms`); a bare number
is bytes or seconds, and an option about time names no unit. In files and JSON the value is a bare
number, and its unit ends the name (`stall_ms`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from careful.errors import InputError

_QUANTITY = re.compile(r"\s*([-+]?)([0-9]{0,30})(?:\.([0-9]{0,30}))?\s*([A-Za-z\u00b5\u03bc]*)\s*")

#: Like rsync and dd: K and KiB are 1024, KB is 1000.
_BYTES = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    # Rates are given in bits, too, as to tc and iperf3: 1Gbit is 125,000,000 bytes.
    _BYTES |= {f"{_prefix}bit": 1000**_power // 8}
    _BYTES |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}

_MICROSECONDS = {"us": 1, "\u00b5s": 1, "\u03bcs": 1, "ms": 1000, "": 10**6, "s": 10**6}
_MICROSECONDS |= {
    "usec": 1,
    "msec": 1000,
    "sec": 10**6,
    "m": 60 * 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
}


def _amount(text: str, units: dict[str, int]) -> tuple[int, int] | None:
    """Returns the amount in the smallest unit, as a fraction; None if the text is no amount."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        return None
    sign, whole, part, unit = found[1], found[2], found[3] or "", found[4].lower()
    if not (whole or part) or unit not in units:
        return None
    number = int(whole + part) * units[unit]
    return -number if sign == "-" else number, 10 ** len(part)


def parse_bytes(text: str) -> int:
    """Parses a size in bytes: 4096, 1K, 64KiB, 50MB, 1.5GiB; or a rate: 1Gbit, 10MB/s.

    Negative ones are accepted, too.

    Raises ValueError if it is no size, or not a whole number of bytes.
    """
    amount = _amount(text.removesuffix("/s"), _BYTES)
    if amount is None and text.lower().endswith("bps"):  # iperf3's and tc's differ by a factor of 8
        raise InputError(f"{text!r} may be bits or bytes: write {text[:-2]}it or {text[:-3]}B")
    if amount is None or amount[0] % amount[1]:
        raise InputError(f"{text!r} is not a size: 4096, 64KiB, 50MB or 1G")
    return amount[0] // amount[1]


def parse_seconds(text: str) -> float:
    """Parses a duration in seconds: 30, 30s, 500ms, 50us, 2m, 1h. Negative ones are accepted, too.

    Raises ValueError if it is no duration.
    """
    amount = _amount(text, _MICROSECONDS)
    if amount is None:
        raise InputError(f"{text!r} is not a duration: 30, 30s, 500ms or 2m")
    return amount[0] / (amount[1] * 10**6)


def shown_bytes(nbytes: float) -> str:
    """Returns bytes with a binary prefix: 1536 is 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    text = f"{nbytes:.1f}".removesuffix(".0") if unit != "B" else f"{nbytes:.0f}"
    return f"{text} {unit}"


def shown_rate(bytes_per_s: float) -> str:
    """Returns a rate in bits a second, the unit of every rate: 2.55 Gbit/s, 980 kbit/s."""
    bits_per_s, unit = 8 * bytes_per_s, "bit/s"
    for unit in ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"):
        if bits_per_s < 999.5 or unit == "Gbit/s":
            break
        bits_per_s /= 1000
    digits = 0 if unit == "bit/s" or bits_per_s >= 99.95 else 1 if bits_per_s >= 9.995 else 2
    return f"{bits_per_s:.{digits}f} {unit}"


def time_unit(us: float) -> tuple[str, float]:
    """Returns the unit in which people read a time, and the unit's length in µs."""
    return ("s", 1e6) if abs(us) >= 999.5e3 else ("ms", 1e3) if abs(us) >= 999.5 else ("µs", 1.0)


def shown_time(us: float, digits: int = 3) -> str:
    """Returns a time in the unit that fits: 9.25 µs, 25.3 ms, 208 s, 42 min, 30 h."""
    unit, size = time_unit(us)
    if abs(us) >= 999.5e6:
        unit, size = ("h", 3.6e9) if abs(us) >= 7.2e9 else ("min", 6e7)
        return f"{us / size:.0f} {unit}"
    return f"{us / size:.{digits}g} {unit}"


def counted(number: int, noun: str) -> str:
    """Returns a number and its noun: 1 file, 2 files."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell(value: object) -> str:
    """Formats a table's cell: floats have two digits after the point below 10, else one."""
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def sizes(values: Sequence[float], most: int = 12) -> str:
    """Lists fragment sizes in a line: equal sizes as 3x1024, long lists cut."""
    runs: list[list[float]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    words = [f"{count:.0f}x{value:.0f}" if count > 1 else f"{value:.0f}" for value, count in runs]
    if len(words) > most:
        words = [*words[: most - 2], "…", words[-1]]
    return " ".join(words)
