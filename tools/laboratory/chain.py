"""A lab's emulated links: the hops file, the emulator's command line, and the links' reports.

A hops file is a pipeline file of `carefulctl plan`, with an optional table `link` in each stage.
Standard library only.
"""

from __future__ import annotations

import json
import math
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOPS_MAX = 16
STAR_MAX = 32
#: The longest time, µs, scaled or not.
TIME_MAX_US = 1e9
#: Keys of `[stage.link]`, with least and most values.
LINK_KEYS = {
    "queue_frames": (1, 1_000_000),
    "eager": (0, 1),
    "loss": (0, 1),
    "duplicate": (0, 1),
    "reorder": (0, 1),
    "reorder_us": (0, TIME_MAX_US),
    "corrupt": (0, 1),
    "seed": (0, 1e15),
}
#: LINK_KEYS that are counts.
_WHOLE = ("queue_frames", "eager", "seed")
CHARGES = {"frame": "every byte of the Ethernet frame", "payload": "payload bytes"}


@dataclass
class Hop:
    """A store-and-forward link, equal in both directions.

    g_us, G_us_per_KiB: for each frame, and each charged KiB; delay_us: propagation; changes:
        [at_s, g_us, G_us_per_KiB], by time since the link was made or reset; link: LINK_KEYS.
    """

    name: str
    g_us: float
    G_us_per_KiB: float
    delay_us: float = 0
    changes: list[list[float]] = field(default_factory=list)
    link: dict[str, float] = field(default_factory=dict)

    def argv(self, charge: str) -> list[str]:
        """Returns the emulator's options for this link."""
        rates = [[0, self.g_us, self.G_us_per_KiB], *self.changes]
        found = ["--charge", charge, "--delay-ns", f"{self.delay_us * 1e3:.0f}"]
        for at_s, g_us, G_us_per_KiB in rates:
            found += ["--rate", f"{at_s * 1e9:.0f},{g_us * 1e3:.3f},{G_us_per_KiB * 1e3 / 1024!r}"]
        for key, value in self.link.items():
            if key == "reorder_us":
                found += ["--reorder-ns", f"{value * 1e3:.0f}"]
            else:
                found += ["--" + key.replace("_", "-"), repr(value)]
        return found


def _number(table: dict[str, Any], key: str, least: float, most: float) -> float:
    value = table.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"'{key}' is {value!r}, must be a number")
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"'{key}' is {value}, must be from {least:g} to {most:g}")
    return value


def _time(table: dict[str, Any], key: str, scale: float) -> float:
    """Returns a time of the file, µs or µs per KiB, times the scale."""
    value = _number(table, key, 0, TIME_MAX_US)
    if value * scale > TIME_MAX_US:
        text = f"'{key}' is {value:g}, times the scale {value * scale:g}"
        raise ValueError(f"{text}: must be at most {TIME_MAX_US:g}; lower --scale")
    return value * scale


def _rate(table: dict[str, Any], scale: float) -> tuple[float, float]:
    for key in ("g_us", "G_us_per_KiB"):
        if key not in table:
            raise ValueError(f"'{key}' is missing")
    return _time(table, "g_us", scale), _time(table, "G_us_per_KiB", scale)


def _check_keys(table: dict[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ValueError(f"unknown key '{unknown[0]}'")


def _changes(found: Any, scale: float) -> list[list[float]]:
    """Returns the changes of a link's rate."""
    if not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
        raise ValueError(f"'changes' is {found!r}, must be [[stage.link.changes]] tables")
    changes = []
    for change in found:
        _check_keys(change, ["at_s", "g_us", "G_us_per_KiB"])
        changes.append([_number(change, "at_s", 0, 1e6), *_rate(change, scale)])
    if changes != sorted(changes, key=lambda one: one[0]):
        raise ValueError("changes must be in the order of their times")
    if len(changes) > 15:
        raise ValueError("at most 15 changes")
    return changes


def _link(found: Any, scale: float) -> dict[str, float]:
    """Returns a link's effects on frames."""
    _check_keys(found, list(LINK_KEYS))
    values = {key: _number(found, key, *LINK_KEYS[key]) for key in found}
    for key in _WHOLE:
        if key in values and not isinstance(values[key], int):
            raise ValueError(f"'{key}' is {values[key]}, must be a whole number")
    if "reorder_us" in values:
        values["reorder_us"] = _time(found, "reorder_us", scale)
    if values.get("reorder") and not values.get("reorder_us"):
        raise ValueError("'reorder' needs 'reorder_us', the extra delay of a frame")
    return values


def _hop(table: Any, number: int, scale: float) -> Hop:
    if not isinstance(table, dict):
        raise ValueError(f"{table!r}: must be a [[stage]] table")
    known = ["name", "g_us", "G_us_per_KiB", "delay_us", "group", "resource", "link"]
    _check_keys(table, known)
    if table.get("resource"):
        raise ValueError("stages that share a resource cannot be emulated")
    link = table.get("link", {})
    if not isinstance(link, dict):
        raise ValueError(f"'link' is {link!r}, must be a [stage.link] table")
    link = dict(link)
    changes = _changes(link.pop("changes", []), scale)
    delay_us = _time(table, "delay_us", scale) if "delay_us" in table else 0.0
    name = str(table.get("name", f"link {number}"))
    return Hop(name, *_rate(table, scale), delay_us, changes, _link(link, scale))


def read(path: Path, scale: float) -> list[Hop]:
    """Returns the links of a hops file, with times multiplied by `scale`. Raises ValueError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    stages = data.get("stage")
    if not isinstance(stages, list) or not 1 <= len(stages) <= HOPS_MAX:
        raise ValueError(f"{path}: needs 1 to {HOPS_MAX} [[stage]] tables")
    hops = []
    for number, table in enumerate(stages, 1):
        try:
            hops.append(_hop(table, number, scale))
        except ValueError as error:
            raise ValueError(f"{path}: stage {number}: {error}") from None
    return hops


def star(hops: list[Hop], hosts: int) -> list[Hop]:
    """Returns the links: two hosts' chain; else one per host, h1 has the first, others the last."""
    if hosts == 2:
        return hops
    if len(hops) > 2:
        raise ValueError(f"{hosts} hosts need one or two [[stage]] tables, not {len(hops)}")
    if hosts > STAR_MAX:
        raise ValueError(f"{hosts} hosts: at most {STAR_MAX} emulated links")
    kinds = enumerate([hops[0], *[hops[-1]] * (hosts - 1)], 1)
    return [replace(hop, name=f"h{k}: {hop.name}") for k, hop in kinds]


def emulator() -> Path:
    """Returns the emulator, built if necessary. Raises ValueError if that fails."""
    argv = [str(ROOT / "tools/build"), "careful-hop"]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        errors = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()
        raise ValueError(f"careful-hop cannot be built; run tools/setup first: {errors[-1]}")
    return ROOT / "build" / "gcc" / "careful-hop"


def document(hops: list[Hop], charge: str, reports: list[dict[str, Any]]) -> str:
    """Returns each link's settings and report as one JSON object."""
    links = [
        {"asked": asdict(hop), "ways": report["ways"]}
        for hop, report in zip(hops, reports, strict=True)
    ]
    return json.dumps({"schema": 1, "charge": charge, "links": links}, indent=1)


def _fit(fit: dict[str, float] | None) -> str:
    """Returns a report's (g, G), or dashes."""
    return f"{fit['g_us']:10.2f} {fit['G_us_per_KiB']:9.3f}" if fit else f"{'-':>10} {'-':>9}"


def table(hops: list[Hop], charge: str, reports: list[dict[str, Any]]) -> str:
    """Returns each link's settings and report as a table."""
    lines = [
        f"G is charged for {CHARGES[charge]}",
        "applied: least squares over all frames, as they left; "
        "punctual: over those less than 50 µs late",
        f"{'link':20} {'way':8} {'asked g_us':>10} {'G_us/KiB':>9} {'applied g':>10} {'G':>9} "
        f"{'punctual g':>10} {'G':>9} "
        f"{'frames':>8} {'late p50':>8} {'p99 us':>7}  dropped, mishaps",
    ]
    for hop, report in zip(hops, reports, strict=True):
        for way in report["ways"]:
            fits = " ".join(_fit(way[name]) for name in ("applied", "punctual"))
            names = ("queue_dropped", "lost", "duplicated", "reordered", "corrupted")
            fate = ", ".join(f"{name} {way[name]}" for name in names if way[name])
            lines.append(
                f"{hop.name[:20]:20} {way['way']:8} {hop.g_us:10.2f} {hop.G_us_per_KiB:9.3f} "
                f"{fits} {way['frames']:8} {way['lateness_p50_us']:8} "
                f"{way['lateness_p99_us']:7}  {fate or 'none'}"
            )
    return "\n".join(lines)
