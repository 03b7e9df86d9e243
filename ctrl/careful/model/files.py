"""Reads pipelines from TOML, black-box measurements from JSON, and the papers' shipped pipelines.

Errors are ValueErrors that name the line, the stage and the key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from careful.errors import InputError, WithheldError
from careful.jsonout import Json
from careful.model.blackbox import BlackBox
from careful.model.measurements import Ends, Hops, Measurement, combined
from careful.model.stages import MESSAGE_BYTES_MAX, Pipeline, Stage, named, shortened

_KEYS = {"name", "g_us", "G_us_per_KiB", "group", "resource", "delay_us"}
#: Settings of the lab's emulated link (tools/lab up --hops), ignored here.
_LAB_KEY = "link"
_INSTEAD = "use `carefulctl measure blackbox HOST --json`"
#: Kinds of measurements that give no plan, and why.
_NO_PLAN = {
    "gap": f"g of one message size is not the g and G of stages: {_INSTEAD}",
    "burst": f"a burst shows how many frames a path holds, not their cost: {_INSTEAD}",
    "frames": f"transfers of a burst are not stages with g and G: {_INSTEAD}",
}
_READERS: dict[str, Callable[[Json, str], Measurement]] = {
    "blackbox": BlackBox.from_dict,
    "pathchar": Hops.from_dict,
    "logp": Ends.from_dict,
}
_TOP_KEYS = {"name", "source", "stage"}


def parse_pipeline(text: str, origin: str = "pipeline") -> Pipeline:
    """Reads a pipeline file: `name` and `source`, then `[[stage]]` tables with the fields of Stage.

    origin: name of the text in errors. Raises ValueError with the faulty line.
    """
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also raised by int() for a number of thousands of digits
        last = f"(at the end, line {max(1, len(text.splitlines()))})"
        message = str(error).replace("(at end of document)", last)
        raise InputError(f"{origin}: not valid TOML: {message}") from None
    except RecursionError:
        raise InputError(f"{origin}: nested too deeply") from None
    unknown = sorted(set(data) - _TOP_KEYS)
    if unknown:
        line = _line_of(text, rf"\s*\[*{re.escape(unknown[0])}\b", 0)
        raise InputError(f"{origin}: line {line}: unknown key {unknown[0]!r}")
    tables = data.get("stage", [])
    if not tables or type(tables) is not list or any(type(table) is not dict for table in tables):
        raise InputError(f"{origin}: no stages: at least one [[stage]] is needed")
    stages = []
    for number, table in enumerate(tables):
        line = _line_of(text, r"\s*\[\[\s*stage\s*\]\]", number)
        where = f"{origin}: stage {number + 1}" + (f" (line {line})" if line else "")
        with named(where):
            stages.append(_stage(table))
    with named(origin):
        return Pipeline(tuple(stages), str(data.get("name", "")), str(data.get("source", "")))


def _stage(table: Json) -> Stage:
    table = {key: value for key, value in table.items() if key != _LAB_KEY}
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}")
    for key in ("name", "g_us", "G_us_per_KiB"):
        if key not in table:
            raise InputError(f"'{key}' is missing")
    texts = [key for key in ("name", "group", "resource") if type(table.get(key, "")) is not str]
    if texts:
        raise InputError(f"{texts[0]} is {shortened(table[texts[0]])}, must be a string")
    return Stage(**table)


def _staged_pipeline(data: Json, origin: str) -> Pipeline:
    """Makes a pipeline of a measurement's "stages", for the sizes common to all stages."""
    stages = []
    for number, entry in enumerate(data["stages"], 1):
        if not isinstance(entry, dict):
            raise InputError(f"{origin}: stage {number} is not an object with name, g_us, …")
        reason = entry.get("reason")
        if isinstance(reason, str) and reason and entry.get("G_us_per_KiB") is None:
            name, text = shortened(entry.get("name")), " ".join(reason.split())[:300]
            high = entry.get("size_max_bytes")
            frame_bytes = high if type(high) is int and 0 < high <= MESSAGE_BYTES_MAX else 0
            raise WithheldError(origin, f"g and G of stage {number}, {name}", text, frame_bytes)
        with named(f"{origin}: stage {number}"):
            stages.append(_stage({key: entry[key] for key in entry if key in _KEYS}))
    with named(origin):
        low, high = _sizes(data["stages"])
        return Pipeline(
            tuple(stages), str(data.get("name", "")), size_min_bytes=low, size_max_bytes=high
        )


def _sizes(entries: list[Json]) -> tuple[int, int | None]:
    lows = [entry["size_min_bytes"] for entry in entries if "size_min_bytes" in entry]
    highs = [entry["size_max_bytes"] for entry in entries if "size_max_bytes" in entry]
    for size in lows + highs:
        if type(size) is not int or not 0 <= size <= MESSAGE_BYTES_MAX:
            raise InputError(f"a size must be a whole number of bytes, not {shortened(size)}")
    low, high = max([1, *lows]), min(highs, default=None)
    if high is not None and high < low:
        raise InputError(f"the stages have no measured size in common: {low} to {high} bytes")
    return low, high


def _line_of(text: str, pattern: str, number: int) -> int | None:
    lines = [i for i, line in enumerate(text.splitlines(), 1) if re.match(pattern, line)]
    return lines[number] if number < len(lines) else None


def parse_source(text: str, origin: str = "pipeline") -> Pipeline | BlackBox:
    """Reads a pipeline file (TOML) or a measurement (JSON of `carefulctl measure`).

    A black box gives a BlackBox, all others a Pipeline. Raises ValueError.
    """
    return _single(parse_measurement(text, origin), origin)


def _single(measurement: Measurement, origin: str) -> Pipeline | BlackBox:
    try:
        return combined([measurement])
    except WithheldError as error:
        raise WithheldError(origin, error.figures, error.reason, error.frame_bytes) from None
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None


def parse_measurement(text: str, origin: str = "pipeline") -> Measurement:
    """Parses a file like parse_source(); also returns hops or ends, which need `combined`."""
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        return parse_pipeline(text, origin)
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"{origin}: not valid JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{origin}: nested too deeply") from None
    kind = str(data.get("kind"))
    if kind in _READERS:
        return _READERS[kind](data, origin)
    if kind in _NO_PLAN:
        raise InputError(f"{origin}: {_NO_PLAN[kind]}")
    if isinstance(data.get("stages"), list):
        return _staged_pipeline(data, origin)
    raise InputError(f'{origin}: a JSON measurement needs "kind": "blackbox" or a list of "stages"')


def shipped_names() -> list[str]:
    """Returns the names of the pipelines in the package."""
    folder = resources.files("careful.model") / "pipelines"
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_shipped(name: str) -> Pipeline:
    """Reads a pipeline of the papers by name; raises ValueError that lists the names."""
    if name not in shipped_names():
        raise InputError(f"no pipeline '{name}': shipped are {', '.join(shipped_names())}")
    entry = resources.files("careful.model") / "pipelines" / f"{name}.toml"
    return parse_pipeline(entry.read_text(encoding="utf-8"), name)


def load_pipeline(path: str | Path) -> Pipeline | BlackBox:
    """Reads a file (TOML, or a JSON measurement) or, if there is none, a shipped pipeline.

    Raises ValueError for bad content, OSError if the file cannot be read.
    """
    return _single(load_measurement(path), str(path))


def load_measurement(path: str | Path) -> Measurement:
    """Loads a file like load_pipeline(); also returns hops or ends, which need `combined`."""
    if not Path(path).exists() and str(path) in shipped_names():
        return load_shipped(str(path))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: no such file; shipped pipelines are {', '.join(shipped_names())}"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    return parse_measurement(text, str(path))
